//! A partition's log: appending, committing, and what is known about its offsets. Reading is in [`super::read`], the
//! way to the segment files in [`super::write_behind`].
//!
//! One short mutex guards what an append touches. It is never held across an await; the write-ahead log's queue is the
//! only lock taken under it, so that entries of a partition are queued in the order of their offsets.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::config::{LogConfig, LogManagerConfig, TimestampType};
use super::context::LogContext;
use super::epochs::EpochCache;
use super::producer::{ProducerBatch, Producers};
use super::segments::Segments;
use super::state::{Admission, AppendState, SequenceError, Ticket};
use crate::io::{CoreMutex, CoreRwLock, Held, Monotonic};
use crate::storage::wal::{Entry, WalFailed};
use crate::storage::{Lsn, PartitionKey, Ring};
use crate::wire::batch::{BatchFacts, NO_TIMESTAMP, RecordBatch, Stamp};

/// Where a partition stands. Offsets are of records; `high_watermark` is the end of what consumers may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// First offset that may be read.
    pub log_start: i64,
    /// End of what is durable.
    pub high_watermark: i64,
    /// The next offset to be given.
    pub log_end: i64,
}

/// Why a batch was not appended. Nothing was changed, unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// See [`SequenceError::OutOfOrder`].
    #[error("producer {producer_id} with epoch {epoch} sent sequence {sequence}, but {expected} is next")]
    OutOfOrderSequence {
        /// The producer.
        producer_id: i64,
        /// Its epoch.
        epoch: i16,
        /// The first sequence of the batch.
        sequence: i32,
        /// The sequence that would be next.
        expected: i32,
    },
    /// See [`SequenceError::InvalidEpoch`].
    #[error("producer {producer_id} with epoch {epoch} has been fenced by a newer epoch")]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: i64,
        /// The epoch it used.
        epoch: i16,
    },
    /// The timestamp lies outside what the topic allows.
    #[error("timestamp {timestamp} is outside the allowed range [{min}, {max}]")]
    InvalidTimestamp {
        /// The offending timestamp (milliseconds).
        timestamp: i64,
        /// Least allowed.
        min: i64,
        /// Greatest allowed.
        max: i64,
    },
    /// Too little space is left on the disk: see [`super::space`].
    #[error("the disk is full: producing resumes by itself when there is space again")]
    StorageFull,
    /// The write-ahead log could not take the append; it has been taken back.
    #[error("the write-ahead log could not take the append: {0}")]
    Wal(String),
    /// The log is closing.
    #[error("the log is closing")]
    Closed,
}

/// `ERR_QUEUE_FULL`: the partition's queue had no room for as long as its producer may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERR_QUEUE_FULL: the partition's queue (queue.size) had no room in time; slow down or add partitions")]
pub struct QueueFull;

/// Room in a partition's queue for one batch.
#[derive(Debug)]
pub struct QueuePermit {
    queue: OwnedSemaphorePermit,
    tail: OwnedSemaphorePermit,
}

/// Who waits for an append, and the room it takes until it is durable.
#[derive(Debug)]
pub(super) struct Waiter {
    done: oneshot::Sender<Result<(), AppendError>>,
    permit: Option<QueuePermit>,
    /// Size of the allocation that the batch is a part of.
    backing_bytes: usize,
}

/// An append that has its offsets and waits to be durable.
#[derive(Debug)]
pub struct Pending {
    /// Offset of the batch's first record. For a retry, that of the first time.
    pub base_offset: i64,
    /// Offset of the batch's last record.
    pub last_offset: i64,
    /// The broker's time stored with the batch, where the topic uses `LogAppendTime` (milliseconds).
    pub append_time: Option<i64>,
    done: oneshot::Receiver<Result<(), AppendError>>,
}

impl Pending {
    /// Resolves once the append is durable as far as `wal.sync` promises.
    pub async fn durable(self) -> Result<(), AppendError> {
        self.done.await.unwrap_or(Err(AppendError::Closed))
    }
}

/// What the mutex guards.
pub(super) struct Inner {
    pub(super) append: AppendState<Waiter>,
    pub(super) epochs: EpochCache,
    pub(super) ring: Ring,
    /// Room of what is not written yet: (end offset, permit).
    unwritten: VecDeque<(i64, OwnedSemaphorePermit)>,
    /// Write-ahead log position and end offset of each committed append that no flush has covered.
    pub(super) unflushed: VecDeque<(Lsn, i64)>,
    /// The position of the newest append that a flush has covered.
    pub(super) flushed_lsn: Lsn,
    /// When the oldest append was committed that no checkpoint covers.
    pub(super) uncovered_since: Option<Monotonic>,
    pub(super) unwritten_bytes: usize,
    /// When the oldest byte came that is not written yet.
    pub(super) unwritten_since: Option<Monotonic>,
    /// Whether a task is writing this partition behind.
    pub(super) writing: bool,
    /// The last attempt to write this partition behind met a full disk or the like, and that was said.
    pub(super) stalled: bool,
    pub(super) closed: bool,
    /// An append failed: the write-ahead log may yet hold it, so a replay must be told that it was taken back.
    pub(super) taken_back: bool,
}

/// One partition's log.
pub struct PartitionLog {
    key: PartitionKey,
    pub(super) shared: Arc<LogContext>,
    pub(super) config: CoreRwLock<Arc<LogConfig>>,
    leader_epoch: AtomicI32,
    queue: Arc<Semaphore>,
    tail: Arc<Semaphore>,
    inner: CoreMutex<Inner>,
    high_watermark: watch::Sender<i64>,
    /// The segment files. Its async mutex makes the one writer.
    pub(super) segments: Segments,
}

/// What recovery found, to make a log of.
pub(super) struct Recovered {
    pub(super) log_start: i64,
    pub(super) log_end: i64,
    pub(super) epochs: EpochCache,
    pub(super) producers: Producers,
    pub(super) flushed_lsn: Lsn,
    pub(super) segments: Segments,
    /// Records that are durable in the write-ahead log and could not be brought to the segment files.
    pub(super) unwritten: Vec<RecordBatch>,
    /// Write-ahead log position and end offset of each entry that no checkpoint covers.
    pub(super) uncovered: VecDeque<(Lsn, i64)>,
}

impl Recovered {
    /// A partition that has never had a record.
    pub(super) fn nothing(segments: Segments) -> Self {
        Self {
            log_start: 0,
            log_end: 0,
            epochs: EpochCache::default(),
            producers: Producers::default(),
            flushed_lsn: Lsn::default(),
            segments,
            unwritten: Vec::new(),
            uncovered: VecDeque::new(),
        }
    }
}

impl PartitionLog {
    pub(super) fn new(
        key: PartitionKey,
        shared: Arc<LogContext>,
        config: LogConfig,
        leader_epoch: i32,
        recovered: Recovered,
    ) -> Arc<Self> {
        let limits: &LogManagerConfig = &shared.config;
        crate::position!("log.end", key, recovered.log_end);
        crate::position!("log.durable", key, recovered.log_end);
        let mut epochs = recovered.epochs;
        epochs.begin(leader_epoch, recovered.log_end);
        let written_end = recovered.unwritten.first().map_or(recovered.log_end, RecordBatch::base_offset);
        let mut ring = Ring::new(limits.tail.ring_bytes, written_end);
        let unwritten_bytes: usize = recovered.unwritten.iter().map(RecordBatch::size).sum();
        for batch in recovered.unwritten {
            let size = batch.size();
            ring.push(batch, size);
        }
        let now = shared.env.now();
        if let Some(&(lsn, _)) = recovered.uncovered.front() {
            shared.wal_floor.first(key, lsn);
        }
        let inner = Inner {
            append: AppendState::new(recovered.log_start, recovered.log_end, recovered.producers),
            epochs,
            ring,
            unwritten: VecDeque::new(),
            uncovered_since: (!recovered.uncovered.is_empty()).then_some(now),
            unflushed: recovered.uncovered,
            flushed_lsn: recovered.flushed_lsn,
            unwritten_bytes,
            unwritten_since: (unwritten_bytes > 0).then_some(now),
            writing: false,
            stalled: false,
            closed: false,
            taken_back: false,
        };
        Arc::new(Self {
            key,
            queue: Arc::new(Semaphore::new(limits.queue_bytes.max(1))),
            tail: Arc::new(Semaphore::new(limits.tail.unwritten_bytes.max(1))),
            config: CoreRwLock::new(&shared.env, "a partition's settings", Arc::new(config)),
            leader_epoch: AtomicI32::new(leader_epoch),
            inner: CoreMutex::new(&shared.env, "a partition's log", inner),
            high_watermark: watch::Sender::new(recovered.log_end),
            segments: recovered.segments,
            shared,
        })
    }

    /// Which partition this is.
    pub fn key(&self) -> PartitionKey {
        self.key
    }

    /// The leader epoch in which appends are made.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch.load(Ordering::Acquire)
    }

    /// The settings in force.
    pub fn config(&self) -> Arc<LogConfig> {
        Arc::clone(&self.config.read())
    }

    /// Replaces the settings.
    pub fn set_config(&self, config: LogConfig) {
        *self.config.write() = Arc::new(config);
    }

    /// Where the log stands.
    pub fn offsets(&self) -> Offsets {
        let inner = self.lock();
        Offsets {
            log_start: inner.append.log_start(),
            high_watermark: inner.append.high_watermark(),
            log_end: inner.append.log_end(),
        }
    }

    /// The epoch in which the record at `offset` was appended; at the log end, the newest.
    pub fn epoch_at(&self, offset: i64) -> Option<i32> {
        self.lock().epochs.epoch_at(offset)
    }

    /// The newest epoch that is not newer than `epoch`, and the offset at which it ended.
    pub fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let inner = self.lock();
        inner.epochs.end_of(epoch, inner.append.log_end())
    }

    /// Follows the high watermark.
    pub fn watch_end(&self) -> watch::Receiver<i64> {
        self.high_watermark.subscribe()
    }

    /// Waits for room for a batch in the partition's queue, until `gives_up` resolves.
    ///
    /// A batch larger than the whole queue takes all of it.
    pub async fn reserve(
        &self,
        batch: &RecordBatch,
        gives_up: impl Future<Output = ()>,
    ) -> Result<QueuePermit, QueueFull> {
        let (limits, bytes) = (&self.shared.config, batch.size());
        let queue_share = share(bytes, limits.queue_bytes);
        let tail_share = share(bytes, limits.tail.unwritten_bytes);
        let take = async {
            let tail = Arc::clone(&self.tail).acquire_many_owned(tail_share).await.map_err(|_| QueueFull)?;
            let queue = Arc::clone(&self.queue).acquire_many_owned(queue_share).await.map_err(|_| QueueFull)?;
            Ok(QueuePermit { queue, tail })
        };
        tokio::select! { biased;
            permit = take => permit,
            () = gives_up => {
                if let Some(producer) = ProducerBatch::of(batch) {
                    self.lock().append.refused(&producer, self.shared.producer_clock());
                }
                Err(QueueFull)
            }
        }
    }

    /// Appends a validated batch. Offsets are given in the order of the calls.
    ///
    /// `backing_bytes` is the size of the allocation that the batch is a part of: the request it came in.
    pub fn append(
        self: &Arc<Self>,
        batch: RecordBatch,
        facts: &BatchFacts,
        backing_bytes: usize,
        permit: QueuePermit,
    ) -> Result<Pending, AppendError> {
        let config = self.config();
        let now = self.shared.env.wall().0;
        let append_time = (config.timestamp_type == TimestampType::LogAppendTime).then_some(now);
        if append_time.is_none() {
            check_timestamps(&config, facts, now)?;
        }
        let producer = ProducerBatch::of(&batch);
        let (done, receiver) = oneshot::channel();
        let waiter = Waiter { done, permit: Some(permit), backing_bytes };

        let mut inner = self.lock();
        if inner.closed {
            return Err(AppendError::Closed);
        }
        let (first, what) = match inner.append.admit(producer.as_ref(), waiter) {
            Err(error) => return Err(sequence_error(error, &batch)),
            Ok(Admission::New { base_offset, waiter }) => {
                if self.shared.space.admit(batch.size() as u64).is_err() {
                    if let Some(producer) = &producer {
                        inner.append.refused(producer, self.shared.producer_clock());
                    }
                    drop(inner);
                    self.shared.space.refused();
                    return Err(AppendError::StorageFull);
                }
                let stamp = append_time.map_or_else(|| facts.create_stamp(&batch), Stamp::Append);
                let batch = batch.assign(base_offset, self.leader_epoch(), stamp);
                let last_offset = batch.last_offset();
                self.submit(&mut inner, batch, producer.as_ref(), waiter);
                return Ok(Pending { base_offset, last_offset, append_time, done: receiver });
            }
            Ok(Admission::Joined(first)) => {
                crate::sometimes!("log.retry_joined_in_flight");
                (first, "a retry waits for its batch to be durable")
            }
            Ok(Admission::Known(first, waiter)) => {
                crate::sometimes!("log.retry_known");
                let _ = waiter.done.send(Ok(()));
                (first, "a retry is answered: its batch is durable")
            }
        };
        drop(inner);
        tracing::debug!(partition = %self.key, base_offset = first.base_offset, "{what}");
        Ok(Pending {
            base_offset: first.base_offset,
            last_offset: first.last_offset,
            append_time: append_time.map(|_| first.timestamp),
            done: receiver,
        })
    }

    /// Hands a batch that has its offsets to the write-ahead log.
    fn submit(
        self: &Arc<Self>,
        inner: &mut Inner,
        batch: RecordBatch,
        producer: Option<&ProducerBatch>,
        waiter: Waiter,
    ) {
        crate::position!("log.end", self.key, batch.last_offset() + 1);
        if std::mem::take(&mut inner.taken_back) {
            let cut = Entry::Truncate { partition: self.key, end_offset: batch.base_offset() };
            let log = Arc::clone(self);
            self.shared.wal.submit(cut, Box::new(move |outcome| log.lock().taken_back |= outcome.is_err()));
        }
        let ticket = inner.append.append(batch.clone(), producer, self.shared.producer_clock(), waiter);
        let log = Arc::clone(self);
        self.shared.wal.submit(
            Entry::Append { partition: self.key, batches: vec![batch] },
            Box::new(move |outcome| log.settle(ticket, outcome)),
        );
    }

    /// The write-ahead log's word on an append.
    fn settle(self: &Arc<Self>, ticket: Ticket, outcome: Result<Lsn, WalFailed>) {
        match outcome {
            Ok(lsn) => self.commit(ticket, lsn),
            Err(error) => {
                self.shared.space.suspect();
                let now = self.shared.producer_clock();
                let waiters = {
                    let mut inner = self.lock();
                    inner.taken_back = true;
                    inner.append.failed(ticket, now)
                };
                for waiter in waiters {
                    let _ = waiter.done.send(Err(AppendError::Wal(error.to_string())));
                }
            }
        }
    }

    fn commit(self: &Arc<Self>, ticket: Ticket, lsn: Lsn) {
        let now = self.shared.env.now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(mut committed) = inner.append.committed(ticket) else {
            return;
        };
        let end = inner.append.high_watermark();
        inner.unwritten_bytes += committed.batch.size();
        inner.unwritten_since.get_or_insert(now);
        inner.uncovered_since.get_or_insert(now);
        let first = committed.waiters.first_mut().expect("an append has the waiter it came with");
        inner.ring.push(committed.batch, first.backing_bytes);
        if let Some(permit) = first.permit.take() {
            inner.unwritten.push_back((end, permit.tail));
            drop(permit.queue);
        }
        if inner.unflushed.is_empty() {
            self.shared.wal_floor.first(self.key, lsn);
        }
        match inner.unflushed.back_mut() {
            Some(last) if last.0 == lsn => last.1 = end,
            _ => inner.unflushed.push_back((lsn, end)),
        }
        // A partition without files gets them at once, so that the data folder shows what has been acknowledged.
        let write_now = !inner.writing
            && (inner.unwritten_bytes >= self.shared.config.tail.write_at_once_bytes
                || self.segments.list().is_empty());
        inner.writing |= write_now;
        drop(guard);
        self.shared.wal_floor.seen(lsn);
        self.high_watermark.send_replace(end);
        crate::position!("log.durable", self.key, end);
        for waiter in committed.waiters {
            let _ = waiter.done.send(Ok(()));
        }
        if write_now {
            self.start_writing();
        }
    }

    /// The segment files hold everything below `end`.
    pub(super) fn mark_written(&self, end: i64, bytes: usize) {
        let mut inner = self.lock();
        inner.ring.mark_written(end);
        inner.unwritten_bytes -= bytes;
        inner.unwritten_since = (inner.unwritten_bytes > 0).then(|| self.shared.env.now());
        while inner.unwritten.front().is_some_and(|&(permit_end, _)| permit_end <= end) {
            inner.unwritten.pop_front();
        }
    }

    /// Takes no more appends.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    pub(super) fn lock(&self) -> Held<'_, MutexGuard<'_, Inner>> {
        self.inner.lock()
    }
}

/// Permits for `bytes`, at most all there are.
fn share(bytes: usize, of: usize) -> u32 {
    u32::try_from(bytes.clamp(1, of.max(1))).unwrap_or(u32::MAX)
}

fn sequence_error(error: SequenceError, batch: &RecordBatch) -> AppendError {
    let (producer_id, epoch) = (batch.producer_id(), batch.producer_epoch());
    match error {
        SequenceError::OutOfOrder { expected } => {
            AppendError::OutOfOrderSequence { producer_id, epoch, sequence: batch.base_sequence(), expected }
        }
        SequenceError::InvalidEpoch => AppendError::InvalidProducerEpoch { producer_id, epoch },
    }
}

fn check_timestamps(config: &LogConfig, facts: &BatchFacts, now: i64) -> Result<(), AppendError> {
    let min = now.saturating_sub(config.timestamp_before_max_ms);
    let max = now.saturating_add(config.timestamp_after_max_ms);
    // Records without a timestamp (-1) are allowed, as in Kafka.
    let newest = Some(facts.max_timestamp).filter(|&timestamp| timestamp != NO_TIMESTAMP);
    for timestamp in [facts.min_timestamp, newest].into_iter().flatten() {
        if !(min..=max).contains(&timestamp) {
            return Err(AppendError::InvalidTimestamp { timestamp, min, max });
        }
    }
    Ok(())
}
