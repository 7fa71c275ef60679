//! Produce (0): checks each partition's batch, appends it in the order of the requests, answers when it is durable.
//!
//! Whatever `acks` says, an append is durable before it is acknowledged (0 asks for no acknowledgement); all replicas of
//! a cluster of one are this broker.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::{Call, ConnectionError, Response};
use super::context::Context;
use super::peer::Peer;
use super::topics::is_internal;
use crate::io::{Monotonic, yield_now};
use crate::log::{AppendError, PartitionLog, Pending};
use crate::metadata::{ClusterImage, TopicConfig};
use crate::wire::ErrorCode;
use crate::wire::batch::{BatchError, BatchFacts, BatchFault, BatchLimits, RecordBatch, Validation};
use crate::wire::codec::Codec;
use crate::wire::frame::Pieces;
use crate::wire::messages::produce_types::{
    BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse, TopicProduceResponse,
};
use crate::wire::messages::{KafkaString, ProduceRequestData, ProduceResponseData, encode_old_produce_response, text};

/// The oldest version whose record format is supported.
const FORMAT_FROM: i16 = 3;
/// The oldest version that may carry zstd.
const ZSTD_FROM: i16 = 7;
/// Batches larger than this are checked off the reactor.
const CHECK_INLINE_BYTES_MAX: usize = 64 * 1024;
/// The same for compressed batches, of which a few bytes can stand for very many.
const CHECK_INLINE_COMPRESSED_BYTES_MAX: usize = 16 * 1024;
/// What may come out of a compressed batch that is checked on the reactor: a fraction of a millisecond. Nearly all
/// batches of that size are done with that; a rare one that expands more starts over off the reactor.
const INFLATE_INLINE_BYTES_MAX: usize = 256 * 1024;
/// What may come out of all compressed batches of one request. Each alone may have 100 MiB.
const INFLATE_REQUEST_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Other connections get their turn after so many bytes have been checked on the reactor.
const YIELD_AFTER_BYTES: usize = 256 * 1024;
/// What a partition costs at the least, counted in bytes checked.
const PARTITION_COST_BYTES: usize = 1024;
/// How long a batch waits for room in its partition's queue, if its client does not say less (`timeout_ms`). That is how
/// long clients wait for an answer unless told otherwise (`request.timeout.ms`): nobody would read a later one.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Characters of a topic's name in a log line: the longest valid name.
const TOPIC_CHARS_MAX: usize = 249;
/// Characters of a reason in a log line.
const WHY_CHARS_MAX: usize = 300;
const NO_ACKS: i16 = 0;
const ALL_ACKS: i16 = -1;

pub(super) async fn handle(
    ctx: &Arc<Context>,
    peer: &Peer,
    call: Call,
    body: Bytes,
    frame_len: usize,
) -> Result<Response, ConnectionError> {
    let request: ProduceRequestData = call.decode(body)?;
    if call.version < FORMAT_FROM {
        return refuse_old(call, &request);
    }
    let image = ctx.metadata.image();
    let mut produce = Produce {
        ctx,
        image: &image,
        version: call.version,
        acks: request.acks,
        transactional: request.transactional_id.is_some(),
        deadline: ctx.env.now() + queue_wait(request.timeout_ms),
        frame_len,
        inflated: 0,
        since_yield: 0,
    };
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for topic in request.topic_data {
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for partition in topic.partition_data {
            let index = partition.index;
            produce.yield_now_and_then().await;
            let result = produce.append(topic.name.as_str(), partition).await;
            if let Err(failed) = &result {
                log_refusal(ctx, peer, topic.name.as_str(), index, failed);
            }
            partitions.push((index, result));
        }
        topics.push((topic.name, partitions));
    }
    if request.acks == NO_ACKS {
        let failed = topics.iter().flat_map(|(_, partitions)| partitions).find_map(|(_, result)| result.as_ref().err());
        return match failed {
            // Closing makes the client look at the metadata again.
            Some(failed) => Err(ConnectionError::Unanswerable(failed.error.name())),
            None => Ok(Response::Nothing),
        };
    }
    Ok(Response::Deferred(Box::pin(async move { call.encode(&response(topics).await) })))
}

/// How long a request waits for room in the queues of its partitions.
fn queue_wait(timeout_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(timeout_ms).unwrap_or_default()).min(QUEUE_WAIT_MAX)
}

/// Enough to find out whose records they are.
fn log_refusal(ctx: &Context, peer: &Peer, topic: &str, partition: i32, failed: &Failed) {
    let remote = peer.remote;
    if !ctx.env.may_log("refused records", Some(remote.ip())) {
        return;
    }
    // The name is the client's: it may be long, and hold anything.
    let topic: String = topic.chars().take(TOPIC_CHARS_MAX).collect();
    let why = failed.message.as_deref().or(failed.detail.as_deref()).unwrap_or("no more is known");
    let why: String = why.chars().take(WHY_CHARS_MAX).collect();
    let error = failed.error.name();
    tracing::warn!("records for {topic:?} partition {partition} from {remote} refused with {error}: {why:?}");
}

/// Versions whose record formats are not supported are offered all the same: see the table of APIs.
fn refuse_old(call: Call, request: &ProduceRequestData) -> Result<Response, ConnectionError> {
    let error = ErrorCode::UnsupportedVersion;
    if request.acks == NO_ACKS {
        return Err(ConnectionError::Unanswerable(error.name()));
    }
    let response = encode_old_produce_response(request, call.version, call.correlation_id, error)?;
    Ok(Response::Ready(Pieces::from(response).into()))
}

type Topics = Vec<(KafkaString, Vec<(i32, Result<Appended, Failed>)>)>;

/// A batch that has its offsets.
struct Appended {
    pending: Pending,
    log: Arc<PartitionLog>,
}

/// Why a batch was refused.
struct Failed {
    error: ErrorCode,
    message: Option<String>,
    /// What the answer has no place for, said in the broker's log.
    detail: Option<String>,
    /// The log start, where the log itself refused.
    log_start: i64,
    /// The record at fault, and what is wrong with it.
    record: Option<(i32, String)>,
}

impl Failed {
    fn new(error: ErrorCode) -> Self {
        Self { error, message: None, detail: None, log_start: -1, record: None }
    }

    fn with(error: ErrorCode, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::new(error) }
    }

    /// One record is at fault, said in Kafka's words.
    fn record(error: ErrorCode, log: &PartitionLog, index: i32, why: String) -> Self {
        let message = format!(
            "One or more records have been rejected due to 1 record errors in total, and only showing the first three errors at most: [RecordError(batchIndex={index}, message='{why}')]"
        );
        let log_start = log.offsets().log_start;
        Self { message: Some(message), log_start, record: Some((index, why)), ..Self::new(error) }
    }
}

/// What the partitions of one request share.
struct Produce<'a> {
    ctx: &'a Arc<Context>,
    image: &'a ClusterImage,
    version: i16,
    acks: i16,
    transactional: bool,
    deadline: Monotonic,
    frame_len: usize,
    /// What has come out of compressed batches, in bytes.
    inflated: usize,
    /// Bytes checked on the reactor since others had their turn.
    since_yield: usize,
}

impl Produce<'_> {
    async fn yield_now_and_then(&mut self) {
        self.since_yield += PARTITION_COST_BYTES;
        if self.since_yield > YIELD_AFTER_BYTES {
            self.since_yield = 0;
            yield_now().await;
        }
    }

    async fn append(&mut self, topic: &str, partition: PartitionProduceData) -> Result<Appended, Failed> {
        if !(ALL_ACKS..=1).contains(&self.acks) {
            return Err(Failed::new(ErrorCode::InvalidRequiredAcks));
        }
        let batch = self.only_batch(partition.records)?;
        if is_internal(topic) {
            return Err(Failed::with(ErrorCode::InvalidTopic, format!("Cannot append to internal topic {topic}")));
        }
        let log = self.ctx.leader_log(self.image, topic, partition.index, -1).map_err(Failed::new)?;
        let topic = self.image.topic(topic).expect("a topic that is led exists");
        let config = self.ctx.topic_config(topic);
        let at = usize::try_from(partition.index).expect("a partition that is led exists");
        let in_sync = topic.partitions[at].isr.len();
        if self.acks == ALL_ACKS && in_sync < usize::try_from(config.min_insync_replicas).unwrap_or_default() {
            let why = format!(
                "The size of the current ISR : {in_sync} is insufficient to satisfy the min.isr requirement of {} for partition {}-{}",
                config.min_insync_replicas, topic.name, partition.index
            );
            return Err(Failed::with(ErrorCode::NotEnoughReplicas, why));
        }
        let facts = self.check(&batch, &config, &log).await?;
        if config.cleanup_policy.compact
            && let Some(record) = facts.first_unkeyed
        {
            let why = format!(
                "Compacted topic cannot accept message without key in topic partition {}-{}",
                topic.name, partition.index
            );
            return Err(Failed::record(ErrorCode::InvalidRecord, &log, record, why));
        }
        let mut stopping = self.ctx.stopping.clone();
        let gives_up = async {
            tokio::select! { biased;
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = self.ctx.env.sleep_until(self.deadline) => {}
            }
        };
        let permit = log.reserve(&batch, gives_up).await.map_err(|full| match *self.ctx.stopping.borrow() {
            // What an append to a log that has been closed gets: the client looks for another leader and sends it again.
            true => Failed::new(ErrorCode::NotLeaderOrFollower),
            false => Failed::with(ErrorCode::RequestTimedOut, full.to_string()),
        })?;
        match log.append(batch, &facts, self.frame_len, permit) {
            Ok(pending) => Ok(Appended { pending, log }),
            Err(error) => Err(append_failed(&log, error)),
        }
    }

    /// The one batch that a request may carry for a partition.
    fn only_batch(&self, records: Option<Bytes>) -> Result<RecordBatch, Failed> {
        let version = self.version;
        let records = records.filter(|records| !records.is_empty()).ok_or_else(|| {
            let why = format!("Produce requests with version {version} must have at least one record batch");
            Failed::with(ErrorCode::InvalidRecord, why)
        })?;
        let mut batches = RecordBatch::split(records).map_err(|error| fault(error.fault(), &error.to_string()))?;
        if batches.len() > 1 {
            let why = format!(
                "Produce requests with version {version} are only allowed to contain exactly one record batch per partition"
            );
            return Err(Failed::with(ErrorCode::InvalidRecord, why));
        }
        let batch = batches.pop().expect("non-empty bytes split into at least one batch");
        if version < ZSTD_FROM && matches!(batch.codec(), Ok(Codec::Zstd)) {
            let why = format!("Produce requests with version {version} are not allowed to use ZStandard compression");
            return Err(Failed::with(ErrorCode::UnsupportedCompressionType, why));
        }
        if batch.is_transactional() || self.transactional {
            return Err(Failed::with(ErrorCode::InvalidTxnState, "transactions are not built in this version of Kilo"));
        }
        Ok(batch)
    }

    async fn check(
        &mut self,
        batch: &RecordBatch,
        config: &TopicConfig,
        log: &PartitionLog,
    ) -> Result<BatchFacts, Failed> {
        let max = config.max_message_bytes;
        if batch.size() > usize::try_from(max).unwrap_or_default() {
            let why = format!(
                "The batch has {} bytes and the topic takes {max} (max.message.bytes, which follows the broker's message.max.bytes)",
                batch.size()
            );
            return Err(Failed::with(ErrorCode::MessageTooLarge, why));
        }
        // Whether all records have keys is only known by looking at them.
        let mode = if config.cleanup_policy.compact { Validation::Strict } else { self.ctx.settings.validation };
        let largest = usize::try_from(config.max_decompressed_message_bytes).unwrap_or_default();
        let limits = BatchLimits::default();
        let limits = BatchLimits { decompressed_bytes_max: largest.min(limits.decompressed_bytes_max) };
        let inflates = mode == Validation::Strict && !matches!(batch.codec(), Ok(Codec::None));
        let checked =
            if inflates { self.inflate(batch, &limits).await? } else { self.walk(batch, mode, &limits).await? };
        checked.map_err(|error| {
            let mut failed = fault(error.fault(), &error.to_string());
            if error.fault() == BatchFault::Invalid || error.fault() == BatchFault::Timestamp {
                failed.log_start = log.offsets().log_start;
            }
            failed
        })
    }
}

/// What the check of a batch found.
type Checked = Result<BatchFacts, BatchError>;

impl Produce<'_> {
    /// Checks a batch that is not decompressed for it.
    async fn walk(&mut self, batch: &RecordBatch, mode: Validation, limits: &BatchLimits) -> Result<Checked, Failed> {
        if batch.size() > CHECK_INLINE_BYTES_MAX {
            return self.off_reactor(batch, mode, limits).await;
        }
        self.since_yield += batch.size();
        Ok(batch.validate(mode, limits))
    }

    /// Checks a compressed batch. How long that takes depends on what comes out of it, so the reactor does only what
    /// surely is little.
    async fn inflate(&mut self, batch: &RecordBatch, limits: &BatchLimits) -> Result<Checked, Failed> {
        if batch.size() <= CHECK_INLINE_COMPRESSED_BYTES_MAX {
            let little = limits.decompressed_bytes_max.min(INFLATE_INLINE_BYTES_MAX);
            let checked = batch.validate(Validation::Strict, &BatchLimits { decompressed_bytes_max: little });
            self.since_yield += checked.as_ref().map_or(little, |facts| facts.decompressed_bytes);
            let is_more = checked.as_ref().is_err_and(|error| error.fault() == BatchFault::TooLarge);
            if !is_more || little == limits.decompressed_bytes_max {
                return Ok(checked);
            }
        }
        let left = INFLATE_REQUEST_BYTES_MAX - self.inflated;
        if left < limits.decompressed_bytes_max {
            let why =
                format!("more than {INFLATE_REQUEST_BYTES_MAX} bytes come out of the decompression of one request");
            return Err(Failed::with(ErrorCode::MessageTooLarge, why));
        }
        let checked = self.off_reactor(batch, Validation::Strict, limits).await?;
        self.inflated += match &checked {
            Ok(facts) => facts.decompressed_bytes,
            Err(BatchError::Crc { .. }) => 0,
            // How much came out before the fault is not known.
            Err(_) => limits.decompressed_bytes_max,
        };
        Ok(checked)
    }

    async fn off_reactor(
        &mut self,
        batch: &RecordBatch,
        mode: Validation,
        limits: &BatchLimits,
    ) -> Result<Checked, Failed> {
        let (batch, limits) = (batch.clone(), *limits);
        let checked = self.ctx.env.compute(move || batch.validate(mode, &limits)).await;
        checked.ok_or_else(|| Failed::new(ErrorCode::UnknownServerError))
    }
}

fn fault(fault: BatchFault, why: &str) -> Failed {
    match fault {
        // Kafka says no more than that either: the client sends it again.
        BatchFault::Corrupt => Failed::new(ErrorCode::CorruptMessage),
        BatchFault::Invalid => Failed::with(ErrorCode::InvalidRecord, why),
        BatchFault::Timestamp => Failed::with(ErrorCode::InvalidTimestamp, why),
        BatchFault::UnknownCodec => Failed::with(ErrorCode::UnsupportedCompressionType, why),
        BatchFault::TooLarge => Failed::with(ErrorCode::MessageTooLarge, why),
    }
}

fn append_failed(log: &PartitionLog, error: AppendError) -> Failed {
    // Kafka says no more than the code of these.
    let code =
        |code| Failed { log_start: log.offsets().log_start, detail: Some(error.to_string()), ..Failed::new(code) };
    match error {
        AppendError::OutOfOrderSequence { .. } => code(ErrorCode::OutOfOrderSequenceNumber),
        AppendError::InvalidProducerEpoch { .. } => code(ErrorCode::InvalidProducerEpoch),
        AppendError::InvalidTimestamp { timestamp, min, max } => {
            let why = format!(
                "Timestamp {timestamp} of message is out of range. The timestamp should be within [{min}, {max}]"
            );
            Failed::record(ErrorCode::InvalidTimestamp, log, 0, why)
        }
        AppendError::StorageFull | AppendError::Wal(_) => Failed::with(ErrorCode::KafkaStorageError, error.to_string()),
        AppendError::Closed => Failed::new(ErrorCode::NotLeaderOrFollower),
    }
}

async fn response(topics: Topics) -> ProduceResponseData {
    let mut responses = Vec::with_capacity(topics.len());
    for (name, partitions) in topics {
        let mut partition_responses = Vec::with_capacity(partitions.len());
        for (index, result) in partitions {
            let result = match result {
                Ok(appended) => durable(appended).await,
                Err(failed) => Err(failed),
            };
            partition_responses.push(result.unwrap_or_else(failed_answer_of).at(index));
        }
        responses.push(TopicProduceResponse { name, partition_responses, ..TopicProduceResponse::default() });
    }
    ProduceResponseData { responses, ..ProduceResponseData::default() }
}

/// A partition's answer without its number.
struct PartitionResponse(PartitionProduceResponse);

impl PartitionResponse {
    fn at(self, index: i32) -> PartitionProduceResponse {
        PartitionProduceResponse { index, ..self.0 }
    }
}

/// Waits until the batch is durable, however long the request says that may take: the time-out is for replicas, of which
/// this broker is the only one. "Timed out" would be untrue of records that are stored a moment later, and have clients
/// send them again.
async fn durable(appended: Appended) -> Result<PartitionResponse, Failed> {
    let Appended { pending, log } = appended;
    let (base_offset, append_time) = (pending.base_offset, pending.append_time);
    pending.durable().await.map_err(|error| append_failed(&log, error))?;
    Ok(PartitionResponse(PartitionProduceResponse {
        base_offset,
        log_append_time_ms: append_time.unwrap_or(-1),
        log_start_offset: log.offsets().log_start,
        ..PartitionProduceResponse::default()
    }))
}

fn failed_answer_of(failed: Failed) -> PartitionResponse {
    let record_errors = failed
        .record
        .map(|(batch_index, why)| BatchIndexAndErrorMessage {
            batch_index,
            batch_index_error_message: Some(text(&why)),
            ..BatchIndexAndErrorMessage::default()
        })
        .into_iter()
        .collect();
    PartitionResponse(PartitionProduceResponse {
        error_code: failed.error.code(),
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: failed.log_start,
        record_errors,
        error_message: failed.message.as_deref().map(text),
        ..PartitionProduceResponse::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_room_for_longer_than_a_client_waits() {
        let waits = [-1, 0, 1500, 30_000, i32::MAX].map(queue_wait);
        assert_eq!(waits, [0, 0, 1500, 30_000, 30_000].map(Duration::from_millis));
    }
}
