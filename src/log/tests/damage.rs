//! Files damaged or gone while the broker was down: nothing acknowledged is cut away, and what cannot be told is refused.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::io::OpenMode;

pub(super) const OTHER: PartitionKey = PartitionKey { topic: TopicId([8; 16]), index: 0 };

/// The partition of [`KEY`], and one that keeps the write-ahead log moving.
pub(super) fn two(segment_bytes: u64) -> Vec<PartitionSpec> {
    let other = PartitionSpec { key: OTHER, topic: "others".to_owned(), ..spec(1, 1 << 20) };
    vec![spec(1, segment_bytes), other]
}

/// Records 0..20 under two checkpoints, to the older of which the write-ahead log does not reach back any more.
pub(super) fn idle_partition(dir: &Path, segment_bytes: u64) {
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

pub(super) async fn read_file(env: &Env, path: &Path) -> Bytes {
    let file = env.disk().open(path, OpenMode::Read).await.expect("it is there");
    let len = file.len().await.expect("readable");
    file.read_at(0, usize::try_from(len).expect("small")).await.expect("readable")
}

pub(super) async fn write_file(env: &Env, path: &Path, at: u64, bytes: impl Into<Bytes>) {
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
pub(super) async fn lose_newest_checkpoint(env: &Env, dir: &Path, how: usize) {
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
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        idle_partition(dir, segment_bytes);
        block_on_test(|env| async move {
            lose_newest_checkpoint(&env, dir, how).await;
            for end in [20, 21, 22] {
                let manager = open_all(&env, dir, two(segment_bytes)).await.expect("the log opens");
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
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    idle_partition(dir, 1 << 20);
    block_on_test(|env| async move {
        lose_newest_checkpoint(&env, dir, 0).await;
        let segment = files(&env, dir, ".log").await.remove(0);
        let whole = read_file(&env, &segment).await;
        // A bit of the last record.
        let last = whole.len() - 10;
        write_file(&env, &segment, last as u64, vec![whole[last] ^ 1]).await;
        let before = contents(&env, dir).await;
        for _ in 0..2 {
            let error = open_all(&env, dir, two(1 << 20)).await.err().expect("refused").to_string();
            assert!(error.contains("checkpoint.") && error.contains("Nothing was changed"), "{error}");
            assert_eq!(contents(&env, dir).await, before);
            // Nothing goes on in the folder after a refusal: no file of the write-ahead log is half-made.
            let list = dir.join("wal.files");
            let list = String::from_utf8_lossy(&read_file(&env, &list).await).into_owned();
            let found = env.disk().list(&dir.join("wal")).await.expect("readable");
            assert_eq!(found.len(), list.lines().count() - 2, "{list}");
        }
        write_file(&env, &segment, last as u64, vec![whole[last]]).await;
        let manager = open_all(&env, dir, two(1 << 20)).await.expect("the log opens");
        assert_eq!(values(&manager.partition(&KEY).expect("the partition"), 0).await, expected(0, 20));
        manager.close().await;
    });
}

#[test]
fn a_partition_that_the_metadata_does_not_know_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    idle_partition(dir, 1 << 20);
    block_on_test(|env| async move {
        let before = contents(&env, dir).await;
        // By its directory; and, once that is gone, by what the write-ahead log holds.
        let error = open_all(&env, dir, two(1 << 20).split_off(1)).await.err().expect("refused").to_string();
        assert!(error.contains("orders-0") && error.contains("copy"), "{error}");
        assert_eq!(contents(&env, dir).await, before);
        let others = dir.join("others-0");
        if env.disk().exists(&others).await.expect("looked") {
            env.disk().remove_dir_all(&others).await.expect("removed");
        }
        let error = open_all(&env, dir, vec![spec(1, 1 << 20)]).await.err().expect("refused").to_string();
        assert!(error.contains(&OTHER.to_string()) && error.contains("wal.files"), "{error}");
        let manager = open_all(&env, dir, two(1 << 20)).await.expect("the log opens");
        assert_eq!(values(&manager.partition(&KEY).expect("the partition"), 0).await, expected(0, 20));
        manager.close().await;
    });
}

/// The frame of record `number` in a segment of records as [`fill`] writes them, each of `len` bytes.
fn at(whole: &Bytes, number: usize, records: usize) -> u64 {
    (whole.len() / records * number) as u64
}

#[test]
fn damage_to_a_frames_header_takes_what_no_index_entry_leads_to_and_nothing_else() {
    // In the part behind the last index entry, at one, and between two (there is one about every 4 KiB).
    let (records, damaged) = (200_usize, [199_usize, 150, 60, 3]);
    for number in damaged {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        block_on_test(|env| async move {
            let manager = open_with(&env, dir, spec(1, 1 << 20)).await;
            let log = manager.partition(&KEY).expect("the partition");
            // All of one length, so that their places are known.
            for number in 0..records as i64 {
                assert_eq!(append(&env, &log, batch(100 + number, 1, None)).await, Ok(number));
            }
            manager.close().await;
            let segment = files(&env, dir, ".log").await.remove(0);
            let whole = read_file(&env, &segment).await;
            write_file(&env, &segment, at(&whole, number, records), vec![0xde, 0xad, 0xbe, 0xef]).await;
            for life in 0..3_i64 {
                let manager = open_with(&env, dir, spec(1, 1 << 20)).await;
                let log = manager.partition(&KEY).expect("the partition");
                let end = records as i64 + life;
                assert_eq!(append(&env, &log, batch(0, 1, None)).await, Ok(end));
                let mut lost = Vec::new();
                for offset in 0..=end {
                    if log.read(offset, 1, true, Isolation::HighWatermark).await.is_err() {
                        lost.push(offset);
                    }
                }
                assert_eq!(lost.first(), Some(&(number as i64)), "life {life}");
                assert!(lost.is_sorted() && lost.len() <= 60, "{lost:?} of life {life}");
                manager.close().await;
            }
        });
    }
}

#[test]
fn an_index_that_is_a_directory_is_done_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    idle_partition(dir, 1 << 20);
    block_on_test(|env| async move {
        for path in files(&env, dir, "index").await {
            env.disk().remove_file(&path).await.expect("removed");
            env.disk().create_dir_all(&path).await.expect("made");
        }
        let manager = open_all(&env, dir, two(1 << 20)).await.expect("the log opens");
        let log = manager.partition(&KEY).expect("the partition");
        assert_eq!(values(&log, 0).await, expected(0, 20));
        fill(&env, &log, 20, 30).await;
        assert_eq!(values(&log, 0).await, expected(0, 30));
        manager.close().await;
    });
}

#[test]
fn a_segment_that_is_gone_is_named_and_can_be_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    // Closed segments, and a write-ahead log that begins in the middle.
    for (from, stops) in [(0, true), (20, true), (40, false)] {
        block_on_test(|env| async move {
            let manager = open_with(&env, dir, spec(1, 1000)).await;
            fill(&env, &manager.partition(&KEY).expect("the partition"), from, from + 20).await;
            if stops {
                manager.close().await;
            }
        });
    }
    block_on_test(|env| async move {
        let segments = files(&env, dir, ".log").await;
        env.disk().remove_file(&segments[0]).await.expect("removed");
        let manager = open_with(&env, dir, spec(1, 1000)).await;
        let log = manager.partition(&KEY).expect("the partition");
        assert!(log.read(0, 1, true, Isolation::HighWatermark).await.is_err());
        assert_eq!(values(&log, 20).await, expected(20, 60), "the others are served");
        manager.close().await;
        let last = files(&env, dir, ".log").await.into_iter().max().expect("an active one");
        env.disk().remove_file(&last).await.expect("removed");
        let error = open_all(&env, dir, vec![spec(1, 1000)]).await.err().expect("refused").to_string();
        assert!(error.contains("is missing") && error.contains("empty directory"), "{error}");
        let partition = dir.join("orders-0");
        env.disk().remove_dir_all(&partition).await.expect("removed");
        let error = open_all(&env, dir, vec![spec(1, 1000)]).await.err().expect("refused").to_string();
        assert!(error.contains("the records between are lost") && error.contains("empty directory"), "{error}");
        env.disk().create_dir_all(&partition).await.expect("made");
        for end in [60, 61] {
            let manager = open_with(&env, dir, spec(1, 1000)).await;
            let log = manager.partition(&KEY).expect("the partition");
            let start = log.offsets().log_start;
            assert!((20..=40).contains(&start), "{start}");
            assert_eq!(values(&log, start).await, expected(start, end));
            fill(&env, &log, end, end + 1).await;
            manager.close().await;
        }
    });
}
