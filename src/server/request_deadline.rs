//! Whether a request comes fast enough. Memory is set aside for it, so it must not take forever.

use std::time::Duration;

use crate::io::Monotonic;

/// Beyond the time that a request may stand still, it must have come at this rate, in bytes a second.
pub(super) const RATE_BYTES_MIN: u64 = 256 * 1024;

/// How a request comes along: it may not stand still for longer than `stall`, and may take that long altogether, and a
/// second more for each [`RATE_BYTES_MIN`] that have come.
pub(super) struct RequestDeadline {
    stall: Duration,
    began: Monotonic,
    moved: Monotonic,
    bytes: u64,
}

impl RequestDeadline {
    pub(super) fn new(stall: Duration, now: Monotonic) -> Self {
        Self { stall, began: now, moved: now, bytes: 0 }
    }

    /// Counts from now on.
    pub(super) fn restart(&mut self, now: Monotonic) {
        *self = Self::new(self.stall, now);
    }

    /// So many bytes have come.
    pub(super) fn moved(&mut self, bytes: usize, now: Monotonic) {
        self.moved = now;
        self.bytes += bytes as u64;
    }

    /// Since when it counts.
    pub(super) fn began(&self) -> Monotonic {
        self.began
    }

    /// When it will have been too slow, if nothing comes.
    pub(super) fn at(&self) -> Monotonic {
        let earned = Duration::from_millis(self.bytes.saturating_mul(1000) / RATE_BYTES_MIN);
        (self.moved + self.stall).min(self.began + self.stall + earned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn standing_still_ends_it_however_much_has_come() {
        let mut limit = RequestDeadline::new(STALL, at(10));
        assert_eq!(limit.at(), at(40));
        limit.moved(90 << 20, at(12));
        assert_eq!(limit.at(), at(42));
    }

    #[test]
    fn dripping_ends_it_and_a_steady_flow_does_not() {
        let mut limit = RequestDeadline::new(STALL, at(0));
        for second in 1..29 {
            limit.moved(1, at(second));
        }
        assert_eq!(limit.at(), at(30));
        let mut limit = RequestDeadline::new(STALL, at(0));
        for second in 1..1000 {
            limit.moved(256 * 1024, at(second));
            assert!(limit.at() > at(second + 1));
        }
        limit.restart(at(2000));
        assert_eq!(limit.at(), at(2030));
    }
}
