//! Creating topics: placing replicas, proposing, opening the logs. CreateTopics and auto-creation share it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::context::Context;
use crate::log::{LogConfig, PartitionSpec, TimestampType};
use crate::metadata::{
    ClusterImage, Command, NewPartition, ProposeError, Rejection, Topic, TopicConfig, TopicDefaults,
};
use crate::storage::PartitionKey;
use crate::wire::ErrorCode;

/// Partitions that one request may create.
pub(super) const PARTITIONS_MAX: i32 = 10_000;

/// The topic in which Kafka's controllers keep their log. Nobody may create it.
pub(super) const METADATA_TOPIC: &str = "__cluster_metadata";

/// Whether the brokers themselves keep their state in this topic.
pub(super) fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

/// A topic that passed all checks.
pub(super) struct NewTopic {
    pub(super) name: String,
    pub(super) partitions: Vec<NewPartition>,
    pub(super) configs: BTreeMap<String, String>,
}

/// Why a topic was not created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CreateError {
    #[error("{0}")]
    Exists(Rejection),
    #[error("{0}")]
    Collides(Rejection),
    #[error("This is not the correct controller for this cluster.")]
    NotController,
    #[error("{0}")]
    Storage(String),
    #[error(
        "Unable to replicate the partition {wanted} time(s): The target replication factor of {wanted} cannot be reached because only {brokers} broker(s) are registered or some brokers have all their log directories cordoned."
    )]
    Replication { wanted: i16, brokers: usize },
    #[error("Excessively large number of partitions per request.")]
    TooManyPartitions,
    #[error("{0}")]
    Internal(Rejection),
}

impl CreateError {
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::Exists(_) => ErrorCode::TopicAlreadyExists,
            Self::Collides(_) => ErrorCode::InvalidTopic,
            Self::NotController => ErrorCode::NotController,
            Self::Storage(_) => ErrorCode::KafkaStorageError,
            Self::Replication { .. } => ErrorCode::InvalidReplicationFactor,
            Self::TooManyPartitions => ErrorCode::PolicyViolation,
            Self::Internal(_) => ErrorCode::UnknownServerError,
        }
    }
}

impl From<ProposeError> for CreateError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::NotController { .. } => Self::NotController,
            ProposeError::Storage(why) => Self::Storage(why),
            ProposeError::Rejected(rejection) => match rejection {
                Rejection::TopicExists(_) => Self::Exists(rejection),
                Rejection::TopicCollides { .. } => Self::Collides(rejection),
                other => Self::Internal(other),
            },
        }
    }
}

/// Chooses replicas: partition by partition the next broker in turn leads, those after it follow.
pub(super) fn assign_replicas(
    image: &ClusterImage,
    partitions: i32,
    replication: i16,
) -> Result<Vec<NewPartition>, CreateError> {
    if partitions > PARTITIONS_MAX {
        return Err(CreateError::TooManyPartitions);
    }
    let brokers: Vec<i32> = image.brokers().map(|broker| broker.id).collect();
    let replicas_len = usize::try_from(replication).unwrap_or_default();
    if replicas_len > brokers.len() || replicas_len == 0 {
        return Err(CreateError::Replication { wanted: replication, brokers: brokers.len() });
    }
    // Topics begin at different brokers, so that many small ones are spread.
    let first = image.topics().count();
    let partitions = usize::try_from(partitions).unwrap_or_default();
    Ok((0..partitions)
        .map(|index| {
            let replicas: Vec<i32> =
                (0..replicas_len).map(|replica| brokers[(first + index + replica) % brokers.len()]).collect();
            NewPartition { leader: replicas[0], isr: replicas.clone(), replicas }
        })
        .collect())
}

/// Makes the topic durable in the metadata, then opens its logs.
pub(super) async fn create(ctx: &Arc<Context>, new: NewTopic) -> Result<Arc<Topic>, CreateError> {
    let id = ctx.new_topic_id();
    let command = Command::CreateTopic {
        id,
        name: new.name.clone(),
        partitions: new.partitions,
        configs: new.configs,
        created_ms: ctx.env.wall().0,
    };
    ctx.metadata.propose(command).await?;
    let image = ctx.metadata.image();
    let topic = image.topic_by_id(id).expect("the image shows what was proposed").clone();
    if ctx.env.may_log("created topics", None) {
        tracing::info!("created topic {} with {} partitions", topic.name, topic.partitions.len());
    }
    open_logs(ctx, &topic);
    Ok(topic)
}

/// Opens the logs of a topic's partitions that this broker holds. Open ones stay as they are.
pub(super) fn open_logs(ctx: &Context, topic: &Topic) {
    for spec in partition_specs(&ctx.settings.topic_defaults, topic, ctx.settings.node_id) {
        let key = spec.key;
        // The topic exists all the same: its partitions answer "not the leader" until a restart opens them.
        if let Err(error) = ctx.logs.create(spec)
            && ctx.env.may_log("logs that cannot be opened", None)
        {
            tracing::error!("the log of {} partition {} cannot be opened: {error}", topic.name, key.index);
        }
    }
}

/// What the log layer needs to know of a topic's partitions on this broker.
pub(crate) fn partition_specs(defaults: &TopicDefaults, topic: &Topic, node_id: i32) -> Vec<PartitionSpec> {
    let config = log_config(&TopicConfig::resolve(defaults, &topic.configs));
    (0..)
        .zip(&topic.partitions)
        .filter(|(_, partition)| partition.replicas.contains(&node_id))
        .map(|(index, partition)| PartitionSpec {
            key: PartitionKey { topic: topic.id, index },
            topic: topic.name.clone(),
            leader_epoch: partition.leader_epoch,
            config: config.clone(),
        })
        .collect()
}

fn log_config(topic: &TopicConfig) -> LogConfig {
    let positive = |value: i32| u32::try_from(value).unwrap_or_default();
    LogConfig {
        segment_bytes: positive(topic.segment_bytes).into(),
        roll_ms: topic.segment_ms,
        index_interval_messages: positive(topic.index_interval_messages),
        index_interval_bytes: positive(topic.index_interval_bytes),
        flush_interval_messages: u64::try_from(topic.flush_messages).unwrap_or(u64::MAX),
        timestamp_type: if topic.log_append_time { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
        timestamp_before_max_ms: topic.timestamp_before_max_ms,
        timestamp_after_max_ms: topic.timestamp_after_max_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::LogId;

    fn cluster(brokers: i32) -> ClusterImage {
        let mut image = ClusterImage::default();
        for (index, broker_id) in (1..).zip(1..=brokers) {
            let command = Command::RegisterBroker { broker_id, host: "h".into(), port: 1, rack: None, started_ms: 0 };
            image.apply(LogId { term: 1, index }, &command).expect("a start is never refused");
        }
        image
    }

    #[test]
    fn leaders_take_turns_and_replicas_differ() {
        let placed = assign_replicas(&cluster(3), 4, 2).expect("three brokers hold two replicas");
        let replicas: Vec<_> = placed.iter().map(|partition| partition.replicas.clone()).collect();
        assert_eq!(replicas, [[1, 2], [2, 3], [3, 1], [1, 2]]);
        assert!(placed.iter().all(|partition| partition.leader == partition.replicas[0]));
    }

    #[test]
    fn too_many_replicas_or_partitions_are_refused() {
        assert_eq!(assign_replicas(&cluster(1), 1, 5), Err(CreateError::Replication { wanted: 5, brokers: 1 }));
        assert_eq!(assign_replicas(&cluster(1), PARTITIONS_MAX + 1, 1), Err(CreateError::TooManyPartitions));
    }
}
