//! A repair never destroys: what a lost manifest is made anew from is only read, and a start that is refused changes no
//! byte of any file.

use super::damage::{OTHER, idle_partition, lose_newest_checkpoint, read_file, two, write_file};
use super::*;
use crate::io::OpenMode;
use crate::storage::wal::WalSync;
use crate::storage::wal::block::BlockHeader;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Every file below `dir`, with what is in it.
pub(super) async fn everything(env: &Env, dir: &Path) -> BTreeMap<PathBuf, Bytes> {
    let (mut everything, mut dirs) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        everything.insert(dir.clone(), Bytes::new());
        for path in env.disk().list(&dir).await.expect("a directory") {
            if env.disk().list(&path).await.is_ok() {
                dirs.push(path);
            } else {
                let bytes = read_file(env, &path).await;
                everything.insert(path, bytes);
            }
        }
    }
    everything
}

/// What changed between two times, by name and length: shorter to read than contents.
fn changes(before: &BTreeMap<PathBuf, Bytes>, after: &BTreeMap<PathBuf, Bytes>) -> Vec<String> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let changed = names.filter(|name| before.get(*name) != after.get(*name));
    let len = |bytes: Option<&Bytes>| bytes.map(Bytes::len);
    changed
        .map(|name| format!("{}: {:?} -> {:?}", name.display(), len(before.get(name)), len(after.get(name))))
        .collect()
}

/// Segment files, in order, with their contents.
pub(super) async fn segments(env: &Env, dir: &Path) -> Vec<(PathBuf, Bytes)> {
    let mut segments = Vec::new();
    for path in files(env, dir, ".log").await {
        let bytes = read_file(env, &path).await;
        segments.push((path, bytes));
    }
    segments
}

pub(super) async fn flip(env: &Env, path: &Path, at: u64) {
    let byte = read_file(env, path).await[usize::try_from(at).expect("small")];
    write_file(env, path, at, vec![byte ^ 1]).await;
}

pub(super) async fn remove_all(env: &Env, dir: &Path, names: &[&str]) {
    for name in names {
        for path in files(env, dir, name).await {
            env.disk().remove_file(&path).await.expect("removed");
        }
    }
}

/// The offsets below `end` that cannot be read.
pub(super) async fn unreadable(log: &PartitionLog, end: i64) -> Vec<i64> {
    let mut lost = Vec::new();
    for offset in 0..end {
        let read = log.read(offset, 1, true, Isolation::HighWatermark).await;
        if read.is_ok_and(|read| read.batches.is_empty()) {
            panic!("nothing at offset {offset}, and no error");
        }
        if log.read(offset, 1, true, Isolation::HighWatermark).await.is_err() {
            lost.push(offset);
        }
    }
    lost
}

/// The first offset in a segment file's name.
pub(super) fn base(path: &Path) -> i64 {
    let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
    name.rsplit_once('_').and_then(|(_, digits)| digits.parse().ok()).expect("an offset")
}

#[test]
fn a_manifest_made_anew_takes_nothing_from_a_damaged_segment() {
    // The manifest damaged, and moved away; damage to records, and to a header.
    for (moved, at) in [(false, 100), (true, 100), (false, 12), (true, 3)] {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        idle_partition(dir, 1000);
        block_on_test(|env| async move {
            let before = segments(&env, dir).await;
            let one = before[1].1.len() as u64 / (base(&before[2].0) - base(&before[1].0)).unsigned_abs();
            // The second record of the second segment.
            flip(&env, &before[1].0, one + at).await;
            let rotten = segments(&env, dir).await;
            let manifest = files(&env, dir, "manifest").await.remove(0);
            if moved {
                env.disk().remove_file(&manifest).await.expect("removed");
            } else {
                flip(&env, &manifest, 40).await;
            }
            for end in [20, 21, 22] {
                let manager = open_all(&env, dir, two(1000)).await.expect("the log opens");
                for (path, bytes) in &rotten {
                    let now = read_file(&env, path).await;
                    assert!(now.starts_with(bytes), "{} has {} of {}", path.display(), now.len(), bytes.len());
                }
                let log = manager.partition(&KEY).expect("the partition");
                let lost = unreadable(&log, end).await;
                let damaged = base(&before[1].0) + 1;
                assert_eq!(lost[0], damaged);
                // Damage to a header takes what no index entry leads to, here the rest of the segment.
                assert!(lost == [damaged] || (at < 80 && *lost.last().expect("one") < base(&before[2].0)), "{lost:?}");
                assert_eq!(values(&log, base(&before[2].0)).await, expected(base(&before[2].0), end));
                // A look-up for a time that only what is unreadable could have does not pass it by.
                let newest = log.max_timestamp().await;
                if at >= 80 {
                    assert_eq!(newest.expect("readable").map(|it| it.offset), Some(end - 1));
                    let next = (damaged + 1) * 10;
                    let found = log.offset_for_time(next).await.expect("readable").map(|it| it.offset);
                    assert_eq!(found, Some(damaged + 1));
                    assert!(log.offset_for_time(damaged * 10).await.is_err());
                }
                fill(&env, &log, end, end + 1).await;
                manager.close().await;
            }
        });
    }
}

#[test]
fn a_missing_segment_is_listed_all_the_same_and_served_again_when_it_is_restored() {
    for gone in [0, 1] {
        for with_checkpoint in [true, false] {
            let folder = tempfile::tempdir().expect("a folder");
            let dir = folder.path();
            idle_partition(dir, 1000);
            block_on_test(|env| async move {
                let before = segments(&env, dir).await;
                remove_all(&env, dir, &["manifest"]).await;
                if !with_checkpoint {
                    remove_all(&env, dir, &["checkpoint.a", "checkpoint.b"]).await;
                }
                env.disk().remove_file(&before[gone].0).await.expect("removed");
                let lost: Vec<i64> = (base(&before[gone].0)..base(&before[gone + 1].0)).collect();
                for end in [20, 21] {
                    let manager = open_all(&env, dir, two(1000)).await.expect("the log opens");
                    let log = manager.partition(&KEY).expect("the partition");
                    if gone == 0 && !with_checkpoint {
                        // Nothing says that there was one.
                        assert_eq!(log.offsets().log_start, lost.len() as i64);
                    } else {
                        assert_eq!(unreadable(&log, end).await, lost);
                        let found = log.offset_for_time(end * 10 - 10).await.expect("readable");
                        assert_eq!(found.map(|it| it.offset), Some(end - 1));
                        assert_eq!(log.max_timestamp().await.expect("readable"), found);
                    }
                    let from = base(&before[gone + 1].0);
                    assert_eq!(values(&log, from).await, expected(from, end));
                    fill(&env, &log, end, end + 1).await;
                    manager.close().await;
                }
                for (path, bytes) in before.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, it)| it) {
                    assert!(read_file(&env, path).await.starts_with(bytes));
                }
                if gone == 0 && !with_checkpoint {
                    return;
                }
                let file = env.disk().open(&before[gone].0, OpenMode::Create).await.expect("made");
                file.write_at(0, vec![before[gone].1.clone()]).await.expect("written");
                let manager = open_all(&env, dir, two(1000)).await.expect("the log opens");
                let log = manager.partition(&KEY).expect("the partition");
                assert_eq!(values(&log, 0).await, expected(0, 22));
                manager.close().await;
            });
        }
    }
}

#[test]
fn without_manifest_and_checkpoint_whole_batches_count_and_damage_before_others_is_refused() {
    for (segment, record) in [(None, 0), (Some(0), 1), (Some(usize::MAX), 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        idle_partition(dir, 1000);
        block_on_test(|env| async move {
            let before = segments(&env, dir).await;
            let last = before.len() - 1;
            let one = before[0].1.len() as u64 / base(&before[1].0).unsigned_abs();
            assert!(before[last].1.len() as u64 > one, "more than one record follows the last roll");
            if let Some(segment) = segment {
                flip(&env, &before[last.min(segment)].0, record * one + 100).await;
            }
            remove_all(&env, dir, &["manifest", "checkpoint.a", "checkpoint.b"]).await;
            let then = everything(&env, dir).await;
            let opened = open_all(&env, dir, two(1000)).await;
            if segment == Some(usize::MAX) {
                let error = opened.err().expect("refused").to_string();
                assert!(error.contains("Nothing was changed"), "{error}");
                assert_eq!(changes(&then, &everything(&env, dir).await), Vec::<String>::new());
                return;
            }
            let manager = opened.expect("the log opens");
            let log = manager.partition(&KEY).expect("the partition");
            let lost = unreadable(&log, 20).await;
            assert_eq!(lost, segment.map(|_| 1).into_iter().collect::<Vec<i64>>());
            fill(&env, &log, 20, 21).await;
            manager.close().await;
            for (path, bytes) in &before {
                assert_eq!(read_file(&env, path).await[..bytes.len()].len(), bytes.len());
            }
        });
    }
}

/// What refuses a start in the mode `always` is what a power cut can leave in a weaker one: a page of the segment lost, a later
/// one kept, and the write-ahead log lost with it.
#[test]
fn a_weaker_mode_starts_with_what_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    idle_partition(dir, 1000);
    block_on_test(|env| async move {
        let before = segments(&env, dir).await;
        let last = before.len() - 1;
        flip(&env, &before[last].0, 100).await;
        remove_all(&env, dir, &["manifest", "checkpoint.a", "checkpoint.b"]).await;
        for (sync, starts) in [(WalSync::Always, false), (WalSync::Os, true)] {
            let wal = WalConfig { sync, ..WalConfig::sim() };
            let config = LogManagerConfig::new(dir.to_owned(), wal);
            let opened = LogManager::open(&env, config, two(1000)).await;
            assert_eq!(opened.is_ok(), starts, "{sync:?}");
            let Ok(manager) = opened else { continue };
            let log = manager.partition(&KEY).expect("the partition");
            assert_eq!(log.offsets().log_end, base(&before[last].0), "a whole prefix");
            manager.close().await;
        }
    });
}

/// Two partitions with checkpoints; the first has ten records more, in segment files and write-ahead log, which no
/// checkpoint covers: the next start cuts and applies.
pub(super) fn crashed(dir: &Path) {
    for (key, from, stops) in [(KEY, 0, true), (OTHER, 0, true), (OTHER, 10, true), (KEY, 10, false)] {
        block_on_test(|env| async move {
            let manager = open_all(&env, dir, two(1000)).await.expect("the log opens");
            let log = manager.partition(&key).expect("the partition");
            fill(&env, &log, from, from + 10).await;
            if stops {
                manager.close().await;
            }
            while log.unwritten_bytes() > 0 {
                env.sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

/// The slot file of the write-ahead log that was begun last.
pub(super) async fn newest_slot(env: &Env, dir: &Path) -> PathBuf {
    let mut newest = None;
    for path in env.disk().list(&dir.join("wal")).await.expect("readable") {
        let bytes = read_file(env, &path).await;
        if let Ok(header) = BlockHeader::decode(&bytes[..4096]) {
            newest = newest.max(Some((header.file_sequence, path)));
        }
    }
    newest.expect("a file with blocks").1
}

async fn cut(env: &Env, path: &Path, len: u64) {
    env.disk().open(path, OpenMode::ReadWrite).await.expect("there").set_len(len).await.expect("cut");
}

/// Damages the folder of [`crashed`] so that the start is refused. `others` is the directory of the second partition.
async fn provoke(env: &Env, dir: &Path, others: &Path, what: &str) {
    let logs: Vec<PathBuf> = env.disk().list(others).await.expect("readable");
    let log = |at: usize| logs.iter().filter(|path| path.extension() == Some("log".as_ref())).nth(at).expect("one");
    let newest = logs.iter().rfind(|path| path.extension() == Some("log".as_ref())).expect("one");
    match what {
        "folder" | "unknown directory" => {}
        "newer manifest" => {
            let mut bytes = read_file(env, &others.join("manifest")).await.to_vec();
            bytes[9] = 9;
            let end = bytes.len() - 4;
            let crc = crc32fast::hash(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc.to_be_bytes());
            write_file(env, &others.join("manifest"), 0, bytes).await;
        }
        "damaged checkpoints" => {
            for slot in ["checkpoint.a", "checkpoint.b"] {
                flip(env, &others.join(slot), 60).await;
            }
        }
        "newer checkpoint" => {
            let mut bytes = read_file(env, &others.join("checkpoint.a")).await.to_vec();
            bytes[9] = 9;
            let crc = crc32fast::hash(&[&bytes[8..26], &bytes[30..]].concat());
            bytes[26..30].copy_from_slice(&crc.to_be_bytes());
            write_file(env, &others.join("checkpoint.a"), 0, bytes).await;
        }
        "short segment" => cut(env, newest, 1).await,
        "unlisted segment" => {
            let manifest = crate::storage::Manifest::new(OTHER, 5);
            write_file(env, &others.join("manifest"), 0, manifest.encode()).await;
            cut(env, &others.join("manifest"), manifest.encode().len() as u64).await;
        }
        "active segment gone" => env.disk().remove_file(newest).await.expect("removed"),
        "active segment and manifest gone" => {
            env.disk().remove_file(newest).await.expect("removed");
            flip(env, &others.join("manifest"), 40).await;
        }
        "unproven end" => {
            for name in ["checkpoint.a", "checkpoint.b", "manifest"] {
                env.disk().remove_file(&others.join(name)).await.expect("removed");
            }
            flip(env, newest, 100).await;
        }
        "gap" => {
            // The records of the first partition begin behind what a replaced directory has.
            let partition = dir.join("orders-0");
            env.disk().remove_dir_all(&partition).await.expect("removed");
        }
        "file of the write-ahead log lost" => {
            env.disk().remove_file(&newest_slot(env, dir).await).await.expect("removed");
        }
        "list of the write-ahead log damaged" => flip(env, &dir.join("wal.files"), 12).await,
        "write-ahead log damaged" => flip(env, &newest_slot(env, dir).await, 4096 * 3 + 100).await,
        "newer write-ahead log" => newer_block(env, &newest_slot(env, dir).await).await,
        other => panic!("{other} {}", log(0).display()),
    }
}

/// Makes the first block of a slot file one of a later format.
async fn newer_block(env: &Env, slot: &Path) {
    let mut page = read_file(env, slot).await[..4096].to_vec();
    // The version is the one byte whose change a checksum of its own does not reveal: found by trying.
    for at in 0..64 {
        let kept = page[at];
        page[at] = 99;
        if matches!(BlockHeader::decode(&page), Err(crate::storage::wal::block::HeaderError::Version(_))) {
            write_file(env, slot, 0, page).await;
            return;
        }
        page[at] = kept;
    }
    panic!("no byte is the version");
}

#[test]
fn a_start_that_is_refused_changes_no_byte() {
    let refusals = [
        ("unknown directory", "a partition that the metadata does not know"),
        ("newer manifest", "format version 9"),
        ("damaged checkpoints", "no checkpoint is whole"),
        ("newer checkpoint", "format version 9"),
        ("short segment", "it was cut short"),
        ("unlisted segment", "lacks segment"),
        ("active segment gone", "is missing"),
        ("active segment and manifest gone", "is missing"),
        ("unproven end", "Nothing was changed"),
        ("gap", "the records between are lost"),
        ("file of the write-ahead log lost", "it is missing"),
        ("list of the write-ahead log damaged", "is damaged"),
        ("write-ahead log damaged", "yet a later block says"),
        ("newer write-ahead log", "format 99"),
    ];
    for (what, message) in refusals {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        crashed(dir);
        block_on_test(|env| async move {
            provoke(&env, dir, &dir.join("others-0"), what).await;
            let specs = || if what == "unknown directory" { two(1000).split_off(1) } else { two(1000) };
            let before = everything(&env, dir).await;
            for _ in 0..2 {
                let error = open_all(&env, dir, specs()).await.err();
                let error = error.unwrap_or_else(|| panic!("{what} is not refused")).to_string();
                assert!(error.contains(message), "{what}: {error}");
                assert_eq!(changes(&before, &everything(&env, dir).await), Vec::<String>::new(), "{what}");
            }
        });
    }
    // What the write-ahead log holds of a partition whose directory was never made.
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    crashed(dir);
    block_on_test(|env| async move {
        env.disk().remove_dir_all(&dir.join("orders-0")).await.expect("removed");
        let before = everything(&env, dir).await;
        let error = open_all(&env, dir, two(1000).split_off(1)).await.err().expect("refused").to_string();
        assert!(error.contains("the write-ahead log has records of partition"), "{error}");
        assert_eq!(changes(&before, &everything(&env, dir).await), Vec::<String>::new());
    });
}

#[test]
fn an_older_checkpoint_beside_a_lost_manifest_cuts_nothing() {
    for how in [0, 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        idle_partition(dir, 1000);
        block_on_test(|env| async move {
            lose_newest_checkpoint(&env, dir, how).await;
            remove_all(&env, dir, &["manifest"]).await;
            for end in [20, 21] {
                let manager = open_all(&env, dir, two(1000)).await.expect("the log opens");
                let log = manager.partition(&KEY).expect("the partition");
                assert_eq!(values(&log, 0).await, expected(0, end));
                fill(&env, &log, end, end + 1).await;
                manager.close().await;
            }
        });
    }
}
