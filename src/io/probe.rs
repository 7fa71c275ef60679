//! Probes and planted faults: the one process-wide registry, and only with the feature `sim-probes`, which the
//! simulator alone switches on. Without it every function here is an empty inline function and the names are not in
//! the binary.
//!
//! A *probe*, `sometimes!("wal.torn_tail")`, counts how often a rare situation was met, so that a campaign can tell
//! that it was met at all. A probe whose name begins with `never.` marks a situation that cannot be, and fails the run in
//! which it is met; the broker, where it has a second line of defence, goes on. A *gauge*, `gauge!("log.end", …)`, notes a
//! position for timelines. A *planted fault*, `if mutant!("wal.skip_crc") { … }`, is a known bug that the simulator
//! switches on to prove that its checkers notice. Nothing here reads the environment: the simulator decides.

/// Counts that a rare situation was met, optionally only if a condition holds. Free without `sim-probes`: the
/// condition is not evaluated then.
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {
        if $crate::io::probe::ENABLED {
            $crate::io::probe::hit($name);
        }
    };
    ($name:literal, $condition:expr) => {
        if $crate::io::probe::ENABLED && $condition {
            $crate::io::probe::hit($name);
        }
    };
}

/// Whether the planted fault of this name is switched on. The constant `false` without `sim-probes`.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::io::probe::ENABLED && $crate::io::probe::planted($name)
    };
}

/// Notes a position that moves over time, such as the end of a log, for the simulator's timelines. Free without
/// `sim-probes`.
#[macro_export]
macro_rules! gauge {
    ($name:literal, $of:expr, $value:expr) => {
        if $crate::io::probe::ENABLED {
            $crate::io::probe::gauge($name, &$of, $value);
        }
    };
}

/// Whether this build counts probes and can switch planted faults on.
pub const ENABLED: bool = cfg!(feature = "sim-probes");

#[cfg(feature = "sim-probes")]
pub use registry::{Gauge, gauge, hit, note_gauges, plant, planted, snapshot, take_gauges};

#[cfg(not(feature = "sim-probes"))]
pub use absent::{gauge, hit, planted};

#[cfg(feature = "sim-probes")]
mod registry {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

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
    pub struct Gauge {
        /// Which position.
        pub name: &'static str,
        /// Of what.
        pub of: String,
        /// Where it is.
        pub value: i64,
    }

    static GAUGES: Mutex<Vec<Gauge>> = Mutex::new(Vec::new());
    static NOTES_GAUGES: AtomicBool = AtomicBool::new(false);

    /// From now on positions are noted. For the simulator, before a run starts.
    pub fn note_gauges() {
        NOTES_GAUGES.store(true, Ordering::Relaxed);
    }

    /// Notes a position. Use `gauge!`.
    pub fn gauge(name: &'static str, of: &dyn std::fmt::Display, value: i64) {
        if NOTES_GAUGES.load(Ordering::Relaxed) {
            lock(&GAUGES).push(Gauge { name, of: of.to_string(), value });
        }
    }

    /// The positions noted since the last call.
    pub fn take_gauges() -> Vec<Gauge> {
        std::mem::take(&mut *lock(&GAUGES))
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
}

#[cfg(not(feature = "sim-probes"))]
mod absent {
    /// Does nothing in this build.
    #[inline(always)]
    pub fn hit(_name: &'static str) {}

    /// Does nothing in this build.
    #[inline(always)]
    pub fn gauge(_name: &'static str, _of: &dyn std::fmt::Display, _value: i64) {}

    /// Never, in this build.
    #[inline(always)]
    pub fn planted(_name: &'static str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "sim-probes")]
    #[test]
    fn probes_count_and_faults_are_off_until_planted() {
        sometimes!("test.probe");
        sometimes!("test.probe", 1 + 1 == 2);
        sometimes!("test.probe", 1 + 1 == 3);
        assert_eq!(super::snapshot().get("test.probe"), Some(&2));
        assert!(!mutant!("test.mutant"));
        super::plant(["test.mutant".to_owned()]);
        assert!(mutant!("test.mutant"));
        assert!(!mutant!("test.other"));
        super::plant([]);
        assert!(!mutant!("test.mutant"));
    }

    #[cfg(not(feature = "sim-probes"))]
    #[test]
    fn without_the_feature_the_condition_is_not_evaluated() {
        sometimes!("test.probe", unreachable!("evaluated"));
        assert!(!mutant!("test.mutant"));
    }
}
