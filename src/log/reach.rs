//! How far a partition reaches while the write-ahead log is applied to it, and so which entries apply. Pure: the first
//! reading of the log goes through it with a copy, to find out whether anything refuses the start; the second one applies.

use std::ops::Range;

use crate::storage::Lsn;

/// A partition's bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// The position up to which the checkpoint has everything.
    pub(super) covered: Lsn,
    pub(super) log_start: i64,
    pub(super) log_end: i64,
    /// The offset up to which the checkpoint has everything; 0 without one.
    pub(super) checkpointed_to: i64,
    /// Whether the records that the write-ahead log does not have were given up, so that it may begin anywhere.
    pub(super) given_up: bool,
}

/// What becomes of a batch of the write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Append {
    /// It is there already.
    Held,
    /// It comes next, after these offsets were given up.
    Next { lost: Option<Range<i64>> },
    /// Records before it are missing.
    Gap,
}

impl Reach {
    /// Takes a batch.
    pub(super) fn append(&mut self, base_offset: i64, last_offset: i64) -> Append {
        if last_offset < self.log_end {
            return Append::Held;
        }
        let mut lost = None;
        if std::mem::take(&mut self.given_up) && base_offset > self.log_end {
            lost = Some(self.log_end..base_offset);
            (self.log_start, self.log_end) = (base_offset, base_offset);
        }
        if base_offset != self.log_end {
            return Append::Gap;
        }
        self.log_end = last_offset + 1;
        Append::Next { lost }
    }

    /// Whether a cut at `end_offset` applies.
    ///
    /// Only what is not durable is ever taken back, and only what is durable is checkpointed: a cut below the checkpoint
    /// had been made before it, in a block that it covers in part. Cutting the files there once more would leave them
    /// shorter than their checkpoint, should this recovery be interrupted.
    pub(super) fn cuts(&self, end_offset: i64) -> bool {
        crate::sometimes!("log.replay_cut_skipped", end_offset < self.checkpointed_to);
        end_offset < self.log_end && end_offset >= self.checkpointed_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_taken_and_what_is_there_is_not() {
        let mut reach = Reach { log_end: 10, ..Reach::default() };
        assert_eq!(reach.append(5, 9), Append::Held);
        assert_eq!(reach.append(10, 14), Append::Next { lost: None });
        assert_eq!(reach.append(16, 17), Append::Gap);
        assert_eq!(reach.log_end, 15);
    }

    #[test]
    fn what_was_given_up_may_be_missing_once() {
        let mut reach = Reach { given_up: true, ..Reach::default() };
        assert_eq!(reach.append(7, 8), Append::Next { lost: Some(0..7) });
        assert_eq!((reach.log_start, reach.log_end), (7, 9));
        assert_eq!(reach.append(12, 12), Append::Gap);
    }

    #[test]
    fn a_cut_below_the_checkpoint_has_been_made() {
        let reach = Reach { log_end: 10, checkpointed_to: 5, ..Reach::default() };
        assert!(!reach.cuts(4) && reach.cuts(5) && reach.cuts(9) && !reach.cuts(10));
    }
}
