//! What a producer has begun and does not know the outcome of. No I/O: the producer drives it.
//!
//! | item | event | plain | idempotent |
//! |---|---|---|---|
//! | in flight | acknowledged | recorded, gone | recorded, gone |
//! | in flight | refused for good | recorded as failed, gone | recorded as failed, gone, complaint |
//! | in flight | refused for now | recorded as maybe, gone | waits to be sent again |
//! | in flight | connection lost | recorded as maybe (or failed, if never sent), gone | waits to be sent again |
//!
//! An idempotent producer sends again only when nothing of it is in flight on that connection any more, and then in
//! the order of its sequence numbers: so it never reorders itself.

use std::collections::VecDeque;

use kilo::wire::batch::RecordBatch;

use crate::history::{Partition, SendId};

/// Whether a batch has been given to the current connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// To be sent (again).
    Waiting,
    /// Sent; the answer is due.
    InFlight,
}

/// A batch whose outcome is not known.
#[derive(Clone)]
pub struct Item {
    /// The send.
    pub send: SendId,
    /// Where to.
    pub partition: Partition,
    /// The bytes, the same for every attempt.
    pub batch: RecordBatch,
    /// Where it is.
    pub state: State,
    /// How often it was sent.
    pub attempts: u32,
}

/// The batches of a producer whose outcomes are not known, in the order in which they began.
#[derive(Default)]
pub struct Window {
    items: VecDeque<Item>,
    /// A batch was refused: nothing is sent until all in flight have been answered.
    held: bool,
}

impl Window {
    /// Adds a new batch.
    pub fn push(&mut self, send: SendId, partition: Partition, batch: RecordBatch) {
        self.items.push_back(Item { send, partition, batch, state: State::Waiting, attempts: 0 });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether anything is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.items.iter().any(|item| item.state == State::InFlight)
    }

    /// Whether nothing may be sent, new batches neither.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// The next batch to send, which counts as sent from now on.
    pub fn next_to_send(&mut self) -> Option<Item> {
        if self.held {
            return None;
        }
        let item = self.items.iter_mut().find(|item| item.state == State::Waiting)?;
        item.state = State::InFlight;
        item.attempts += 1;
        Some(item.clone())
    }

    /// Takes a batch out whose outcome is known, or will never be.
    pub fn remove(&mut self, send: SendId) -> Option<Item> {
        let at = self.items.iter().position(|item| item.send == send)?;
        let item = self.items.remove(at);
        self.release();
        item
    }

    /// What an idempotent batch says of its producer.
    pub fn sequence(&self, send: SendId) -> Option<String> {
        let batch = &self.items.iter().find(|item| item.send == send)?.batch;
        let (id, epoch, first) = (batch.producer_id(), batch.producer_epoch(), batch.base_sequence());
        (id >= 0).then(|| format!("producer id {id} epoch {epoch} sequence {first}"))
    }

    /// Whether nothing older of the same partition waits for its outcome.
    pub fn is_oldest(&self, send: SendId) -> bool {
        let place = self.items.iter().find(|item| item.send == send).map(|item| item.partition);
        self.items.iter().find(|item| Some(item.partition) == place).is_some_and(|item| item.send == send)
    }

    /// A batch is to be sent again when all in flight have been answered.
    pub fn again(&mut self, send: SendId) {
        if let Some(item) = self.items.iter_mut().find(|item| item.send == send) {
            item.state = State::Waiting;
            self.held = true;
        }
        self.release();
    }

    /// The connection is gone: all is to be sent again.
    pub fn all_again(&mut self) {
        self.held = false;
        for item in &mut self.items {
            item.state = State::Waiting;
        }
    }

    /// The connection is gone, and what was in flight is given up: takes it all out.
    pub fn take_all(&mut self) -> Vec<Item> {
        self.held = false;
        self.items.drain(..).collect()
    }

    fn release(&mut self) {
        self.held &= self.is_in_flight();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilo::wire::batch::BatchBuilder;

    fn window(count: u32) -> Window {
        let mut window = Window::default();
        for send in 0..count {
            let mut builder = BatchBuilder::default();
            builder.push(0, None, None);
            window.push(SendId(send), Partition(send % 2), builder.build().expect("it fits"));
        }
        window
    }

    fn sent(window: &mut Window) -> Vec<u32> {
        std::iter::from_fn(|| window.next_to_send()).map(|item| item.send.0).collect()
    }

    #[test]
    fn what_was_refused_waits_until_nothing_is_in_flight_and_goes_in_order() {
        let mut window = window(4);
        assert_eq!(sent(&mut window), [0, 1, 2, 3]);
        window.again(SendId(0));
        window.again(SendId(2));
        assert!(sent(&mut window).is_empty() && window.is_held());
        window.remove(SendId(1));
        assert!(sent(&mut window).is_empty());
        window.again(SendId(3));
        assert_eq!(sent(&mut window), [0, 2, 3]);
    }

    #[test]
    fn a_lost_connection_sends_all_again() {
        let mut window = window(3);
        sent(&mut window);
        window.remove(SendId(1));
        window.again(SendId(2));
        window.all_again();
        assert_eq!(sent(&mut window), [0, 2]);
        assert_eq!(window.remove(SendId(2)).map(|item| item.attempts), Some(2));
    }

    #[test]
    fn the_oldest_is_told_by_partition() {
        let mut window = window(4);
        assert!(window.is_oldest(SendId(0)) && window.is_oldest(SendId(1)));
        assert!(!window.is_oldest(SendId(2)));
        window.remove(SendId(0));
        assert!(window.is_oldest(SendId(2)));
    }
}
