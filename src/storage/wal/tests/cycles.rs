//! Open, write, replay, recycle, damage: on real files.

use std::path::Path;

use super::support::{Order, append, contents, open, partition, submit, write};
use crate::io::real::block_on_test;
use crate::io::{Env, OpenMode};
use crate::storage::wal::{Entry, WalConfig, WalFailed, WalOpenError, WalSync};
use crate::storage::{Lsn, TopicId};

fn small() -> WalConfig {
    WalConfig::sim()
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

async fn overwrite(env: &Env, path: &Path, offset: u64, bytes: &[u8]) {
    let file = env.disk().open(path, OpenMode::ReadWrite).await.expect("it exists");
    file.write_at(offset, vec![bytes.to_vec().into()]).await.expect("writable");
}

#[test]
fn every_kind_of_entry_is_replayed_as_it_was_written() {
    let dir = temp();
    block_on_test(|env| async move {
        let dir = dir.path().join("wal");
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
    let dir = temp();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, dir.path(), small()).await.expect("a new log");
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
    let dir = temp();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, dir.path(), small()).await.expect("a new log");
        write(&wal, append(0, 0, 100)).await.expect("written");
        drop(wal);
        let (wal, replayed) = open(&env, dir.path(), small()).await.expect("whole");
        assert_eq!(replayed.len(), 1);
        let mut waiting = submit(&wal, append(0, 1, 100));
        env.sleep(std::time::Duration::from_millis(30)).await;
        assert!(waiting.try_recv().is_err());
        wal.recovered();
        assert_eq!(waiting.await, Ok(Ok(Lsn(2))));
    });
}

#[test]
fn released_files_are_recycled_and_what_they_held_is_not_replayed() {
    let dir = temp();
    block_on_test(|env| async move {
        let (wal, _) = open(&env, dir.path(), small()).await.expect("a new log");
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
        let (wal, replayed) = open(&env, dir.path(), small()).await.expect("whole");
        assert_eq!(replayed.last(), Some(&append(0, 299, 20_000)));
        assert!(replayed.len() <= 21, "{}", replayed.len());
        assert_eq!(wal.next_lsn(), last.next());
    });
}
