//! What happens when the lock on the world has been released: whatever runs foreign code.

use std::task::Waker;

/// What happens when the lock has been released.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) wakes: Vec<Waker>,
    after: Vec<Box<dyn FnOnce()>>,
}

impl Effects {
    /// Runs `action` without the lock.
    pub(crate) fn after(&mut self, action: impl FnOnce() + 'static) {
        self.after.push(Box::new(action));
    }

    /// Drops `value` without the lock.
    pub(crate) fn drop_later<T: 'static>(&mut self, value: T) {
        self.after(move || drop(value));
    }

    /// Lets it happen.
    pub(super) fn run(self) {
        for waker in self.wakes {
            waker.wake();
        }
        for action in self.after {
            action();
        }
    }
}
