//! Metadata (3): brokers, topics, leaders; creates topics asked for by name where that is allowed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::Context;
use super::peer::Peer;
use super::topics::{self, CreateError, NewTopic};
use crate::io::yield_now;
use crate::metadata::{ClusterImage, Topic, validate_topic_name};
use crate::storage::TopicId;
use crate::wire::ErrorCode;
use crate::wire::messages::metadata::{
    MetadataRequestTopic, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use crate::wire::messages::{KafkaUuid, MetadataRequestData, MetadataResponseData, string};

/// The oldest version in which a topic may be asked for by id.
const IDS_FROM: i16 = 12;
/// Other connections get their turn after so many topics have been looked at.
const YIELD_AFTER: usize = 256;
/// "Not asked for".
const NO_OPERATIONS: i32 = i32::MIN;
/// Without access control everything is allowed: the bits of the operations that a topic has.
const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// The same for the cluster.
const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

pub(super) async fn handle(
    ctx: &Arc<Context>,
    peer: &Peer,
    request: MetadataRequestData,
    version: i16,
) -> MetadataResponseData {
    let topics = match &request.topics {
        None => all(&ctx.metadata.image()),
        Some(asked) if asked.is_empty() && version == 0 => all(&ctx.metadata.image()),
        Some(asked) if version < IDS_FROM && asked.iter().any(|topic| asked_id(topic).is_some()) => refused(asked),
        Some(_) => named(ctx, &request).await,
    };
    let image = ctx.metadata.image();
    let topics = topics
        .into_iter()
        .map(|topic| {
            let operations = if request.include_topic_authorized_operations { TOPIC_OPERATIONS } else { NO_OPERATIONS };
            topic_response(topic, operations)
        })
        .collect();
    MetadataResponseData {
        brokers: brokers(ctx, peer, &image),
        cluster_id: Some(string(&ctx.settings.cluster_id)),
        controller_id: ctx.settings.node_id,
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            NO_OPERATIONS
        },
        ..MetadataResponseData::default()
    }
}

/// A topic of the answer.
enum Found {
    Topic(Arc<Topic>),
    Failed { name: Option<String>, id: TopicId, error: ErrorCode },
}

fn all(image: &ClusterImage) -> Vec<Found> {
    image.topics().cloned().map(Found::Topic).collect()
}

/// Versions 10 and 11 have a field for the id, which must not be used, and names that must not be null.
fn refused(asked: &[MetadataRequestTopic]) -> Vec<Found> {
    let name =
        |topic: &MetadataRequestTopic| topic.name.as_ref().map_or_else(String::new, |name| name.as_str().to_owned());
    let failed = |name| Found::Failed { name: Some(name), id: TopicId::default(), error: ErrorCode::InvalidRequest };
    asked.iter().map(name).map(failed).collect()
}

/// The topics asked for, each once, in the order asked for.
async fn named(ctx: &Arc<Context>, request: &MetadataRequestData) -> Vec<Found> {
    let create = request.allow_auto_topic_creation && ctx.settings.auto_create;
    let mut found = Vec::new();
    let (mut seen, mut seen_ids) = (BTreeSet::new(), BTreeSet::<TopicId>::new());
    // A request of many short names must not fill the disk.
    let mut creations_left = topics::PARTITIONS_MAX / ctx.settings.num_partitions.max(1);
    for (number, asked) in request.topics.iter().flatten().enumerate() {
        if number % YIELD_AFTER == YIELD_AFTER - 1 {
            yield_now().await;
        }
        if let Some(id) = asked_id(asked) {
            if seen_ids.insert(id) {
                found.push(by_id(ctx, id));
            }
            continue;
        }
        let name = asked.name.as_ref().map_or_else(String::new, |name| name.as_str().to_owned());
        if seen.insert(name.clone()) {
            let absent = ctx.metadata.image().topic(&name).is_none();
            found.push(by_name(ctx, name, create && creations_left > 0).await);
            creations_left -= i32::from(absent);
        }
    }
    found
}

/// The id that a topic is asked for by, if it is: then the name beside it says nothing. Java sends an empty one, others
/// none. With no name and no id, the id that no topic has is asked for.
fn asked_id(asked: &MetadataRequestTopic) -> Option<TopicId> {
    let id = TopicId(asked.topic_id.to_bytes());
    (id != TopicId::default() || asked.name.is_none()).then_some(id)
}

fn by_id(ctx: &Context, id: TopicId) -> Found {
    let image = ctx.metadata.image();
    let unknown = Found::Failed { name: None, id, error: ErrorCode::UnknownTopicId };
    image.topic_by_id(id).cloned().map_or(unknown, Found::Topic)
}

async fn by_name(ctx: &Arc<Context>, name: String, create: bool) -> Found {
    if let Some(topic) = ctx.metadata.image().topic(&name) {
        return Found::Topic(Arc::clone(topic));
    }
    let failed = |error| Found::Failed { name: Some(name.clone()), id: TopicId::default(), error };
    if validate_topic_name(&name).is_err() || name == topics::METADATA_TOPIC {
        return failed(ErrorCode::InvalidTopic);
    }
    if !create {
        return failed(ErrorCode::UnknownTopicOrPartition);
    }
    let image = ctx.metadata.image();
    let planned = topics::assign_replicas(&image, ctx.settings.num_partitions, ctx.settings.replication_factor);
    let partitions = match planned {
        Ok(partitions) => partitions,
        Err(error) => return failed(error.code()),
    };
    match topics::create(ctx, NewTopic { name: name.clone(), partitions, configs: Default::default() }).await {
        Ok(topic) => Found::Topic(topic),
        // Another client was quicker.
        Err(CreateError::Exists(_)) => match ctx.metadata.image().topic(&name) {
            Some(topic) => {
                topics::open_logs(ctx, topic);
                Found::Topic(Arc::clone(topic))
            }
            None => failed(ErrorCode::LeaderNotAvailable),
        },
        Err(error) => {
            if ctx.env.may_log("topics that could not be created", None) {
                tracing::warn!("topic {name} could not be created for a client that asked for it: {error}");
            }
            failed(error.code())
        }
    }
}

fn brokers(ctx: &Context, peer: &Peer, image: &ClusterImage) -> Vec<MetadataResponseBroker> {
    let broker = |broker: &crate::metadata::Broker| {
        let (host, port) = if broker.id == ctx.settings.node_id {
            ctx.advertised_to(peer)
        } else {
            (broker.host.clone(), broker.port)
        };
        MetadataResponseBroker {
            node_id: broker.id,
            host: string(&host),
            port: port.into(),
            rack: broker.rack.as_deref().map(string),
            ..MetadataResponseBroker::default()
        }
    };
    image.brokers().map(broker).collect()
}

fn topic_response(found: Found, operations: i32) -> MetadataResponseTopic {
    match found {
        Found::Failed { name, id, error } => MetadataResponseTopic {
            error_code: error.code(),
            is_internal: name.as_deref().is_some_and(topics::is_internal),
            name: name.as_deref().map(string),
            topic_id: uuid(id),
            topic_authorized_operations: NO_OPERATIONS,
            ..MetadataResponseTopic::default()
        },
        Found::Topic(topic) => MetadataResponseTopic {
            name: Some(string(&topic.name)),
            topic_id: uuid(topic.id),
            is_internal: topics::is_internal(&topic.name),
            partitions: (0..).zip(&topic.partitions).map(partition_response).collect(),
            topic_authorized_operations: operations,
            ..MetadataResponseTopic::default()
        },
    }
}

fn partition_response((index, partition): (i32, &crate::metadata::Partition)) -> MetadataResponsePartition {
    let error = if partition.leader < 0 { ErrorCode::LeaderNotAvailable } else { ErrorCode::None };
    MetadataResponsePartition {
        error_code: error.code(),
        partition_index: index,
        leader_id: partition.leader,
        leader_epoch: partition.leader_epoch,
        replica_nodes: partition.replicas.clone(),
        isr_nodes: partition.isr.clone(),
        ..MetadataResponsePartition::default()
    }
}

pub(super) fn uuid(id: TopicId) -> KafkaUuid {
    let id = u128::from_be_bytes(id.0);
    KafkaUuid::from_parts((id >> 64) as u64, id as u64)
}
