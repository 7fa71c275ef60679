//! Open, write, replay, recycle, damage: on real files.

use std::sync::Arc;
use std::time::Duration;

use super::support::{Order, append, open, partition, submit, write};
use crate::io::real::block_on_test;
use crate::storage::wal::{Entry, WalConfig, WalFailed, WalSync};
use crate::storage::{Lsn, TopicId};

fn small() -> WalConfig {
    WalConfig::sim()
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn every_kind_of_entry_is_replayed_as_it_was_written() {
    let folder = temp();
    let dir = folder.path().join("wal");
    block_on_test(|env| async move {
        let entries = vec![
            Entry::EpochStart { partition: partition(0), leader_epoch: 3, start_offset: 0 },
            append(0, 0, 100),
            append(1, 0, 70_000),
            Entry::Truncate { partition: partition(1), end_offset: 12 },
            Entry::LogStart { partition: partition(0), offset: i64::MAX },
            Entry::Drop { topic: TopicId([9; 16]) },
            Entry::Append { partition: partition(0), batches: Vec::new() },
        ];
        let (wal, replayed) = open(&env, &dir, small()).await.expect("a new log");
        assert_eq!(replayed, []);
        for (number, entry) in entries.iter().enumerate() {
            assert_eq!(write(&wal, entry.clone()).await, Ok(Lsn(number as u64 + 1)));
        }
        wal.close().await;
        assert_eq!((wal.settled_lsn(), wal.durable_lsn(), wal.next_lsn()), (Lsn(7), Lsn(7), Lsn(8)));
        assert_eq!(write(&wal, entries[0].clone()).await, Err(WalFailed::Closed));

        let (wal, replayed) = open(&env, &dir, small()).await.expect("whole");
        assert_eq!(replayed, entries);
        wal.recovered();
        assert_eq!(write(&wal, append(0, 1, 100)).await, Ok(Lsn(8)));
        wal.close().await;
        let (_wal, replayed) = open(&env, &dir, small()).await.expect("whole");
        assert_eq!(replayed, [append(0, 1, 100)]);
    });
}

#[test]
fn callbacks_run_in_the_order_of_the_log_and_share_flushes() {
    let folder = temp();
    let dir = folder.path();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, &dir.join("wal"), small()).await.expect("a new log");
        let order = Order::default();
        for number in 0..500 {
            order.submit(&wal, number, append((number % 5) as i32, number as i64, 3000));
        }
        wal.close().await;
        let taken = order.taken();
        assert_eq!(taken.len(), 500);
        assert!(taken.is_sorted_by_key(|(_, result)| result.expect("written")), "{taken:?}");
        for index in 0..5 {
            let of_partition: Vec<usize> = taken.iter().map(|(n, _)| *n).filter(|n| n % 5 == index).collect();
            assert!(of_partition.is_sorted());
        }
        let stats = wal.stats();
        assert_eq!((stats.entries, stats.flushes), (500, stats.blocks));
        assert!(stats.blocks < 60, "{stats:?}");
    });
}

#[test]
fn nothing_is_written_before_what_was_replayed_is_durable_elsewhere() {
    let folder = temp();
    let dir = folder.path();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, &dir.join("wal"), small()).await.expect("a new log");
        write(&wal, append(0, 0, 100)).await.expect("written");
        drop(wal);
        let (wal, replayed) = open(&env, &dir.join("wal"), small()).await.expect("whole");
        assert_eq!(replayed.len(), 1);
        let mut waiting = submit(&wal, append(0, 1, 100));
        env.sleep(Duration::from_millis(30)).await;
        assert!(waiting.try_recv().is_err());
        wal.recovered();
        assert_eq!(waiting.await, Ok(Ok(Lsn(2))));
    });
}

#[test]
fn released_files_are_recycled_and_what_they_held_is_not_replayed() {
    let folder = temp();
    let dir = folder.path();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, &dir.join("wal"), small()).await.expect("a new log");
        let mut last = Lsn(0);
        for number in 0..300 {
            last = write(&wal, append(0, number, 20_000)).await.expect("written");
            if number % 20 == 19 {
                wal.release(last);
            }
        }
        let stats = wal.stats();
        assert!(stats.files_recycled > 10, "{stats:?}");
        assert!(stats.files_created < 8, "{stats:?}");
        wal.close().await;
        let (wal, replayed) = open(&env, &dir.join("wal"), small()).await.expect("whole");
        assert_eq!(replayed.last(), Some(&append(0, 299, 20_000)));
        assert!(replayed.len() <= 21, "{}", replayed.len());
        assert_eq!(wal.next_lsn(), last.next());
    });
}

#[test]
fn weaker_modes_acknowledge_first_and_flush_later() {
    let folder = temp();
    let dir = folder.path();
    block_on_test(|env| async move {
        for (name, sync) in [("interval", WalSync::Interval(Duration::from_millis(20))), ("os", WalSync::Os)] {
            let dir = dir.join(name);
            let config = WalConfig { sync, ..small() };
            let (wal, _) = open(&env, &dir, config.clone()).await.expect("a new log");
            assert_eq!(write(&wal, append(0, 0, 100)).await, Ok(Lsn(1)));
            assert_eq!(wal.durable_lsn(), Lsn(0));
            if sync != WalSync::Os {
                env.sleep(Duration::from_millis(200)).await;
                assert_eq!(wal.durable_lsn(), Lsn(1));
            }
            // Files are recycled in these modes too: a full file is flushed.
            for number in 1..200 {
                let lsn = write(&wal, append(0, number, 20_000)).await.expect("written");
                wal.release(lsn);
            }
            let stats = wal.stats();
            assert!(stats.flushes < 120 && stats.files_created < 20, "{sync:?}: {stats:?}");
            wal.close().await;
            assert_eq!(wal.durable_lsn(), Lsn(200));
            let (_wal, replayed) = open(&env, &dir, config).await.expect("whole");
            assert_eq!(replayed.last(), Some(&append(0, 199, 20_000)));
        }
    });
}

#[test]
fn an_entry_larger_than_a_file_gets_a_file_of_its_own() {
    let folder = temp();
    let dir = folder.path();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, &dir.join("wal"), small()).await.expect("a new log");
        let entries = [append(0, 0, 100), append(0, 1, 1_000_000), append(0, 2, 100)];
        for entry in &entries {
            write(&wal, entry.clone()).await.expect("written");
        }
        wal.close().await;
        let (_wal, replayed) = open(&env, &dir.join("wal"), small()).await.expect("whole");
        assert_eq!(replayed, entries);
    });
}

#[test]
fn pressure_asks_for_a_release_and_calms_down() {
    let folder = temp();
    let dir = folder.path();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, &dir.join("wal"), small()).await.expect("a new log");
        let pressure = wal.pressure();
        let mut number = 0;
        while *pressure.borrow() == Lsn(0) {
            write(&wal, append(0, number, 20_000)).await.expect("written");
            number += 1;
        }
        let limit = small().max_bytes;
        assert!(wal.live_bytes() > limit / 2 && wal.live_bytes() <= limit, "{}", wal.live_bytes());
        let asked = *pressure.borrow();
        wal.release(asked);
        assert_eq!(*pressure.borrow(), Lsn(0));
        assert!(wal.live_bytes() <= limit / 2 + 128 * 1024, "{}", wal.live_bytes());
        let last = write(&wal, append(0, number, 100)).await.expect("written");
        while wal.settled_lsn() < last {
            env.sleep(Duration::from_millis(1)).await;
        }
        wal.release(last.next());
        assert_eq!(wal.live_bytes(), 0);
    });
}

#[test]
fn many_threads_submit_while_others_release_and_one_closes() {
    let folder = temp();
    let dir = folder.path();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, &dir.join("wal"), small()).await.expect("a new log");
        let wal = Arc::new(wal);
        let orders: Vec<Order> = (0..8).map(|_| Order::default()).collect();
        let mut tasks = Vec::new();
        for (index, order) in orders.iter().enumerate() {
            let (wal, order, own) = (wal.clone(), order.clone(), env.clone());
            tasks.push(env.spawn("submitter", async move {
                for number in 0..400 {
                    order.submit(&wal, number, append(index as i32, number as i64, 61 + number * 7 % 5000));
                    if number % 50 == index {
                        wal.release(wal.settled_lsn());
                        own.sleep(Duration::from_millis(1)).await;
                    }
                }
            }));
        }
        env.sleep(Duration::from_millis(20)).await;
        wal.close().await;
        for task in tasks {
            task.join().await;
        }
        for order in orders {
            let taken = order.taken();
            let written: Vec<_> = taken.iter().filter(|(_, result)| result.is_ok()).collect();
            assert_eq!(taken.len(), 400, "every entry is answered once");
            // What came before the close is written, in order; what came after is refused.
            assert!(written.iter().map(|(number, _)| *number).eq(0..written.len()));
            assert!(written.is_sorted_by_key(|(_, result)| result.expect("written")));
            assert!(taken.iter().all(|(_, result)| !matches!(result, Err(why) if *why != WalFailed::Closed)));
        }
    });
}

#[test]
fn a_refusal_is_never_told_within_the_call_that_submits() {
    let folder = temp();
    let dir = folder.path();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, &dir.join("wal"), small()).await.expect("a new log");
        wal.close().await;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let lock = Arc::new(std::sync::Mutex::new(Some(sender)));
        {
            let held = lock.lock().expect("no panic");
            let taken = lock.clone();
            let done = move |result| {
                let sender = taken.lock().expect("no panic").take();
                let _ = sender.expect("called once").send(result);
            };
            wal.submit(append(0, 0, 100), Box::new(done));
            drop(held);
        }
        assert_eq!(receiver.await, Ok(Err(WalFailed::Closed)));
    });
}
