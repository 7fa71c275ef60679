//! The locks of a segment.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state behind these locks is consistent at every point where something could panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
