//! `kilo produce` and `kilo consume` against a small peer that keeps batches in memory and fails on demand.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clap::Parser;
use tokio::io::AsyncWriteExt;

use super::consume::{self, ConsumeArgs};
use super::produce::{self, ProduceArgs};
use crate::io::real::block_on_test;
use crate::io::{Env, Stream};
use crate::wire::api::{APIS, ApiKey};
use crate::wire::batch::{RecordBatch, Stamp, Validation};
use crate::wire::error_code::ErrorCode;
use crate::wire::frame::{FrameLimits, FrameReader};
use crate::wire::header::RequestHeader;
use crate::wire::messages::api_versions::ApiVersion;
use crate::wire::messages::fetch_types::{FetchableTopicResponse, PartitionData};
use crate::wire::messages::list_offsets::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use crate::wire::messages::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use crate::wire::messages::produce_types::{PartitionProduceResponse, TopicProduceResponse};
use crate::wire::messages::{
    ApiVersionsResponseData, FetchRequestData, FetchResponseData, InitProducerIdResponseData, ListOffsetsRequestData,
    ListOffsetsResponseData, Message, MetadataRequestData, MetadataResponseData, ProduceRequestData,
    ProduceResponseData, decode_request, encode_response, string,
};

const PARTITIONS: i32 = 4;

/// What the peer holds.
#[derive(Default)]
struct Held {
    batches: BTreeMap<i32, Vec<RecordBatch>>,
    /// Ids given to producers.
    producers: i64,
    /// Errors for the next produced batches, one each.
    produce_errors: Vec<ErrorCode>,
    /// Connections to break instead of answering the next Produce requests; what they asked for is done.
    produce_hang_ups: u32,
}

impl Held {
    fn end(&self, partition: i32) -> i64 {
        self.batches.get(&partition).and_then(|batches| batches.last()).map_or(0, |batch| batch.last_offset() + 1)
    }

    fn append(&mut self, partition: i32, records: Bytes) -> (ErrorCode, i64) {
        if let Some(error) = self.produce_errors.pop() {
            return (error, -1);
        }
        let mut sent = RecordBatch::split(records).expect("whole batches");
        let batch = sent.remove(0);
        assert!(sent.is_empty(), "one batch for each partition");
        batch.validate(Validation::Strict, &Default::default()).expect("valid");
        let end = self.end(partition);
        let batches = self.batches.entry(partition).or_default();
        let same = |stored: &&RecordBatch| {
            batch.producer_id() >= 0
                && (stored.producer_id(), stored.base_sequence()) == (batch.producer_id(), batch.base_sequence())
        };
        if let Some(stored) = batches.iter().find(same) {
            return (ErrorCode::None, stored.base_offset());
        }
        batches.push(batch.assign(end, 0, Stamp::Keep));
        (ErrorCode::None, end)
    }
}

type Peer = Arc<Mutex<Held>>;

/// Starts a peer; tells its address.
async fn start(env: &Env, peer: &Peer) -> String {
    let listener = env.net().listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let port = listener.local_addr().port();
    let (env, peer) = (env.clone(), peer.clone());
    env.clone().spawn("peer", async move {
        while let Ok(stream) = listener.accept().await {
            env.spawn("peer-connection", serve(stream, peer.clone(), i32::from(port)));
        }
    });
    format!("127.0.0.1:{port}")
}

async fn serve(mut stream: Stream, peer: Peer, port: i32) {
    let mut frames = FrameReader::new(stream.read, FrameLimits::REQUESTS);
    while let Ok(Some(mut frame)) = frames.next().await {
        let header = RequestHeader::decode(&mut frame).expect("a request");
        let Some(response) = response(&header, frame, &peer, port) else { continue };
        let is_produce = header.api_key == ApiKey::Produce.code();
        if is_produce && std::mem::replace(&mut peer.lock().expect("no panic").produce_hang_ups, 0) > 0 {
            return;
        }
        stream.write.write_all(&response).await.expect("the client reads");
    }
}

fn response(header: &RequestHeader, body: Bytes, peer: &Peer, port: i32) -> Option<Bytes> {
    fn encoded<A: Message>(header: &RequestHeader, response: A) -> Option<Bytes> {
        Some(encode_response(&response, header.api_version, header.correlation_id).expect("supported"))
    }
    let version = header.api_version;
    match ApiKey::from_code(header.api_key).expect("known") {
        ApiKey::ApiVersions => encoded(header, api_versions()),
        ApiKey::Metadata => encoded(header, metadata(decode_request(body, version).expect("well-formed"), port)),
        ApiKey::InitProducerId => {
            let mut held = peer.lock().expect("no panic");
            held.producers += 1;
            encoded(header, InitProducerIdResponseData { producer_id: held.producers, ..Default::default() })
        }
        ApiKey::Produce => {
            let request: ProduceRequestData = decode_request(body, version).expect("well-formed");
            let acks = request.acks;
            let response = produced(request, peer);
            if acks == 0 { None } else { encoded(header, response) }
        }
        ApiKey::ListOffsets => encoded(header, offsets(decode_request(body, version).expect("well-formed"), peer)),
        ApiKey::Fetch => encoded(header, fetched(decode_request(body, version).expect("well-formed"), peer)),
        other => panic!("{other:?} is not for these clients"),
    }
}

fn api_versions() -> ApiVersionsResponseData {
    let each = APIS.iter().map(|api| ApiVersion {
        api_key: api.key.code(),
        min_version: api.advertised_min,
        max_version: api.max,
        ..ApiVersion::default()
    });
    ApiVersionsResponseData { api_keys: each.collect(), ..Default::default() }
}

fn metadata(request: MetadataRequestData, port: i32) -> MetadataResponseData {
    let broker = MetadataResponseBroker { node_id: 1, host: string("127.0.0.1"), port, ..Default::default() };
    let name = request.topics.and_then(|topics| topics.into_iter().next()).and_then(|topic| topic.name);
    let missing = name.as_ref().is_some_and(|name| name.as_str() == "missing");
    let partitions = (0..PARTITIONS).map(|partition_index| MetadataResponsePartition {
        partition_index,
        leader_id: 1,
        ..MetadataResponsePartition::default()
    });
    let topic = MetadataResponseTopic {
        error_code: if missing { ErrorCode::UnknownTopicOrPartition.code() } else { 0 },
        name,
        partitions: partitions.filter(|_| !missing).collect(),
        ..Default::default()
    };
    MetadataResponseData { brokers: vec![broker], topics: vec![topic], ..Default::default() }
}

fn produced(request: ProduceRequestData, peer: &Peer) -> ProduceResponseData {
    let mut held = peer.lock().expect("no panic");
    let responses = request.topic_data.into_iter().map(|topic| TopicProduceResponse {
        name: topic.name,
        partition_responses: topic
            .partition_data
            .into_iter()
            .map(|partition| {
                let (error, base_offset) = held.append(partition.index, partition.records.unwrap_or_default());
                PartitionProduceResponse {
                    index: partition.index,
                    error_code: error.code(),
                    base_offset,
                    ..Default::default()
                }
            })
            .collect(),
        ..Default::default()
    });
    ProduceResponseData { responses: responses.collect(), ..Default::default() }
}

fn offsets(request: ListOffsetsRequestData, peer: &Peer) -> ListOffsetsResponseData {
    let held = peer.lock().expect("no panic");
    let topics = request.topics.into_iter().map(|topic| ListOffsetsTopicResponse {
        name: topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                offset: if partition.timestamp == -1 { held.end(partition.partition_index) } else { 0 },
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    });
    ListOffsetsResponseData { topics: topics.collect(), ..Default::default() }
}

fn fetched(request: FetchRequestData, peer: &Peer) -> FetchResponseData {
    let held = peer.lock().expect("no panic");
    let partition = |index: i32, offset: i64| {
        let batches = held.batches.get(&index).map_or(&[][..], |batches| batches);
        let from = batches.iter().filter(|batch| batch.last_offset() >= offset);
        let mut records: Vec<u8> = from.flat_map(|batch| batch.to_bytes().to_vec()).collect();
        if records.len() > 300 {
            // Cut in the middle of a batch, unless it is the first.
            let first = RecordBatch::size_of_first(&records).expect("whole");
            records.truncate(first.max(300));
        }
        let error_code = if offset > held.end(index) { ErrorCode::OffsetOutOfRange.code() } else { 0 };
        PartitionData { partition_index: index, error_code, records: Some(records.into()), ..Default::default() }
    };
    let topics = request.topics.into_iter().map(|topic| FetchableTopicResponse {
        partitions: topic.partitions.iter().map(|asked| partition(asked.partition, asked.fetch_offset)).collect(),
        topic: topic.topic,
        ..Default::default()
    });
    FetchResponseData { responses: topics.collect(), ..Default::default() }
}

#[derive(Parser)]
struct ProduceCommand {
    #[command(flatten)]
    args: ProduceArgs,
}

#[derive(Parser)]
struct ConsumeCommand {
    #[command(flatten)]
    args: ConsumeArgs,
}

/// Sends `input`; tells the number of records or the error.
async fn send(env: &Env, broker: &str, args: &[&str], input: &'static str) -> Result<u64, String> {
    let args = [&["produce", "-b", broker], args].concat();
    let command = ProduceCommand::try_parse_from(args).expect("good arguments");
    let result = produce::produce(env, command.args, Box::new(Cursor::new(input))).await;
    result.map_err(|error| error.to_string())
}

/// What is printed, or the error.
async fn receive(env: &Env, broker: &str, args: &[&str]) -> Result<String, String> {
    let args = [&["consume", "-b", broker], args].concat();
    let command = ConsumeCommand::try_parse_from(args).expect("good arguments");
    let output = Arc::new(Mutex::new(Vec::new()));
    let result = consume::consume(env.clone(), command.args, output.clone(), || false).await;
    result.map_err(|error| error.to_string())?;
    let printed = output.lock().expect("no panic").clone();
    Ok(String::from_utf8(printed).expect("UTF-8"))
}

#[test]
fn what_is_sent_is_printed() {
    block_on_test(|env| async move {
        let peer = Peer::default();
        let broker = start(&env, &peer).await;
        assert_eq!(send(&env, &broker, &["t", "-p", "1"], "one\ntwo\n\nfour").await, Ok(4));
        let all = receive(&env, &broker, &["t", "--from-beginning", "--exit"]).await;
        assert_eq!(all.as_deref(), Ok("one\ntwo\n\nfour\n"));
        let last = receive(&env, &broker, &["t", "-o", "-2", "-e", "-f", "%p/%o=%s;"]).await;
        assert_eq!(last.as_deref(), Ok("1/2=;1/3=four;"));
        let some = receive(&env, &broker, &["t", "-p", "1", "-o", "1", "-n", "2"]).await;
        assert_eq!(some.as_deref(), Ok("two\n\n"));
        assert_eq!(receive(&env, &broker, &["t", "--exit"]).await.as_deref(), Ok(""));
    });
}

#[test]
fn keys_choose_partitions_and_codecs_are_read_back() {
    block_on_test(|env| async move {
        for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
            let peer = Peer::default();
            let broker = start(&env, &peer).await;
            let lines = "foobar:1\n21:2\nfoobar:3\n:4\n21:\n";
            assert_eq!(send(&env, &broker, &["t", "-k", ":", "-z", codec], lines).await, Ok(5));
            let printed = receive(&env, &broker, &["t", "--from-beginning", "-e", "-f", "%p %k=%s\\n"]).await;
            let mut printed: Vec<_> = printed.expect("read").lines().map(str::to_owned).collect();
            printed.sort();
            // The hashes of 21, the empty key and foobar, without their sign bit, are 0, 1 and 2 modulo 4.
            assert_eq!(printed, ["0 21=", "0 21=2", "1 =4", "2 foobar=1", "2 foobar=3"], "{codec}");
        }
    });
}

#[test]
fn retriable_failures_are_tried_again_and_store_once() {
    block_on_test(|env| async move {
        let peer = Peer::default();
        let broker = start(&env, &peer).await;
        peer.lock().expect("no panic").produce_errors = vec![ErrorCode::NotLeaderOrFollower];
        peer.lock().expect("no panic").produce_hang_ups = 1;
        assert_eq!(send(&env, &broker, &["t", "-p", "0"], "a\nb\n").await, Ok(2));
        let all = receive(&env, &broker, &["t", "--from-beginning", "-e"]).await;
        assert_eq!(all.as_deref(), Ok("a\nb\n"));
    });
}

#[test]
fn records_that_nobody_confirms_are_sent_before_the_end() {
    block_on_test(|env| async move {
        let peer = Peer::default();
        let broker = start(&env, &peer).await;
        assert_eq!(send(&env, &broker, &["t", "-p", "0", "-a", "0"], "a\nb\nc\n").await, Ok(3));
        let all = receive(&env, &broker, &["t", "--from-beginning", "-n", "3"]).await;
        assert_eq!(all.as_deref(), Ok("a\nb\nc\n"));
    });
}

#[test]
fn consuming_ends_when_nobody_reads_what_is_printed() {
    block_on_test(|env| async move {
        let peer = Peer::default();
        let broker = start(&env, &peer).await;
        let command = ConsumeCommand::try_parse_from(["consume", "-b", &broker, "t"]).expect("good arguments");
        let output = Arc::new(Mutex::new(Vec::new()));
        consume::consume(env, command.args, output, || true).await.expect("ends, though nothing is written");
    });
}

#[test]
fn arguments_that_cannot_be_meant_are_explained() {
    let explain = |args: &[&str]| ConsumeCommand::try_parse_from(args).err().expect("refused").to_string();
    assert!(explain(&["consume", "t", "-o", "x"]).contains("an offset, or -N for the last N records"));
    for broker in ["localhost", "localhost:", ":9092", "localhost:99999"] {
        assert!(explain(&["consume", "t", "-b", broker]).contains("expected HOST:PORT"), "{broker}");
    }
    for acks in [&["-a", "-1"][..], &["--acks=-1"], &["-a", "all"], &["-a", "0"]] {
        ProduceCommand::try_parse_from([&["produce", "t"], acks].concat()).expect("known to all Kafka clients");
    }
}

#[test]
fn cut_batches_and_many_rounds_are_read_through() {
    block_on_test(|env| async move {
        let peer = Peer::default();
        let broker = start(&env, &peer).await;
        let mut expected = String::new();
        for number in 0..20 {
            let line: &'static str = Box::leak(format!("{number:0100}\n").into_boxed_str());
            assert_eq!(send(&env, &broker, &["t", "-p", "2"], line).await, Ok(1));
            expected.push_str(line);
        }
        assert_eq!(receive(&env, &broker, &["t", "--from-beginning", "-e"]).await, Ok(expected));
    });
}

#[test]
fn errors_say_what_to_do() {
    block_on_test(|env| async move {
        let peer = Peer::default();
        let broker = start(&env, &peer).await;
        let mut said = Vec::new();
        said.push(send(&env, &broker, &["t", "-p", "4"], "a").await.expect_err("no such partition"));
        said.push(send(&env, &broker, &["t", "-k", ":"], "a:1\nb\n").await.expect_err("no key"));
        peer.lock().expect("no panic").produce_errors = vec![ErrorCode::MessageTooLarge];
        said.push(send(&env, &broker, &["t", "-p", "0"], "a").await.expect_err("refused"));
        peer.lock().expect("no panic").produce_errors = vec![ErrorCode::NotEnoughReplicas; 3];
        said.push(send(&env, &broker, &["t", "-p", "0", "--timeout", "0"], "a").await.expect_err("gives up"));
        said.push(receive(&env, &broker, &["missing"]).await.expect_err("no topic"));
        said.push(receive(&env, &broker, &["t", "-p", "9"]).await.expect_err("no such partition"));
        said.push(receive(&env, &broker, &["t", "-p", "0", "-o", "5"]).await.expect_err("out of range"));
        let past_the_end = receive(&env, &broker, &["t", "-p", "0", "-o", "5", "-e"]).await;
        assert_eq!(past_the_end.as_ref(), Err(said.last().expect("the same")), "--exit changes nothing about it");
        said.push(receive(&env, "127.0.0.1:1", &["t"]).await.expect_err("nothing listens"));
        insta::assert_snapshot!(said.join("\n"));
    });
}
