//! Idempotent producers whose first batch here was refused for now: what they sent behind it must not overtake it. Pure.
//!
//! A producer that is not known may begin with any sequence, since brokers forget those that were idle. If its first batch
//! is refused because the disk is full, and there is room again when the second one comes, that one would be taken for the
//! beginning; the first, sent again, would be out of order forever. Kafka keeps the lowest sequence of a transaction for
//! the same reason (KAFKA-14920).
//!
//! | the batch of a producer that is not known | verdict |
//! |---|---|
//! | of the epoch refused, behind the sequence refused | must wait: `OutOfOrder`, which clients retry |
//! | that sequence, an earlier one, or another epoch | may be appended |
//!
//! The memory is bounded and not durable: without it, things are as in Kafka.

use std::collections::BTreeMap;

use super::producer::ProducerBatch;

/// Producers remembered per partition.
const PRODUCERS_MAX: usize = 1000;

/// The batch that has to come first.
#[derive(Clone, Copy, Debug)]
struct First {
    epoch: i16,
    sequence: i32,
    /// When it was refused: monotonic, milliseconds.
    at: i64,
}

/// Producers that wait to begin.
#[derive(Debug, Default)]
pub struct FirstBatchGuard {
    by_id: BTreeMap<i64, First>,
}

impl FirstBatchGuard {
    /// A batch of a producer that is not known was refused at `now` (monotonic, milliseconds), and will be sent again.
    pub fn note(&mut self, batch: &ProducerBatch, now: i64) {
        if let Some(first) = self.by_id.get(&batch.producer_id)
            && (first.epoch > batch.epoch || first.epoch == batch.epoch && is_behind(batch, first))
        {
            return;
        }
        if self.by_id.len() < PRODUCERS_MAX || self.by_id.contains_key(&batch.producer_id) {
            let first = First { epoch: batch.epoch, sequence: batch.first_sequence, at: now };
            self.by_id.insert(batch.producer_id, first);
        }
    }

    /// The sequence that this producer, which is not known, has to begin with, if this batch comes behind it.
    pub fn comes_before(&self, batch: &ProducerBatch) -> Option<i32> {
        let first = self.by_id.get(&batch.producer_id)?;
        (first.epoch == batch.epoch && is_behind(batch, first)).then_some(first.sequence)
    }

    /// The producer has begun.
    pub fn begun(&mut self, producer_id: i64) {
        self.by_id.remove(&producer_id);
    }

    /// Forgets what was refused before `before` (monotonic, milliseconds).
    pub fn expire(&mut self, before: i64) {
        self.by_id.retain(|_, first| first.at >= before);
    }
}

/// Whether a batch comes after the first one, in the half of the sequences behind it: they wrap from 2³¹−1 to 0.
fn is_behind(batch: &ProducerBatch, first: &First) -> bool {
    let distance = batch.first_sequence.wrapping_sub(first.sequence) & i32::MAX;
    (1..1 << 30).contains(&distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(producer_id: i64, epoch: i16, first_sequence: i32) -> ProducerBatch {
        ProducerBatch::new(producer_id, epoch, first_sequence, 0).expect("an id")
    }

    fn holds_back(guard: &FirstBatchGuard, batch: &ProducerBatch) -> bool {
        guard.comes_before(batch).is_some()
    }

    fn held_back(guard: &FirstBatchGuard, epoch: i16, sequences: &[i32]) -> Vec<bool> {
        sequences.iter().map(|&sequence| holds_back(guard, &batch(7, epoch, sequence))).collect()
    }

    #[test]
    fn what_was_sent_behind_has_to_wait_until_the_producer_has_begun() {
        let mut guard = FirstBatchGuard::default();
        guard.note(&batch(7, 3, 5), 0);
        assert_eq!(held_back(&guard, 3, &[4, 5, 6, 100]), [false, false, true, true]);
        assert_eq!(held_back(&guard, 4, &[0, 6]), [false, false], "a new epoch is a new beginning");
        assert!(!holds_back(&guard, &batch(8, 3, 6)), "another producer");
        guard.begun(7);
        assert!(!holds_back(&guard, &batch(7, 3, 6)));
    }

    #[test]
    fn the_earliest_of_the_newest_epoch_has_to_come_first() {
        let mut guard = FirstBatchGuard::default();
        for (epoch, sequence) in [(0, 6), (0, 5), (0, 7)] {
            guard.note(&batch(7, epoch, sequence), 0);
        }
        assert_eq!(held_back(&guard, 0, &[5, 6]), [false, true]);
        guard.note(&batch(7, 1, 9), 0);
        guard.note(&batch(7, 0, 1), 0);
        assert_eq!(held_back(&guard, 1, &[9, 10]), [false, true]);
        assert_eq!(held_back(&guard, 0, &[6]), [false], "the broker's other rules fence the old epoch");
    }

    #[test]
    fn sequences_wrap() {
        let mut guard = FirstBatchGuard::default();
        guard.note(&batch(7, 0, i32::MAX), 0);
        assert_eq!(held_back(&guard, 0, &[i32::MAX - 1, i32::MAX, 0, 5]), [false, false, true, true]);
    }

    #[test]
    fn memory_is_bounded_and_expires() {
        let mut guard = FirstBatchGuard::default();
        for id in 0..=PRODUCERS_MAX as i64 {
            guard.note(&batch(id, 0, 1), id);
        }
        assert!(holds_back(&guard, &batch(0, 0, 2)));
        assert!(!holds_back(&guard, &batch(PRODUCERS_MAX as i64, 0, 2)), "there was no room for it");
        guard.note(&batch(0, 0, 0), 0);
        assert!(holds_back(&guard, &batch(0, 0, 1)), "one that is known can still be changed");
        guard.expire(1);
        assert!(!holds_back(&guard, &batch(0, 0, 2)));
        assert!(holds_back(&guard, &batch(1, 0, 2)));
    }
}
