//! Fetch (1): records from an offset on, at once or as soon as there are enough.
//!
//! Sessions are declined: every answer says session 0, so clients name all their partitions each time.
//!
//! A request that waits for its turn is kept as it came, so that what it takes up is what it was given room for. When
//! its turn comes, it is brought to one small entry for each partition.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::call::{Call, ConnectionError, ENTRIES_MAX, Response, ResponseFrame};
use super::context::Context;
use crate::io::{Monotonic, yield_now};
use crate::log::{Isolation, PartitionLog, ReadError};
use crate::metadata::ClusterImage;
use crate::wire::ErrorCode;
use crate::wire::messages::fetch_types::FetchRequestData;
use crate::wire::messages::{FetchPartitionResponse, FetchResponse, FetchTopicResponse, KafkaString};

const READ_COMMITTED: i8 = 1;
/// Session epochs with which a request names all its partitions: "a new session" and "no session".
const FULL_SESSION_EPOCHS: [i32; 2] = [0, -1];
/// Bytes of records that an answer may have whatever else is in memory.
const FREE_BYTES: usize = 256 * 1024;
/// A request that takes up memory that others may want waits no longer than this, which is what clients ask for unless
/// told otherwise (`fetch.max.wait.ms`). One of some thousand partitions takes up none.
const HOLDING_WAIT_MAX: Duration = Duration::from_millis(500);
/// Other connections get their turn after so many partitions have been looked at.
const YIELD_AFTER: usize = 256;
/// A waiting request whose minimum has not come is looked at no more often than this.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

pub(super) fn handle(ctx: &Arc<Context>, call: Call, body: Bytes, holds_up_others: bool) -> Response {
    let (ctx, arrived) = (Arc::clone(ctx), ctx.env.now());
    Response::Deferred(Box::pin(async move { response(ctx, call, body, arrived, holds_up_others).await }))
}

async fn response(
    ctx: Arc<Context>,
    call: Call,
    body: Bytes,
    arrived: Monotonic,
    holds_up_others: bool,
) -> Result<ResponseFrame, ConnectionError> {
    let request: FetchRequestData = call.decode(body)?;
    let entries = request.topics.iter().fold(request.topics.len(), |sum, topic| sum + topic.partitions.len());
    if entries > ENTRIES_MAX {
        return Err(ConnectionError::TooMany(entries, ENTRIES_MAX));
    }
    if request.session_id != 0 && !FULL_SESSION_EPOCHS.contains(&request.session_epoch) {
        // No session was ever given out: this one is of another broker, or of a time before a restart.
        let response = FetchResponse {
            throttle_time_ms: 0,
            error: ErrorCode::FetchSessionIdNotFound,
            session_id: 0,
            topics: Vec::new(),
        };
        return Ok(response.encode(call.version, call.correlation_id)?.into());
    }
    let mut wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or_default());
    if holds_up_others {
        wait = wait.min(HOLDING_WAIT_MAX);
    }
    let bytes_max = usize::try_from(request.max_bytes).unwrap_or_default().min(ctx.settings.fetch_bytes_max);
    let topics = by_topic(&request);
    let fetch = Fetch {
        ctx,
        isolation: if request.isolation_level == READ_COMMITTED {
            Isolation::LastStable
        } else {
            Isolation::HighWatermark
        },
        follower: request.replica_id >= 0,
        deadline: arrived + wait,
        bytes_min: usize::try_from(request.min_bytes).unwrap_or_default().min(bytes_max),
        bytes_max,
        topics,
    };
    drop(request);
    fetch.run(call).await
}

/// What is asked of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    index: i32,
    leader_epoch: i32,
    offset: i64,
    last_fetched_epoch: i32,
    bytes_max: i32,
}

/// What is asked for, as it is answered: entries of one topic in a row become one, and of two entries for a partition
/// the later one counts, as in Kafka.
fn by_topic(request: &FetchRequestData) -> Vec<(KafkaString, Vec<Asked>)> {
    let mut topics: Vec<(KafkaString, Vec<Asked>)> = Vec::new();
    let mut places = BTreeMap::new();
    for topic in &request.topics {
        if topics.last().is_none_or(|(name, _)| *name != topic.topic) {
            topics.push((topic.topic.clone(), Vec::new()));
        }
        let group = topics.len() - 1;
        for partition in &topic.partitions {
            let asked = Asked {
                index: partition.partition,
                leader_epoch: partition.current_leader_epoch,
                offset: partition.fetch_offset,
                last_fetched_epoch: partition.last_fetched_epoch,
                bytes_max: partition.partition_max_bytes,
            };
            let entry = places.entry((topic.topic.as_str(), asked.index));
            let (group, at) = *entry.or_insert((group, topics[group].1.len()));
            match topics[group].1.get_mut(at) {
                Some(earlier) => *earlier = asked,
                None => topics[group].1.push(asked),
            }
        }
    }
    topics
}

/// Where the reader's log parts from this one, if it says in which epoch its last record was written (KIP-595).
fn divergence(log: &PartitionLog, partition: &Asked) -> Result<Option<(i32, i64)>, ErrorCode> {
    if partition.last_fetched_epoch < 0 {
        return Ok(None);
    }
    if partition.offset < log.offsets().log_start {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    let (epoch, end_offset) = log.end_of_epoch(partition.last_fetched_epoch).ok_or(ErrorCode::OffsetOutOfRange)?;
    let parts = epoch < partition.last_fetched_epoch || end_offset < partition.offset;
    Ok(parts.then_some((epoch, end_offset)))
}

/// A fetch on its way.
struct Fetch {
    ctx: Arc<Context>,
    isolation: Isolation,
    follower: bool,
    deadline: Monotonic,
    bytes_min: usize,
    bytes_max: usize,
    topics: Vec<(KafkaString, Vec<Asked>)>,
}

/// What one look found.
struct Look {
    topics: Vec<FetchTopicResponse>,
    bytes: usize,
    /// An error, or a request without partitions: there is nothing to wait for.
    final_: bool,
}

impl Fetch {
    async fn run(self, call: Call) -> Result<ResponseFrame, ConnectionError> {
        let mut stopping = self.ctx.stopping.clone();
        loop {
            // Subscribed before looking, so that nothing that comes after the look goes unnoticed.
            let image = self.ctx.metadata.image();
            let mut ends = self.ends(&image);
            let (mut memory, bytes_max) = self.memory();
            let look = self.look(&image, bytes_max).await;
            let now = self.ctx.env.now();
            let done = look.bytes >= self.bytes_min.min(bytes_max)
                || look.final_
                || now >= self.deadline
                || *stopping.borrow();
            if done {
                let response =
                    FetchResponse { throttle_time_ms: 0, error: ErrorCode::None, session_id: 0, topics: look.topics };
                if let Some(memory) = &mut memory {
                    drop(memory.split(memory.num_permits().saturating_sub(look.bytes)));
                }
                return Ok(ResponseFrame { pieces: response.encode(call.version, call.correlation_id)?, memory });
            }
            let mut pause = Duration::ZERO;
            if look.bytes > 0 {
                // Some data is there and more is wanted: do not read it again for each record that arrives.
                pause = LOOK_INTERVAL.min(self.deadline - now);
            }
            drop((look, memory));
            tokio::select! { biased;
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = any_change(&mut ends) => {}
                () = self.ctx.env.sleep_until(self.deadline) => {}
            }
            if !pause.is_zero() {
                self.ctx.env.sleep(pause).await;
            }
        }
    }

    /// Memory for one answer, and how many bytes it may have. Answers that nobody takes must not fill the memory: when
    /// what is set aside for all is given out, an answer gets little instead of waiting.
    fn memory(&self) -> (Option<OwnedSemaphorePermit>, usize) {
        let asked = self.topics.iter().flat_map(|(_, partitions)| partitions);
        let asked: usize = asked.map(|partition| usize::try_from(partition.bytes_max).unwrap_or_default()).sum();
        let wanted = asked.min(self.bytes_max);
        if wanted <= FREE_BYTES {
            return (None, self.bytes_max);
        }
        let permits = u32::try_from(wanted).unwrap_or(u32::MAX);
        match Arc::clone(&self.ctx.fetch_memory).try_acquire_many_owned(permits) {
            Ok(memory) => (Some(memory), self.bytes_max),
            Err(_) => (None, self.bytes_max.min(FREE_BYTES)),
        }
    }

    /// The ends of all logs that are asked for.
    fn ends(&self, image: &ClusterImage) -> Vec<watch::Receiver<i64>> {
        let mut ends = Vec::new();
        for (topic, partitions) in &self.topics {
            for partition in partitions {
                if let Ok(log) = self.log(image, topic, partition) {
                    ends.push(log.watch_end());
                }
            }
        }
        ends
    }

    fn log(
        &self,
        image: &ClusterImage,
        topic: &KafkaString,
        partition: &Asked,
    ) -> Result<Arc<PartitionLog>, ErrorCode> {
        if self.follower {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        self.ctx.leader_log(image, topic.as_str(), partition.index, partition.leader_epoch)
    }

    /// Reads all partitions once.
    async fn look(&self, image: &ClusterImage, bytes_max: usize) -> Look {
        let mut look = Look { topics: Vec::with_capacity(self.topics.len()), bytes: 0, final_: true };
        let mut failed = false;
        let mut looked = 0_usize;
        for (topic, partitions) in &self.topics {
            let mut responses = Vec::with_capacity(partitions.len());
            for partition in partitions {
                look.final_ = false;
                looked += 1;
                if looked.is_multiple_of(YIELD_AFTER) {
                    yield_now().await;
                }
                let room = bytes_max.saturating_sub(look.bytes);
                // The first batch of an answer always passes, or a reader could never get beyond a large one.
                let min_one = look.bytes == 0;
                let response = self.read(image, topic, partition, room, min_one).await;
                look.bytes += response.records_len();
                failed |= response.error != ErrorCode::None || response.diverging_epoch.is_some();
                responses.push(response);
            }
            look.topics.push(FetchTopicResponse { topic: topic.clone(), partitions: responses });
        }
        look.final_ |= failed;
        look
    }

    async fn read(
        &self,
        image: &ClusterImage,
        topic: &KafkaString,
        partition: &Asked,
        room: usize,
        min_one: bool,
    ) -> FetchPartitionResponse {
        let index = partition.index;
        let log = match self.log(image, topic, partition) {
            Ok(log) => log,
            Err(error) => {
                let mut response = FetchPartitionResponse::failed(index, error);
                if error == ErrorCode::UnknownTopicOrPartition {
                    // What Kafka sends here, and only here.
                    response.aborted_transactions = Some(Vec::new());
                }
                return response;
            }
        };
        match divergence(&log, partition) {
            Ok(None) => {}
            Ok(diverging_epoch) => return diverging(index, &log, diverging_epoch),
            Err(error) => return FetchPartitionResponse::failed(index, error),
        }
        let bytes_max = usize::try_from(partition.bytes_max).unwrap_or_default().min(room);
        match log.read(partition.offset, bytes_max, min_one, self.isolation).await {
            Ok(read) => FetchPartitionResponse {
                index,
                error: ErrorCode::None,
                high_watermark: read.high_watermark,
                last_stable_offset: read.last_stable_offset,
                log_start_offset: read.log_start_offset,
                aborted_transactions: (self.isolation == Isolation::LastStable).then(Vec::new),
                diverging_epoch: None,
                preferred_read_replica: -1,
                records: read.batches,
            },
            Err(ReadError::OutOfRange { .. }) => FetchPartitionResponse::failed(index, ErrorCode::OffsetOutOfRange),
            Err(error) => {
                if self.ctx.env.may_log("failed reads", None) {
                    tracing::error!("reading {} partition {index} failed: {error}", topic.as_str());
                }
                FetchPartitionResponse::failed(index, ErrorCode::KafkaStorageError)
            }
        }
    }
}

/// An answer without records that says where the reader has to go back to.
fn diverging(index: i32, log: &PartitionLog, diverging_epoch: Option<(i32, i64)>) -> FetchPartitionResponse {
    let offsets = log.offsets();
    FetchPartitionResponse {
        high_watermark: offsets.high_watermark,
        last_stable_offset: offsets.high_watermark,
        log_start_offset: offsets.log_start,
        diverging_epoch,
        ..FetchPartitionResponse::failed(index, ErrorCode::None)
    }
}

/// Resolves when one of the values has changed.
async fn any_change(values: &mut [watch::Receiver<i64>]) {
    let mut waiting: Vec<Pin<Box<dyn Future<Output = bool> + Send + '_>>> = values
        .iter_mut()
        .map(|value| {
            Box::pin(async move { value.changed().await.is_ok() }) as Pin<Box<dyn Future<Output = bool> + Send>>
        })
        .collect();
    std::future::poll_fn(|context| {
        let mut at = 0;
        while at < waiting.len() {
            match waiting[at].as_mut().poll(context) {
                Poll::Ready(true) => return Poll::Ready(()),
                // That log is gone: nothing more will come from it.
                Poll::Ready(false) => drop(waiting.swap_remove(at)),
                Poll::Pending => at += 1,
            }
        }
        Poll::Pending
    })
    .await;
}
