//! Numbers, order, files: the pure core, driven by hand.

use super::support::append;
use crate::storage::Lsn;
use crate::storage::wal::core::{Block, Core, CoreStart, Next};
use crate::storage::wal::slots::Slots;
use crate::storage::wal::{EntryClass, WalConfig, WalSync};

const KIB: u64 = 1024;

/// Files of 64 KiB (the first of 16), blocks of up to 16 KiB, two in flight.
fn config() -> WalConfig {
    WalConfig {
        file_bytes: 64 * KIB,
        first_file_bytes: 16 * KIB,
        max_bytes: 256 * KIB,
        group_bytes_max: 16 * 1024,
        group_bytes_internal: 2 * 1024,
        writes_in_flight_max: 2,
        overlap_bytes_min: 4 * 1024,
        sync: WalSync::Always,
    }
}

fn core(start: CoreStart) -> Core<i64> {
    let config = config();
    let slots = Slots::new(Core::<i64>::slot_limits(&config), 10);
    Core::new(config, start, slots)
}

fn fresh() -> Core<i64> {
    let mut core = core(CoreStart { writer: 1, next_lsn: Lsn(1), replayed_from: Lsn(1), replayed_bytes: 0 });
    core.slots.prepare_first().expect("nothing there yet");
    core.slots.prepared(true);
    core
}

fn push(core: &mut Core<i64>, number: i64, bytes: usize) {
    core.push(EntryClass::User, append(0, number, bytes), number);
}

fn block(core: &mut Core<i64>) -> Block<i64> {
    loop {
        match core.next_block() {
            Next::Write(block) => return block,
            Next::Prepare(_) => core.slots.prepared(true),
            Next::Idle => panic!("nothing to write"),
        }
    }
}

fn is_idle(core: &mut Core<i64>) -> bool {
    matches!(core.next_block(), Next::Idle)
}

fn complete(core: &mut Core<i64>) -> Vec<u32> {
    let (lsn, removed) = core.completed();
    core.settled_at(lsn);
    removed
}

#[test]
fn blocks_are_numbered_and_a_second_one_starts_only_when_it_is_worth_it() {
    let mut core = fresh();
    assert!(is_idle(&mut core));
    push(&mut core, 0, 100);
    let first = block(&mut core);
    assert_eq!((first.identity.lsn, first.identity.durable_below, first.place.offset), (Lsn(1), Lsn(1), 0));
    push(&mut core, 1, 3000);
    assert!(is_idle(&mut core), "gathers while a block is in flight");
    push(&mut core, 2, 3000);
    let second = block(&mut core);
    assert_eq!((second.identity.lsn, second.place.offset, second.items.len()), (Lsn(2), 4096, 2));
    push(&mut core, 3, 9000);
    assert!(is_idle(&mut core), "two are in flight");
    complete(&mut core);
    assert_eq!((core.settled(), core.durable_below(), core.next_lsn()), (Lsn(1), Lsn(2), Lsn(3)));
    let third = block(&mut core);
    assert_eq!((third.identity.lsn, third.identity.durable_below), (Lsn(3), Lsn(2)));
}

#[test]
fn a_file_is_used_again_only_when_a_flushed_block_says_that_it_is_not_needed() {
    let mut core = fresh();
    // 12 KiB each: one fills the first file, the second goes to another.
    for number in 0..2 {
        push(&mut core, number, 9000);
        assert_eq!(block(&mut core).place.slot, number as u32 + 1);
        complete(&mut core);
    }
    core.release(Lsn(2));
    push(&mut core, 2, 100);
    let saying = block(&mut core);
    assert_eq!((saying.identity.floor, saying.place.slot), (Lsn(2), 2));
    assert_eq!(core.slots.total_bytes(), 80 * KIB, "nothing is freed before that block is flushed");
    assert_eq!(complete(&mut core), [1], "a file of an unusual size is not kept");
    assert_eq!(core.slots.total_bytes(), 64 * KIB);
}

#[test]
fn full_files_are_recycled_under_a_higher_sequence() {
    let mut core = fresh();
    let mut places = Vec::new();
    for number in 0..200 {
        push(&mut core, number, 9000);
        places.push(block(&mut core).place);
        complete(&mut core);
        let settled = core.settled();
        core.release(settled.next());
        assert_eq!(core.live_bytes(), 0);
    }
    assert!(core.slots.total_bytes() <= 192 * KIB, "{}", core.slots.total_bytes());
    assert!(places.iter().any(|place| place.recycles));
    assert!(places.is_sorted_by_key(|place| (place.file_sequence, place.offset)));
    assert!(places.iter().all(|place| place.recycles == (place.offset == 0 && place.file_sequence > 12)), "{places:?}");
}

#[test]
fn the_next_file_is_prepared_when_half_of_this_one_is_used() {
    let mut core = fresh();
    push(&mut core, 0, 3000);
    block(&mut core);
    complete(&mut core);
    assert_eq!(core.slots.prepare_ahead(), None);
    push(&mut core, 1, 3000);
    block(&mut core);
    let ahead = core.slots.prepare_ahead().expect("half full");
    assert_eq!((ahead.slot, ahead.bytes), (2, 64 * KIB));
    assert_eq!(core.slots.prepare_ahead(), None, "one at a time");
    core.slots.prepared(true);
    assert_eq!(core.slots.prepare_ahead(), None, "one is enough");
}

#[test]
fn after_a_write_without_space_the_numbers_are_given_again_in_another_file() {
    let mut core = fresh();
    push(&mut core, 0, 100);
    let first = block(&mut core);
    complete(&mut core);
    push(&mut core, 1, 100);
    let second = block(&mut core);
    push(&mut core, 2, 5000);
    block(&mut core);
    core.no_space();
    assert_eq!(core.next_lsn(), second.identity.lsn);
    push(&mut core, 3, 100);
    let again = block(&mut core);
    assert_eq!(again.identity.lsn, second.identity.lsn);
    assert_ne!(again.place.slot, first.place.slot);
    assert!(again.identity.file_sequence > first.identity.file_sequence);
    complete(&mut core);
    assert_eq!((core.settled(), core.durable_below()), (Lsn(2), Lsn(3)));
}

#[test]
fn what_waits_for_a_file_is_kept_or_failed_in_order() {
    let mut core = fresh();
    for number in 0..5 {
        push(&mut core, number, 9000);
    }
    block(&mut core);
    complete(&mut core);
    assert!(matches!(core.next_block(), Next::Prepare(_)));
    assert!(core.needs_file() && is_idle(&mut core));
    core.slots.prepared(false);
    let failed: Vec<i64> = core.take_waiting().into_iter().map(|item| item.tag).collect();
    assert_eq!(failed, [1, 2, 3, 4]);
    assert!(core.is_quiet() && !core.needs_file());
    push(&mut core, 5, 100);
    assert_eq!(block(&mut core).identity.lsn, Lsn(2), "the failed ones used no number");
}

#[test]
fn writing_waits_until_what_was_replayed_is_released() {
    let start = CoreStart { writer: 1, next_lsn: Lsn(8), replayed_from: Lsn(5), replayed_bytes: 12 * KIB };
    let mut core = core(start);
    core.slots.found(4, 64 * KIB, Some(Lsn(7)));
    assert_eq!((core.live_bytes(), core.settled(), core.next_lsn()), (12 * KIB, Lsn(7), Lsn(8)));
    push(&mut core, 0, 100);
    assert!(core.is_gated() && is_idle(&mut core));
    assert!(!core.release(Lsn(7)));
    assert!(core.release(Lsn(8)));
    let first = block(&mut core);
    assert_eq!((first.identity.lsn, first.identity.floor, first.identity.durable_below), (Lsn(8), Lsn(8), Lsn(8)));
    assert_eq!(first.place.slot, 5, "not the file that was replayed");
}

#[test]
fn a_release_reaches_no_further_than_what_is_written() {
    let mut core = fresh();
    push(&mut core, 0, 100);
    block(&mut core);
    core.release(Lsn(100));
    push(&mut core, 1, 9000);
    assert_eq!(block(&mut core).identity.floor, Lsn(1), "block 1 is still in flight");
}
