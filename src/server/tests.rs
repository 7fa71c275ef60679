//! A whole broker on the real world, driven by the project's own client and by bare sockets. Ports are chosen by the
//! system, data lives in temporary directories.

mod apis;
mod connections;
mod excess;
mod lifecycle;
mod refusals;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::config::{Config, Endpoint};
use super::{Broker, StartError};
use crate::client::{Connection, ConnectionConfig};
use crate::io::Env;
use crate::wire::batch::BatchBuilder;
use crate::wire::codec::Codec;
use crate::wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreatableTopicResult};
use crate::wire::messages::fetch_types::{FetchPartition, FetchTopic, PartitionData};
use crate::wire::messages::produce_types::{PartitionProduceData, PartitionProduceResponse, TopicProduceData};
use crate::wire::messages::{CreateTopicsRequestData, FetchRequestData, ProduceRequestData, string};

/// Small limits over a folder, on a port of the system's choice.
fn config(dir: &Path) -> Config {
    Config {
        listeners: Endpoint { host: "127.0.0.1".to_owned(), port: 0 },
        log_dirs: dir.to_str().expect("temporary directories have plain names").to_owned(),
        shutdown_timeout_ms: 2000,
        ..Config::sim()
    }
}

/// Runs a test against a broker with a changed configuration, then stops it.
fn with_config<F: Future<Output = ()>>(change: impl FnOnce(&mut Config), test: impl FnOnce(Fixture) -> F) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut config = config(dir.path());
    change(&mut config);
    crate::io::real::block_on_test(|env| async move {
        let broker = std::sync::Arc::new(Broker::start(env.clone(), config).await.expect("an empty folder is fine"));
        test(Fixture { env, broker: broker.clone() }).await;
        broker.stop().await;
    });
}

fn with_broker<F: Future<Output = ()>>(test: impl FnOnce(Fixture) -> F) {
    with_config(|_| {}, test);
}

struct Fixture {
    env: Env,
    broker: std::sync::Arc<Broker>,
}

impl Fixture {
    async fn connect(&self) -> Connection {
        let config = ConnectionConfig { request_timeout: Duration::from_secs(20), ..ConnectionConfig::default() };
        Connection::connect(&self.env, self.broker.local_addr(), config).await.expect("the broker serves")
    }
}

async fn create(
    connection: &Connection,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> CreatableTopicResult {
    let configs = configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig {
            name: string(name),
            value: Some(string(value)),
            ..Default::default()
        })
        .collect();
    let topic = CreatableTopic {
        name: string(name),
        num_partitions: partitions,
        replication_factor: 1,
        configs,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequestData { topics: vec![topic], timeout_ms: 1000, ..Default::default() };
    connection.call(&request).await.expect("answered").topics.remove(0)
}

fn batch(values: &[&[u8]]) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for value in values {
        builder.push(1, Some(b"k"), Some(value));
    }
    builder.build().expect("small").to_bytes()
}

fn produce_request(topic: &str, index: i32, records: Bytes, acks: i16) -> ProduceRequestData {
    let partition = PartitionProduceData { index, records: Some(records), ..Default::default() };
    let topic = TopicProduceData { name: string(topic), partition_data: vec![partition], ..Default::default() };
    ProduceRequestData { acks, timeout_ms: 5000, topic_data: vec![topic], ..Default::default() }
}

async fn produce(connection: &Connection, topic: &str, index: i32, records: Bytes) -> PartitionProduceResponse {
    let response = connection.call(&produce_request(topic, index, records, -1)).await.expect("answered");
    response.responses[0].partition_responses[0].clone()
}

fn fetch_request(topic: &str, index: i32, offset: i64, wait_ms: i32, bytes_max: i32) -> FetchRequestData {
    let partition = FetchPartition {
        partition: index,
        fetch_offset: offset,
        current_leader_epoch: -1,
        partition_max_bytes: bytes_max,
        ..FetchPartition::default()
    };
    FetchRequestData {
        replica_id: -1,
        max_wait_ms: wait_ms,
        min_bytes: 1,
        max_bytes: bytes_max,
        session_epoch: -1,
        topics: vec![FetchTopic { topic: string(topic), partitions: vec![partition], ..FetchTopic::default() }],
        ..FetchRequestData::default()
    }
}

async fn fetch(connection: &Connection, topic: &str, index: i32, offset: i64, wait_ms: i32) -> PartitionData {
    let request = fetch_request(topic, index, offset, wait_ms, 1 << 20);
    let mut response = connection.call(&request).await.expect("answered");
    response.responses.remove(0).partitions.remove(0)
}
