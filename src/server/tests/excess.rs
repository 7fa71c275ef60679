//! Requests that ask for too much, too often, in too old a form, or with too long a name: answered all the same, or hung
//! up on, at a bounded cost.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::client::CallError;
use crate::wire::ErrorCode;
use crate::wire::messages::metadata::MetadataRequestTopic;
use crate::wire::messages::{
    FetchResponseData, ListOffsetsRequestData, MetadataRequestData, Request, encode_request, list_offsets,
};

/// Whether the broker hangs up on a request.
async fn is_hung_up_on<R: Request>(fixture: &Fixture, request: &R, version: i16) -> bool {
    let response = fixture.connect().await.call_version(request, version).await;
    matches!(response, Err(CallError::Unknown { .. } | CallError::NotSent { .. }))
}

fn repeated(mut request: FetchRequestData, times: usize) -> FetchRequestData {
    let partition = request.topics[0].partitions[0].clone();
    request.topics[0].partitions = vec![partition; times];
    request
}

async fn fetch_all(connection: &Connection, request: &FetchRequestData) -> FetchResponseData {
    connection.call(request).await.expect("answered")
}

#[test]
fn a_partition_that_is_fetched_twice_is_answered_once_as_asked_last() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 2, &[]).await;
        produce(&connection, "t", 0, batch(&[b"a"])).await;
        produce(&connection, "t", 0, batch(&[b"b"])).await;
        let mut request = repeated(fetch_request("t", 0, 0, 0, 1 << 20), 50_000);
        let last = request.topics[0].partitions.last_mut().expect("many");
        last.fetch_offset = 1;
        let response = fetch_all(&connection, &request).await;
        assert_eq!((response.responses.len(), response.responses[0].partitions.len()), (1, 1));
        let records = response.responses[0].partitions[0].records.clone().expect("never null");
        let batches = crate::wire::batch::RecordBatch::split(records).expect("whole");
        assert_eq!((batches.len(), batches[0].base_offset()), (1, 1));
    });
}

#[test]
fn requests_of_too_many_entries_are_hung_up_on() {
    with_broker(|fixture| async move {
        create(&fixture.connect().await, "t", 1, &[]).await;
        let fetch = repeated(fetch_request("t", 0, 0, 0, 1), 100_000);
        assert!(is_hung_up_on(&fixture, &fetch, 4).await);
        let partitions = vec![list_offsets::ListOffsetsPartition { timestamp: -1, ..Default::default() }; 100_000];
        let topic = list_offsets::ListOffsetsTopic { name: string("t"), partitions, ..Default::default() };
        let offsets = ListOffsetsRequestData { topics: vec![topic], ..Default::default() };
        assert!(is_hung_up_on(&fixture, &offsets, 1).await);
        let topics = vec![MetadataRequestTopic { name: Some(string("t")), ..Default::default() }; 100_001];
        let metadata = MetadataRequestData { topics: Some(topics), ..Default::default() };
        for version in [1, 9] {
            assert!(is_hung_up_on(&fixture, &metadata, version).await);
        }
    });
}

#[test]
fn what_comes_out_of_one_request_is_bounded() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[]).await;
        let mut builder = BatchBuilder::new(Codec::Zstd);
        builder.push(1, Some(b"k"), Some(&vec![0; 8 << 20]));
        let bomb = builder.build().expect("builds").to_bytes();
        assert!(bomb.len() < 16 * 1024);
        let mut request = produce_request("t", 0, bomb, -1);
        let partition = request.topic_data[0].partition_data[0].clone();
        request.topic_data[0].partition_data = vec![partition; 80];
        let response = connection.call_version(&request, 7).await.expect("answered");
        let errors: Vec<i16> =
            response.responses[0].partition_responses.iter().map(|partition| partition.error_code).collect();
        assert_eq!((errors[0], errors[79]), (0, ErrorCode::MessageTooLarge.code()));
        assert!(errors.is_sorted(), "from some place on all are refused");
    });
}

#[test]
fn record_formats_of_old_are_refused_in_an_answer() {
    with_broker(|fixture| async move {
        create(&fixture.connect().await, "t", 1, &[]).await;
        for (version, body_len) in [(0, 4 + 3 + 4 + 14), (1, 4 + 3 + 4 + 14 + 4), (2, 4 + 3 + 4 + 22 + 4)] {
            let mut stream = fixture.env.net().connect(fixture.broker.local_addr()).await.expect("listens");
            // Header without a client id; acks, time-out, one topic, one partition, no records.
            let mut request = vec![0, 0, 0, version, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0];
            request.extend([0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
            stream.write.write_u32(request.len() as u32).await.expect("sent");
            stream.write.write_all(&request).await.expect("sent");
            let len = stream.read.read_u32().await.expect("an answer") as usize;
            let mut response = vec![0; len];
            stream.read.read_exact(&mut response).await.expect("a whole answer");
            assert_eq!(len, 4 + body_len, "version {version}");
            assert_eq!(response[..15], [0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1], "version {version}");
            let error = i16::from_be_bytes([response[19], response[20]]);
            assert_eq!(error, ErrorCode::UnsupportedVersion.code(), "version {version}");
        }
    });
}

#[test]
fn a_time_out_of_nothing_does_not_deny_what_is_stored() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        create(&connection, "t", 1, &[]).await;
        for offset in 0..10 {
            let request = ProduceRequestData { timeout_ms: 0, ..produce_request("t", 0, batch(&[b"x"]), -1) };
            let response = connection.call(&request).await.expect("answered");
            let response = &response.responses[0].partition_responses[0];
            assert_eq!((response.error_code, response.base_offset), (0, offset));
        }
    });
}

#[test]
fn the_longest_of_names_is_refused_in_an_answer() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        let name = "y".repeat(i16::MAX as usize);
        let topic =
            CreatableTopic { name: string(&name), num_partitions: 1, replication_factor: 1, ..Default::default() };
        let request = CreateTopicsRequestData { topics: vec![topic], timeout_ms: 1000, ..Default::default() };
        let response = connection.call_version(&request, 2).await.expect("answered");
        assert_eq!(response.topics[0].error_code, ErrorCode::InvalidTopic.code());
        let shown = response.topics[0].error_message.as_ref().expect("a text").as_str();
        assert!(shown.starts_with("Topic name is invalid") && shown.ends_with('…'), "{shown}");
    });
}

#[test]
fn the_metadata_topic_of_kafka_is_not_created_by_asking_for_it() {
    with_broker(|fixture| async move {
        let connection = fixture.connect().await;
        let topic = MetadataRequestTopic { name: Some(string("__cluster_metadata")), ..Default::default() };
        let request =
            MetadataRequestData { topics: Some(vec![topic]), allow_auto_topic_creation: true, ..Default::default() };
        let response = connection.call(&request).await.expect("answered");
        assert_eq!(response.topics[0].error_code, ErrorCode::InvalidTopic.code());
        let refused = create(&connection, "__cluster_metadata", 1, &[]).await;
        assert_eq!(refused.error_code, ErrorCode::InvalidRequest.code());
    });
}

#[test]
fn a_request_larger_than_the_others_may_be_is_hung_up_on() {
    with_broker(|fixture| async move {
        let topics = vec![MetadataRequestTopic { name: Some(string(&"t".repeat(200))), ..Default::default() }; 25_000];
        let request = MetadataRequestData { topics: Some(topics), ..Default::default() };
        assert!(encode_request(&request, 1, 1, None).expect("encodes").len() > 4 << 20);
        assert!(is_hung_up_on(&fixture, &request, 1).await);
    });
}
