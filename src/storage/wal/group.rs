//! Which waiting entries go into the next block. Pure.
//!
//! Promises, for entries pushed in some order:
//! * entries of one partition keep their order, and a `Drop` of a topic keeps its place among all entries;
//! * a group has at most `group_bytes_max` bytes, unless it is a single larger entry;
//! * when not all fits, partitions share by bytes: none gets more than any other that still waits, except by one entry;
//!   who went short comes first in the next group;
//! * internal topics get up to `group_bytes_internal` before others, then what others leave.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::entry::{Entry, encoded_bytes};
use super::submission::EntryClass;
use crate::storage::PartitionKey;

/// An entry that waits, with what its owner wants back.
#[derive(Debug)]
pub struct Item<T> {
    /// The entry.
    pub entry: Entry,
    /// Its encoded size.
    pub bytes: usize,
    /// The owner's.
    pub tag: T,
}

/// The bounds of a group, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// All entries together.
    pub bytes_max: usize,
    /// What internal topics get first.
    pub internal_bytes: usize,
}

/// What waits.
pub struct GroupQueue<T> {
    stages: VecDeque<Stage<T>>,
    bytes: usize,
}

/// Entries within a stage may be reordered over partitions; stages are taken in order.
enum Stage<T> {
    WalShared {
        internal: Fair<T>,
        user: Fair<T>,
    },
    /// Must not move relative to any other entry.
    Alone(Item<T>),
}

impl<T> Default for GroupQueue<T> {
    fn default() -> Self {
        Self { stages: VecDeque::new(), bytes: 0 }
    }
}

impl<T> GroupQueue<T> {
    /// Encoded bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Adds an entry behind those of its partition.
    pub fn push(&mut self, class: EntryClass, entry: Entry, tag: T) {
        let bytes = encoded_bytes(&entry);
        self.bytes += bytes;
        let item = Item { entry, bytes, tag };
        let Some(partition) = item.entry.partition() else {
            self.stages.push_back(Stage::Alone(item));
            return;
        };
        if !matches!(self.stages.back(), Some(Stage::WalShared { .. })) {
            self.stages.push_back(Stage::WalShared { internal: Fair::default(), user: Fair::default() });
        }
        let Some(Stage::WalShared { internal, user }) = self.stages.back_mut() else {
            unreachable!("a shared stage was just ensured");
        };
        // A partition that waits already stays where it is, whatever class this entry says: order comes first.
        let is_internal = internal.has(&partition) || (class == EntryClass::Internal && !user.has(&partition));
        if is_internal { internal } else { user }.push(partition, item);
    }

    /// Takes the next group; empty only if nothing waits.
    pub fn take_group(&mut self, limits: GroupLimits) -> Vec<Item<T>> {
        let mut group = Group { items: Vec::new(), bytes: 0, bytes_max: limits.bytes_max };
        while let Some(stage) = self.stages.front_mut() {
            let emptied = match stage {
                Stage::Alone(item) => group.fits(item.bytes),
                Stage::WalShared { internal, user } => {
                    group.bytes_max = group.bytes.saturating_add(limits.internal_bytes).min(limits.bytes_max);
                    internal.take(&mut group);
                    group.bytes_max = limits.bytes_max;
                    user.take(&mut group);
                    internal.take(&mut group);
                    internal.is_empty() && user.is_empty()
                }
            };
            if !emptied {
                break;
            }
            if let Some(Stage::Alone(item)) = self.stages.pop_front() {
                group.add(item);
            }
        }
        self.bytes -= group.bytes;
        group.items
    }

    /// Takes everything, in an order that keeps the partitions' own.
    pub fn take_all(&mut self) -> Vec<Item<T>> {
        self.take_group(GroupLimits { bytes_max: usize::MAX, internal_bytes: usize::MAX })
    }
}

struct Group<T> {
    items: Vec<Item<T>>,
    bytes: usize,
    bytes_max: usize,
}

impl<T> Group<T> {
    /// The first entry always fits.
    fn fits(&self, bytes: usize) -> bool {
        bytes <= self.left() || self.items.is_empty()
    }

    fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes)
    }

    fn add(&mut self, item: Item<T>) {
        self.bytes += item.bytes;
        self.items.push(item);
    }
}

/// Entries of several partitions that share a group by bytes.
struct Fair<T> {
    partitions: BTreeMap<PartitionKey, VecDeque<Item<T>>>,
    /// Partitions that wait; who comes first is served first.
    ring: VecDeque<PartitionKey>,
    bytes: usize,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self { partitions: BTreeMap::new(), ring: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Fair<T> {
    fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    fn has(&self, partition: &PartitionKey) -> bool {
        self.partitions.contains_key(partition)
    }

    fn push(&mut self, partition: PartitionKey, item: Item<T>) {
        self.bytes += item.bytes;
        let waiting = self.partitions.entry(partition).or_default();
        if waiting.is_empty() {
            self.ring.push_back(partition);
        }
        waiting.push_back(item);
    }

    fn take(&mut self, group: &mut Group<T>) {
        if self.bytes <= group.left() {
            for partition in std::mem::take(&mut self.ring) {
                self.partitions.remove(&partition).into_iter().flatten().for_each(|item| group.add(item));
            }
            self.bytes = 0;
            return;
        }
        // The partition that has had the least of this group is next; among equals, the one longest in the ring.
        let ring = std::mem::take(&mut self.ring);
        let mut turns: BTreeSet<(usize, usize)> = (0..ring.len()).map(|position| (0, position)).collect();
        while let Some((taken, position)) = turns.pop_first() {
            let partition = ring[position];
            let waiting = self.partitions.get_mut(&partition).expect("a partition in the ring waits");
            let bytes = waiting.front().expect("a partition in the ring has an entry").bytes;
            if !group.fits(bytes) {
                turns.insert((taken, position));
                break;
            }
            self.bytes -= bytes;
            waiting.pop_front().into_iter().for_each(|item| group.add(item));
            if waiting.is_empty() {
                self.partitions.remove(&partition);
            } else {
                turns.insert((taken + bytes, position));
            }
        }
        self.ring = turns.into_iter().map(|(_, position)| ring[position]).collect();
    }
}
