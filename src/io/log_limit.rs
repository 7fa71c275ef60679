//! A bound on the log lines that a peer can cause: a few lines of each kind are written as they are, the others are
//! counted, and one line sums them up. Whoever sends a million bad frames leaves a few hundred lines.
//!
//! Each kind goes its own way:
//!
//! | lines of the kind so far | an event | the line |
//! |---|---|---|
//! | none, or the interval has ended and left nothing out | begins an interval | written |
//! | fewer than [`LINES_MAX`] in this interval | counts | written |
//! | [`LINES_MAX`] in this interval | is counted with its address | left out |
//! | the interval has ended and left lines out | begins an interval | written, after the summary |
//!
//! A summary comes at the end of its interval even if nothing else happens, and when the broker stops. The memory is
//! bounded for any number of addresses: of more than [`ADDRESSES_MAX`], those that came most are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Monotonic;

/// How long lines of a kind are counted together.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Lines of a kind that are written in one interval.
pub const LINES_MAX: u32 = 5;
/// Addresses of which lines that are left out are counted apart, for each kind.
pub const ADDRESSES_MAX: usize = 64;
/// Addresses that a summary names.
const NAMED_MAX: usize = 3;

/// Decides which lines are written. Pure.
#[derive(Debug, Default)]
pub struct LogLimit {
    kinds: BTreeMap<&'static str, Kind>,
}

#[derive(Debug)]
struct Kind {
    began: Monotonic,
    written: u32,
    left_out: LeftOut,
}

/// Lines that were left out. Every address that caused more than one in [`ADDRESSES_MAX`] of them is among those kept
/// ("space saving": the least is replaced and its count taken over, so a count may be too high and is never too low).
#[derive(Debug, Default)]
struct LeftOut {
    lines: u64,
    by_address: BTreeMap<IpAddr, u64>,
    has_more: bool,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Lines to be written before it.
    pub summaries: Vec<Summary>,
    /// Whether it is written.
    pub is_written: bool,
}

/// One line for all that were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What they were about.
    pub kind: &'static str,
    /// How many.
    pub lines: u64,
    /// In what time.
    pub within: Duration,
    /// From how many addresses; if `has_more`, from more than that.
    pub addresses: usize,
    /// Whether there were more addresses.
    pub has_more: bool,
    /// Those that came most, and how often at most.
    pub busiest: Vec<(IpAddr, u64)>,
}

impl LogLimit {
    /// A line of `kind` is about to be written, because of what came from this address.
    pub fn on_event(&mut self, now: Monotonic, kind: &'static str, from: Option<IpAddr>) -> Verdict {
        let summaries = self.due(now);
        let state = self.kinds.entry(kind).or_insert(Kind { began: now, written: 0, left_out: LeftOut::default() });
        if now - state.began >= INTERVAL {
            *state = Kind { began: now, written: 0, left_out: LeftOut::default() };
        }
        let is_written = state.written < LINES_MAX;
        if is_written {
            state.written += 1;
        } else {
            state.left_out.count(from);
        }
        Verdict { summaries, is_written }
    }

    /// The summaries of intervals that have ended.
    pub fn due(&mut self, now: Monotonic) -> Vec<Summary> {
        let ended = self.kinds.iter_mut().filter(|(_, state)| now - state.began >= INTERVAL);
        ended.filter_map(|(kind, state)| state.left_out.take(kind, now - state.began)).collect()
    }

    /// The summaries of all that was left out, ended or not.
    pub fn all(&mut self, now: Monotonic) -> Vec<Summary> {
        let kinds = self.kinds.iter_mut();
        kinds.filter_map(|(kind, state)| state.left_out.take(kind, now - state.began)).collect()
    }

    /// When the next summary is due, if any line has been left out.
    pub fn next_due(&self) -> Option<Monotonic> {
        let waiting = self.kinds.values().filter(|state| state.left_out.lines > 0);
        waiting.map(|state| state.began + INTERVAL).min()
    }
}

impl LeftOut {
    fn count(&mut self, from: Option<IpAddr>) {
        self.lines += 1;
        let Some(from) = from else { return };
        if let Some(count) = self.by_address.get_mut(&from) {
            *count += 1;
            return;
        }
        let mut before = 0;
        if self.by_address.len() >= ADDRESSES_MAX
            && let Some((&least, &count)) = self.by_address.iter().min_by_key(|(_, count)| **count)
        {
            self.has_more = true;
            self.by_address.remove(&least);
            before = count;
        }
        self.by_address.insert(from, before + 1);
    }

    fn take(&mut self, kind: &'static str, within: Duration) -> Option<Summary> {
        let Self { lines, by_address, has_more } = std::mem::take(self);
        let addresses = by_address.len();
        let mut busiest: Vec<_> = by_address.into_iter().collect();
        busiest.sort_by_key(|&(address, count)| (std::cmp::Reverse(count), address));
        busiest.truncate(NAMED_MAX);
        (lines > 0).then_some(Summary { kind, lines, within, addresses, has_more, busiest })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} more lines about {} were left out in {} s", self.lines, self.kind, self.within.as_secs())?;
        if self.busiest.is_empty() {
            return Ok(());
        }
        let more = if self.has_more { "more than " } else { "" };
        let what = if self.addresses == 1 { "address" } else { "addresses" };
        write!(f, ", from {more}{} {what}", self.addresses)?;
        for (number, (address, count)) in self.busiest.iter().enumerate() {
            let about = if self.has_more { "at most " } else { "" };
            write!(f, "{} {address} ({about}{count})", if number == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// One incarnation's limit.
#[derive(Default)]
pub(super) struct Limiter {
    limit: Mutex<LogLimit>,
    pub(super) left_out: Notify,
}

impl Limiter {
    pub(super) fn limit(&self) -> MutexGuard<'_, LogLimit> {
        // Counts alone: whatever was counted before a panic goes on.
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(0) + Duration::from_secs(seconds)
    }

    fn address(number: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, number]))
    }

    #[test]
    fn each_row_of_the_table() {
        let mut limit = LogLimit::default();
        for _ in 0..LINES_MAX {
            assert_eq!(limit.on_event(at(1), "a", address(1)), Verdict { summaries: vec![], is_written: true });
        }
        assert_eq!(limit.next_due(), None);
        for second in [2, 10] {
            assert!(!limit.on_event(at(second), "a", address(2)).is_written);
        }
        assert!(!limit.on_event(at(10), "a", address(1)).is_written);
        assert!(limit.on_event(at(10), "b", address(2)).is_written, "another kind has lines of its own");
        assert_eq!((limit.next_due(), limit.due(at(10))), (Some(at(11)), vec![]));
        let verdict = limit.on_event(at(11), "a", address(1));
        assert!(verdict.is_written);
        let texts: Vec<_> = verdict.summaries.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["3 more lines about a were left out in 10 s, from 2 addresses: 10.0.0.2 (2), 10.0.0.1 (1)"]);
        assert!(limit.on_event(at(100), "a", address(1)).summaries.is_empty(), "nothing was left out");
    }

    #[test]
    fn what_is_left_out_is_summed_up_without_a_further_event() {
        let mut limit = LogLimit::default();
        for _ in 0..LINES_MAX + 2 {
            limit.on_event(at(0), "a", None);
        }
        let due = limit.next_due().expect("lines were left out");
        assert_eq!(limit.due(due)[0].to_string(), "2 more lines about a were left out in 10 s");
        assert_eq!(limit.next_due(), None);
        assert!(limit.on_event(at(10), "a", None).is_written);
        assert!(limit.all(at(15)).is_empty() && limit.due(at(50)).is_empty());
    }

    #[test]
    fn the_busiest_of_very_many_addresses_is_named() {
        let mut limit = LogLimit::default();
        for number in 0..20_000_u32 {
            limit.on_event(at(0), "a", Some(IpAddr::from(number.to_be_bytes())));
            if number % 8 == 0 {
                limit.on_event(at(0), "a", address(9));
            }
        }
        let summary = limit.all(at(9)).remove(0);
        assert_eq!((summary.addresses, summary.has_more), (ADDRESSES_MAX, true));
        assert_eq!(Some(summary.busiest[0].0), address(9));
        assert!(summary.to_string().contains("from more than 64 addresses: 10.0.0.9 (at most "), "{summary}");
    }

    proptest! {
        /// No line is lost without being counted; no interval has more lines than it may; the memory is bounded; whoever
        /// caused a good part is kept.
        #[test]
        fn nothing_is_lost_uncounted(events in prop::collection::vec((0_u64..3, 0_usize..3, 0_u8..=255), 0..2000)) {
            const KINDS: [&str; 3] = ["a", "b", "c"];
            let mut limit = LogLimit::default();
            let (mut now, mut written, mut summed) = (0, 0_u64, 0_u64);
            let mut summaries = 0_u64;
            for (pause, kind, from) in &events {
                now += pause / 2;
                let verdict = limit.on_event(at(now), KINDS[*kind], address(from / 2));
                written += u64::from(verdict.is_written);
                summed += verdict.summaries.iter().map(|summary| summary.lines).sum::<u64>();
                summaries += verdict.summaries.len() as u64;
                for state in limit.kinds.values() {
                    prop_assert!(state.left_out.by_address.len() <= ADDRESSES_MAX);
                    let total: u64 = state.left_out.by_address.values().sum();
                    prop_assert_eq!(total, state.left_out.lines);
                }
            }
            summed += limit.all(at(now)).iter().map(|summary| summary.lines).sum::<u64>();
            prop_assert_eq!(written + summed, events.len() as u64);
            let intervals = now / INTERVAL.as_secs() + 1;
            prop_assert!(written + summaries <= intervals * 3 * (u64::from(LINES_MAX) + 1));
        }
    }
}
