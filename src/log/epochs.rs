//! The leader epoch cache: which leader epoch began at which offset (KIP-101). Pure.
//!
//! | event | effect |
//! |---|---|
//! | a new epoch begins at the log end | an entry is added; an epoch that appended nothing is replaced |
//! | the log is truncated to `end` | entries that start at or past `end` go, but for the newest below it |
//! | the log start moves to `start` | entries wholly below it go, the last of them now starts there |

/// Epochs in ascending order, each with the offset of its first record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochCache {
    entries: Vec<(i32, i64)>,
}

impl EpochCache {
    /// Rebuilds the cache from stored entries; entries out of order are dropped.
    pub fn from_entries(entries: impl IntoIterator<Item = (i32, i64)>) -> Self {
        let mut cache = Self::default();
        for (epoch, start) in entries {
            cache.begin(epoch, start);
        }
        cache
    }

    /// Epoch `epoch` begins at `start_offset`. An older or equal epoch changes nothing.
    pub fn begin(&mut self, epoch: i32, start_offset: i64) {
        if self.latest().is_some_and(|latest| latest >= epoch) {
            return;
        }
        while self.entries.last().is_some_and(|&(_, start)| start >= start_offset) {
            self.entries.pop();
        }
        self.entries.push((epoch, start_offset));
    }

    /// The newest epoch.
    pub fn latest(&self) -> Option<i32> {
        self.entries.last().map(|&(epoch, _)| epoch)
    }

    /// The epoch in which the record at `offset` was appended.
    pub fn epoch_at(&self, offset: i64) -> Option<i32> {
        let after = self.entries.partition_point(|&(_, start)| start <= offset);
        after.checked_sub(1).map(|index| self.entries[index].0)
    }

    /// The newest epoch that is not newer than `epoch`, and where it ended: where the next one began, or at `log_end`.
    pub fn end_of(&self, epoch: i32, log_end: i64) -> Option<(i32, i64)> {
        let after = self.entries.partition_point(|&(begun, _)| begun <= epoch);
        let (found, _) = self.entries[after.checked_sub(1)?];
        Some((found, self.entries.get(after).map_or(log_end, |&(_, start)| start)))
    }

    /// Forgets epochs that began at or past `end_offset`.
    pub fn truncate(&mut self, end_offset: i64) {
        self.entries.retain(|&(_, start)| start < end_offset);
    }

    /// Forgets epochs that ended at or below `log_start`.
    pub fn advance_start(&mut self, log_start: i64) {
        let below = self.entries.partition_point(|&(_, start)| start <= log_start);
        if below > 0 {
            self.entries.drain(..below - 1);
            self.entries[0].1 = log_start;
        }
    }

    /// Entries in ascending order: (epoch, offset of its first record).
    pub fn entries(&self) -> &[(i32, i64)] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        EpochCache::from_entries(entries.iter().copied())
    }

    #[test]
    fn an_epoch_without_records_is_replaced() {
        assert_eq!(cache(&[(1, 0), (2, 10), (3, 10)]).entries(), [(1, 0), (3, 10)]);
    }

    #[test]
    fn an_older_epoch_changes_nothing() {
        assert_eq!(cache(&[(5, 0), (4, 10), (5, 12)]).entries(), [(5, 0)]);
    }

    #[test]
    fn looks_up_by_offset() {
        let cache = cache(&[(1, 5), (3, 10)]);
        assert_eq!([4, 5, 9, 10, 99].map(|offset| cache.epoch_at(offset)), [None, Some(1), Some(1), Some(3), Some(3)]);
    }

    #[test]
    fn the_end_of_an_epoch_is_the_start_of_the_next() {
        let cache = cache(&[(1, 5), (3, 10)]);
        let ends = [0, 1, 2, 3, 4].map(|epoch| cache.end_of(epoch, 12));
        assert_eq!(ends, [None, Some((1, 10)), Some((1, 10)), Some((3, 12)), Some((3, 12))]);
    }

    #[test]
    fn truncation_and_log_start_cut_both_ends() {
        let mut both = cache(&[(1, 0), (2, 10), (3, 20)]);
        both.truncate(20);
        both.advance_start(12);
        assert_eq!(both.entries(), [(2, 12)]);
    }
}
