//! Putting partitions together at start: cut the segment files to the checkpoint, apply exactly the write-ahead log's
//! entries above it, and make all of it durable outside the write-ahead log before anything is served.
//!
//! # What a crash can leave, and what happens
//! | found | done |
//! |---|---|
//! | no directory, or one without manifest, checkpoint and records | the partition is empty; the write-ahead log has everything |
//! | manifest and checkpoint | segments past the checkpoint go, its segment is cut to its position |
//! | one checkpoint slot whole, the other torn, and all that the whole one lacks in the write-ahead log | as above |
//! | the same, and the write-ahead log has moved on | not left by a crash: nothing is cut. The whole batches behind the checkpoint count, with a warning; where they end at damage and the write-ahead log does not go on: refuse to start |
//! | manifest, no checkpoint | the first one was never completed: whole batches of the segments count, and say what their producers were at (the write-ahead log may have lost the newest of them) |
//! | manifest damaged or missing beside records | rebuilt from the segment files |
//! | manifest of another topic id | the directory is set aside under another name |
//! | segment shorter than its checkpoint says | not left by a crash: refuse to start |
//! | a last segment that the manifest lists and that is not there | it was empty: made anew (the manifest's name can outlive the segment's) |
//! | write-ahead log entry below the partition's log end | skipped: already there |
//! | write-ahead log entry above the partition's log end | not left by a crash: refuse to start |
//! | directory or entry of a partition that the metadata does not know | not left by a crash, for a topic is durable in the metadata before its first record, and none is deleted: refuse to start |
//!
//! A second crash during recovery finds the same again: the checkpoint is written last, and the write-ahead log is
//! released only after it. What was read may have been in the page cache alone (after `kill -9`), so whatever was
//! applied is flushed even if nothing had to be written.
//!
//! # When the disk is full, or there are no descriptors
//! A partition whose records cannot be brought to its segment files keeps them in memory, as when that happens to a running
//! broker, and writing behind goes on with them. The write-ahead log then is made durable as it stands before anything is
//! served, and takes no new entries until every partition has caught up.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;

use super::config::LogManagerConfig;
use super::epochs::EpochCache;
use super::error::OpenError;
use super::manager::{PartitionSpec, producer_clock};
use super::open::{self, Found};
use super::partition::Recovered;
use super::producer::{ProducerBatch, Producers};
use super::segments::Segments;
use super::write_behind::is_transient;
use crate::io::{BoxFuture, Env};
use crate::storage::checkpoint::{Checkpoint, EpochStart};
use crate::storage::segment::{Segment, SegmentContext, SegmentError};
use crate::storage::wal::{Entry, KnownLsns, ReplayVisitor, VisitError, Wal};
use crate::storage::{Lsn, PartitionKey};
use crate::wire::batch::RecordBatch;

/// Replayed bytes that are gathered before they are written to the segment file.
const GATHERED_BYTES_MAX: usize = 1024 * 1024;

/// What [`recover`] gives: the write-ahead log, and a state for every partition.
pub(super) struct RecoveredAll {
    pub(super) wal: Wal,
    pub(super) partitions: Vec<(PartitionSpec, Recovered)>,
}

/// Recovers all partitions.
pub(super) async fn recover(
    env: &Env,
    context: &SegmentContext,
    config: &LogManagerConfig,
    specs: Vec<PartitionSpec>,
) -> Result<RecoveredAll, OpenError> {
    let began = env.now();
    open::refuse_unknown(env, &config.data_dir, &specs).await?;
    let mut found = Vec::with_capacity(specs.len());
    for spec in specs {
        found.push(open::look(env, context, &config.data_dir, spec).await?);
    }
    let checkpointed = found.iter().map(Found::covered).max().unwrap_or_default();
    let wal_dir = config.data_dir.join("wal");
    let (partitions, applied, failed) = (BTreeMap::new(), 0, None);
    let mut replay = Replay { env: env.clone(), wal_dir: wal_dir.clone(), found, partitions, applied, failed };
    let known = KnownLsns { checkpointed };
    let opened = Wal::open(env, &wal_dir, config.wal.clone(), known, &mut replay).await;
    if let Some(error) = replay.failed {
        return Err(error);
    }
    let wal = opened?;
    let partitions = match finish(replay.partitions, &wal).await {
        Ok(partitions) => partitions,
        Err(error) => {
            // It prepares its first file by now. Whoever tries again in this folder must not meet that half-made.
            wal.close().await;
            return Err(error);
        }
    };
    if replay.applied > 0 {
        let took = env.now() - began;
        let end = wal.found_end().map(|end| format!("byte {} of {} ({})", end.offset, end.path.display(), end.found));
        tracing::info!(
            "recovered after an unclean stop: {} entries of the write-ahead log applied, which ends at {}, in {took:?}",
            replay.applied,
            end.unwrap_or_default()
        );
    }
    Ok(RecoveredAll { wal, partitions })
}

/// Makes durable what was replayed: in the segment files, or where that cannot be done, in the write-ahead log.
async fn finish(
    rebuilds: BTreeMap<PartitionKey, Rebuild>,
    wal: &Wal,
) -> Result<Vec<(PartitionSpec, Recovered)>, OpenError> {
    let mut partitions = Vec::with_capacity(rebuilds.len());
    let mut waiting = 0;
    for mut rebuild in rebuilds.into_values() {
        rebuild.finish().await?;
        waiting += usize::from(!rebuild.uncovered.is_empty());
        partitions.push(rebuild.into_recovered());
    }
    if waiting > 0 {
        crate::sometimes!("log.recovery_kept_in_memory");
        wal.rewrite_and_sync().await?;
        tracing::warn!(
            "{waiting} partitions wait for space or descriptors: they are read from memory, and nothing can be produced until their files are written"
        );
    }
    Ok(partitions)
}

/// Applies replayed entries to the partitions.
struct Replay {
    env: Env,
    wal_dir: PathBuf,
    /// Partitions whose files have not been opened yet.
    found: Vec<Found>,
    partitions: BTreeMap<PartitionKey, Rebuild>,
    /// Entries that no checkpoint covered.
    applied: u64,
    failed: Option<OpenError>,
}

impl Replay {
    /// Keeps the error, and gives the write-ahead log one to stop with.
    fn fail(&mut self, error: OpenError) -> VisitError {
        let message = error.to_string();
        self.failed = Some(error);
        message.into()
    }
}

impl ReplayVisitor for Replay {
    fn begins(&mut self, from: Option<Lsn>) -> BoxFuture<'_, Result<(), VisitError>> {
        Box::pin(async move {
            for found in std::mem::take(&mut self.found) {
                let rebuild = Rebuild::load(&self.env, found, from).await.map_err(|error| self.fail(error))?;
                self.partitions.insert(rebuild.spec.key, rebuild);
            }
            Ok(())
        })
    }

    fn entry(&mut self, lsn: Lsn, entry: Entry) -> BoxFuture<'_, Result<(), VisitError>> {
        Box::pin(async move {
            let Some(partition) = entry.partition() else {
                return Ok(());
            };
            let Some(rebuild) = self.partitions.get_mut(&partition) else {
                return Err(self.fail(OpenError::UnknownPartition { partition, wal: self.wal_dir.clone() }));
            };
            self.applied += u64::from(lsn > rebuild.covered);
            rebuild.apply(lsn, entry).await.map_err(|error| self.fail(error))
        })
    }
}

/// A partition on its way back.
struct Rebuild {
    spec: PartitionSpec,
    env: Env,
    dir: PathBuf,
    segments: Segments,
    log_start: i64,
    log_end: i64,
    epochs: EpochCache,
    producers: Producers,
    /// The position up to which the checkpoint has everything.
    covered: Lsn,
    /// The offset up to which the checkpoint has everything; 0 without one.
    checkpointed_to: i64,
    /// The position of the newest entry that was applied.
    applied: Option<Lsn>,
    /// The offset after the last batch that was replayed, skipped ones included.
    replayed_to: i64,
    /// Whether the records that the write-ahead log does not have were given up, so that it may begin anywhere.
    given_up: bool,
    /// Whether the segment files hold records that neither the checkpoint nor the write-ahead log vouches for.
    uncheckpointed: bool,
    /// Why those may not be all; settled when the write-ahead log goes on where they end.
    doubt: Option<OpenError>,
    /// Applied batches that are not in the segment files.
    gathered: Vec<RecordBatch>,
    gathered_bytes: usize,
    /// Position and end offset of each applied entry, and of what was found past the checkpoint, until one covers them.
    uncovered: VecDeque<(Lsn, i64)>,
    /// The segment files could not be written: they are tried again at the end.
    waits: bool,
}

impl Rebuild {
    async fn load(env: &Env, found: Found, from: Option<Lsn>) -> Result<Self, OpenError> {
        let (spec, given_up) = (found.spec.clone(), found.is_empty());
        let opened = found.open(from).await?;
        let segments = opened.segments;
        let dir = segments.dir();
        let end = segments.list().last().map_or(0, |active| active.next_offset());
        let mut rebuild = Self {
            env: env.clone(),
            segments,
            log_start: 0,
            log_end: end,
            epochs: EpochCache::default(),
            producers: Producers::default(),
            covered: Lsn::default(),
            checkpointed_to: 0,
            applied: None,
            replayed_to: 0,
            given_up,
            uncheckpointed: false,
            doubt: None,
            gathered: Vec::new(),
            gathered_bytes: 0,
            uncovered: VecDeque::new(),
            waits: false,
            dir,
            spec,
        };
        match opened.checkpoint {
            Some(checkpoint) => rebuild.start_from(checkpoint)?,
            None => {
                // Without a checkpoint, nothing was ever removed at the front, except what was given up.
                rebuild.log_start = rebuild.segments.list().first().map_or(0, Segment::base_offset);
                rebuild.remember_segments(0).await?;
            }
        }
        if let Some(past) = opened.past {
            rebuild.remember_segments(rebuild.log_end).await?;
            rebuild.uncheckpointed = end > rebuild.log_end;
            (rebuild.log_end, rebuild.checkpointed_to) = (end, end);
            (rebuild.covered, rebuild.doubt) = (past.covered, past.doubt);
            if rebuild.uncheckpointed {
                rebuild.uncovered.push_back((past.covered, end));
            }
        }
        Ok(rebuild)
    }

    /// Without a checkpoint, the batches in the segment files say what their producers and leader epochs were; those from
    /// offset `from` on, where the checkpoint may not be the last one.
    async fn remember_segments(&mut self, from: i64) -> Result<(), OpenError> {
        for segment in self.segments.list().iter() {
            let (mut offset, end) = (segment.base_offset().max(from), segment.next_offset());
            while offset < end {
                let read = segment.read(offset, GATHERED_BYTES_MAX, end).await;
                let runs = read.map_err(|error| OpenError::Segment { dir: self.dir.clone(), error })?;
                let batches = runs.into_iter().map(RecordBatch::split).collect::<Result<Vec<_>, _>>();
                let batches = batches.map_err(|error| self.unreadable(io::Error::other(error)))?.concat();
                let Some(last) = batches.last().map(RecordBatch::last_offset) else {
                    return Err(self.unreadable(io::ErrorKind::UnexpectedEof.into()));
                };
                for batch in &batches {
                    self.epochs.begin(batch.leader_epoch(), batch.base_offset());
                    self.remember(batch, batch.base_offset());
                }
                offset = last + 1;
            }
        }
        Ok(())
    }

    fn unreadable(&self, source: io::Error) -> OpenError {
        OpenError::Io { action: "reading the segments", partition: self.spec.key, source }
    }

    fn start_from(&mut self, checkpoint: Checkpoint) -> Result<(), OpenError> {
        self.log_start = checkpoint.log_start;
        self.log_end = checkpoint.next_offset;
        self.checkpointed_to = checkpoint.next_offset;
        self.covered = checkpoint.lsn;
        let epochs = checkpoint.epochs.iter();
        self.epochs = EpochCache::from_entries(
            epochs.map(|&EpochStart { leader_epoch, start_offset }| (leader_epoch, start_offset)),
        );
        self.producers = Producers::decode(checkpoint.producers, producer_clock(&self.env))
            .map_err(|error| OpenError::Snapshot { dir: self.dir.clone(), error })?;
        Ok(())
    }

    async fn apply(&mut self, lsn: Lsn, entry: Entry) -> Result<(), OpenError> {
        if lsn <= self.covered {
            return Ok(());
        }
        crate::sometimes!("log.entry_replayed");
        self.applied = Some(lsn);
        match entry {
            Entry::Append { batches, .. } => {
                for batch in batches {
                    self.append(batch)?;
                }
                if self.gathered_bytes >= GATHERED_BYTES_MAX && !self.waits {
                    self.write_or_wait().await?;
                }
            }
            Entry::Truncate { end_offset, .. } => self.truncate(end_offset).await?,
            Entry::LogStart { offset, .. } => {
                self.log_start = self.log_start.max(offset);
                self.epochs.advance_start(self.log_start);
            }
            Entry::EpochStart { leader_epoch, start_offset, .. } => self.epochs.begin(leader_epoch, start_offset),
            Entry::Drop { .. } => {}
        }
        match self.uncovered.back_mut() {
            Some(last) if last.0 == lsn => last.1 = self.log_end,
            _ => self.uncovered.push_back((lsn, self.log_end)),
        }
        Ok(())
    }

    fn append(&mut self, batch: RecordBatch) -> Result<(), OpenError> {
        let (base_offset, last_offset) = (batch.base_offset(), batch.last_offset());
        // The entries of a partition follow each other; one that does not is from another life of its file.
        crate::sometimes!("never.log.replay_goes_back", base_offset < self.replayed_to);
        self.replayed_to = last_offset + 1;
        if last_offset < self.log_end {
            crate::sometimes!("log.replay_skipped");
            return Ok(());
        }
        if std::mem::take(&mut self.given_up) && base_offset > self.log_end {
            let (dir, lost) = (self.dir.display(), self.log_end..base_offset);
            tracing::warn!(%dir, ?lost, "the directory is empty: its records are given up, those in the write-ahead log are kept");
            (self.log_start, self.log_end) = (base_offset, base_offset);
        }
        if base_offset != self.log_end {
            return Err(OpenError::Gap {
                topic: self.spec.topic.clone(),
                partition: self.spec.key,
                log_end: self.log_end,
                found: base_offset,
            });
        }
        self.doubt = None;
        self.epochs.begin(batch.leader_epoch(), base_offset);
        self.remember(&batch, base_offset);
        self.log_end = last_offset + 1;
        self.gathered_bytes += batch.size();
        self.gathered.push(batch);
        Ok(())
    }

    fn remember(&mut self, batch: &RecordBatch, base_offset: i64) {
        if let Some(producer) = ProducerBatch::of(batch) {
            let seen = producer_clock(&self.env);
            self.producers.append(&producer, base_offset, batch.last_offset(), batch.max_timestamp(), seen);
        }
    }

    async fn truncate(&mut self, end_offset: i64) -> Result<(), OpenError> {
        self.replayed_to = self.replayed_to.min(end_offset);
        // Only what is not durable is ever taken back, and only what is durable is checkpointed: a cut below the
        // checkpoint had been made before it, in a block that it covers in part. Cutting the files there once more
        // would leave them shorter than their checkpoint, should this recovery be interrupted.
        if end_offset >= self.log_end || end_offset < self.checkpointed_to {
            crate::sometimes!("log.replay_cut_skipped", end_offset < self.checkpointed_to);
            return Ok(());
        }
        let kept = self.gathered.partition_point(|batch| batch.last_offset() < end_offset);
        let is_in_memory = self.gathered.get(kept).is_some_and(|cut| cut.base_offset() == end_offset);
        self.gathered.truncate(kept);
        self.gathered_bytes = self.gathered.iter().map(RecordBatch::size).sum();
        if !is_in_memory {
            let outcome = self.segments.write().await.truncate(end_offset).await;
            outcome.map_err(|error| self.at(error))?;
        }
        self.producers.truncate(end_offset);
        self.epochs.truncate(end_offset);
        self.log_end = end_offset;
        for (_, end) in &mut self.uncovered {
            *end = end_offset.min(*end);
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), SegmentError> {
        let mut writer = self.segments.write().await;
        while !self.gathered.is_empty() {
            let written = writer.append(&self.spec.config, &self.gathered).await?;
            self.gathered.drain(..written);
        }
        self.gathered_bytes = 0;
        Ok(())
    }

    /// Writes; what cannot be written for now stays in memory.
    async fn write_or_wait(&mut self) -> Result<(), OpenError> {
        match self.write().await {
            Err(error) if is_transient(&error) => {
                self.waits = true;
                Ok(())
            }
            outcome => outcome.map_err(|error| self.at(error)),
        }
    }

    fn at(&self, error: SegmentError) -> OpenError {
        OpenError::Segment { dir: self.dir.clone(), error }
    }

    /// Makes what was applied durable: afterwards the write-ahead log is not needed for this partition, unless something
    /// is left `uncovered`.
    async fn finish(&mut self) -> Result<(), OpenError> {
        if let Some(doubt) = self.doubt.take() {
            return Err(doubt);
        }
        let Some(applied) = self.applied.or(self.uncheckpointed.then_some(self.covered)) else {
            return Ok(());
        };
        match self.cover(applied).await {
            Ok(()) => {
                self.covered = applied;
                self.uncovered.clear();
            }
            Err(error) if is_transient(&error) => {
                let dir = self.dir.display();
                tracing::warn!(%dir, %error, "the segment files wait; the write-ahead log has what is not in them");
            }
            Err(error) => return Err(self.at(error)),
        }
        Ok(())
    }

    /// Writes, flushes and checkpoints.
    async fn cover(&mut self, applied: Lsn) -> Result<(), SegmentError> {
        self.write().await?;
        let mut writer = self.segments.write().await;
        // A partition all of whose records lie in the write-ahead log may still lack its directory.
        writer.create_directory(&self.spec.config, self.log_end).await?;
        writer.flush().await?;
        let stored = writer.checkpoint(|segment, position, next_offset| Checkpoint {
            lsn: applied,
            segment,
            position,
            next_offset,
            log_start: self.log_start,
            epochs: epoch_starts(&self.epochs),
            producers: self.producers.encode(next_offset, producer_clock(&self.env)),
        });
        stored.await
    }

    fn into_recovered(self) -> (PartitionSpec, Recovered) {
        let recovered = Recovered {
            log_start: self.log_start,
            log_end: self.log_end,
            epochs: self.epochs,
            producers: self.producers,
            flushed_lsn: self.covered,
            segments: self.segments,
            unwritten: self.gathered,
            uncovered: self.uncovered,
        };
        (self.spec, recovered)
    }
}

/// The epochs as a checkpoint holds them.
pub(super) fn epoch_starts(epochs: &EpochCache) -> Vec<EpochStart> {
    epochs.entries().iter().map(|&(leader_epoch, start_offset)| EpochStart { leader_epoch, start_offset }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::real::block_on_test;
    use crate::log::{LogConfig, LogManager};
    use crate::storage::TopicId;
    use crate::storage::wal::WalConfig;
    use crate::wire::batch::{BatchBuilder, BatchLimits, Validation};
    use crate::wire::codec::Codec;

    /// A cut that the checkpoint has behind it must not cut the files a second time: interrupted there, the next start
    /// would find them shorter than their checkpoint.
    #[test]
    fn a_cut_below_the_checkpoint_has_been_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        block_on_test(|env| async move {
            let key = PartitionKey { topic: TopicId([3; 16]), index: 0 };
            let (topic, config) = ("orders".to_owned(), LogConfig::default());
            let spec = PartitionSpec { key, topic, leader_epoch: 1, config };
            let limits = LogManagerConfig::new(dir.to_owned(), WalConfig::sim());
            let manager = LogManager::open(&env, limits.clone(), vec![spec.clone()]).await.expect("it opens");
            let log = manager.partition(&key).expect("the partition");
            let mut builder = BatchBuilder::new(Codec::None);
            (0..3).for_each(|_| builder.push(env.wall().0, None, Some(b"value")));
            let batch = builder.build().expect("no codec can fail");
            let facts = batch.validate(Validation::Strict, &BatchLimits::default()).expect("a good batch");
            let permit = log.reserve(&batch, env.now() + std::time::Duration::from_secs(5)).await.expect("room");
            let pending = log.append(batch.clone(), &facts, batch.size(), permit).expect("appended");
            pending.durable().await.expect("durable");
            manager.close().await;

            let context = SegmentContext::new(env.clone(), 1, 1);
            let found = open::look(&env, &context, &limits.data_dir, spec).await.expect("readable");
            let mut rebuild = Rebuild::load(&env, found, Some(Lsn(1))).await.expect("it loads");
            let partly_covered = rebuild.covered.next();
            let cut = Entry::Truncate { partition: key, end_offset: 0 };
            rebuild.apply(partly_covered, cut).await.expect("applied");
            let again = Entry::Append { partition: key, batches: vec![batch] };
            rebuild.apply(partly_covered, again).await.expect("applied");
            assert_eq!((rebuild.log_end, rebuild.segments.list()[0].next_offset()), (3, 3));
            assert!(rebuild.gathered.is_empty(), "what follows the cut in its block is there already");
        });
    }
}
