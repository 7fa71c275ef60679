//! What an error message advises is done as it says: the start works then, and no more is lost than it says.

use super::damage::{OTHER, idle_partition, read_file, two, write_file};
use super::repair::{base, crashed, everything, flip, newest_slot, remove_all, segments, unreadable};
use super::*;
use crate::io::OpenMode;

async fn refused(env: &Env, dir: &Path, specs: Vec<PartitionSpec>, advice: &str) -> String {
    let before = everything(env, dir).await;
    let error = open_all(env, dir, specs).await.err().expect("refused").to_string();
    assert!(error.contains(advice), "{error}");
    assert!(everything(env, dir).await == before, "{error}");
    error
}

/// Opens both partitions, and appends to each; the first one ends at `ends.0`, the second at `ends.1`.
async fn serves(env: &Env, dir: &Path, ends: (i64, i64)) {
    for life in 0..2 {
        let manager = open_all(env, dir, two(1000)).await.expect("the log opens");
        for (key, end) in [(KEY, ends.0), (OTHER, ends.1)] {
            let log = manager.partition(&key).expect("the partition");
            let start = log.offsets().log_start;
            assert_eq!(values(&log, start).await, expected(start, end + life));
            fill(env, &log, end + life, end + life + 1).await;
        }
        manager.close().await;
    }
}

async fn move_away(env: &Env, path: &Path) {
    let mut to = path.as_os_str().to_owned();
    to.push(".elsewhere");
    env.disk().rename(path, Path::new(&to)).await.expect("renamed");
}

fn with(make: impl FnOnce(&Path), test: impl AsyncFnOnce(&Env, &Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path());
    let dir = folder.path();
    block_on_test(|env| async move { test(&env, dir).await });
}

#[test]
fn a_manifest_of_another_time_is_moved_elsewhere() {
    with(crashed, async |env, dir| {
        let path = dir.join("orders-0/manifest");
        let old = crate::storage::Manifest::new(KEY, 0).encode();
        env.disk().open(&path, OpenMode::ReadWrite).await.expect("there").set_len(0).await.expect("emptied");
        write_file(env, &path, 0, old).await;
        refused(env, dir, two(1000), "move the manifest elsewhere").await;
        move_away(env, &path).await;
        serves(env, dir, (20, 20)).await;
    });
}

#[test]
fn checkpoints_that_are_damaged_are_moved_elsewhere() {
    with(
        |dir| idle_partition(dir, 1000),
        async |env, dir| {
            for slot in ["checkpoint.a", "checkpoint.b"] {
                flip(env, &dir.join("orders-0").join(slot), 60).await;
            }
            refused(env, dir, two(1000), "move checkpoint.a and checkpoint.b elsewhere").await;
            for slot in ["checkpoint.a", "checkpoint.b"] {
                move_away(env, &dir.join("orders-0").join(slot)).await;
            }
            serves(env, dir, (20, 10)).await;
        },
    );
}

#[test]
fn an_unknown_directory_is_moved_elsewhere_and_what_the_write_ahead_log_has_of_it_is_given_up() {
    with(crashed, async |env, dir| {
        let others = || two(1000).split_off(1);
        refused(env, dir, others(), "move the directory elsewhere").await;
        // Where the folder's partitions are not looked for.
        env.disk().rename(&dir.join("orders-0"), &dir.join("elsewhere")).await.expect("renamed");
        refused(env, dir, others(), "wal.files elsewhere").await;
        move_away(env, &dir.join("wal")).await;
        move_away(env, &dir.join("wal.files")).await;
        let manager = open_all(env, dir, others()).await.expect("the log opens");
        assert_eq!(values(&manager.partition(&OTHER).expect("the partition"), 0).await, expected(0, 20));
        manager.close().await;
    });
}

#[test]
fn an_empty_directory_gives_up_a_short_segment() {
    with(crashed, async |env, dir| {
        let (last, _) = segments(env, dir).await.remove(1);
        let file = env.disk().open(&last, OpenMode::ReadWrite).await.expect("there");
        file.set_len(1).await.expect("cut");
        for (path, _) in segments(env, dir).await.split_off(2) {
            env.disk().remove_file(&path).await.expect("removed");
        }
        refused(env, dir, two(1000), "put an empty directory in the place").await;
        move_away(env, &dir.join("orders-0")).await;
        env.disk().create_dir_all(&dir.join("orders-0")).await.expect("made");
        // What the write-ahead log has is there.
        serves(env, dir, (20, 20)).await;
    });
}

#[test]
fn an_unproven_end_is_cut_where_the_message_says() {
    with(
        |dir| idle_partition(dir, 1 << 20),
        async |env, dir| {
            let (path, bytes) = segments(env, dir).await.remove(0);
            let at = bytes.len() as u64 / 20 * 15;
            flip(env, &path, at + 100).await;
            remove_all(env, dir, &["checkpoint.a", "checkpoint.b"]).await;
            let error = refused(env, dir, two(1 << 20), "truncate -s ").await;
            let (_, rest) = error.split_once("truncate -s ").expect("said");
            let position = rest.split_once(' ').and_then(|(number, _)| number.parse().ok()).expect("a number");
            env.disk().open(&path, OpenMode::ReadWrite).await.expect("there").set_len(position).await.expect("cut");
            serves(env, dir, (15, 10)).await;
        },
    );
}

#[test]
fn a_lost_file_of_the_write_ahead_log_is_given_up_by_removing_the_list() {
    with(crashed, async |env, dir| {
        env.disk().remove_file(&newest_slot(env, dir).await).await.expect("removed");
        refused(env, dir, two(1000), "remove ").await;
        env.disk().remove_file(&dir.join("wal.files")).await.expect("removed");
        // The segment files have it all.
        serves(env, dir, (20, 20)).await;
    });
}

#[test]
fn a_damaged_list_of_the_write_ahead_log_is_removed() {
    with(crashed, async |env, dir| {
        flip(env, &dir.join("wal.files"), 12).await;
        refused(env, dir, two(1000), "remove it and start again").await;
        env.disk().remove_file(&dir.join("wal.files")).await.expect("removed");
        serves(env, dir, (20, 20)).await;
    });
}

#[test]
fn a_damaged_write_ahead_log_is_moved_elsewhere_and_the_segment_files_count() {
    with(crashed, async |env, dir| {
        let slot = newest_slot(env, dir).await;
        flip(env, &slot, 4096 * 3 + 100).await;
        for _ in 0..2 {
            refused(env, dir, two(1000), "elsewhere and start again").await;
        }
        move_away(env, &dir.join("wal")).await;
        move_away(env, &dir.join("wal.files")).await;
        serves(env, dir, (20, 20)).await;
    });
}

#[test]
fn a_missing_closed_segment_is_restored_from_a_copy() {
    with(
        |dir| idle_partition(dir, 1000),
        async |env, dir| {
            let (path, _) = segments(env, dir).await.remove(0);
            let copy = read_file(env, &path).await;
            env.disk().remove_file(&path).await.expect("removed");
            let manager = open_all(env, dir, two(1000)).await.expect("the log opens");
            let lost = unreadable(&manager.partition(&KEY).expect("the partition"), 20).await;
            assert_eq!(lost.first().zip(lost.last()), Some((&0, &(base(&segments(env, dir).await[0].0) - 1))));
            manager.close().await;
            let file = env.disk().open(&path, OpenMode::Create).await.expect("made");
            file.write_at(0, vec![copy]).await.expect("written");
            serves(env, dir, (20, 10)).await;
        },
    );
}
