//! ListOffsets (2): the earliest and the latest offset, the first at or after a time, the one with the largest timestamp.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::call::{Call, ConnectionError, ENTRIES_MAX, Response};
use super::context::Context;
use crate::io::yield_now;
use crate::log::{PartitionLog, ReadError};
use crate::metadata::ClusterImage;
use crate::storage::segment::TimestampedOffset;
use crate::wire::ErrorCode;
use crate::wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use crate::wire::messages::{ListOffsetsRequestData, ListOffsetsResponseData};

/// The end of what the reader may see.
const LATEST: i64 = -1;
/// The log start.
const EARLIEST: i64 = -2;
/// The record with the largest timestamp.
const MAX_TIMESTAMP: i64 = -3;
const MAX_TIMESTAMP_FROM: i16 = 7;
/// The oldest version that has a place for the leader epoch.
const LEADER_EPOCH_FROM: i16 = 4;
/// Other connections get their turn after so many partitions have been looked at.
const YIELD_AFTER: usize = 256;
/// "None", for offsets, timestamps and epochs.
const NONE: i64 = -1;

pub(super) fn handle(ctx: &Arc<Context>, call: Call, body: Bytes) -> Response {
    let ctx = Arc::clone(ctx);
    // Nothing is changed, and old segments may have to be read: it all happens while waiting, and until its turn comes
    // the request is kept as it came.
    Response::Deferred(Box::pin(async move {
        let request: ListOffsetsRequestData = call.decode(body)?;
        let entries = request.topics.iter().fold(request.topics.len(), |sum, topic| sum + topic.partitions.len());
        if entries > ENTRIES_MAX {
            return Err(ConnectionError::TooMany(entries, ENTRIES_MAX));
        }
        call.encode(&response(&ctx, call.version, &request).await)
    }))
}

async fn response(ctx: &Context, version: i16, request: &ListOffsetsRequestData) -> ListOffsetsResponseData {
    let image = ctx.metadata.image();
    let mut seen = BTreeSet::new();
    let mut duplicates = BTreeSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = (topic.name.as_str(), partition.partition_index);
            if !seen.insert(key) {
                duplicates.insert(key);
            }
        }
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    let mut looked = 0_usize;
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            looked += 1;
            if looked.is_multiple_of(YIELD_AFTER) {
                yield_now().await;
            }
            let name = topic.name.as_str();
            let found = if duplicates.contains(&(name, partition.partition_index)) {
                Err(ErrorCode::InvalidRequest)
            } else {
                look_up(ctx, &image, version, name, partition).await
            };
            let mut response = partition_response(partition.partition_index, found);
            if version < LEADER_EPOCH_FROM {
                response.leader_epoch = -1;
            }
            partitions.push(response);
        }
        topics.push(ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions,
            ..ListOffsetsTopicResponse::default()
        });
    }
    ListOffsetsResponseData { topics, ..ListOffsetsResponseData::default() }
}

/// An offset, its timestamp and its leader epoch, each as far as known.
struct Found {
    offset: i64,
    timestamp: i64,
    leader_epoch: i32,
}

fn partition_response(index: i32, found: Result<Found, ErrorCode>) -> ListOffsetsPartitionResponse {
    let (error, found) = match found {
        Ok(found) => (ErrorCode::None, found),
        Err(error) => (error, Found { offset: NONE, timestamp: NONE, leader_epoch: -1 }),
    };
    ListOffsetsPartitionResponse {
        partition_index: index,
        error_code: error.code(),
        timestamp: found.timestamp,
        offset: found.offset,
        leader_epoch: found.leader_epoch,
        ..ListOffsetsPartitionResponse::default()
    }
}

async fn look_up(
    ctx: &Context,
    image: &ClusterImage,
    version: i16,
    topic: &str,
    partition: &ListOffsetsPartition,
) -> Result<Found, ErrorCode> {
    let log = ctx.leader_log(image, topic, partition.partition_index, partition.current_leader_epoch)?;
    match partition.timestamp {
        // Without transactions, the ends for both isolation levels are the same.
        LATEST => Ok(Found { offset: log.offsets().high_watermark, timestamp: NONE, leader_epoch: log.leader_epoch() }),
        EARLIEST => {
            let offset = log.offsets().log_start;
            Ok(Found { offset, timestamp: NONE, leader_epoch: epoch_at(&log, offset) })
        }
        MAX_TIMESTAMP if version >= MAX_TIMESTAMP_FROM => Ok(timed(ctx, &log, log.max_timestamp().await, topic)?),
        timestamp if timestamp >= 0 => Ok(timed(ctx, &log, log.offset_for_time(timestamp).await, topic)?),
        _ => Err(ErrorCode::UnsupportedVersion),
    }
}

fn timed(
    ctx: &Context,
    log: &PartitionLog,
    found: Result<Option<TimestampedOffset>, ReadError>,
    topic: &str,
) -> Result<Found, ErrorCode> {
    match found {
        // Not durable yet: not there for a reader.
        Ok(Some(found)) if found.offset < log.offsets().high_watermark => {
            Ok(Found { offset: found.offset, timestamp: found.timestamp, leader_epoch: epoch_at(log, found.offset) })
        }
        Ok(_) => Ok(Found { offset: NONE, timestamp: NONE, leader_epoch: -1 }),
        Err(error) => {
            if ctx.env.may_log("failed reads", None) {
                tracing::error!("looking up an offset by time in {topic} failed: {error}");
            }
            Err(ErrorCode::KafkaStorageError)
        }
    }
}

fn epoch_at(log: &PartitionLog, offset: i64) -> i32 {
    log.epoch_at(offset).unwrap_or_else(|| log.leader_epoch())
}
