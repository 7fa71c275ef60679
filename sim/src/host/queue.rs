//! What happens when: one queue of events and timers, with what is needed to serve it on one timer at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use super::effects::Effects;

/// What happens at a point in time. Gets the state, and that time in nanoseconds.
pub(crate) type Action<S> = Box<dyn FnOnce(&mut S, u64, &mut Effects) + Send>;

enum Entry<S> {
    Wake(Waker),
    Run(Action<S>),
}

/// Position in the queue: time in nanoseconds, then order of insertion.
pub(super) type Key = (u64, u64);

/// The queue of a world with the state `S`.
pub(crate) struct Events<S> {
    queue: BTreeMap<Key, Entry<S>>,
    next: u64,
    /// The times at which madsim will wake the driver.
    armed: BTreeSet<u64>,
    driver: Option<Waker>,
}

impl<S> Default for Events<S> {
    fn default() -> Self {
        Self { queue: BTreeMap::new(), next: 0, armed: BTreeSet::new(), driver: None }
    }
}

impl<S> Events<S> {
    fn insert(&mut self, at: u64, entry: Entry<S>, effects: &mut Effects) -> Key {
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
        action: impl FnOnce(&mut S, u64, &mut Effects) + Send + 'static,
    ) {
        self.insert(at, Entry::Run(Box::new(action)), effects);
    }

    /// Wakes `waker` at `at`; `key` is the entry that a former poll of the same sleep made.
    pub(super) fn wake_at(&mut self, at: u64, key: Option<Key>, waker: &Waker, effects: &mut Effects) -> Key {
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

    /// Forgets the entry of a sleep.
    pub(super) fn cancel(&mut self, key: Key, effects: &mut Effects) {
        if let Some(Entry::Wake(waker)) = self.queue.remove(&key) {
            effects.drop_later(waker);
        }
    }

    /// The driver is awake: nobody needs to wake it.
    pub(super) fn driver_is_awake(&mut self) {
        self.driver = None;
    }

    /// Wakes the sleeps that are due, up to the next action that is; returns that.
    pub(super) fn next_due(&mut self, now: u64, effects: &mut Effects) -> Option<Action<S>> {
        while let Some(first) = self.queue.first_entry()
            && first.key().0 <= now
        {
            match first.remove() {
                Entry::Wake(waker) => effects.wakes.push(waker),
                Entry::Run(action) => return Some(action),
            }
        }
        None
    }

    /// The driver goes to sleep. Returns the time at which a timer must wake it, if none will early enough.
    pub(super) fn arm(&mut self, now: u64, driver: &Waker) -> Option<u64> {
        self.armed.retain(|&at| at > now);
        self.driver = Some(driver.clone());
        let (&(first, _), _) = self.queue.first_key_value()?;
        if self.armed.first().is_some_and(|&at| at <= first) {
            return None;
        }
        self.armed.insert(first);
        Some(first)
    }
}
