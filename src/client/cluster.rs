//! Finding the brokers that lead the partitions of a topic, and keeping a connection to each.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{CallError, ConnectError, Connection, ConnectionConfig};
use kilo_io::Env;
use kilo_wire::api::ApiKey;
use kilo_wire::error_code::ErrorCode;
use kilo_wire::messages::metadata::{MetadataRequestTopic, MetadataResponseTopic};
use kilo_wire::messages::{MetadataRequestData, MetadataResponseData, string};

/// How often a new topic is asked for again until it has leaders.
const TOPIC_ATTEMPTS_MAX: u32 = 30;
const TOPIC_BACKOFF: Duration = Duration::from_millis(100);

/// Why the cluster cannot be asked or used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// None of the given brokers answers.
    #[error("no broker answers at {}: {last}. Is it running, and is this its address (listeners)?", .tried.join(", "))]
    NoBroker {
        /// The addresses tried.
        tried: Vec<String>,
        /// What went wrong with the last one.
        last: String,
    },
    /// A broker that leads a partition cannot be reached.
    #[error(
        "broker {node_id} cannot be reached at {host}:{port}, the address it gives out: {reason}. \
         Check its advertised.listeners"
    )]
    Leader {
        /// The broker.
        node_id: i32,
        /// Its host.
        host: String,
        /// Its port.
        port: i32,
        /// What went wrong.
        reason: String,
    },
    /// The topic cannot be used.
    #[error("topic {topic}: {error}{}", rule(error))]
    Topic {
        /// The topic.
        topic: String,
        /// The broker's answer.
        error: ErrorCode,
    },
    /// A partition has no leader, or there is no such partition.
    #[error("partition {partition} of topic {topic} has no leader")]
    NoLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What the client can do about an error, where that is known.
fn rule(error: &ErrorCode) -> &'static str {
    match error {
        ErrorCode::InvalidTopic => ". A name has 1 to 249 letters (a to z, A to Z), digits, '.', '_' and '-'",
        _ => "",
    }
}

/// A partition as metadata tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Its number.
    pub index: i32,
    /// The broker that leads it.
    pub leader: Option<i32>,
}

/// A topic as metadata tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// Its partitions by number.
    pub partitions: Vec<PartitionInfo>,
}

/// The brokers of a cluster, found through a few of them.
pub struct Cluster {
    env: Env,
    config: ConnectionConfig,
    bootstrap: Vec<String>,
    seed: Option<Connection>,
    addresses: BTreeMap<i32, (String, i32)>,
    leaders: BTreeMap<(String, i32), i32>,
    connections: BTreeMap<i32, Connection>,
}

impl Cluster {
    /// Connects to the first of `bootstrap` (`host:port`) that answers.
    pub async fn connect(env: &Env, bootstrap: &[String], config: ConnectionConfig) -> Result<Self, ClusterError> {
        let mut cluster = Self {
            env: env.clone(),
            config,
            bootstrap: bootstrap.to_vec(),
            seed: None,
            addresses: BTreeMap::new(),
            leaders: BTreeMap::new(),
            connections: BTreeMap::new(),
        };
        cluster.any_broker().await?;
        Ok(cluster)
    }

    /// A topic's partitions and leaders, fresh. Waits for a while until a topic that is just being created has leaders.
    /// A topic that does not exist is created if `create` says so and the broker does that.
    pub async fn topic(&mut self, name: &str, create: Create) -> Result<TopicInfo, ClusterError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let response = self.metadata(name, create).await?;
            self.addresses = response
                .brokers
                .iter()
                .map(|broker| (broker.node_id, (broker.host.to_string(), broker.port)))
                .collect();
            let found = response.topics.into_iter().next();
            match self.take_topic(name, found) {
                Err(ClusterError::Topic { error, .. }) if may_appear(error, create) && attempt < TOPIC_ATTEMPTS_MAX => {
                    self.env.sleep(TOPIC_BACKOFF).await;
                }
                result => return result,
            }
        }
    }

    /// The connection to a partition's leader, as last told by [`topic`](Self::topic).
    pub async fn leader(&mut self, topic: &str, partition: i32) -> Result<Connection, ClusterError> {
        let no_leader = || ClusterError::NoLeader { topic: topic.to_owned(), partition };
        let node_id = *self.leaders.get(&(topic.to_owned(), partition)).ok_or_else(no_leader)?;
        self.broker(node_id).await
    }

    /// The connection to any broker: for what every broker can answer.
    pub async fn any_broker(&mut self) -> Result<Connection, ClusterError> {
        if let Some(seed) = self.seed.as_ref().filter(|seed| !seed.is_closed()) {
            return Ok(seed.clone());
        }
        if let Some(connection) = self.connections.values().find(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let mut last = "no address was given".to_owned();
        for host_port in self.bootstrap.clone() {
            match self.dial(&host_port).await {
                Ok(connection) => {
                    self.seed = Some(connection.clone());
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(ClusterError::NoBroker { tried: self.bootstrap.clone(), last })
    }

    /// Ends all connections after sending what still waits.
    pub async fn close(self) {
        for connection in self.seed.into_iter().chain(self.connections.into_values()) {
            connection.close().await;
        }
    }

    async fn broker(&mut self, node_id: i32) -> Result<Connection, ClusterError> {
        if let Some(connection) = self.connections.get(&node_id).filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let (host, port) = self.addresses.get(&node_id).cloned().unwrap_or_default();
        let connection = self.dial(&format!("{host}:{port}")).await.map_err(|reason| ClusterError::Leader {
            node_id,
            host,
            port,
            reason,
        })?;
        self.connections.insert(node_id, connection.clone());
        Ok(connection)
    }

    /// Connects to the first address of a name that answers.
    async fn dial(&self, host_port: &str) -> Result<Connection, String> {
        let addresses = self.env.net().resolve(host_port).await.map_err(|error| format!("{host_port}: {error}"))?;
        let mut last = format!("{host_port} has no address");
        for addr in addresses {
            match Connection::connect(&self.env, addr, self.config.clone()).await {
                Ok(connection) => return Ok(connection),
                Err(ConnectError::Unreachable { source, .. }) => last = source.to_string(),
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }

    async fn metadata(&mut self, name: &str, create: Create) -> Result<MetadataResponseData, ClusterError> {
        let connection = self.any_broker().await?;
        let topic = MetadataRequestTopic { name: Some(string(name)), ..MetadataRequestTopic::default() };
        let request = MetadataRequestData {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: create == Create::IfMissing
                || connection.version(ApiKey::Metadata).is_some_and(|version| version < 4),
            ..MetadataRequestData::default()
        };
        Ok(connection.call(&request).await?)
    }

    fn take_topic(&mut self, name: &str, found: Option<MetadataResponseTopic>) -> Result<TopicInfo, ClusterError> {
        let failed = |error| ClusterError::Topic { topic: name.to_owned(), error };
        let found = found.ok_or_else(|| failed(ErrorCode::UnknownTopicOrPartition))?;
        let error = ErrorCode::from(found.error_code);
        if error.is_error() {
            return Err(failed(error));
        }
        let mut partitions: Vec<_> = found
            .partitions
            .iter()
            .map(|partition| PartitionInfo {
                index: partition.partition_index,
                leader: (partition.leader_id >= 0).then_some(partition.leader_id),
            })
            .collect();
        partitions.sort_by_key(|partition| partition.index);
        if partitions.is_empty() {
            return Err(failed(ErrorCode::LeaderNotAvailable));
        }
        self.leaders.retain(|(topic, _), _| topic != name);
        for partition in &partitions {
            if let Some(leader) = partition.leader {
                self.leaders.insert((name.to_owned(), partition.index), leader);
            }
        }
        Ok(TopicInfo { name: name.to_owned(), partitions })
    }
}

/// Whether asking for a topic may create it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It may, where the broker does that.
    IfMissing,
    /// It must not.
    Never,
}

fn may_appear(error: ErrorCode, create: Create) -> bool {
    error == ErrorCode::LeaderNotAvailable || error == ErrorCode::UnknownTopicOrPartition && create == Create::IfMissing
}
