//! A partition on its way back: opened as it was found, brought up to date by replayed entries, made durable.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use super::context::producer_clock;
use super::epochs::EpochCache;
use super::error::OpenError;
use super::open::{Found, Opened};
use super::partition::Recovered;
use super::producer::{ProducerBatch, Producers};
use super::reach::{Append, Reach};
use super::segments::Segments;
use super::settle::Steps;
use super::spec::PartitionSpec;
use crate::io::Env;
use crate::storage::Lsn;
use crate::storage::checkpoint::{Checkpoint, EpochStart};
use crate::storage::segment::{Segment, SegmentError};
use crate::storage::wal::Entry;
use crate::wire::batch::RecordBatch;

/// Replayed bytes that are gathered before they are written to the segment file.
const GATHERED_BYTES_MAX: usize = 1024 * 1024;

/// A partition on its way back.
pub(super) struct Rebuild {
    pub(super) spec: PartitionSpec,
    env: Env,
    dir: PathBuf,
    segments: Segments,
    pub(super) reach: Reach,
    epochs: EpochCache,
    producers: Producers,
    /// The position of the newest entry that was applied.
    applied: Option<Lsn>,
    /// The offset after the last batch that was replayed, skipped ones included.
    replayed_to: i64,
    /// Whether the segment files hold records that neither the checkpoint nor the write-ahead log vouches for.
    uncheckpointed: bool,
    /// Why the records that were found may not be all; settled when the write-ahead log goes on where they end.
    pub(super) doubt: Option<OpenError>,
    /// What is to be done to the files.
    steps: Steps,
    /// Applied batches that are not in the segment files.
    gathered: Vec<RecordBatch>,
    gathered_bytes: usize,
    /// Position and end offset of each applied entry, and of what was found past the checkpoint, until one covers them.
    pub(super) uncovered: VecDeque<(Lsn, i64)>,
    /// The segment files could not be written: they are tried again at the end.
    waits: bool,
}

impl Rebuild {
    /// Opens the partition's files, and changes none of them.
    pub(super) async fn load(env: &Env, found: Found, from: Option<Lsn>) -> Result<Self, OpenError> {
        let (spec, given_up) = (found.spec.clone(), found.is_empty());
        let Opened { segments, checkpoint, past, doubt, steps } = found.open(from).await?;
        let dir = segments.dir();
        let list = segments.list();
        let end = steps.create.or(list.last().map(Segment::next_offset)).unwrap_or_default();
        let mut rebuild = Self {
            env: env.clone(),
            segments,
            reach: Reach { log_end: end, given_up, ..Reach::default() },
            epochs: EpochCache::default(),
            producers: Producers::default(),
            applied: None,
            replayed_to: 0,
            uncheckpointed: false,
            doubt,
            steps,
            gathered: Vec::new(),
            gathered_bytes: 0,
            uncovered: VecDeque::new(),
            waits: false,
            dir,
            spec,
        };
        match checkpoint {
            Some(checkpoint) => rebuild.start_from(checkpoint)?,
            None => {
                // Without a checkpoint, nothing was ever removed at the front, except what was given up.
                rebuild.reach.log_start = list.first().map(Segment::base_offset).unwrap_or(end);
                rebuild.remember_segments(0).await?;
            }
        }
        if let Some(past) = past {
            rebuild.remember_segments(rebuild.reach.log_end).await?;
            rebuild.uncheckpointed = end > rebuild.reach.log_end;
            (rebuild.reach.log_end, rebuild.reach.checkpointed_to) = (end, end);
            rebuild.reach.covered = past.covered;
            if rebuild.uncheckpointed {
                rebuild.uncovered.push_back((past.covered, end));
            }
        }
        Ok(rebuild)
    }

    /// Does to the files what opening them has decided: nothing refuses the start any more.
    pub(super) async fn settle(&mut self) -> Result<(), OpenError> {
        let steps = std::mem::take(&mut self.steps);
        steps.take(&self.env, self.spec.key, &self.spec.config, &self.segments).await
    }

    /// That records between what there is and `found` are lost.
    pub(super) fn gap(&self, log_end: i64, found: i64) -> OpenError {
        OpenError::Gap { topic: self.spec.topic.clone(), partition: self.spec.key, log_end, found }
    }

    /// Without a checkpoint, the batches in the segment files say what their producers and leader epochs were; those from
    /// offset `from` on, where the checkpoint may not be the last one.
    async fn remember_segments(&mut self, from: i64) -> Result<(), OpenError> {
        for segment in self.segments.list().iter() {
            let (mut offset, end) = (segment.base_offset().max(from), segment.next_offset());
            while offset < end {
                let runs = match segment.read(offset, GATHERED_BYTES_MAX, end).await {
                    // A closed segment is served around what is damaged in it, and says what it can.
                    Err(SegmentError::Damaged { .. }) if segment.sealed().is_some() => {
                        let next = segment.behind_damage(offset).await.map_err(|error| self.at(error))?;
                        offset = next.unwrap_or(end);
                        continue;
                    }
                    Err(SegmentError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => break,
                    read => read.map_err(|error| self.at(error))?,
                };
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
        self.reach.log_start = checkpoint.log_start;
        self.reach.log_end = checkpoint.next_offset;
        self.reach.checkpointed_to = checkpoint.next_offset;
        self.reach.covered = checkpoint.lsn;
        let epochs = checkpoint.epochs.iter();
        self.epochs = EpochCache::from_entries(
            epochs.map(|&EpochStart { leader_epoch, start_offset }| (leader_epoch, start_offset)),
        );
        self.producers = Producers::decode(checkpoint.producers, producer_clock(&self.env))
            .map_err(|error| OpenError::Snapshot { dir: self.dir.clone(), error })?;
        Ok(())
    }

    pub(super) async fn apply(&mut self, lsn: Lsn, entry: Entry) -> Result<(), OpenError> {
        if lsn <= self.reach.covered {
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
                self.reach.log_start = self.reach.log_start.max(offset);
                self.epochs.advance_start(self.reach.log_start);
            }
            Entry::EpochStart { leader_epoch, start_offset, .. } => self.epochs.begin(leader_epoch, start_offset),
            Entry::Drop { .. } => {}
        }
        match self.uncovered.back_mut() {
            Some(last) if last.0 == lsn => last.1 = self.reach.log_end,
            _ => self.uncovered.push_back((lsn, self.reach.log_end)),
        }
        Ok(())
    }

    fn append(&mut self, batch: RecordBatch) -> Result<(), OpenError> {
        let (base_offset, last_offset) = (batch.base_offset(), batch.last_offset());
        // The entries of a partition follow each other; one that does not is from another life of its file.
        crate::sometimes!("never.log.replay_goes_back", base_offset < self.replayed_to);
        self.replayed_to = last_offset + 1;
        let log_end = self.reach.log_end;
        match self.reach.append(base_offset, last_offset) {
            Append::Held => {
                crate::sometimes!("log.replay_skipped");
                return Ok(());
            }
            Append::Gap => return Err(self.gap(log_end, base_offset)),
            Append::Next { lost: Some(lost) } => {
                let dir = self.dir.display();
                tracing::warn!(%dir, ?lost, "the directory is empty: its records are given up, those in the write-ahead log are kept");
            }
            Append::Next { lost: None } => {}
        }
        self.epochs.begin(batch.leader_epoch(), base_offset);
        self.remember(&batch, base_offset);
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
        if !self.reach.cuts(end_offset) {
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
        self.reach.log_end = end_offset;
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
            Err(error) if error.is_transient() => {
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
    pub(super) async fn finish(&mut self) -> Result<(), OpenError> {
        let Some(applied) = self.applied.or(self.uncheckpointed.then_some(self.reach.covered)) else {
            return Ok(());
        };
        match self.cover(applied).await {
            Ok(()) => {
                self.reach.covered = applied;
                self.uncovered.clear();
            }
            Err(error) if error.is_transient() => {
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
        writer.create_directory(&self.spec.config, self.reach.log_end).await?;
        writer.flush().await?;
        let stored = writer.checkpoint(|segment, position, next_offset| Checkpoint {
            lsn: applied,
            segment,
            position,
            next_offset,
            log_start: self.reach.log_start,
            epochs: epoch_starts(&self.epochs),
            producers: self.producers.encode(next_offset, producer_clock(&self.env)),
        });
        stored.await
    }

    pub(super) fn into_recovered(self) -> (PartitionSpec, Recovered) {
        let recovered = Recovered {
            log_start: self.reach.log_start,
            log_end: self.reach.log_end,
            epochs: self.epochs,
            producers: self.producers,
            flushed_lsn: self.reach.covered,
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
    use crate::log::{LogConfig, LogManager, LogManagerConfig, open};
    use crate::storage::wal::WalConfig;
    use crate::storage::{PartitionKey, SegmentContext, TopicId};
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
            let permit = log.reserve(&batch, env.sleep(std::time::Duration::from_secs(5))).await.expect("room");
            let pending = log.append(batch.clone(), &facts, batch.size(), permit).expect("appended");
            pending.durable().await.expect("durable");
            manager.close().await;

            let context = SegmentContext::new(env.clone(), 1, 1);
            let found = open::look(&env, &context, &limits.data_dir, limits.wal.sync, spec).await.expect("readable");
            let mut rebuild = Rebuild::load(&env, found, Some(Lsn(1))).await.expect("it loads");
            let partly_covered = rebuild.reach.covered.next();
            let cut = Entry::Truncate { partition: key, end_offset: 0 };
            rebuild.apply(partly_covered, cut).await.expect("applied");
            let again = Entry::Append { partition: key, batches: vec![batch] };
            rebuild.apply(partly_covered, again).await.expect("applied");
            assert_eq!((rebuild.reach.log_end, rebuild.segments.list()[0].next_offset()), (3, 3));
            assert!(rebuild.gathered.is_empty(), "what follows the cut in its block is there already");
        });
    }
}
