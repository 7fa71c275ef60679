//! Probes and planted faults: the one process-wide registry. The macros look at the feature `sim-probes` of the package
//! that calls them, which the simulator's build of the broker alone switches on. Elsewhere a call is nothing, and its name is
//! not in the binary.
//!
//! A *probe*, `sometimes!("wal.torn_tail")`, counts how often a rare situation was met, so that a campaign can tell
//! that it was met at all. A probe whose name begins with `never.` marks a situation that cannot be, and fails the run in
//! which it is met; the broker, where it has a second line of defence, goes on. A *position*, `position!("log.end", …)`, is
//! noted for timelines. A *planted fault*, `if mutant!("wal.skip_crc") { … }`, is a known bug that the simulator
//! switches on to prove that its checkers notice. Nothing here reads the environment: the simulator decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts that a rare situation was met, optionally only if a condition holds. Free without `sim-probes`: the
/// condition is not evaluated then.
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {
        if cfg!(feature = "sim-probes") {
            $crate::probe::hit($name);
        }
    };
    ($name:literal, $condition:expr) => {
        if cfg!(feature = "sim-probes") && $condition {
            $crate::probe::hit($name);
        }
    };
}

/// Whether the planted fault of this name is switched on. The constant `false` without `sim-probes`.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        cfg!(feature = "sim-probes") && $crate::probe::planted($name)
    };
}

/// Notes a position that moves over time, such as the end of a log, for the simulator's timelines. Free without
/// `sim-probes`.
#[macro_export]
macro_rules! position {
    ($name:literal, $of:expr, $value:expr) => {
        if cfg!(feature = "sim-probes") {
            $crate::probe::note_position($name, &$of, $value);
        }
    };
}

static HITS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());
static PLANTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// Whether `PLANTED` holds anything: spares the common case its lock.
static ANY_PLANTED: AtomicBool = AtomicBool::new(false);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counters stay meaningful whatever panicked while one was raised.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A position at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Which position.
    pub name: &'static str,
    /// Of what.
    pub of: String,
    /// Where it is.
    pub value: i64,
}

static POSITIONS: Mutex<Vec<Position>> = Mutex::new(Vec::new());
static NOTES_POSITIONS: AtomicBool = AtomicBool::new(false);

/// From now on positions are noted. For the simulator, before a run starts.
pub fn note_positions() {
    NOTES_POSITIONS.store(true, Ordering::Relaxed);
}

/// Notes a position. Use `position!`.
pub fn note_position(name: &'static str, of: &dyn std::fmt::Display, value: i64) {
    if NOTES_POSITIONS.load(Ordering::Relaxed) {
        lock(&POSITIONS).push(Position { name, of: of.to_string(), value });
    }
}

/// The positions noted since the last call.
pub fn take_positions() -> Vec<Position> {
    std::mem::take(&mut *lock(&POSITIONS))
}

/// Counts one hit of the probe `name`. Use `sometimes!`.
pub fn hit(name: &'static str) {
    *lock(&HITS).entry(name).or_default() += 1;
}

/// Every probe hit so far in this process with its count, by name.
pub fn snapshot() -> BTreeMap<&'static str, u64> {
    lock(&HITS).clone()
}

/// Switches exactly these planted faults on. For the simulator, before a run starts.
pub fn plant<I: IntoIterator<Item = String>>(names: I) {
    let mut planted = lock(&PLANTED);
    *planted = names.into_iter().collect();
    ANY_PLANTED.store(!planted.is_empty(), Ordering::Relaxed);
}

/// Whether the fault is switched on; while it is, each question counts as a hit of its name. Use `mutant!`.
pub fn planted(name: &'static str) -> bool {
    let on = ANY_PLANTED.load(Ordering::Relaxed) && lock(&PLANTED).contains(name);
    if on {
        hit(name);
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_and_faults_are_off_until_planted() {
        hit("test.probe");
        hit("test.probe");
        assert_eq!(snapshot().get("test.probe"), Some(&2));
        assert!(!planted("test.mutant"));
        plant(["test.mutant".to_owned()]);
        assert!(planted("test.mutant") && !planted("test.other"));
        assert_eq!(snapshot().get("test.mutant"), Some(&1), "each question is a hit");
        plant([]);
        assert!(!planted("test.mutant"));
    }
}
