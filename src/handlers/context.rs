//! What all handlers share.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::peer::Peer;
use super::producer_ids::ProducerIds;
use crate::io::{CoreMutex, CoreRwLock, Env};
use crate::log::{LogManager, PartitionLog};
use crate::metadata::config_def::Kind;
use crate::metadata::{ClusterImage, MetadataStore, Topic, TopicConfig, TopicDefaults};
use crate::storage::{PartitionKey, TopicId};
use crate::wire::ErrorCode;
use crate::wire::batch::Validation;

/// The address that clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advertised {
    /// This one.
    Fixed {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The one that the client has reached: all that is known behind a wildcard listener.
    Reached,
}

/// One of the broker's own settings, as DescribeConfigs shows it.
#[derive(Clone, Debug)]
pub struct BrokerEntry {
    /// The key.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Its type.
    pub kind: Kind,
    /// The value when the operator says nothing.
    pub default: &'static str,
    /// Whether the operator said something.
    pub set: bool,
    /// What it does.
    pub doc: &'static str,
}

/// The settings that handlers go by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This broker's id.
    pub node_id: i32,
    /// The cluster's id.
    pub cluster_id: String,
    /// The address that clients are told.
    pub advertised: Advertised,
    /// Whether a topic asked for by name is created.
    pub auto_create: bool,
    /// Partitions of a topic that does not say how many.
    pub num_partitions: i32,
    /// Replicas of a topic that does not say how many.
    pub replication_factor: i16,
    /// The most bytes of records in one Fetch answer.
    pub fetch_bytes_max: usize,
    /// The most bytes of records in all Fetch answers that have not been sent. Small answers are not counted.
    pub fetch_memory_bytes: usize,
    /// How far produced batches are checked.
    pub validation: Validation,
    /// What applies to topics that set nothing.
    pub topic_defaults: TopicDefaults,
    /// The broker's own settings.
    pub broker_entries: Vec<BrokerEntry>,
}

/// A topic's record and its settings.
type ResolvedTopic = (Arc<Topic>, Arc<TopicConfig>);

/// What all handlers share.
pub struct Context {
    /// The outside world.
    pub env: Env,
    /// The settings.
    pub settings: Settings,
    /// The cluster's metadata.
    pub metadata: MetadataStore,
    /// The partition logs.
    pub logs: LogManager,
    /// Becomes true when the broker stops: what waits for data answers with what it has.
    pub stopping: watch::Receiver<bool>,
    /// Bytes for records in answers that have not been sent.
    pub(super) fetch_memory: Arc<Semaphore>,
    pub(super) producer_ids: ProducerIds,
    topic_ids: CoreMutex<fastrand::Rng>,
    /// Resolved settings, with the topic record that they were resolved from.
    topic_configs: CoreRwLock<BTreeMap<TopicId, ResolvedTopic>>,
}

impl Context {
    /// Puts the parts together.
    pub fn new(
        env: Env,
        settings: Settings,
        metadata: MetadataStore,
        logs: LogManager,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let producer_ids = ProducerIds::new(metadata.clone(), settings.node_id);
        let topic_ids = CoreMutex::new(&env, "the topic ids", env.rng("topic-id"));
        let topic_configs = CoreRwLock::new(&env, "the topics' settings", BTreeMap::new());
        let fetch_memory = Arc::new(Semaphore::new(settings.fetch_memory_bytes.min(Semaphore::MAX_PERMITS)));
        Self { env, settings, metadata, logs, stopping, fetch_memory, producer_ids, topic_ids, topic_configs }
    }

    /// A new topic id: a random UUID that no client mistakes for a reserved one or, in its base 64 form, for an option.
    pub(super) fn new_topic_id(&self) -> TopicId {
        let mut rng = self.topic_ids.lock();
        loop {
            let mut id = rng.u128(..).to_be_bytes();
            id[6] = id[6] & 0x0f | 0x40;
            id[8] = id[8] & 0x3f | 0x80;
            // The first six bits of '-' in base 64 for URLs.
            if id[0] >> 2 != 62 {
                return TopicId(id);
            }
        }
    }

    /// A topic's settings, resolved once for each version of its record.
    pub(super) fn topic_config(&self, topic: &Arc<Topic>) -> Arc<TopicConfig> {
        let known = self.topic_configs.read().get(&topic.id).cloned();
        if let Some((_, config)) = known.filter(|(of, _)| Arc::ptr_eq(of, topic)) {
            return config;
        }
        let config = Arc::new(TopicConfig::resolve(&self.settings.topic_defaults, &topic.configs));
        let entry = (Arc::clone(topic), Arc::clone(&config));
        self.topic_configs.write().insert(topic.id, entry);
        config
    }

    /// The host and port that a client is told for this broker.
    pub(super) fn advertised_to(&self, peer: &Peer) -> (String, u16) {
        match &self.settings.advertised {
            Advertised::Fixed { host, port } => (host.clone(), *port),
            Advertised::Reached => (peer.local.ip().to_canonical().to_string(), peer.local.port()),
        }
    }

    /// The log of a partition that this broker leads, if the client's idea of the leader epoch (−1: none) is right.
    pub(super) fn leader_log(
        &self,
        image: &ClusterImage,
        topic: &str,
        index: i32,
        client_epoch: i32,
    ) -> Result<Arc<PartitionLog>, ErrorCode> {
        let unknown = ErrorCode::UnknownTopicOrPartition;
        let topic = image.topic(topic).ok_or(unknown)?;
        let partition = usize::try_from(index).ok().and_then(|index| topic.partitions.get(index)).ok_or(unknown)?;
        if client_epoch >= 0 && client_epoch < partition.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if client_epoch > partition.leader_epoch {
            return Err(ErrorCode::UnknownLeaderEpoch);
        }
        if partition.leader != self.settings.node_id {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        // In the metadata and not yet opened here: a moment later it is.
        let key = PartitionKey { topic: topic.id, index };
        self.logs.partition(&key).ok_or(ErrorCode::NotLeaderOrFollower)
    }
}
