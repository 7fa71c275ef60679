//! Which part of the write-ahead log is still needed: per partition, the position of the first append that no
//! checkpoint covers. Pure.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::storage::{Lsn, PartitionKey};

/// First needed position per partition, and the newest position that any partition has heard of.
#[derive(Debug, Default)]
pub struct WalFloor(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    first: BTreeMap<PartitionKey, Lsn>,
    seen: Lsn,
}

impl WalFloor {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no holder of the lock panics")
    }

    /// `partition` has an append at `lsn` that no checkpoint covers. An earlier one stays.
    pub fn first(&self, partition: PartitionKey, lsn: Lsn) {
        self.lock().first.entry(partition).or_insert(lsn);
    }

    /// A checkpoint of `partition` covers everything up to `lsn`; `next` is the first append past it, if any.
    pub fn covered(&self, partition: PartitionKey, next: Option<Lsn>) {
        let mut state = self.lock();
        match next {
            Some(lsn) => state.first.insert(partition, lsn),
            None => state.first.remove(&partition),
        };
    }

    /// An append at `lsn` was reported. Others in the same block may still be on their way.
    pub fn seen(&self, lsn: Lsn) {
        let mut state = self.lock();
        state.seen = state.seen.max(lsn);
    }

    /// Nothing below this position is needed.
    pub fn floor(&self) -> Lsn {
        let state = self.lock();
        state.first.values().copied().min().map_or(state.seen, |first| first.min(state.seen))
    }

    /// Partitions that keep the write-ahead log from shrinking, the one that keeps most first.
    pub fn oldest(&self) -> Vec<(PartitionKey, Lsn)> {
        let mut all: Vec<_> = self.lock().first.iter().map(|(key, lsn)| (*key, *lsn)).collect();
        all.sort_by_key(|&(key, lsn)| (lsn, key));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::TopicId;

    fn partition(index: i32) -> PartitionKey {
        PartitionKey { topic: TopicId::default(), index }
    }

    #[test]
    fn the_floor_is_the_oldest_need() {
        let wal_floor = WalFloor::default();
        wal_floor.first(partition(0), Lsn(5));
        wal_floor.first(partition(1), Lsn(3));
        wal_floor.first(partition(1), Lsn(9));
        wal_floor.seen(Lsn(9));
        assert_eq!(wal_floor.floor(), Lsn(3));
        assert_eq!(wal_floor.oldest(), [(partition(1), Lsn(3)), (partition(0), Lsn(5))]);
        wal_floor.covered(partition(1), None);
        assert_eq!(wal_floor.floor(), Lsn(5));
    }

    #[test]
    fn a_block_that_is_not_fully_reported_stays() {
        let wal_floor = WalFloor::default();
        wal_floor.first(partition(0), Lsn(4));
        wal_floor.seen(Lsn(4));
        wal_floor.covered(partition(0), None);
        assert_eq!(wal_floor.floor(), Lsn(4), "another partition's append in block 4 may not have been reported yet");
    }
}
