//! What each API answers, in the cases that clients depend on. The texts are those of Apache Kafka 4.4.

use super::*;
use crate::wire::ErrorCode;
use crate::wire::messages::describe_configs::DescribeConfigsResource;
use crate::wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use crate::wire::messages::metadata::MetadataRequestTopic;
use crate::wire::messages::{
    DescribeConfigsRequestData, FindCoordinatorRequestData, InitProducerIdRequestData, KafkaUuid,
    ListOffsetsRequestData, MetadataRequestData, MetadataResponseData,
};

async fn metadata(connection: &Connection, topics: Option<&[&str]>, create: bool) -> MetadataResponseData {
    let topics = topics.map(|names| {
        names.iter().map(|name| MetadataRequestTopic { name: Some(string(name)), ..Default::default() }).collect()
    });
    let request = MetadataRequestData { topics, allow_auto_topic_creation: create, ..Default::default() };
    connection.call(&request).await.expect("answered")
}

#[test]
fn metadata_creates_topics_that_are_asked_for_where_that_is_allowed() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        let absent = metadata(&connection, Some(&["new"]), false).await;
        assert_eq!(absent.topics[0].error_code, ErrorCode::UnknownTopicOrPartition.code());
        let bad = metadata(&connection, Some(&["../../etc"]), true).await;
        assert_eq!(bad.topics[0].error_code, ErrorCode::InvalidTopic.code());
        let made = metadata(&connection, Some(&["new", "new"]), true).await;
        assert_eq!((made.topics.len(), made.topics[0].error_code, made.topics[0].partitions.len()), (1, 0, 4));
        assert_eq!(made.topics[0].partitions[0].leader_id, made.controller_id);
        assert_eq!(made.brokers[0].port, i32::from(fixture.broker.local_addr().port()));
        assert_eq!(produce(&connection, "new", 3, batch(&[b"x"])).await.error_code, 0, "at first use");
        assert_eq!(metadata(&connection, None, false).await.topics.len(), 1);
        assert_eq!(metadata(&connection, Some(&[]), false).await.topics.len(), 0);
    });
    with_config(
        |config| config.auto_create_topics_enable = false,
        |fixture| async move {
            let absent = metadata(&fixture.connect().await, Some(&["new"]), true).await;
            assert_eq!(absent.topics[0].error_code, ErrorCode::UnknownTopicOrPartition.code());
        },
    );
}

/// Java asks by id with an empty name, others with none.
#[test]
fn metadata_by_id_goes_by_the_id_alone() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        let made = metadata(&connection, Some(&["asked", "other"]), true).await;
        let id = made.topics[0].topic_id;
        let ask = async |topic_id, name: Option<&str>| {
            let topics = Some(vec![MetadataRequestTopic { topic_id, name: name.map(string), ..Default::default() }]);
            let request =
                MetadataRequestData { topics, allow_auto_topic_creation: true, ..MetadataRequestData::default() };
            let mut response: MetadataResponseData = connection.call(&request).await.expect("answered");
            let topic = response.topics.remove(0);
            (topic.error_code, topic.topic_id, topic.name.map(|name| name.as_str().to_owned()))
        };
        for name in [None, Some(""), Some("asked"), Some("other"), Some("absent")] {
            assert_eq!(ask(id, name).await, (0, id, Some("asked".to_owned())), "{name:?}");
            let unknown = KafkaUuid::from_parts(7, 7);
            assert_eq!(ask(unknown, name).await, (ErrorCode::UnknownTopicId.code(), unknown, None), "{name:?}");
        }
        let none = KafkaUuid::from_parts(0, 0);
        assert_eq!(ask(none, Some("asked")).await, (0, id, Some("asked".to_owned())), "no id is given");
        assert_eq!(ask(none, None).await, (ErrorCode::UnknownTopicId.code(), none, None));
        assert_eq!(ask(none, Some("")).await.0, ErrorCode::InvalidTopic.code());
        for version in [10, 11] {
            let topics = [id, none].map(|topic_id| MetadataRequestTopic {
                topic_id,
                name: Some(string("new")),
                ..Default::default()
            });
            let mut request = MetadataRequestData {
                topics: Some(topics.to_vec()),
                allow_auto_topic_creation: true,
                ..Default::default()
            };
            let response = connection.call_version(&request, version).await.expect("answered");
            let codes = response.topics.iter().map(|topic| topic.error_code);
            assert!(codes.eq([ErrorCode::InvalidRequest.code(); 2]), "not by id before version 12");
            request.topics = Some(vec![MetadataRequestTopic { name: Some(string("asked")), ..Default::default() }]);
            let response = connection.call_version(&request, version).await.expect("answered");
            assert_eq!((response.topics[0].error_code, response.topics[0].topic_id), (0, id));
        }
        assert_eq!(metadata(&connection, None, false).await.topics.len(), 2, "none was created");
    });
}

#[test]
fn behind_a_wildcard_listener_clients_are_told_the_address_that_they_reached() {
    with_config(
        |config| config.listeners.host = "0.0.0.0".to_owned(),
        |fixture| async move {
            let port = fixture.broker.local_addr().port();
            let reached = std::net::SocketAddr::from(([127, 0, 0, 1], port));
            let connection =
                Connection::connect(&fixture.env, reached, ConnectionConfig::default()).await.expect("serves");
            let response = metadata(&connection, Some(&[]), false).await;
            assert_eq!((response.brokers[0].host.as_str(), response.brokers[0].port), ("127.0.0.1", i32::from(port)));
        },
    );
}

#[test]
fn create_topics_refuses_with_kafkas_codes_and_texts() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        assert_eq!(create(&connection, "taken", 1, &[]).await.error_code, 0);
        let mut cases = Vec::new();
        let long = "x".repeat(250);
        for name in ["", ".", "..", "a b", "a/b", "a:b", "té", "a\n", "../../etc", &long] {
            cases.push((create(&connection, name, 1, &[]).await, ErrorCode::InvalidTopic));
        }
        cases.push((create(&connection, "taken", 1, &[]).await, ErrorCode::TopicAlreadyExists));
        cases.push((create(&connection, "p0", 0, &[]).await, ErrorCode::InvalidPartitions));
        cases.push((create(&connection, "cfg", 1, &[("no.such.config", "1")]).await, ErrorCode::InvalidConfig));
        cases.push((create(&connection, "val", 1, &[("retention.ms", "soon")]).await, ErrorCode::InvalidConfig));
        cases.push((create(&connection, "many", 10_001, &[]).await, ErrorCode::PolicyViolation));
        let shown: Vec<String> = cases
            .iter()
            .map(|(result, code)| {
                assert_eq!(result.error_code, code.code(), "{:?}", result.error_message);
                result.error_message.as_ref().expect("a text").as_str().replace(&long, "xx…")
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"));
        assert_eq!(metadata(&connection, None, false).await.topics.len(), 1, "nothing else was created");
    });
}

#[test]
fn create_topics_checks_counts_duplicates_and_assignments_and_dry_runs_change_nothing() {
    use crate::wire::messages::create_topics::CreatableReplicaAssignment;
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        let assign = |partition_index: i32, brokers: &[i32]| CreatableReplicaAssignment {
            partition_index,
            broker_ids: brokers.to_vec(),
            ..Default::default()
        };
        let topic = |name: &str, partitions, replicas, assignments: Vec<_>| CreatableTopic {
            name: string(name),
            num_partitions: partitions,
            replication_factor: replicas,
            assignments,
            ..CreatableTopic::default()
        };
        let topics = vec![
            topic("twice", 1, 1, vec![]),
            topic("twice", 2, 1, vec![]),
            topic("five-replicas", 1, 5, vec![]),
            topic("no-replicas", 1, 0, vec![]),
            topic("both", 1, -1, vec![assign(0, &[1])]),
            topic("no-broker", -1, -1, vec![assign(0, &[9])]),
            topic("gap", -1, -1, vec![assign(0, &[1]), assign(2, &[1])]),
            topic("empty", -1, -1, vec![assign(0, &[])]),
            topic("good", -1, -1, vec![assign(1, &[1]), assign(0, &[1])]),
            topic("defaults", -1, -1, vec![]),
        ];
        let request = CreateTopicsRequestData { topics, validate_only: true, ..Default::default() };
        let response = connection.call(&request).await.expect("answered");
        let shown: Vec<String> = response
            .topics
            .iter()
            .map(|result| {
                let text = result.error_message.as_ref().map_or("", |text| text.as_str());
                format!(
                    "{} {} {}/{} {text}",
                    result.name.as_str(),
                    result.error_code,
                    result.num_partitions,
                    result.replication_factor
                )
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"));
        assert_eq!(metadata(&connection, None, false).await.topics.len(), 0);
    });
}

#[test]
fn produce_refuses_what_cannot_be_stored_and_goes_on() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[("max.message.bytes", "1000")]).await;
        create(&connection, "compacted", 1, &[("cleanup.policy", "compact")]).await;
        let mut damaged = batch(&[b"x"]).to_vec();
        *damaged.last_mut().expect("not empty") ^= 1;
        let mut keyless = BatchBuilder::new(Codec::None);
        keyless.push(1, None, Some(b"v"));
        let keyless = keyless.build().expect("small").to_bytes();
        let two = [batch(&[b"x"]), batch(&[b"x"])].concat();
        let cases: Vec<(&str, i32, Bytes, ErrorCode)> = vec![
            ("t", 0, damaged.into(), ErrorCode::CorruptMessage),
            ("t", 0, batch(&[&[0; 2000]]), ErrorCode::MessageTooLarge),
            ("t", 0, Bytes::new(), ErrorCode::InvalidRecord),
            ("t", 0, two.into(), ErrorCode::InvalidRecord),
            ("t", 7, batch(&[b"x"]), ErrorCode::UnknownTopicOrPartition),
            ("t", -1, batch(&[b"x"]), ErrorCode::UnknownTopicOrPartition),
            ("absent", 0, batch(&[b"x"]), ErrorCode::UnknownTopicOrPartition),
            ("__consumer_offsets", 0, batch(&[b"x"]), ErrorCode::InvalidTopic),
            ("compacted", 0, keyless, ErrorCode::InvalidRecord),
        ];
        let mut shown = Vec::new();
        for (topic, index, records, code) in cases {
            let response = produce(&connection, topic, index, records).await;
            assert_eq!(response.error_code, code.code(), "{topic} {index}");
            let text = response.error_message.as_ref().map_or("-", |text| text.as_str());
            shown.push(format!(
                "{topic}-{index}: {code:?}, offset {}, start {}, {text}",
                response.base_offset, response.log_start_offset
            ));
        }
        insta::assert_snapshot!(shown.join("\n"));
        let request = ProduceRequestData { acks: 2, ..produce_request("t", 0, batch(&[b"x"]), 1) };
        let response = connection.call(&request).await.expect("answered");
        assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::InvalidRequiredAcks.code());
        let old = connection.call_version(&produce_request("t", 0, batch(&[b"x"]), 1), 2).await;
        if let Ok(response) = old {
            assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::UnsupportedVersion.code());
        }
        assert_eq!(produce(&connection, "t", 0, batch(&[b"good"])).await.base_offset, 0, "nothing else was stored");
    });
}

#[test]
fn idempotent_producers_are_deduplicated_and_gaps_are_refused() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[]).await;
        let init = InitProducerIdRequestData { producer_id: -1, producer_epoch: -1, ..Default::default() };
        let first = connection.call(&init).await.expect("answered");
        let second = connection.call(&init).await.expect("answered");
        assert_eq!((first.error_code, first.producer_epoch), (0, 0));
        assert_ne!(first.producer_id, second.producer_id);
        let numbered = |sequence| {
            let mut builder = BatchBuilder::new(Codec::None).producer(first.producer_id, 0, sequence);
            builder.push(1, None, Some(b"v"));
            builder.build().expect("small").to_bytes()
        };
        assert_eq!(produce(&connection, "t", 0, numbered(0)).await.base_offset, 0);
        assert_eq!(produce(&connection, "t", 0, numbered(0)).await.base_offset, 0, "a retry");
        let gap = produce(&connection, "t", 0, numbered(5)).await;
        assert_eq!((gap.error_code, gap.log_start_offset), (ErrorCode::OutOfOrderSequenceNumber.code(), 0));
        assert_eq!(produce(&connection, "t", 0, numbered(1)).await.base_offset, 1);
        let transactional = InitProducerIdRequestData { transactional_id: Some(string("tx")), ..init };
        assert_eq!(
            connection.call(&transactional).await.expect("answered").error_code,
            ErrorCode::UnsupportedVersion.code()
        );
    });
}

#[test]
fn fetch_waits_for_data_and_not_for_errors() {
    with_broker(|fixture| async move {
        let (connection, other) = (fixture.connect().await, fixture.connect().await);
        create(&connection, "t", 1, &[]).await;
        let began = fixture.env.now();
        let empty = fetch(&connection, "t", 0, 0, 300).await;
        assert_eq!((empty.error_code, empty.records.map(|records| records.len())), (0, Some(0)), "empty and not null");
        assert!(fixture.env.now() - began >= Duration::from_millis(300), "an idle reader does not spin");
        let began = fixture.env.now();
        assert_eq!(fetch(&connection, "t", 0, 500, 10_000).await.error_code, ErrorCode::OffsetOutOfRange.code());
        assert_eq!(fetch(&connection, "t", 7, 0, 10_000).await.error_code, ErrorCode::UnknownTopicOrPartition.code());
        let waiting = connection.start(&fetch_request("t", 0, 0, 10_000, 1 << 20)).expect("sent");
        fixture.env.sleep(Duration::from_millis(50)).await;
        produce(&other, "t", 0, batch(&[b"x"])).await;
        let response = waiting.response().await.expect("answered");
        assert_eq!(response.responses[0].partitions[0].high_watermark, 1);
        assert!(fixture.env.now() - began < Duration::from_secs(5), "none of these waits its time out");
    });
}

#[test]
fn fetch_passes_the_first_batch_whatever_its_size_and_checks_epochs_and_sessions() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[]).await;
        produce(&connection, "t", 0, batch(&[&[1; 50_000]])).await;
        produce(&connection, "t", 0, batch(&[b"small"])).await;
        let limited = connection.call(&fetch_request("t", 0, 0, 0, 1000)).await.expect("answered");
        let records = limited.responses[0].partitions[0].records.as_ref().expect("never null");
        assert!((50_000..51_000).contains(&records.len()), "the first batch, and that alone: {}", records.len());
        for (epoch, code) in [(0, ErrorCode::None), (1, ErrorCode::UnknownLeaderEpoch), (-1, ErrorCode::None)] {
            let mut request = fetch_request("t", 0, 0, 0, 1000);
            request.topics[0].partitions[0].current_leader_epoch = epoch;
            let response = connection.call(&request).await.expect("answered");
            assert_eq!(response.responses[0].partitions[0].error_code, code.code(), "epoch {epoch}");
        }
        let session = FetchRequestData { session_id: 9, session_epoch: 3, ..fetch_request("t", 0, 0, 0, 1000) };
        let response = connection.call(&session).await.expect("answered");
        assert_eq!((response.error_code, response.session_id), (ErrorCode::FetchSessionIdNotFound.code(), 0));
        let wanted = FetchRequestData { session_epoch: 0, ..fetch_request("t", 0, 0, 0, 1000) };
        assert_eq!(connection.call(&wanted).await.expect("answered").session_id, 0, "sessions are declined");
    });
}

#[test]
fn fetch_tells_a_reader_whose_log_parts_from_this_one_where_to_go_back_to() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 2, &[]).await;
        produce(&connection, "t", 0, batch(&[b"a", b"b"])).await;
        for (offset, epoch, parts, count) in [(0, 0, false, 2), (2, 0, false, 0), (3, 0, true, 0), (1, 5, true, 0)] {
            let mut request = fetch_request("t", 0, offset, 0, 1000);
            request.topics[0].partitions[0].last_fetched_epoch = epoch;
            let response = connection.call(&request).await.expect("answered");
            let partition = &response.responses[0].partitions[0];
            let found = (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset);
            assert_eq!(found, if parts { (0, 2) } else { (-1, -1) }, "offset {offset} after epoch {epoch}");
            assert_eq!((partition.error_code, partition.high_watermark), (0, 2));
            let records = partition.records.as_ref().expect("never null");
            assert_eq!(!records.is_empty(), count > 0, "offset {offset} after epoch {epoch}");
        }
        let mut request = fetch_request("t", 1, 0, 0, 1000);
        request.topics.insert(0, fetch_request("t", 0, 0, 0, 1000).topics.remove(0));
        let response = connection.call(&request).await.expect("answered");
        assert_eq!(response.responses.len(), 1, "entries of one topic in a row become one");
        assert_eq!(response.responses[0].partitions.len(), 2);
    });
}

#[test]
fn offsets_by_time_are_those_of_records() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[("message.timestamp.before.max.ms", "9223372036854775807")]).await;
        for timestamp in [2, 4, 8, 6] {
            let mut builder = BatchBuilder::new(Codec::None);
            builder.push(timestamp, None, Some(b"v"));
            produce(&connection, "t", 0, builder.build().expect("small").to_bytes()).await;
        }
        let mut shown = Vec::new();
        for timestamp in [-2, -1, -3, 0, 2, 3, 5, 7, 8, 9, -4] {
            let partition =
                ListOffsetsPartition { partition_index: 0, current_leader_epoch: -1, timestamp, ..Default::default() };
            let topic = ListOffsetsTopic { name: string("t"), partitions: vec![partition], ..Default::default() };
            let request = ListOffsetsRequestData { replica_id: -1, topics: vec![topic], ..Default::default() };
            let response = connection.call(&request).await.expect("answered").topics[0].partitions[0].clone();
            shown.push(format!(
                "{timestamp}: error {} offset {} timestamp {} epoch {}",
                response.error_code, response.offset, response.timestamp, response.leader_epoch
            ));
        }
        insta::assert_snapshot!(shown.join("\n"));
    });
}

#[test]
fn describe_configs_has_topics_and_brokers_with_synonyms_types_and_documentation() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[("segment.bytes", "4096")]).await;
        let resource = |resource_type, name: &str, keys: Option<&[&str]>| DescribeConfigsResource {
            resource_type,
            resource_name: string(name),
            configuration_keys: keys.map(|keys| keys.iter().map(|key| string(key)).collect()),
            ..Default::default()
        };
        let resources = vec![
            resource(2, "t", Some(&["segment.bytes", "retention.ms"])),
            resource(4, "1", Some(&["wal.sync"])),
            resource(2, "absent", None),
            resource(2, "a b", None),
            resource(4, "9", None),
            resource(4, "x", None),
            resource(8, "1", None),
        ];
        let request = DescribeConfigsRequestData { resources, include_synonyms: true, ..Default::default() };
        let response = connection.call(&request).await.expect("answered");
        let mut shown = Vec::new();
        for result in &response.results {
            let text = result.error_message.as_ref().map_or("null", |text| text.as_str());
            shown.push(format!(
                "{} {}: error {} {text:?}",
                result.resource_type,
                result.resource_name.as_str(),
                result.error_code
            ));
            for config in &result.configs {
                let synonyms: Vec<_> = config
                    .synonyms
                    .iter()
                    .map(|synonym| {
                        format!(
                            "{}={}({})",
                            synonym.name.as_str(),
                            synonym.value.as_ref().expect("a value").as_str(),
                            synonym.source
                        )
                    })
                    .collect();
                shown.push(format!(
                    "  {} = {} source {} type {} read-only {} synonyms {}",
                    config.name.as_str(),
                    config.value.as_ref().expect("a value").as_str(),
                    config.config_source,
                    config.config_type,
                    config.read_only,
                    synonyms.join(" ")
                ));
            }
        }
        insta::assert_snapshot!(shown.join("\n"));
        let all = DescribeConfigsRequestData {
            resources: vec![resource(2, "t", None), resource(4, "1", None)],
            include_documentation: true,
            ..Default::default()
        };
        let response = connection.call(&all).await.expect("answered");
        assert_eq!(response.results[0].configs.len(), crate::metadata::topic_keys().len());
        assert_eq!(response.results[1].configs.len(), super::super::config::config_keys().len());
        let documented =
            response.results.iter().flat_map(|result| &result.configs).all(|config| config.documentation.is_some());
        assert!(documented);
    });
}

#[test]
fn find_coordinator_says_in_words_what_is_not_built() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        let request = FindCoordinatorRequestData { coordinator_keys: vec![string("g")], ..Default::default() };
        let response = connection.call(&request).await.expect("answered").coordinators[0].clone();
        assert_eq!(response.error_code, ErrorCode::CoordinatorNotAvailable.code());
        assert!(response.error_message.expect("words").as_str().contains("not built"));
    });
}
