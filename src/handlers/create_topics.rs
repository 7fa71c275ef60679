//! CreateTopics (19). Checks and texts in the order of Kafka's controller, so that tools show what they always showed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::config_entries::topic_entries;
use super::context::Context;
use super::metadata::uuid;
use super::topics::{self, CreateError, METADATA_TOPIC, NewTopic};
use crate::metadata::{
    ClusterImage, NewPartition, Rejection, TopicConfig, TopicConfigError, TopicNameError, validate_topic_name,
};
use crate::wire::ErrorCode;
use crate::wire::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
};
use crate::wire::messages::{CreateTopicsRequestData, CreateTopicsResponseData, string, text};

/// Why a topic was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum CreateTopicError {
    #[error("Duplicate topic name.")]
    Duplicate,
    #[error("Creation of internal topic {METADATA_TOPIC} is prohibited.")]
    Internal,
    #[error(transparent)]
    Name(#[from] TopicNameError),
    #[error(transparent)]
    Config(#[from] TopicConfigError),
    #[error("A manual partition assignment was specified, but {0} was not set to -1.")]
    AssignmentAndCount(&'static str),
    #[error("Replication factor must be larger than 0, or -1 to use the default value.")]
    ReplicationFactor,
    #[error("Number of partitions was set to an invalid non-positive value.")]
    Partitions,
    #[error("{0}")]
    Assignment(String),
    #[error(transparent)]
    Create(#[from] CreateError),
}

impl CreateTopicError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Duplicate | Self::Internal | Self::AssignmentAndCount(_) => ErrorCode::InvalidRequest,
            Self::Name(_) => ErrorCode::InvalidTopic,
            Self::Config(_) => ErrorCode::InvalidConfig,
            Self::ReplicationFactor => ErrorCode::InvalidReplicationFactor,
            Self::Partitions => ErrorCode::InvalidPartitions,
            Self::Assignment(_) => ErrorCode::InvalidReplicaAssignment,
            Self::Create(error) => error.code(),
        }
    }
}

pub(super) async fn handle(ctx: &Arc<Context>, request: CreateTopicsRequestData) -> CreateTopicsResponseData {
    let mut seen = BTreeSet::new();
    let duplicates: BTreeSet<String> = request
        .topics
        .iter()
        .map(|topic| topic.name.as_str().to_owned())
        .filter(|name| !seen.insert(name.clone()))
        .collect();
    let mut answered = BTreeSet::new();
    let mut results = Vec::new();
    let mut partitions_left = topics::PARTITIONS_MAX;
    for topic in &request.topics {
        let name = topic.name.as_str();
        let result = if duplicates.contains(name) {
            // One answer for all of them.
            if !answered.insert(name) {
                continue;
            }
            Err(CreateTopicError::Duplicate)
        } else {
            create(ctx, topic, &mut partitions_left, request.validate_only).await
        };
        results.push(result.unwrap_or_else(|error| failed(topic, &error)));
    }
    CreateTopicsResponseData { topics: results, ..CreateTopicsResponseData::default() }
}

fn failed(topic: &CreatableTopic, error: &CreateTopicError) -> CreatableTopicResult {
    CreatableTopicResult {
        name: topic.name.clone(),
        error_code: error.code().code(),
        error_message: Some(text(&error.to_string())),
        // A null here makes the Java admin client fail.
        configs: Some(Vec::new()),
        ..CreatableTopicResult::default()
    }
}

async fn create(
    ctx: &Arc<Context>,
    topic: &CreatableTopic,
    partitions_left: &mut i32,
    validate_only: bool,
) -> Result<CreatableTopicResult, CreateTopicError> {
    let image = ctx.metadata.image();
    let (partitions, configs) = check(ctx, &image, topic)?;
    // A bound for the whole request: its answer is far longer than it is.
    let count = i32::try_from(partitions.len()).unwrap_or(i32::MAX);
    *partitions_left =
        partitions_left.checked_sub(count).filter(|left| *left >= 0).ok_or(CreateError::TooManyPartitions)?;
    let mut result = CreatableTopicResult {
        name: topic.name.clone(),
        num_partitions: count,
        replication_factor: i16::try_from(partitions[0].replicas.len()).unwrap_or(i16::MAX),
        configs: Some(response_configs(ctx, &configs)),
        ..CreatableTopicResult::default()
    };
    if !validate_only {
        let new = NewTopic { name: topic.name.as_str().to_owned(), partitions, configs };
        result.topic_id = uuid(topics::create(ctx, new).await?.id);
    }
    Ok(result)
}

/// All checks that a dry run makes too.
fn check(
    ctx: &Context,
    image: &ClusterImage,
    topic: &CreatableTopic,
) -> Result<(Vec<NewPartition>, BTreeMap<String, String>), CreateTopicError> {
    let name = topic.name.as_str();
    if name == METADATA_TOPIC {
        return Err(CreateTopicError::Internal);
    }
    validate_topic_name(name)?;
    if let Some(existing) = image.colliding_topic(name) {
        let rejection = Rejection::TopicCollides { name: name.to_owned(), existing: existing.to_owned() };
        return Err(CreateError::Collides(rejection).into());
    }
    if image.topic(name).is_some() {
        return Err(CreateError::Exists(Rejection::TopicExists(name.to_owned())).into());
    }
    let wanted = topic
        .configs
        .iter()
        .map(|config| (config.name.as_str().to_owned(), config.value.as_ref().map(|value| value.as_str().to_owned())))
        .collect();
    let configs = TopicConfig::validate(&wanted)?;
    Ok((assign(ctx, image, topic)?, configs))
}

fn assign(ctx: &Context, image: &ClusterImage, topic: &CreatableTopic) -> Result<Vec<NewPartition>, CreateTopicError> {
    if !topic.assignments.is_empty() {
        if topic.replication_factor != -1 {
            return Err(CreateTopicError::AssignmentAndCount("replication factor"));
        }
        if topic.num_partitions != -1 {
            return Err(CreateTopicError::AssignmentAndCount("numPartitions"));
        }
        return by_hand(image, &topic.assignments).map_err(CreateTopicError::Assignment);
    }
    let replication = match topic.replication_factor {
        -1 => ctx.settings.replication_factor,
        factor if factor < 1 => return Err(CreateTopicError::ReplicationFactor),
        factor => factor,
    };
    let partitions = match topic.num_partitions {
        -1 => ctx.settings.num_partitions,
        count if count < 1 => return Err(CreateTopicError::Partitions),
        count => count,
    };
    Ok(topics::assign_replicas(image, partitions, replication)?)
}

/// Replicas as the client wants them.
fn by_hand(image: &ClusterImage, assignments: &[CreatableReplicaAssignment]) -> Result<Vec<NewPartition>, String> {
    let mut partitions = BTreeMap::new();
    let mut replicas_len = None;
    for assignment in assignments {
        let replicas = assignment.broker_ids.clone();
        if replicas.is_empty() {
            return Err("The manual partition assignment includes an empty replica list.".to_owned());
        }
        let mut seen = BTreeSet::new();
        for broker in &replicas {
            if image.broker(*broker).is_none() {
                return Err(format!(
                    "The manual partition assignment includes broker {broker}, but no such broker is registered."
                ));
            }
            if !seen.insert(broker) {
                return Err(format!("The manual partition assignment includes the broker {broker} more than once."));
            }
        }
        let expected = *replicas_len.get_or_insert(replicas.len());
        if replicas.len() != expected {
            return Err(format!(
                "The manual partition assignment includes a partition with {} replica(s), but this is not consistent with previous partitions, which have {expected} replica(s).",
                replicas.len()
            ));
        }
        let index = assignment.partition_index;
        let partition = NewPartition { leader: replicas[0], isr: replicas.clone(), replicas };
        if partitions.insert(index, partition).is_some() {
            return Err(format!("Found multiple manual partition assignments for partition {index}"));
        }
    }
    if !partitions.keys().copied().eq(0..i32::try_from(partitions.len()).unwrap_or(i32::MAX)) {
        return Err("partitions should be a consecutive 0-based integer sequence".to_owned());
    }
    Ok(partitions.into_values().collect())
}

fn response_configs(ctx: &Context, own: &BTreeMap<String, String>) -> Vec<CreatableTopicConfigs> {
    topic_entries(&ctx.settings.topic_defaults, own)
        .into_iter()
        .map(|entry| CreatableTopicConfigs {
            name: string(entry.name),
            value: Some(string(&entry.value)),
            read_only: entry.read_only,
            config_source: entry.source as i8,
            is_sensitive: false,
            ..CreatableTopicConfigs::default()
        })
        .collect()
}
