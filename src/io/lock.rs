//! Locks of the core. What they guard is shared by all connections, so a panic while one is held is not that of one
//! connection: what is guarded may be half changed, and the next one that takes the lock could not go on. It is a
//! fail-stop, at once, and in the server the lock is never let go again.
//!
//! | a panic | what ends |
//! |---|---|
//! | in a task of the core | the incarnation: see [`Env::spawn_core`] |
//! | while a lock of the core is held for changing, in whatever task | the incarnation |
//! | elsewhere in a connection's task | the connection |

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Env, FailStop};

/// A mutex whose holder must not panic.
pub struct CoreMutex<T> {
    lock: Mutex<T>,
    env: Env,
    name: &'static str,
}

impl<T> CoreMutex<T> {
    /// `name` says what it guards.
    pub fn new(env: &Env, name: &'static str, value: T) -> Self {
        Self { lock: Mutex::new(value), env: env.clone(), name }
    }

    /// Takes the lock.
    pub fn lock(&self) -> Held<'_, MutexGuard<'_, T>> {
        // A poisoned one is only met in an incarnation that has ended, by what is dropped after it.
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        Held::new(&self.env, self.name, guard)
    }
}

/// A lock for many readers or one writer, who must not panic.
pub struct CoreRwLock<T> {
    lock: RwLock<T>,
    env: Env,
    name: &'static str,
}

impl<T> CoreRwLock<T> {
    /// `name` says what it guards.
    pub fn new(env: &Env, name: &'static str, value: T) -> Self {
        Self { lock: RwLock::new(value), env: env.clone(), name }
    }

    /// Takes the lock for reading. A panic of a reader leaves nothing half changed.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock for changing.
    pub fn write(&self) -> Held<'_, RwLockWriteGuard<'_, T>> {
        let guard = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        Held::new(&self.env, self.name, guard)
    }
}

/// A lock of the core that is held.
pub struct Held<'a, G> {
    // Declared first: the incarnation has ended when the lock is let go.
    _watch: PanicWatch<'a>,
    guard: G,
}

impl<'a, G> Held<'a, G> {
    fn new(env: &'a Env, name: &'static str, guard: G) -> Self {
        // What is dropped in a panic may take locks: that panic is not theirs.
        Self { _watch: PanicWatch { env, name, was_panicking: std::thread::panicking() }, guard }
    }
}

impl<G: Deref> Deref for Held<'_, G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

struct PanicWatch<'a> {
    env: &'a Env,
    name: &'static str,
    was_panicking: bool,
}

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        if !self.was_panicking && std::thread::panicking() {
            self.env.fail_stop_now(FailStop::Bug, &format!("a panic while the lock of {} was held", self.name));
        }
    }
}
