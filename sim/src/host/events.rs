//! What happens when: one queue of events and timers, served by one task, on one timer of madsim at a time.
//!
//! madsim's own sleeps register a timer at each poll and never cancel one; they also last a millisecond at least. Here
//! an entry goes when its sleep is dropped, and microseconds count.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::world::{Effects, SharedState, State};

/// What happens at a point in time. Gets that time in nanoseconds.
pub(crate) type Action = Box<dyn FnOnce(&mut State, u64, &mut Effects) + Send>;

enum Entry {
    Wake(Waker),
    Run(Action),
}

/// Position in the queue: time in nanoseconds, then order of insertion.
pub(crate) type Key = (u64, u64);

#[derive(Default)]
pub(crate) struct Events {
    queue: BTreeMap<Key, Entry>,
    next: u64,
    /// The times at which madsim will wake the driver.
    armed: BTreeSet<u64>,
    driver: Option<Waker>,
}

impl Events {
    fn insert(&mut self, at: u64, entry: Entry, effects: &mut Effects) -> Key {
        let key = (at, self.next);
        self.next += 1;
        self.queue.insert(key, entry);
        if self.armed.first().is_none_or(|&armed| at < armed) {
            effects.wakes.extend(self.driver.take());
        }
        key
    }

    /// Runs `action` at `at` nanoseconds.
    pub(crate) fn at(
        &mut self,
        at: u64,
        effects: &mut Effects,
        action: impl FnOnce(&mut State, u64, &mut Effects) + Send + 'static,
    ) {
        self.insert(at, Entry::Run(Box::new(action)), effects);
    }

    /// Wakes `waker` at `at`; `key` is the entry that a former poll of the same sleep made.
    fn wake_at(&mut self, at: u64, key: Option<Key>, waker: &Waker, effects: &mut Effects) -> Key {
        if let Some(key) = key
            && let Some(Entry::Wake(known)) = self.queue.get_mut(&key)
        {
            if !known.will_wake(waker) {
                effects.drop_later(std::mem::replace(known, waker.clone()));
            }
            return key;
        }
        self.insert(at, Entry::Wake(waker.clone()), effects)
    }

    fn cancel(&mut self, key: Key, effects: &mut Effects) {
        if let Some(Entry::Wake(waker)) = self.queue.remove(&key) {
            effects.drop_later(waker);
        }
    }
}

/// A sleep on the world's clock.
pub(crate) struct Sleep {
    shared: Arc<SharedState>,
    deadline: u64,
    key: Option<Key>,
}

impl Sleep {
    pub(crate) fn new(shared: Arc<SharedState>, deadline: u64) -> Self {
        Self { shared, deadline, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.now() >= self.deadline {
            return Poll::Ready(());
        }
        let (deadline, key) = (self.deadline, self.key);
        let key = self.shared.with(|state, effects| state.events.wake_at(deadline, key, context.waker(), effects));
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shared.with(|state, effects| state.events.cancel(key, effects));
        }
    }
}

/// Serves the queue forever.
pub(crate) async fn drive(shared: Arc<SharedState>) {
    let mut timer = Box::pin(madsim::time::sleep(Duration::from_secs(1)));
    std::future::poll_fn(|context| {
        shared.with(|state, _| state.events.driver = None);
        while let Some(action) = shared.with(|state, effects| next_due(state, shared.now(), effects)) {
            shared.with(|state, effects| action(state, shared.now(), effects));
        }
        let arm = shared.with(|state, _| {
            let events = &mut state.events;
            let now = shared.now();
            events.armed.retain(|&at| at > now);
            events.driver = Some(context.waker().clone());
            let (&(first, _), _) = events.queue.first_key_value()?;
            if events.armed.first().is_some_and(|&at| at <= first) {
                return None;
            }
            events.armed.insert(first);
            Some(first)
        });
        if let Some(at) = arm {
            let elapsed = Duration::from_nanos(at.saturating_sub(shared.now()));
            // `reset` takes the deadline as it is; creating a sleep would round it up to a millisecond.
            timer.as_mut().reset(shared.instant() + elapsed);
            if timer.as_mut().poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
        }
        Poll::Pending
    })
    .await
}

/// Wakes the sleeps that are due, up to the next action that is; returns that.
fn next_due(state: &mut State, now: u64, effects: &mut Effects) -> Option<Action> {
    while let Some(first) = state.events.queue.first_entry()
        && first.key().0 <= now
    {
        match first.remove() {
            Entry::Wake(waker) => effects.wakes.push(waker),
            Entry::Run(action) => return Some(action),
        }
    }
    None
}
