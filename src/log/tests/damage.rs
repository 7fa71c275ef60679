//! Files damaged or gone while the broker was down: nothing acknowledged is cut away, and what cannot be told is refused.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::io::OpenMode;

const OTHER: PartitionKey = PartitionKey { topic: TopicId([8; 16]), index: 0 };

/// The partition of [`KEY`], and one that keeps the write-ahead log moving.
fn two(segment_bytes: u64) -> Vec<PartitionSpec> {
    let other = PartitionSpec { key: OTHER, topic: "others".to_owned(), ..spec(1, 1 << 20) };
    vec![spec(1, segment_bytes), other]
}

/// Records 0..20 under two checkpoints, to the older of which the write-ahead log does not reach back any more.
fn idle_partition(dir: &Path, segment_bytes: u64) {
    // A stop would bring the older checkpoint up to the newer one; the last life ends in a crash.
    for (key, from, stops) in [(KEY, 0, true), (KEY, 10, true), (OTHER, 0, false)] {
        block_on_test(|env| async move {
            let manager = open_all(&env, dir, two(segment_bytes)).await.expect("the log opens");
            fill(&env, &manager.partition(&key).expect("the partition"), from, from + 10).await;
            if stops {
                manager.close().await;
            }
        });
    }
}

async fn read_file(env: &Env, path: &Path) -> Bytes {
    let file = env.disk().open(path, OpenMode::Read).await.expect("it is there");
    let len = file.len().await.expect("readable");
    file.read_at(0, usize::try_from(len).expect("small")).await.expect("readable")
}

async fn write_file(env: &Env, path: &Path, at: u64, bytes: impl Into<Bytes>) {
    let file = env.disk().open(path, OpenMode::ReadWrite).await.expect("it is there");
    file.write_at(at, vec![bytes.into()]).await.expect("writable");
}

/// The partition's segment and manifest files.
async fn contents(env: &Env, dir: &Path) -> BTreeMap<PathBuf, Bytes> {
    let mut contents = BTreeMap::new();
    for path in files(env, dir, ".log").await.into_iter().chain(files(env, dir, "manifest").await) {
        let bytes = read_file(env, &path).await;
        contents.insert(path, bytes);
    }
    contents
}

/// Damages the newest checkpoint of the partition: flips a bit of it, empties it, removes it.
async fn lose_newest_checkpoint(env: &Env, dir: &Path, how: usize) {
    let mut slots = Vec::new();
    for slot in files(env, dir, ".a").await.into_iter().chain(files(env, dir, ".b").await) {
        let sequence = read_file(env, &slot).await.slice(10..18);
        slots.push((sequence, slot));
    }
    assert_eq!(slots.len(), 2);
    let (_, slot) = slots.into_iter().max().expect("two");
    match how {
        0 => {
            let bit = read_file(env, &slot).await[64] ^ 1;
            write_file(env, &slot, 64, vec![bit]).await;
        }
        1 => {
            let file = env.disk().open(&slot, OpenMode::ReadWrite).await.expect("it is there");
            file.set_len(0).await.expect("writable");
        }
        _ => env.disk().remove_file(&slot).await.expect("it is there"),
    }
}

#[test]
fn a_lost_checkpoint_cuts_nothing_once_the_write_ahead_log_has_moved_on() {
    // In one segment, and over several: then the older checkpoint lies in one that has been closed since.
    for (segment_bytes, how) in [(1 << 20, 0), (1 << 20, 1), (1 << 20, 2), (1000, 0), (1000, 2)] {
        let dir = tempfile::tempdir().expect("a folder");
        idle_partition(dir.path(), segment_bytes);
        block_on_test(|env| async move {
            lose_newest_checkpoint(&env, dir.path(), how).await;
            for end in [20, 21, 22] {
                let manager = open_all(&env, dir.path(), two(segment_bytes)).await.expect("the log opens");
                let log = manager.partition(&KEY).expect("the partition");
                assert_eq!(values(&log, 0).await, expected(0, end), "{segment_bytes} {how}");
                fill(&env, &log, end, end + 1).await;
                manager.close().await;
            }
        });
    }
}

#[test]
fn a_lost_checkpoint_beside_a_damaged_segment_is_refused_and_nothing_changed() {
    let dir = tempfile::tempdir().expect("a folder");
    idle_partition(dir.path(), 1 << 20);
    block_on_test(|env| async move {
        lose_newest_checkpoint(&env, dir.path(), 0).await;
        let segment = files(&env, dir.path(), ".log").await.remove(0);
        let whole = read_file(&env, &segment).await;
        // A bit of the last record.
        let last = whole.len() - 10;
        write_file(&env, &segment, last as u64, vec![whole[last] ^ 1]).await;
        let before = contents(&env, dir.path()).await;
        for _ in 0..2 {
            let error = open_all(&env, dir.path(), two(1 << 20)).await.err().expect("refused").to_string();
            assert!(error.contains("checkpoint.") && error.contains("Nothing was changed"), "{error}");
            assert_eq!(contents(&env, dir.path()).await, before);
        }
        write_file(&env, &segment, last as u64, vec![whole[last]]).await;
        let manager = open_all(&env, dir.path(), two(1 << 20)).await.expect("the log opens");
        assert_eq!(values(&manager.partition(&KEY).expect("the partition"), 0).await, expected(0, 20));
        manager.close().await;
    });
}
