//! What a crash, a recycled file or a failing medium leaves, made by hand on real files.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::support::{Replayed, append, contents, open, write};
use crate::io::real::block_on_test;
use crate::io::{Env, OpenMode};
use crate::storage::Lsn;
use crate::storage::wal::block::{BLOCK_ALIGN, BlockHeader};
use crate::storage::wal::{KnownLsns, Wal, WalConfig, WalOpenError, WalSync};

const BLOCK: u64 = BLOCK_ALIGN;

fn path(dir: &Path, slot: u32) -> PathBuf {
    dir.join(format!("wal-{slot:06}.slot"))
}

async fn put(env: &Env, path: &Path, offset: u64, bytes: impl Into<Bytes>) {
    let file = env.disk().open(path, OpenMode::Create).await.expect("it can be opened");
    file.write_at(offset, vec![bytes.into()]).await.expect("writable");
}

async fn flip(env: &Env, path: &Path, offset: u64) {
    let byte = contents(env, path).await[usize::try_from(offset).expect("small")];
    put(env, path, offset, vec![byte ^ 0x10]).await;
}

/// A log of `count` blocks of 4 KiB in the first file: block `n` at `(n - 1) * 4096` holds offset `n - 1`.
async fn written(env: &Env, dir: &Path, count: i64) {
    let (wal, replayed) = open(env, dir, WalConfig::sim()).await.expect("a new log");
    assert_eq!(replayed, []);
    for offset in 0..count {
        write(&wal, append(0, offset, 500)).await.expect("written");
    }
    wal.close().await;
}

#[test]
fn a_torn_last_block_ends_the_log_and_writing_goes_on_beside_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    block_on_test(|env| async move {
        written(&env, dir, 5).await;
        let whole = contents(&env, &path(dir, 1)).await;
        flip(&env, &path(dir, 1), 4 * BLOCK + 200).await;
        let (wal, replayed) = open(&env, dir, WalConfig::sim()).await.expect("a torn tail is no damage");
        assert_eq!(replayed, (0..4).map(|offset| append(0, offset, 500)).collect::<Vec<_>>());
        wal.recovered();
        assert_eq!(write(&wal, append(0, 4, 600)).await, Ok(Lsn(5)));
        wal.close().await;
        // The old file has been removed. It comes back (the removal was not durable), its tail whole: nobody may notice.
        assert!(!env.disk().exists(&path(dir, 1)).await.expect("looked"));
        put(&env, &path(dir, 1), 0, whole).await;
        let (_wal, replayed) = open(&env, dir, WalConfig::sim()).await.expect("whole");
        assert_eq!(replayed, [append(0, 4, 600)]);
    });
}

#[test]
fn a_missing_block_that_a_later_one_calls_durable_is_damage() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    block_on_test(|env| async move {
        written(&env, dir, 5).await;
        // Header, payload, or all of it: the first block, the one in the middle.
        for (offset, found) in [(2 * BLOCK + 20, "no block"), (2 * BLOCK + 300, "checksum"), (33, "no block")] {
            flip(&env, &path(dir, 1), offset).await;
            let Err(error) = open(&env, dir, WalConfig::sim()).await else { panic!("damage at {offset} accepted") };
            let WalOpenError::Corrupt { lsn, offset: at, found: what, durable_below, .. } = &error else {
                panic!("{error:?}")
            };
            assert_eq!((*lsn, *at, *durable_below), (Lsn(offset / BLOCK + 1), offset / BLOCK * BLOCK, Lsn(5)));
            assert!(what.contains(found), "{what}");
            let message = error.to_string();
            assert!(message.contains("wal-000001.slot") && message.contains("Restore"), "{message}");
            flip(&env, &path(dir, 1), offset).await;
        }
        assert!(open(&env, dir, WalConfig::sim()).await.is_ok());
    });
}

#[test]
fn damage_below_the_floor_is_nobodys_loss() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    block_on_test(|env| async move {
        let (wal, _) = open(&env, dir, WalConfig::sim()).await.expect("a new log");
        for id in 0_u64..6 {
            // The sixth block says that none below the fifth is needed.
            wal.release(Lsn(id.min(5)));
            let offset = id.try_into().expect("small");
            assert_eq!(write(&wal, append(0, offset, 500)).await, Ok(Lsn(id + 1)));
        }
        wal.close().await;
        flip(&env, &path(dir, 1), BLOCK + 20).await;
        flip(&env, &path(dir, 1), 3 * BLOCK + 100).await;
        let (wal, replayed) = open(&env, dir, WalConfig::sim()).await.expect("whole from 5 on");
        assert_eq!(replayed, [append(0, 4, 500), append(0, 5, 500)]);
        assert_eq!(wal.next_lsn(), Lsn(7));
    });
}

#[test]
fn numbers_in_checkpoints_are_never_given_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    block_on_test(|env| async move {
        written(&env, dir, 3).await;
        flip(&env, &path(dir, 1), 2 * BLOCK).await;
        let known = KnownLsns { checkpointed: Lsn(3) };
        let mut replayed = Replayed::default();
        let wal = Wal::open(&env, dir, WalConfig::sim(), known, &mut replayed).await.expect("a torn tail");
        assert_eq!(replayed.0.len(), 2);
        wal.recovered();
        assert_eq!(write(&wal, append(0, 3, 500)).await, Ok(Lsn(4)));
        wal.close().await;
        let (_wal, replayed) = open(&env, dir, WalConfig::sim()).await.expect("the hole below the floor is no damage");
        assert_eq!(replayed, [append(0, 3, 500)]);
    });
}

#[test]
fn blocks_behind_a_hole_are_dropped_and_the_next_life_takes_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    block_on_test(|env| async move {
        written(&env, dir, 4).await;
        // As if blocks 3 and 4 had been in flight together and 3 did not make it: 4 must not call 3 durable then.
        let file = contents(&env, &path(dir, 1)).await;
        let at = usize::try_from(3 * BLOCK).expect("small");
        let header = BlockHeader::decode(&file[at..]).expect("block 4");
        let unsure = BlockHeader { durable_below: Lsn(3), ..header };
        put(&env, &path(dir, 1), 3 * BLOCK, unsure.encode().to_vec()).await;
        put(&env, &path(dir, 1), 2 * BLOCK, vec![0; 4096]).await;
        for number in 0..3 {
            let (wal, replayed) = open(&env, dir, WalConfig::sim()).await.expect("a hole in the tail is no damage");
            let before = if number == 0 { 2 } else { 1 };
            assert_eq!(replayed.len(), before, "{replayed:?}");
            wal.recovered();
            assert_eq!(write(&wal, append(0, 10 + number, 500)).await, Ok(Lsn(3 + number as u64)));
            wal.close().await;
        }
    });
}

/// A later incarnation has released the place of the hole, and a power cut has taken what it wrote over it, as it may in
/// the weaker modes.
#[test]
fn blocks_behind_a_hole_stay_dropped_when_the_hole_is_released() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    let config =
        || WalConfig { file_bytes: 4 * BLOCK, first_file_bytes: 4 * BLOCK, sync: WalSync::Os, ..WalConfig::sim() };
    block_on_test(|env| async move {
        let (wal, _) = open(&env, dir, config()).await.expect("a new log");
        for offset in 0..4 {
            write(&wal, append(0, offset, 500)).await.expect("written");
        }
        wal.close().await;
        put(&env, &path(dir, 1), 2 * BLOCK, vec![0; 4096]).await;
        let (wal, replayed) = open(&env, dir, config()).await.expect("a hole in the tail is no damage");
        assert_eq!(replayed, [append(0, 0, 500), append(0, 1, 500)]);
        wal.recovered();
        for offset in 2..7 {
            write(&wal, append(0, offset, 600)).await.expect("written");
            wal.release(Lsn(4));
        }
        wal.close().await;
        put(&env, &path(dir, 2), 0, vec![0; 4 * 4096]).await;
        let (_wal, replayed) = open(&env, dir, config()).await.expect("nothing of it was flushed");
        assert_eq!(replayed, [], "block 4 of the first incarnation is not the log's");
    });
}

#[test]
fn a_stale_block_of_a_recycled_file_is_rejected() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    block_on_test(|env| async move {
        let (wal, _) = open(&env, dir, WalConfig::sim()).await.expect("a new log");
        let mut offset = 0;
        while wal.stats().files_recycled < 3 {
            let lsn = write(&wal, append(0, offset, 500)).await.expect("written");
            wal.release(lsn);
            offset += 1;
        }
        wal.close().await;
        let (_wal, replayed) = open(&env, dir, WalConfig::sim()).await.expect("whole");
        assert_eq!(replayed, [append(0, offset - 2, 500), append(0, offset - 1, 500)]);
    });
}

#[test]
fn unfinished_files_are_removed_and_a_newer_format_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    block_on_test(|env| async move {
        written(&env, dir, 2).await;
        let unfinished = path(dir, 77);
        let file = env.disk().open(&unfinished, OpenMode::CreateNew).await.expect("new");
        file.set_len(3 * BLOCK).await.expect("set");
        put(&env, &dir.join("note.txt"), 0, "not ours").await;
        drop(open(&env, dir, WalConfig::sim()).await.expect("whole"));
        assert!(!env.disk().exists(&unfinished).await.expect("looked"));
        assert!(env.disk().exists(&dir.join("note.txt")).await.expect("looked"));

        put(&env, &path(dir, 1), 7, vec![9]).await;
        let error = open(&env, dir, WalConfig::sim()).await.map(|_| ()).expect_err("a newer format");
        assert!(matches!(error, WalOpenError::NewerFormat { version: 9, .. }), "{error}");
    });
}

#[test]
fn a_file_that_is_gone_or_short_is_missed_until_it_is_given_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = &dir.path().join("wal");
    block_on_test(|env| async move {
        written(&env, dir, 5).await;
        for how in ["emptied", "short", "removed", "all removed"] {
            let mut whole = Vec::new();
            for path in env.disk().list(dir).await.expect("listed") {
                whole.push((contents(&env, &path).await, path));
            }
            let file = env.disk().open(&path(dir, 1), OpenMode::ReadWrite).await.expect("it is there");
            match how {
                "emptied" => file.set_len(0).await.expect("set"),
                "short" => file.set_len(3 * BLOCK).await.expect("set"),
                "removed" => env.disk().remove_file(&path(dir, 1)).await.expect("removed"),
                _ => env.disk().remove_dir_all(dir).await.expect("removed"),
            }
            for _ in 0..2 {
                let Err(error) = open(&env, dir, WalConfig::sim()).await else { panic!("{how}: not missed") };
                let message = error.to_string();
                assert!(message.contains("wal-000001.slot") && message.contains("wal.files"), "{message}");
            }
            env.disk().create_dir_all(dir).await.expect("made");
            for (bytes, path) in whole {
                put(&env, &path, 0, bytes).await;
            }
            let (wal, replayed) = open(&env, dir, WalConfig::sim()).await.expect("it is back");
            assert_eq!(replayed.len(), 5, "{how}");
            wal.recovered();
            wal.close().await;
        }
        env.disk().remove_dir_all(dir).await.expect("removed");
        env.disk().remove_file(&dir.with_extension("files")).await.expect("given up");
        let (wal, replayed) = open(&env, dir, WalConfig::sim()).await.expect("given up");
        assert_eq!(replayed, []);
        write(&wal, append(0, 0, 500)).await.expect("written");
    });
}
