//! Messages against another implementation, at every version that is supported; and against hostile bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;

use super::*;
use crate::api::{APIS, ApiKey};
use crate::error_code::ErrorCode;
use crate::frame::Pieces;

/// What we write must be what another implementation reads, and what it writes again the same bytes; and we must read it.
fn check<M, T>(message: &M, versions: std::ops::RangeInclusive<i16>)
where
    M: Message + PartialEq + std::fmt::Debug,
    T: Encodable + Decodable + std::fmt::Debug,
{
    for version in versions {
        let mut ours = BytesMut::new();
        message.write_body(&mut ours, version).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ours.len(), message.body_len(version).expect("it was written"));
        let mut read = ours.clone().freeze();
        let decoded = T::decode(&mut read, version).unwrap_or_else(|error| panic!("{:?} v{version}: {error}", M::API));
        assert!(!read.has_remaining(), "{:?} v{version}: they left {} bytes", M::API, read.len());
        let mut again = BytesMut::new();
        decoded.encode(&mut again, version).unwrap_or_else(|error| panic!("{:?} v{version}: {error}", M::API));
        assert_eq!(again, ours, "{:?} v{version}", M::API);
        let mut body = ours.freeze();
        let back = M::read_body(&mut body, version).unwrap_or_else(|error| panic!("{error}"));
        assert!(body.is_empty());
        let mut third = BytesMut::new();
        back.write_body(&mut third, version).expect("it was written before");
        assert_eq!(third, again);
    }
}

fn records() -> Bytes {
    let mut builder = crate::batch::BatchBuilder::default();
    builder.push(1_700_000_000_000, Some(b"k"), Some(b"v"));
    builder.build().expect("plain").to_bytes()
}

fn produce() -> ProduceRequestData {
    let partition = |index, records| produce_types::PartitionProduceData { index, records, ..Default::default() };
    ProduceRequestData {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![produce_types::TopicProduceData {
            name: string("orders"),
            partition_data: vec![partition(3, Some(records())), partition(4, None), partition(5, Some(Bytes::new()))],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn produce_response(version: i16) -> ProduceResponseData {
    let partition = produce_types::PartitionProduceResponse {
        index: 3,
        error_code: ErrorCode::CorruptMessage.code(),
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: if version >= 5 { 9 } else { -1 },
        error_message: (version >= 8).then(|| string("wrong CRC")),
        ..Default::default()
    };
    ProduceResponseData {
        responses: vec![produce_types::TopicProduceResponse {
            name: string("orders"),
            partition_responses: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn fetch(version: i16) -> FetchRequestData {
    FetchRequestData {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation_level: 1,
        session_epoch: if version >= 7 { 0 } else { -1 },
        topics: vec![fetch_types::FetchTopic {
            topic: string("orders"),
            partitions: vec![fetch_types::FetchPartition {
                partition: 2,
                fetch_offset: 1 << 33,
                partition_max_bytes: 1000,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn fetch_response() -> FetchResponse {
    let good = FetchPartitionResponse {
        high_watermark: 8,
        last_stable_offset: 7,
        log_start_offset: 1,
        aborted_transactions: Some(vec![(5, 6)]),
        records: vec![records(), records()],
        ..FetchPartitionResponse::failed(0, ErrorCode::None)
    };
    let empty = FetchPartitionResponse {
        high_watermark: 8,
        diverging_epoch: Some((3, 8)),
        ..FetchPartitionResponse::failed(1, ErrorCode::None)
    };
    let failed = FetchPartitionResponse::failed(2, ErrorCode::OffsetOutOfRange);
    let topic = |name, partitions| FetchTopicResponse { topic: string(name), partitions };
    FetchResponse {
        throttle_time_ms: 0,
        error: ErrorCode::None,
        session_id: 0,
        topics: vec![topic("orders", vec![good, empty]), topic("none", vec![]), topic("x", vec![failed])],
    }
}

/// The same as a generated type.
fn generated_fetch_answer(response: &FetchResponse, version: i16) -> FetchResponseData {
    let partition = |partition: &FetchPartitionResponse| {
        let aborted = partition.aborted_transactions.as_ref().map(|aborted| {
            let each = aborted.iter().map(|&(producer_id, first_offset)| fetch_types::AbortedTransaction {
                producer_id,
                first_offset,
                ..Default::default()
            });
            each.collect()
        });
        fetch_types::PartitionData {
            partition_index: partition.index,
            error_code: partition.error.code(),
            high_watermark: partition.high_watermark,
            last_stable_offset: partition.last_stable_offset,
            log_start_offset: if version >= 5 { partition.log_start_offset } else { -1 },
            aborted_transactions: aborted,
            records: Some(partition.records.concat().into()),
            diverging_epoch: match partition.diverging_epoch {
                Some((epoch, end_offset)) if version >= 12 => {
                    fetch_types::EpochEndOffset { epoch, end_offset, ..Default::default() }
                }
                _ => Default::default(),
            },
            ..Default::default()
        }
    };
    let topics = response.topics.iter().map(|topic| fetch_types::FetchableTopicResponse {
        topic: topic.topic.clone(),
        partitions: topic.partitions.iter().map(partition).collect(),
        ..Default::default()
    });
    FetchResponseData { responses: topics.collect(), ..Default::default() }
}

fn joined(mut pieces: Pieces) -> Bytes {
    pieces.copy_to_bytes(pieces.len())
}

#[test]
fn produce_is_what_another_implementation_writes_and_reads() {
    for version in 3..=9 {
        check::<_, theirs::ProduceRequest>(&produce(), version..=version);
        check::<_, theirs::ProduceResponse>(&produce_response(version), version..=version);
    }
}

#[test]
fn produce_records_stay_slices_of_the_request() {
    let mut body = BytesMut::new();
    produce().write_body(&mut body, 9).expect("supported");
    let body = body.freeze();
    let read: ProduceRequestData = decode_request(body.clone(), 9).expect("well-formed");
    assert_eq!(read, produce());
    let records = read.topic_data[0].partition_data[0].records.clone().expect("not null");
    assert!(body.as_ptr_range().contains(&records.as_ptr()));
}

#[test]
fn old_produce_requests_are_read_so_that_they_can_be_refused() {
    let mut body = BytesMut::new();
    produce().write_body(&mut body, 3).expect("supported");
    // Versions 0 to 2 have no transactional id in front.
    let body = body.freeze().slice(2..);
    for version in 0..=2 {
        assert_eq!(decode_request::<ProduceRequestData>(body.clone(), version).expect("well-formed"), produce());
    }
}

#[test]
fn fetch_is_what_another_implementation_writes_and_reads() {
    for version in 4..=12 {
        check::<_, theirs::FetchRequest>(&fetch(version), version..=version);
        let response = generated_fetch_answer(&fetch_response(), version);
        check::<_, theirs::FetchResponse>(&response, version..=version);
        let frame = joined(fetch_response().encode(version, 77).expect("supported"));
        assert_eq!(frame, encode_response(&response, version, 77).expect("supported"), "version {version}");
    }
    assert!(fetch_response().encode(13, 0).is_err());
}

#[test]
fn fetch_answers_share_the_records() {
    let records = records();
    let mut response = fetch_response();
    response.topics[0].partitions[0].records = vec![records.clone()];
    let mut pieces = response.encode(12, 1).expect("supported");
    let mut found = false;
    while pieces.has_remaining() {
        found |= pieces.chunk().as_ptr() == records.as_ptr();
        pieces.advance(pieces.chunk().len());
    }
    assert!(found);
}

#[test]
fn list_offsets_is_what_another_implementation_writes_and_reads() {
    for version in 1..=7 {
        let request = ListOffsetsRequestData {
            isolation_level: i8::from(version >= 2),
            topics: vec![list_offsets::ListOffsetsTopic {
                name: string("orders"),
                partitions: vec![list_offsets::ListOffsetsPartition {
                    partition_index: 1,
                    timestamp: -3,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        check::<_, theirs::ListOffsetsRequest>(&request, version..=version);
        let response = ListOffsetsResponseData {
            topics: vec![list_offsets::ListOffsetsTopicResponse {
                name: string("orders"),
                partitions: vec![list_offsets::ListOffsetsPartitionResponse {
                    partition_index: 1,
                    timestamp: 12345,
                    offset: 6,
                    leader_epoch: if version >= 4 { 3 } else { -1 },
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        check::<_, theirs::ListOffsetsResponse>(&response, version..=version);
    }
}

#[test]
fn metadata_is_what_another_implementation_writes_and_reads() {
    for version in 0..=12 {
        let topic = metadata::MetadataRequestTopic { name: Some(string("orders")), ..Default::default() };
        for topics in [Some(vec![topic]), Some(vec![]), None] {
            if topics.is_none() && version == 0 {
                continue;
            }
            let request = MetadataRequestData { topics, ..Default::default() };
            check::<_, theirs::MetadataRequest>(&request, version..=version);
        }
        let partition = metadata::MetadataResponsePartition {
            partition_index: 7,
            leader_id: 1,
            leader_epoch: if version >= 7 { 4 } else { -1 },
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..Default::default()
        };
        let response = MetadataResponseData {
            brokers: vec![metadata::MetadataResponseBroker {
                node_id: 1,
                host: string("127.0.0.1"),
                port: 9092,
                ..Default::default()
            }],
            cluster_id: (version >= 2).then(|| string("cluster")),
            controller_id: if version >= 1 { 1 } else { -1 },
            topics: vec![metadata::MetadataResponseTopic {
                name: Some(string("orders")),
                topic_id: if version >= 10 { KafkaUuid::from_parts(1, 2) } else { KafkaUuid::ZERO },
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        };
        check::<_, theirs::MetadataResponse>(&response, version..=version);
    }
}

#[test]
fn the_small_ones_are_what_another_implementation_writes_and_reads() {
    for version in 0..=4 {
        let named = version >= 3;
        let request = ApiVersionsRequestData {
            client_software_name: string(if named { "kilo" } else { "" }),
            client_software_version: string(if named { "0.1.0" } else { "" }),
            ..Default::default()
        };
        check::<_, theirs::ApiVersionsRequest>(&request, version..=version);
        check::<_, theirs::ApiVersionsResponse>(&api_versions_answer(), version..=version);

        let request = InitProducerIdRequestData { transaction_timeout_ms: i32::MAX, ..Default::default() };
        check::<_, theirs::InitProducerIdRequest>(&request, version..=version);
        let response = InitProducerIdResponseData { producer_id: 1000, producer_epoch: 0, ..Default::default() };
        check::<_, theirs::InitProducerIdResponse>(&response, version..=version);

        let (mut request, mut response) =
            (FindCoordinatorRequestData::default(), FindCoordinatorResponseData::default());
        if version >= 4 {
            request.coordinator_keys = vec![string("group")];
            let coordinator = find_coordinator::Coordinator {
                key: string("group"),
                error_code: ErrorCode::CoordinatorNotAvailable.code(),
                ..Default::default()
            };
            response.coordinators = vec![coordinator];
        } else {
            request.key = string("group");
            response.error_code = ErrorCode::CoordinatorNotAvailable.code();
        }
        check::<_, theirs::FindCoordinatorRequest>(&request, version..=version);
        check::<_, theirs::FindCoordinatorResponse>(&response, version..=version);
    }
}

fn api_versions_answer() -> ApiVersionsResponseData {
    let each = APIS.iter().map(|api| api_versions::ApiVersion {
        api_key: api.key.code(),
        min_version: api.advertised_min,
        max_version: api.max,
        ..Default::default()
    });
    ApiVersionsResponseData { api_keys: each.collect(), ..Default::default() }
}

#[test]
fn topics_and_configs_are_what_another_implementation_writes_and_reads() {
    for version in 2..=7 {
        let request = CreateTopicsRequestData {
            topics: vec![create_topics::CreatableTopic {
                name: string("orders"),
                num_partitions: 8,
                replication_factor: 1,
                configs: vec![create_topics::CreatableTopicConfig {
                    name: string("cleanup.policy"),
                    value: Some(string("compact")),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            timeout_ms: 1000,
            ..Default::default()
        };
        check::<_, theirs::CreateTopicsRequest>(&request, version..=version);
        let response = CreateTopicsResponseData {
            topics: vec![create_topics::CreatableTopicResult {
                name: string("orders"),
                topic_id: if version >= 7 { KafkaUuid::from_parts(3, 4) } else { KafkaUuid::ZERO },
                num_partitions: if version >= 5 { 8 } else { -1 },
                replication_factor: if version >= 5 { 1 } else { -1 },
                configs: (version >= 5).then(Vec::new),
                ..Default::default()
            }],
            ..Default::default()
        };
        check::<_, theirs::CreateTopicsResponse>(&response, version..=version);
    }
    for version in 1..=4 {
        let request = DescribeConfigsRequestData {
            resources: vec![describe_configs::DescribeConfigsResource {
                resource_type: 2,
                resource_name: string("orders"),
                ..Default::default()
            }],
            include_synonyms: true,
            ..Default::default()
        };
        check::<_, theirs::DescribeConfigsRequest>(&request, version..=version);
        let response = DescribeConfigsResponseData {
            results: vec![describe_configs::DescribeConfigsResult {
                resource_type: 2,
                resource_name: string("orders"),
                configs: vec![describe_configs::DescribeConfigsResourceResult {
                    name: string("cleanup.policy"),
                    value: Some(string("compact")),
                    config_source: 1,
                    config_type: if version >= 3 { 7 } else { 0 },
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        check::<_, theirs::DescribeConfigsResponse>(&response, version..=version);
    }
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn encoded_answers_stay_as_they_are() {
    let versions = |version| hex(&encode_response(&api_versions_answer(), version, 5).expect("supported"));
    insta::assert_snapshot!("api_versions_0", versions(0));
    insta::assert_snapshot!("api_versions_3", versions(3));
    insta::assert_snapshot!("produce_9", hex(&encode_response(&produce_response(9), 9, 6).expect("supported")));
    insta::assert_snapshot!("fetch_4", hex(&joined(fetch_response().encode(4, 7).expect("supported"))));
    insta::assert_snapshot!("fetch_12", hex(&joined(fetch_response().encode(12, 7).expect("supported"))));
}

#[test]
fn bytes_after_the_body_are_tolerated() {
    let mut body = BytesMut::new();
    MetadataRequestData::default().write_body(&mut body, 12).expect("supported");
    body.extend_from_slice(&[1, 2, 3]);
    assert!(decode_request::<MetadataRequestData>(body.freeze(), 12).is_ok());
}

#[test]
fn hostile_counts_end_in_an_error() {
    for count in [i32::MAX, 1 << 24, 100_001, -1, i32::MIN] {
        let mut body = BytesMut::new();
        body.put_i16(-1);
        body.put_i16(1);
        body.put_i32(1000);
        body.put_i32(count);
        let read = decode_request::<ProduceRequestData>(body.freeze(), 3);
        assert_eq!(read.is_err(), count > 0, "{count}");
    }
    // Three bytes each: a request of empty topics is refused by their number, not by the memory they take.
    let mut body = BytesMut::new();
    body.put_slice(&[0, 0, 1, 0, 0, 0, 0]);
    body.put_slice(&[0xc1, 0x9a, 0x0c]);
    body.put_bytes(1, 600_000);
    let error = decode_request::<ProduceRequestData>(body.freeze(), 9).expect_err("too many");
    assert!(error.to_string().contains("100000"), "{error}");
}

/// Reads a body as every request there is.
fn read_as(api: ApiKey, body: Bytes, version: i16) -> bool {
    match api {
        ApiKey::Produce => decode_request::<ProduceRequestData>(body, version).is_ok(),
        ApiKey::Fetch => decode_request::<FetchRequestData>(body, version).is_ok(),
        ApiKey::ListOffsets => decode_request::<ListOffsetsRequestData>(body, version).is_ok(),
        ApiKey::Metadata => decode_request::<MetadataRequestData>(body, version).is_ok(),
        ApiKey::FindCoordinator => decode_request::<FindCoordinatorRequestData>(body, version).is_ok(),
        ApiKey::ApiVersions => decode_request::<ApiVersionsRequestData>(body, version).is_ok(),
        ApiKey::CreateTopics => decode_request::<CreateTopicsRequestData>(body, version).is_ok(),
        ApiKey::InitProducerId => decode_request::<InitProducerIdRequestData>(body, version).is_ok(),
        ApiKey::DescribeConfigs => decode_request::<DescribeConfigsRequestData>(body, version).is_ok(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_body_ends_in_a_request_or_an_error(api in prop::sample::select(&APIS[..]), version in 0..13_i16, body in prop::collection::vec(any::<u8>(), 0..120)) {
        let version = version.clamp(api.advertised_min, api.max);
        read_as(api.key, body.into(), version);
    }

    /// What is cut short is never taken for whole, and what is changed never panics.
    #[test]
    fn damaged_produce_requests_end_in_an_error(version in 3..10_i16, cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut body = BytesMut::new();
        produce().write_body(&mut body, version).expect("supported");
        let short = body.clone().freeze().slice(..cut.index(body.len()));
        prop_assert!(!read_as(ApiKey::Produce, short, version));
        let at = at.index(body.len());
        body[at] = value;
        read_as(ApiKey::Produce, body.freeze(), version);
    }
}
