//! What goes into a block: order, bounds, fairness.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::support::append;
use crate::storage::wal::group::{GroupLimits, GroupQueue, Item};
use crate::storage::wal::{Entry, EntryClass};
use crate::storage::{PartitionKey, TopicId};

const LIMITS: GroupLimits = GroupLimits { bytes_max: 10_000, internal_bytes: 2_000 };

fn drain(queue: &mut GroupQueue<usize>) -> Vec<Vec<Item<usize>>> {
    let mut groups = Vec::new();
    while !queue.is_empty() {
        groups.push(queue.take_group(LIMITS));
    }
    groups
}

fn bytes(group: &[Item<usize>]) -> usize {
    group.iter().map(|item| item.bytes).sum()
}

#[test]
fn internal_topics_get_their_part_although_others_came_first() {
    let mut queue = GroupQueue::default();
    for number in 0..100 {
        queue.push(EntryClass::User, append(0, number, 1000), 0);
    }
    queue.push(EntryClass::Internal, append(9, 0, 1000), 1);
    assert_eq!(queue.take_group(LIMITS).iter().filter(|item| item.tag == 1).count(), 1);
}

#[test]
fn who_went_short_comes_first_in_the_next_group() {
    let mut queue = GroupQueue::default();
    for index in 0..30 {
        queue.push(EntryClass::User, append(index, 0, 1000), 0);
        queue.push(EntryClass::User, append(index, 1, 1000), 0);
    }
    let mut seen = Vec::new();
    for group in drain(&mut queue).iter().take(4) {
        seen.extend(group.iter().filter_map(|item| item.entry.partition()));
    }
    seen.truncate(30);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 30, "each partition had a turn before any had two");
}

#[test]
fn an_entry_larger_than_a_group_goes_alone() {
    let mut queue = GroupQueue::default();
    queue.push(EntryClass::User, append(0, 0, 100), 0);
    queue.push(EntryClass::User, append(1, 0, 50_000), 1);
    queue.push(EntryClass::User, append(2, 0, 100), 2);
    let groups = drain(&mut queue);
    assert!(groups.iter().any(|group| group.len() == 1 && group[0].tag == 1));
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), 3);
}

#[derive(Clone, Debug)]
enum Push {
    Append { index: i32, bytes: usize, internal: bool },
    Drop,
}

fn pushes() -> impl Strategy<Value = Vec<Push>> {
    let push = prop_oneof![
        40 => (0..6, 61_usize..4000).prop_map(|(index, bytes)| Push::Append { index, bytes, internal: index >= 4 }),
        2 => (0..3, 9000_usize..20_000).prop_map(|(index, bytes)| Push::Append { index, bytes, internal: false }),
        1 => Just(Push::Drop),
    ];
    prop::collection::vec(push, 1..120)
}

proptest! {
    #[test]
    fn order_bounds_and_fairness_hold(pushes in pushes()) {
        let mut queue = GroupQueue::default();
        let mut drops = Vec::new();
        for (number, push) in pushes.iter().enumerate() {
            match *push {
                Push::Append { index, bytes, internal } => {
                    let class = if internal { EntryClass::Internal } else { EntryClass::User };
                    queue.push(class, append(index, number as i64, bytes), number);
                }
                Push::Drop => {
                    drops.push(number);
                    queue.push(EntryClass::User, Entry::Drop { topic: TopicId::default() }, number);
                }
            }
        }
        let groups = drain(&mut queue);
        prop_assert_eq!(queue.bytes(), 0);
        let mut last: BTreeMap<PartitionKey, usize> = BTreeMap::new();
        let mut position = 0;
        for (number, group) in groups.iter().enumerate() {
            prop_assert!(!group.is_empty());
            prop_assert!(bytes(group) <= LIMITS.bytes_max || group.len() == 1, "group {number}");
            for item in group {
                match item.entry.partition() {
                    Some(partition) => {
                        prop_assert!(last.insert(partition, item.tag).is_none_or(|before| before < item.tag));
                    }
                    None => prop_assert_eq!(item.tag, position, "a drop keeps its place"),
                }
                position += 1;
            }
        }
        prop_assert_eq!(position, pushes.len());
        if drops.is_empty() {
            check_fair(&groups)?;
        }
    }
}

/// Within a group, no user partition gets more than another that still waits, except by one entry.
fn check_fair(groups: &[Vec<Item<usize>>]) -> Result<(), TestCaseError> {
    for (number, group) in groups.iter().enumerate() {
        let mut taken: BTreeMap<PartitionKey, (usize, usize)> = BTreeMap::new();
        for item in group {
            let (sum, largest) = taken.entry(item.entry.partition().expect("no drops")).or_default();
            *sum += item.bytes;
            *largest = item.bytes.max(*largest);
        }
        let later = groups[number + 1..].iter().flatten();
        for partition in later.filter_map(|item| item.entry.partition()).filter(|partition| partition.index < 4) {
            let had = taken.get(&partition).map_or(0, |(sum, _)| *sum);
            for (other, (sum, largest)) in taken.iter().filter(|(other, _)| other.index < 4) {
                prop_assert!(*sum <= had + *largest, "group {number}: {other} had {sum}, {partition} had {had}");
            }
        }
    }
    Ok(())
}
