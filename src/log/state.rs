//! Offsets of a partition and what is on its way into the write-ahead log. Pure: no I/O, no clock.
//!
//! | event | log end | in flight | high watermark |
//! |---|---|---|---|
//! | `append` | + records | + batch | |
//! | `append` of a retry, original in flight | | its waiter joins the original | |
//! | `committed(ticket)` | | − front | = end of the front batch |
//! | `failed(ticket)`, ticket in flight | = base of its batch | − it and its successors, producers undone | |
//! | `failed(ticket)`, ticket unknown | | | |
//! | `refused` | | | |
//!
//! Commits come in the order of the appends. A failure takes all successors with it: their offsets would
//! leave a hole. What the write-ahead log later says about those successors is ignored, since their tickets are gone;
//! the write-ahead log fails everything it holds before it takes anything new, so none of them can succeed.

use std::collections::VecDeque;

use super::first_batch::FirstBatchGuard;
use super::producer::{Appended, ProducerBatch, Producers, Undo, Verdict};
use crate::wire::batch::RecordBatch;

/// Names one append until it is committed or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// An append that waits for the write-ahead log. `W` is whoever is told.
#[derive(Debug)]
struct InFlight<W> {
    ticket: Ticket,
    batch: RecordBatch,
    undo: Option<Undo>,
    waiters: Vec<W>,
}

/// Offsets, producers and appends in flight.
#[derive(Debug)]
pub struct AppendState<W> {
    log_start: i64,
    log_end: i64,
    high_watermark: i64,
    producers: Producers,
    refused: FirstBatchGuard,
    in_flight: VecDeque<InFlight<W>>,
    next_ticket: u64,
}

/// What becomes of a batch that is offered.
#[derive(Debug)]
pub enum Admission<W> {
    /// Take offsets from `base_offset`, then call [`AppendState::append`].
    New {
        /// The offset of its first record.
        base_offset: i64,
        /// The waiter, given back.
        waiter: W,
    },
    /// A retry; the original is in flight and the waiter waits for it.
    Joined(Appended),
    /// A retry; the original is durable. The waiter is given back.
    Known(Appended, W),
}

/// A batch that breaks its producer's sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// See [`Verdict::OutOfOrder`].
    #[error("the batch does not follow the producer's last one, sequence {expected} is next")]
    OutOfOrder {
        /// The sequence that is next.
        expected: i32,
    },
    /// See [`Verdict::InvalidEpoch`].
    #[error("the producer has been fenced by a newer epoch")]
    InvalidEpoch,
}

/// A committed append.
#[derive(Debug)]
pub struct Committed<W> {
    /// The batch, now readable.
    pub batch: RecordBatch,
    /// Whom to tell.
    pub waiters: Vec<W>,
}

impl<W> AppendState<W> {
    /// State of a partition whose log holds `log_start..log_end`, all of it durable.
    pub fn new(log_start: i64, log_end: i64, producers: Producers) -> Self {
        Self {
            log_start,
            log_end,
            high_watermark: log_end,
            producers,
            refused: FirstBatchGuard::default(),
            in_flight: VecDeque::new(),
            next_ticket: 0,
        }
    }

    /// First offset that may be read.
    pub fn log_start(&self) -> i64 {
        self.log_start
    }

    /// The next offset to be given.
    pub fn log_end(&self) -> i64 {
        self.log_end
    }

    /// End of what is durable, and so of what consumers may see.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// Whether nothing waits for the write-ahead log.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// What is known of idempotent producers.
    pub fn producers(&mut self) -> &mut Producers {
        &mut self.producers
    }

    /// Forgets producers that have been idle since `before` (monotonic, milliseconds).
    pub fn expire(&mut self, before: i64) {
        self.producers.expire(before);
        self.refused.expire(before);
    }

    /// A batch was not appended for a reason that may pass, so it will be sent again. `now` is monotonic, in milliseconds.
    pub fn refused(&mut self, producer: &ProducerBatch, now: i64) {
        if !self.producers.knows(producer.producer_id) {
            self.refused.note(producer, now);
        }
    }

    /// Judges a batch.
    pub fn admit(&mut self, producer: Option<&ProducerBatch>, waiter: W) -> Result<Admission<W>, SequenceError> {
        if let Some(expected) = producer.and_then(|producer| self.overtaken(producer)) {
            return Err(SequenceError::OutOfOrder { expected });
        }
        match producer.map_or(Verdict::Append, |producer| self.producers.check(producer)) {
            Verdict::Append => Ok(Admission::New { base_offset: self.log_end, waiter }),
            Verdict::OutOfOrder { expected } => Err(SequenceError::OutOfOrder { expected }),
            Verdict::InvalidEpoch => Err(SequenceError::InvalidEpoch),
            Verdict::Duplicate(first) if first.last_offset < self.high_watermark => Ok(Admission::Known(first, waiter)),
            Verdict::Duplicate(first) => {
                let original = self
                    .in_flight
                    .iter_mut()
                    .find(|other| other.batch.base_offset() == first.base_offset)
                    .expect("a batch past the high watermark is in flight");
                original.waiters.push(waiter);
                Ok(Admission::Joined(first))
            }
        }
    }

    /// The sequence that a producer that is not known has to begin with, if this batch comes behind it: what was refused
    /// here, or 0 where nothing was ever stored. There is nothing that could have been forgotten there, but the first batch
    /// may have come before the topic was there (KAFKA-15591).
    fn overtaken(&self, producer: &ProducerBatch) -> Option<i32> {
        if self.producers.knows(producer.producer_id) {
            return None;
        }
        if let Some(expected) = self.refused.comes_before(producer) {
            crate::sometimes!("log.overtaking_held_back");
            return Some(expected);
        }
        (self.log_end == 0 && producer.first_sequence != 0).then_some(0)
    }

    /// Appends an admitted batch, which carries its offsets. `now` is monotonic, in milliseconds.
    pub fn append(&mut self, batch: RecordBatch, producer: Option<&ProducerBatch>, now: i64, waiter: W) -> Ticket {
        assert_eq!(batch.base_offset(), self.log_end, "offsets are dense");
        let last_offset = batch.last_offset();
        let undo = producer.map(|it| {
            self.refused.begun(it.producer_id);
            self.producers.append(it, batch.base_offset(), last_offset, batch.max_timestamp(), now)
        });
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.log_end = last_offset + 1;
        self.in_flight.push_back(InFlight { ticket, batch, undo, waiters: vec![waiter] });
        ticket
    }

    /// Batches in flight from the one that holds `offset` on, at most `max_bytes` of them, but at least one.
    pub fn in_flight_from(&self, offset: i64, max_bytes: usize) -> Vec<RecordBatch> {
        let mut permit = max_bytes;
        let reaching = self.in_flight.iter().map(|it| &it.batch).filter(|batch| batch.last_offset() >= offset);
        let fitting = reaching.enumerate().take_while(|(number, batch)| {
            let fits = *number == 0 || batch.size() <= permit;
            permit = permit.saturating_sub(batch.size());
            fits
        });
        fitting.map(|(_, batch)| batch.clone()).collect()
    }

    /// The write-ahead log holds the append. `None` if it had been given up.
    pub fn committed(&mut self, ticket: Ticket) -> Option<Committed<W>> {
        let position = self.in_flight.iter().position(|it| it.ticket == ticket)?;
        assert_eq!(position, 0, "commits come in the order of the appends");
        let InFlight { batch, waiters, .. } = self.in_flight.pop_front()?;
        self.high_watermark = batch.last_offset() + 1;
        Some(Committed { batch, waiters })
    }

    /// The append failed at `now` (monotonic, milliseconds): it and all its successors are taken back. Gives all who wait.
    pub fn failed(&mut self, ticket: Ticket, now: i64) -> Vec<W> {
        let Some(position) = self.in_flight.iter().position(|it| it.ticket == ticket) else {
            return Vec::new();
        };
        let mut taken_back = self.in_flight.split_off(position);
        self.log_end = taken_back[0].batch.base_offset();
        for lost in taken_back.iter_mut().rev() {
            if let Some(undo) = lost.undo.take() {
                self.producers.undo(undo);
            }
            if let Some(producer) = ProducerBatch::of(&lost.batch) {
                self.refused(&producer, now);
            }
        }
        taken_back.into_iter().flat_map(|lost| lost.waiters).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::batch::{BatchBuilder, Stamp};
    use crate::wire::codec::Codec;

    type State = AppendState<u32>;

    fn batch(sequence: i32, records: i32) -> RecordBatch {
        let mut builder = BatchBuilder::new(Codec::None).producer(7, 0, sequence);
        for _ in 0..records {
            builder.push(1, None, Some(b"value"));
        }
        builder.build().expect("no codec can fail")
    }

    fn producer(batch: &RecordBatch) -> Option<ProducerBatch> {
        ProducerBatch::of(batch)
    }

    /// Offers a batch; appends it if it is new.
    fn offer(state: &mut State, batch: &RecordBatch, waiter: u32) -> Ticket {
        match state.admit(producer(batch).as_ref(), waiter) {
            Ok(Admission::New { base_offset, waiter }) => {
                state.append(batch.assign(base_offset, 0, Stamp::Keep), producer(batch).as_ref(), 0, waiter)
            }
            other => panic!("not new: {other:?}"),
        }
    }

    fn fresh() -> State {
        State::new(0, 0, Producers::default())
    }

    #[test]
    fn the_high_watermark_follows_commits() {
        let mut state = fresh();
        let first = offer(&mut state, &batch(0, 3), 1);
        let second = offer(&mut state, &batch(3, 2), 2);
        assert_eq!((state.log_end(), state.high_watermark()), (5, 0));
        assert_eq!(state.committed(first).map(|it| it.waiters), Some(vec![1]));
        assert_eq!((state.log_end(), state.high_watermark()), (5, 3));
        assert_eq!(state.committed(second).map(|it| it.waiters), Some(vec![2]));
        assert_eq!((state.high_watermark(), state.is_idle()), (5, true));
    }

    #[test]
    fn a_retry_in_flight_waits_for_the_original() {
        let mut state = fresh();
        let sent = batch(0, 3);
        let ticket = offer(&mut state, &sent, 1);
        assert!(
            matches!(state.admit(producer(&sent).as_ref(), 2), Ok(Admission::Joined(first)) if first.base_offset == 0)
        );
        assert_eq!(state.committed(ticket).map(|it| it.waiters), Some(vec![1, 2]));
        assert!(matches!(state.admit(producer(&sent).as_ref(), 3), Ok(Admission::Known(_, 3))));
        assert_eq!(state.log_end(), 3);
    }

    #[test]
    fn a_failure_takes_successors_and_producer_state_back() {
        let mut state = fresh();
        let durable = offer(&mut state, &batch(0, 1), 1);
        state.committed(durable);
        let lost = offer(&mut state, &batch(1, 1), 2);
        let successor = offer(&mut state, &batch(2, 1), 3);
        assert_eq!(state.failed(lost, 0), [2, 3]);
        assert_eq!((state.log_end(), state.high_watermark(), state.is_idle()), (1, 1, true));
        assert!(state.failed(successor, 0).is_empty(), "it is gone already");
        assert!(state.committed(successor).is_none());
        // The producer sends the lost batch again: it is neither a duplicate nor out of order.
        let again = offer(&mut state, &batch(1, 1), 4);
        assert_eq!(state.committed(again).map(|it| it.batch.base_offset()), Some(1));
    }

    #[test]
    fn a_producer_begins_with_what_was_refused() {
        let mut state = fresh();
        let sent = [batch(0, 1), batch(1, 1), batch(2, 1)];
        // The first finds no room; when the second comes there would be some.
        state.refused(&producer(&sent[0]).expect("idempotent"), 0);
        let overtaking = |state: &mut State| state.admit(producer(&sent[1]).as_ref(), 1);
        assert!(matches!(overtaking(&mut state), Err(SequenceError::OutOfOrder { expected: 0 })));
        // The first is taken, but the write-ahead log fails, and the second is still not the beginning.
        let first = offer(&mut state, &sent[0], 0);
        let second = offer(&mut state, &sent[1], 1);
        assert_eq!((state.failed(first, 0), state.failed(second, 0)), (vec![0, 1], vec![]));
        assert!(matches!(overtaking(&mut state), Err(SequenceError::OutOfOrder { expected: 0 })));
        for (waiter, one) in (0..).zip(&sent) {
            let ticket = offer(&mut state, one, waiter);
            assert!(state.committed(ticket).is_some());
        }
        assert_eq!(state.high_watermark(), 3);
    }

    #[test]
    fn the_first_batch_of_a_partition_begins_at_zero() {
        let mut state = fresh();
        let early = state.admit(producer(&batch(1, 1)).as_ref(), 1);
        assert!(matches!(early, Err(SequenceError::OutOfOrder { expected: 0 })));
        offer(&mut state, &batch(0, 1), 2);
        offer(&mut state, &batch(1, 1), 3);
        // Where something was stored, a producer may have been forgotten.
        let mut used = State::new(10, 10, Producers::default());
        offer(&mut used, &batch(5, 1), 4);
    }

    #[test]
    fn a_failure_leaves_what_is_before_it_in_flight() {
        let mut state = fresh();
        let first = offer(&mut state, &batch(0, 2), 1);
        let second = offer(&mut state, &batch(2, 1), 2);
        assert_eq!(state.failed(second, 0), [2]);
        assert_eq!((state.log_end(), state.high_watermark()), (2, 0));
        assert_eq!(state.committed(first).map(|it| it.waiters), Some(vec![1]));
        assert_eq!((state.log_end(), state.high_watermark()), (2, 2));
    }

    #[test]
    fn what_is_in_flight_can_be_read_by_followers() {
        let mut state = fresh();
        offer(&mut state, &batch(0, 3), 1);
        offer(&mut state, &batch(3, 3), 2);
        let bases =
            |from, max| state.in_flight_from(from, max).iter().map(RecordBatch::base_offset).collect::<Vec<_>>();
        assert_eq!(bases(0, 1), [0]);
        assert_eq!(bases(2, usize::MAX), [0, 3]);
        assert_eq!(bases(3, usize::MAX), [3]);
    }
}
