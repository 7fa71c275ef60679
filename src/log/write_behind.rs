//! The way of durable records from memory to the segment files: written in order, flushed, checkpointed.
//!
//! Only what the write-ahead log holds durably is written, so a segment file never holds a record that could vanish.
//! A full disk is no catastrophe here: the records stay in memory and in the write-ahead log, and are written later.

use std::sync::Arc;

use super::partition::{Inner, PartitionLog};
use super::segments::SegmentsWriter;
use crate::io::FailStop;
use crate::storage::Lsn;
use crate::storage::checkpoint::{Checkpoint, EpochStart};
use crate::storage::segment::SegmentError;
use crate::wire::batch::RecordBatch;

/// Bytes written to a segment file in one go.
const WRITE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The segment files could not be written for now: there is no space, or no descriptor.
pub(super) struct Stalled;

/// How far a round of writing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// Write what there is; flush and checkpoint by the configured intervals.
    Written,
    /// Also flush and checkpoint everything.
    Checkpointed,
}

impl PartitionLog {
    /// Starts a task that writes this partition behind. The caller has set `writing`.
    pub(super) fn start_writing(self: &Arc<Self>) {
        let log = Arc::clone(self);
        self.shared.env.spawn_core("log-write-behind", async move {
            loop {
                let goal = if log.checkpoint_is_due() { Goal::Checkpointed } else { Goal::Written };
                let outcome = log.write_behind(goal).await;
                let mut inner = log.lock();
                if outcome.is_err() || inner.unwritten_bytes < log.shared.config.tail.write_at_once_bytes {
                    inner.writing = false;
                    break;
                }
            }
        });
    }

    /// Starts writing if records, or flushed but not checkpointed ones, have waited long enough.
    pub(super) fn start_writing_if_due(self: &Arc<Self>) {
        let now = self.shared.env.now();
        let limits = &self.shared.config;
        let checkpoint_due = self.checkpoint_is_due();
        let mut inner = self.lock();
        let write_due = inner.unwritten_since.is_some_and(|since| now - since >= limits.write_behind_delay);
        if inner.writing || !(write_due || checkpoint_due) {
            return;
        }
        inner.writing = true;
        drop(inner);
        self.start_writing();
    }

    /// Also at once where the write-ahead log waits for it: after a start that found no space, nothing can be produced
    /// before what was replayed is covered.
    fn checkpoint_is_due(&self) -> bool {
        let since = self.lock().uncovered_since;
        since.is_some_and(|since| {
            self.shared.wal.is_gated() || self.shared.env.now() - since >= self.shared.config.checkpoint_delay
        })
    }

    /// Bytes that are durable in the write-ahead log and not yet in a segment file.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.lock().unwritten_bytes as u64
    }

    /// Writes, flushes and checkpoints everything that is durable by now.
    pub(super) async fn checkpoint_all(&self) -> Result<(), Stalled> {
        self.write_behind(Goal::Checkpointed).await
    }

    async fn write_behind(&self, goal: Goal) -> Result<(), Stalled> {
        let Ok(_permit) = self.shared.writers.acquire().await else {
            return Err(Stalled); // The logs are closed; what is not written is in the write-ahead log.
        };
        let mut writer = self.segments.write().await;
        let outcome = self.write_rounds(&mut writer, goal).await;
        drop(writer);
        let Err(error) = outcome else {
            let was_stalled = std::mem::take(&mut self.lock().stalled);
            if was_stalled && self.shared.env.may_log("partitions whose segment files are written again", None) {
                tracing::info!(partition = %self.key(), "the segment files are written again");
            }
            return Ok(());
        };
        self.shared.space.suspect();
        if !error.is_transient() {
            let message = format!("writing the segment files of partition {}: {error}", self.key());
            self.shared.env.fail_stop(FailStop::WriteFailed, &message).await
        }
        crate::sometimes!("log.segment_disk_full");
        let was_stalled = std::mem::replace(&mut self.lock().stalled, true);
        if !was_stalled && self.shared.env.may_log("partitions whose segment files wait", None) {
            let partition = self.key();
            tracing::warn!(%partition, %error, "the segment files wait; the write-ahead log has what is not in them");
        }
        Err(Stalled)
    }

    async fn write_rounds(&self, writer: &mut SegmentsWriter<'_>, goal: Goal) -> Result<(), SegmentError> {
        let config = self.config();
        loop {
            let batches = unwritten(&self.lock(), WRITE_BYTES_MAX);
            if batches.is_empty() {
                break;
            }
            let written = &batches[..writer.append(&config, &batches).await?];
            let end = written[written.len() - 1].last_offset() + 1;
            self.mark_written(end, written.iter().map(RecordBatch::size).sum());
            if writer.writer.messages_since_flush >= config.flush_interval_messages {
                self.flush(writer).await?;
            }
            if writer.writer.bytes_since_checkpoint >= self.shared.config.checkpoint_bytes {
                self.flush(writer).await?;
                self.checkpoint(writer).await?;
            }
        }
        if goal == Goal::Checkpointed {
            self.flush(writer).await?;
            self.checkpoint(writer).await?;
        }
        Ok(())
    }

    async fn flush(&self, writer: &mut SegmentsWriter<'_>) -> Result<(), SegmentError> {
        let written = self.lock().ring.written_offset();
        writer.flush().await?;
        let mut inner = self.lock();
        while inner.unflushed.front().is_some_and(|&(_, end)| end <= written) {
            if let Some((lsn, _)) = inner.unflushed.pop_front() {
                inner.flushed_lsn = lsn;
            }
        }
        Ok(())
    }

    /// Stores a checkpoint of what is flushed, and lets the write-ahead log go up to there.
    async fn checkpoint(&self, writer: &mut SegmentsWriter<'_>) -> Result<(), SegmentError> {
        let now = self.shared.producer_clock();
        let expired = now.saturating_sub(self.shared.config.producer_id_expiration_ms);
        let mut covered = Lsn::default();
        writer
            .checkpoint(|segment, position, next_offset| {
                let mut inner = self.lock();
                inner.append.expire(expired);
                covered = inner.covered_lsn();
                Checkpoint {
                    lsn: covered,
                    segment,
                    position,
                    next_offset,
                    log_start: inner.append.log_start(),
                    epochs: inner
                        .epochs
                        .entries()
                        .iter()
                        .filter(|&&(_, start)| start <= next_offset)
                        .map(|&(leader_epoch, start_offset)| EpochStart { leader_epoch, start_offset })
                        .collect(),
                    producers: inner.append.producers().encode(next_offset, now),
                }
            })
            .await?;
        {
            let mut inner = self.lock();
            let uncovered = inner.unflushed.front().map(|&(lsn, _)| lsn);
            inner.uncovered_since = uncovered.map(|_| self.shared.env.now());
            // Under the partition's lock, so that an append that is being reported cannot slip between.
            self.shared.wal_floor.covered(self.key(), uncovered.map(|_| covered.next()));
        }
        self.shared.wal.release(self.shared.wal_floor.floor());
        Ok(())
    }
}

impl Inner {
    /// The position up to which the write-ahead log has nothing that the segment files lack.
    ///
    /// A block may hold several appends of one partition. While others are on their way, the last flushed one's block
    /// may be shared with them, so only the blocks before it count; replay skips what it finds to be there already.
    fn covered_lsn(&self) -> Lsn {
        if self.unflushed.is_empty() && self.append.is_idle() {
            self.flushed_lsn
        } else {
            Lsn(self.flushed_lsn.0.saturating_sub(1))
        }
    }
}

/// Durable batches that the segment files do not hold, in order.
pub(super) fn unwritten(inner: &Inner, bytes_max: usize) -> Vec<RecordBatch> {
    inner.ring.unwritten(bytes_max, inner.append.high_watermark())
}
