//! Deduplication of idempotent producers: what each producer appended last, per partition. Pure.
//!
//! | the batch's epoch | its first sequence | verdict |
//! |---|---|---|
//! | older than known | any | `InvalidEpoch` |
//! | equal | the batch is one of the last five | `Duplicate` with the offsets of the first time |
//! | equal | follows the last (2³¹−1 wraps to 0) | `Append` |
//! | equal | anything else | `OutOfOrder` |
//! | newer | 0 | `Append`, the window starts afresh |
//! | newer | not 0 | `OutOfOrder` |
//! | producer unknown here (new, or idle so long that it was forgotten) | any | `Append` |
//!
//! Of a producer that is unknown, [`state`](super::state) holds back what overtakes an earlier batch.
//!
//! Sources: KIP-98, and the five batches in flight that clients rely on (KAFKA-5494).

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::wire::batch::RecordBatch;

/// Batches remembered per producer: what a client may have in flight with idempotence.
pub const WINDOW: usize = 5;
/// Layout version of [`Producers::encode`].
///
/// | version | of each producer |
/// |---|---|
/// | 1 | when it last appended, by a wall clock that may have been wrong: it counts as seen at the start |
/// | 2 | for how long it had been idle, in milliseconds |
const SNAPSHOT_VERSION: u8 = 2;

/// What matters of a batch for deduplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    /// Producer id (non-negative).
    pub producer_id: i64,
    /// Producer epoch.
    pub epoch: i16,
    /// Sequence of the first record.
    pub first_sequence: i32,
    /// Sequence of the last record (wraps past 2³¹−1 to 0).
    pub last_sequence: i32,
}

impl ProducerBatch {
    /// What matters of a batch as it is sent or stored, or `None` for a producer without idempotence.
    pub fn of(batch: &RecordBatch) -> Option<Self> {
        Self::new(batch.producer_id(), batch.producer_epoch(), batch.base_sequence(), batch.last_offset_delta())
    }

    /// The batch's identity, or `None` for a producer without idempotence.
    pub fn new(producer_id: i64, epoch: i16, first_sequence: i32, last_offset_delta: i32) -> Option<Self> {
        (producer_id >= 0).then(|| Self {
            producer_id,
            epoch,
            first_sequence,
            last_sequence: advance_sequence(first_sequence, last_offset_delta),
        })
    }
}

/// `sequence + by`, wrapping from 2³¹−1 to 0.
pub fn advance_sequence(sequence: i32, by: i32) -> i32 {
    sequence.wrapping_add(by) & i32::MAX
}

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    first_sequence: i32,
    last_sequence: i32,
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// The time it was stored with: milliseconds since the epoch.
    pub timestamp: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    /// When it last appended, for expiry: milliseconds on the monotonic clock of this incarnation, negative before it.
    seen: i64,
    window: VecDeque<Appended>,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// New: append it.
    Append,
    /// A retry of a batch that was appended already.
    Duplicate(Appended),
    /// A gap: an earlier batch is missing, or this one is too old to be known.
    OutOfOrder {
        /// The sequence that is next.
        expected: i32,
    },
    /// The producer has been fenced by a newer epoch.
    InvalidEpoch,
}

/// What [`Producers::append`] replaced, to be given back to [`Producers::undo`] if the append fails.
#[derive(Debug)]
pub struct Undo {
    producer_id: i64,
    previous: Option<Producer>,
}

/// All producers of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    by_id: BTreeMap<i64, Producer>,
}

/// A snapshot that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the producer snapshot is damaged")]
pub struct SnapshotDamaged;

impl Producers {
    /// Judges a batch without changing anything.
    pub fn check(&self, batch: &ProducerBatch) -> Verdict {
        let Some(producer) = self.by_id.get(&batch.producer_id) else {
            return Verdict::Append;
        };
        if batch.epoch < producer.epoch {
            return Verdict::InvalidEpoch;
        }
        if batch.epoch > producer.epoch {
            return if batch.first_sequence == 0 { Verdict::Append } else { Verdict::OutOfOrder { expected: 0 } };
        }
        let same =
            |seen: &&Appended| (seen.first_sequence, seen.last_sequence) == (batch.first_sequence, batch.last_sequence);
        if let Some(first_time) = producer.window.iter().find(same) {
            return Verdict::Duplicate(*first_time);
        }
        match producer.window.back().map(|last| advance_sequence(last.last_sequence, 1)) {
            Some(expected) if batch.first_sequence != expected => Verdict::OutOfOrder { expected },
            _ => Verdict::Append,
        }
    }

    /// Remembers a batch that was judged [`Verdict::Append`].
    ///
    /// `timestamp` is what a retry is answered with, a wall clock's; `now` is monotonic. Both are in milliseconds.
    pub fn append(
        &mut self,
        batch: &ProducerBatch,
        base_offset: i64,
        last_offset: i64,
        timestamp: i64,
        now: i64,
    ) -> Undo {
        let previous = self.by_id.get(&batch.producer_id).cloned();
        let producer = self.by_id.entry(batch.producer_id).or_insert_with(|| Producer {
            epoch: batch.epoch,
            seen: now,
            window: VecDeque::with_capacity(WINDOW),
        });
        if batch.epoch > producer.epoch {
            producer.epoch = batch.epoch;
            producer.window.clear();
        }
        producer.seen = producer.seen.max(now);
        if producer.window.len() == WINDOW {
            producer.window.pop_front();
        }
        producer.window.push_back(Appended {
            first_sequence: batch.first_sequence,
            last_sequence: batch.last_sequence,
            base_offset,
            last_offset,
            timestamp,
        });
        Undo { producer_id: batch.producer_id, previous }
    }

    /// Takes an append back. Undos run in the reverse order of their appends.
    pub fn undo(&mut self, undo: Undo) {
        match undo.previous {
            Some(previous) => self.by_id.insert(undo.producer_id, previous),
            None => self.by_id.remove(&undo.producer_id),
        };
    }

    /// Forgets batches at or past `end_offset`: the log was cut there.
    pub fn truncate(&mut self, end_offset: i64) {
        self.by_id.retain(|_, producer| {
            producer.window.retain(|batch| batch.last_offset < end_offset);
            !producer.window.is_empty()
        });
    }

    /// Forgets producers that have appended nothing since `before` (monotonic, milliseconds).
    pub fn expire(&mut self, before: i64) {
        self.by_id.retain(|_, producer| producer.seen >= before);
    }

    /// Whether a producer is known.
    pub fn knows(&self, producer_id: i64) -> bool {
        self.by_id.contains_key(&producer_id)
    }

    /// Number of producers known.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether no producer is known.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The state as of `end_offset` and `now` (monotonic, milliseconds), as bytes for the checkpoint. Batches at or past
    /// the offset are left out: the write-ahead log brings them back.
    pub fn encode(&self, end_offset: i64, now: i64) -> Bytes {
        let mut out = BytesMut::with_capacity(16 + self.by_id.len() * 96);
        out.put_u8(SNAPSHOT_VERSION);
        let kept: Vec<_> = self
            .by_id
            .iter()
            .map(|(id, producer)| (id, producer, producer.window.iter().filter(|b| b.last_offset < end_offset)))
            .filter(|(_, _, window)| window.clone().next().is_some())
            .collect();
        out.put_u32(kept.len() as u32);
        for (id, producer, window) in kept {
            out.put_i64(*id);
            out.put_i16(producer.epoch);
            out.put_i64(now.saturating_sub(producer.seen).max(0));
            out.put_u8(window.clone().count() as u8);
            for batch in window {
                out.put_i32(batch.first_sequence);
                out.put_i32(batch.last_sequence);
                out.put_i64(batch.base_offset);
                out.put_i64(batch.last_offset);
                out.put_i64(batch.timestamp);
            }
        }
        out.freeze()
    }

    /// Reads what [`Producers::encode`] wrote, at `now` (monotonic, milliseconds) of another incarnation. The time between
    /// the two is not known, since the wall clock may have been set: it does not count as idle, so that no producer is
    /// forgotten early.
    pub fn decode(mut bytes: Bytes, now: i64) -> Result<Self, SnapshotDamaged> {
        let bad = |_| SnapshotDamaged;
        let version = bytes.try_get_u8().map_err(bad)?;
        if !(1..=SNAPSHOT_VERSION).contains(&version) {
            return Err(SnapshotDamaged);
        }
        let mut producers = Self::default();
        for _ in 0..bytes.try_get_u32().map_err(bad)? {
            let id = bytes.try_get_i64().map_err(bad)?;
            let epoch = bytes.try_get_i16().map_err(bad)?;
            let idle = bytes.try_get_i64().map_err(bad)?;
            let seen = if version == 1 { now } else { now.saturating_sub(idle.max(0)) };
            let count = usize::from(bytes.try_get_u8().map_err(bad)?);
            if count > WINDOW {
                return Err(SnapshotDamaged);
            }
            let mut window = VecDeque::with_capacity(WINDOW);
            for _ in 0..count {
                window.push_back(Appended {
                    first_sequence: bytes.try_get_i32().map_err(bad)?,
                    last_sequence: bytes.try_get_i32().map_err(bad)?,
                    base_offset: bytes.try_get_i64().map_err(bad)?,
                    last_offset: bytes.try_get_i64().map_err(bad)?,
                    timestamp: bytes.try_get_i64().map_err(bad)?,
                });
            }
            producers.by_id.insert(id, Producer { epoch, seen, window });
        }
        if bytes.has_remaining() { Err(SnapshotDamaged) } else { Ok(producers) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epoch: i16, first_sequence: i32, records: i32) -> ProducerBatch {
        ProducerBatch::new(7, epoch, first_sequence, records - 1).expect("an id")
    }

    /// Appends one-record batches with sequences `from..to` at equal offsets.
    fn with_sequences(from: i32, to: i32) -> Producers {
        let mut producers = Producers::default();
        for sequence in from..to {
            let one = batch(0, sequence, 1);
            assert_eq!(producers.check(&one), Verdict::Append, "sequence {sequence}");
            producers.append(&one, sequence.into(), sequence.into(), 0, 0);
        }
        producers
    }

    #[test]
    fn a_retry_gets_the_offset_of_the_first_time() {
        let producers = with_sequences(0, 5);
        for sequence in 0..5 {
            let Verdict::Duplicate(first_time) = producers.check(&batch(0, sequence, 1)) else {
                panic!("sequence {sequence} is known");
            };
            assert_eq!(first_time.base_offset, i64::from(sequence));
        }
    }

    #[test]
    fn only_the_last_five_are_known() {
        assert_eq!(with_sequences(0, 6).check(&batch(0, 0, 1)), Verdict::OutOfOrder { expected: 6 });
    }

    #[test]
    fn a_gap_is_seen_and_the_next_in_line_still_fits() {
        let producers = with_sequences(0, 1);
        assert_eq!(producers.check(&batch(0, 5, 1)), Verdict::OutOfOrder { expected: 1 });
        assert_eq!(producers.check(&batch(0, 1, 1)), Verdict::Append);
    }

    #[test]
    fn sequences_wrap_to_zero_within_and_between_batches() {
        let mut producers = Producers::default();
        let wrapping = batch(0, i32::MAX - 1, 4);
        assert_eq!(wrapping.last_sequence, 1);
        producers.append(&wrapping, 0, 3, 0, 0);
        assert_eq!(producers.check(&batch(0, 2, 1)), Verdict::Append);
        let to_the_brim = batch(0, 2, i32::MAX - 1);
        assert_eq!(to_the_brim.last_sequence, i32::MAX);
        producers.append(&to_the_brim, 4, 4, 0, 0);
        assert_eq!(producers.check(&batch(0, 0, 1)), Verdict::Append);
    }

    #[test]
    fn a_newer_epoch_starts_at_zero_and_fences_the_old() {
        let mut producers = with_sequences(0, 3);
        assert_eq!(producers.check(&batch(1, 3, 1)), Verdict::OutOfOrder { expected: 0 });
        assert_eq!(producers.check(&batch(1, 0, 1)), Verdict::Append);
        producers.append(&batch(1, 0, 1), 3, 3, 0, 0);
        assert_eq!(producers.check(&batch(0, 3, 1)), Verdict::InvalidEpoch);
    }

    #[test]
    fn a_forgotten_producer_returns_without_an_error() {
        let mut producers = with_sequences(0, 3);
        producers.expire(1);
        assert!(producers.is_empty());
        assert_eq!(producers.check(&batch(0, 3, 1)), Verdict::Append);
    }

    #[test]
    fn undo_restores_what_was() {
        let before = with_sequences(0, 7);
        let mut producers = before.clone();
        let first = producers.append(&batch(0, 7, 1), 7, 7, 0, 9);
        let second = producers.append(&batch(2, 0, 1), 8, 8, 0, 9);
        producers.undo(second);
        producers.undo(first);
        assert_eq!(producers, before);
    }

    #[test]
    fn a_snapshot_holds_what_lies_below_its_offset() {
        let producers = with_sequences(0, 4);
        assert_eq!(Producers::decode(producers.encode(4, 0), 0), Ok(producers.clone()));
        assert_eq!(Producers::decode(producers.encode(2, 0), 0), Ok(with_sequences(0, 2)));
        assert_eq!(Producers::decode(producers.encode(0, 0), 0), Ok(Producers::default()));
    }

    #[test]
    fn idle_time_goes_on_after_a_start_from_where_it_was() {
        // Idle for 700 ms when the snapshot is made; the next incarnation has its own clock.
        let snapshot = with_sequences(0, 3).encode(3, 700);
        let known_after = |started: i64, passed: i64| {
            let mut producers = Producers::decode(snapshot.clone(), started).expect("whole");
            producers.expire((started + passed).saturating_sub(1000));
            !producers.is_empty()
        };
        for started in [0, 5, 10_000_000] {
            assert!(known_after(started, 0) && known_after(started, 300), "it was idle for a second at most");
            assert!(!known_after(started, 301), "nobody is kept forever");
        }
    }

    #[test]
    fn the_older_snapshot_is_read_and_its_wall_clock_is_not_believed() {
        let mut old = with_sequences(0, 2).encode(2, 0).to_vec();
        old[0] = 1;
        for wall in [0, i64::MIN, i64::MAX, 1_700_000_000_000] {
            // Version, count, id and epoch come before it.
            old[1 + 4 + 8 + 2..][..8].copy_from_slice(&wall.to_be_bytes());
            let mut producers = Producers::decode(Bytes::from(old.clone()), 50).expect("version 1");
            producers.expire(50);
            assert_eq!(producers.len(), 1);
            producers.expire(51);
            assert!(producers.is_empty());
        }
        old[0] = SNAPSHOT_VERSION + 1;
        assert_eq!(Producers::decode(Bytes::from(old), 50), Err(SnapshotDamaged));
    }

    #[test]
    fn a_damaged_snapshot_is_an_error() {
        let whole = with_sequences(0, 4).encode(4, 0);
        for length in 0..whole.len() {
            assert_eq!(Producers::decode(whole.slice(..length), 0), Err(SnapshotDamaged), "cut to {length}");
        }
    }
}
