//! When a planned fault hits, and on what: for the timeline, and to count the faults that hit. Nothing in a run depends
//! on it, and it is no part of the trace.

use std::collections::BTreeMap;
use std::fmt;

/// Hits of one fault that are kept. A disk that is slow for seconds hits thousands of times.
const KEPT_PER_FAULT: usize = 100;

/// What makes operations go wrong: a fault of the plan turns it on and off, and whoever is hit knows only this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The rates of a disk's faults.
    DiskRates,
    /// The fault of one chosen operation, by its number.
    Injection(u64),
    /// The limit of a disk's space.
    DiskSpace,
    /// The limit of descriptors.
    Descriptors,
    /// Blocked links, and links that reset connections.
    Links,
}

/// A moment at which a fault was felt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Nanoseconds since the run began.
    pub at_ns: u64,
    /// The fault's number.
    pub fault: u32,
    /// What it hit, and how.
    pub what: String,
}

/// The hits of a run.
#[derive(Default)]
pub(crate) struct Hits {
    blamed: BTreeMap<Cause, u32>,
    kept: Vec<Hit>,
    counts: BTreeMap<u32, Count>,
}

#[derive(Default)]
struct Count {
    kept: usize,
    /// Those beyond the limit, with the times of the first and the last of them.
    more: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Hits {
    /// From now on what `cause` does is the doing of this fault.
    pub(crate) fn blame(&mut self, cause: Cause, fault: u32) {
        self.blamed.insert(cause, fault);
    }

    /// The fault whose doing it is.
    pub(crate) fn blamed(&self, cause: Cause) -> Option<u32> {
        self.blamed.get(&cause).copied()
    }

    /// Notes that a fault has hit.
    pub(crate) fn note(&mut self, at_ns: u64, fault: u32, what: fmt::Arguments<'_>) {
        let count = self.counts.entry(fault).or_default();
        if count.kept < KEPT_PER_FAULT {
            count.kept += 1;
            self.kept.push(Hit { at_ns, fault, what: what.to_string() });
            return;
        }
        if count.more == 0 {
            count.first_ns = at_ns;
        }
        count.more += 1;
        count.last_ns = at_ns;
    }

    /// Whether a fault has hit.
    pub(crate) fn has_hit(&self, fault: u32) -> bool {
        self.counts.contains_key(&fault)
    }

    /// All that were kept in the order of their times, and of each fault how many more there were.
    pub(crate) fn all(&self) -> Vec<Hit> {
        let more = self.counts.iter().filter(|(_, count)| count.more > 0).map(|(&fault, count)| Hit {
            at_ns: count.first_ns,
            fault,
            what: format!("and {} more until {:.3} s", count.more, count.last_ns as f64 / 1e9),
        });
        let mut all: Vec<Hit> = self.kept.iter().cloned().chain(more).collect();
        all.sort_by_key(|hit| hit.at_ns);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hits_of_one_fault_are_counted_and_those_of_another_are_kept() {
        let mut hits = Hits::default();
        hits.blame(Cause::DiskRates, 3);
        let slow = hits.blamed(Cause::DiskRates).unwrap();
        for at_ns in 0..KEPT_PER_FAULT as u64 + 7 {
            hits.note(at_ns, slow, format_args!("slow"));
        }
        hits.note(5, 4, format_args!("killed"));
        assert_eq!(hits.blamed(Cause::DiskSpace), None);
        let all = hits.all();
        assert_eq!(all.len(), KEPT_PER_FAULT + 2);
        assert_eq!(all.iter().filter(|hit| hit.fault == 4).count(), 1);
        let last = all.last().unwrap();
        assert_eq!((last.at_ns, last.what.as_str()), (KEPT_PER_FAULT as u64, "and 7 more until 0.000 s"));
    }
}
