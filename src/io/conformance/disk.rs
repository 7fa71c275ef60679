//! Files and directories.

use std::io::ErrorKind;

use bytes::Bytes;

use super::world::{World, open, soon};
use crate::OpenMode;

fn bytes(byte: u8, len: usize) -> Bytes {
    Bytes::from(vec![byte; len])
}

/// Contents by position; holes read as zeros.
pub async fn reads_back_what_was_written(World { env, dir, .. }: World) {
    let file = open(&env, &dir.join("file"), OpenMode::CreateNew).await;
    file.write_at(10, vec![bytes(1, 5), Bytes::new(), bytes(2, 5)]).await.expect("writes");
    file.write_at(12, vec![bytes(3, 2)]).await.expect("overwrites");
    file.write_at(8000, vec![bytes(4, 1)]).await.expect("writes past the end");
    assert_eq!(&file.read_at(8, 14).await.expect("reads")[..], [0, 0, 1, 1, 3, 3, 1, 2, 2, 2, 2, 2, 0, 0]);
    assert_eq!(&file.read_at(7998, 3).await.expect("reads")[..], [0, 0, 4]);
    assert_eq!(file.len().await.expect("has a length"), 8001);
}

/// Short only at the end, and empty past it.
pub async fn reads_end_at_the_end_of_the_file(World { env, dir, .. }: World) {
    let file = open(&env, &dir.join("file"), OpenMode::Create).await;
    assert_eq!(file.read_at(0, 100).await.expect("reads"), Bytes::new());
    file.write_at(0, vec![bytes(7, 100_000)]).await.expect("writes");
    assert_eq!(file.read_at(99_990, 100).await.expect("reads"), bytes(7, 10));
    assert_eq!(file.read_at(0, usize::MAX / 2).await.expect("reads"), bytes(7, 100_000));
    assert_eq!(file.read_at(100_000, 1).await.expect("reads"), Bytes::new());
    assert_eq!(file.read_at(1 << 40, 1 << 20).await.expect("reads"), Bytes::new());
    assert_eq!(file.read_at(5, 0).await.expect("reads"), Bytes::new());
}

/// More buffers than one system call takes.
pub async fn writes_thousands_of_buffers_at_once(World { env, dir, .. }: World) {
    let file = open(&env, &dir.join("file"), OpenMode::Create).await;
    let buffers: Vec<Bytes> = (0..5000_usize).map(|index| bytes((index % 251) as u8, index % 7)).collect();
    let expected: Vec<u8> = buffers.concat();
    file.write_at_and_sync(3, buffers).await.expect("writes");
    assert_eq!(&file.read_at(3, expected.len() + 10).await.expect("reads")[..], &expected[..]);
}

/// What each mode does with files that are there and that are not.
pub async fn opens_as_the_mode_says(World { env, dir, .. }: World) {
    let path = dir.join("file");
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        let error = env.disk().open(&path, mode).await.err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::NotFound), "{mode:?}");
    }
    let file = open(&env, &path, OpenMode::Create).await;
    file.write_at(0, vec![bytes(1, 3)]).await.expect("writes");
    let error = env.disk().open(&path, OpenMode::CreateNew).await.err().map(|error| error.kind());
    assert_eq!(error, Some(ErrorKind::AlreadyExists));
    for mode in [OpenMode::Create, OpenMode::ReadWrite, OpenMode::Read] {
        let again = open(&env, &path, mode).await;
        assert_eq!(again.read_at(0, 10).await.expect("reads"), bytes(1, 3), "{mode:?}");
        assert_eq!(again.write_at(0, vec![bytes(1, 1)]).await.is_ok(), mode != OpenMode::Read, "{mode:?}");
    }
    let nowhere = env.disk().open(&dir.join("none/file"), OpenMode::Create).await;
    assert_eq!(nowhere.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    let through_a_file = env.disk().open(&path.join("file"), OpenMode::Create).await;
    assert_eq!(through_a_file.err().map(|error| error.kind()), Some(ErrorKind::NotADirectory));
    let directory = env.disk().open(&dir, OpenMode::ReadWrite).await;
    assert_eq!(directory.err().map(|error| error.kind()), Some(ErrorKind::IsADirectory));
}

/// What was submitted happens, whoever waits for it, and though the handle is gone.
pub async fn dropped_futures_complete(World { env, dir, .. }: World) {
    let path = dir.join("file");
    let file = open(&env, &path, OpenMode::Create).await;
    drop(file.write_at(0, vec![bytes(9, 4096)]));
    drop(file);
    drop(env.disk().create_dir_all(&dir.join("sub")));
    soon(&env, async {
        let file = open(&env, &path, OpenMode::Read).await;
        while file.len().await.expect("has a length") < 4096 {
            env.sleep(std::time::Duration::from_millis(1)).await;
        }
        while !env.disk().exists(&dir.join("sub")).await.expect("looks") {
            env.sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Many operations on one file at the same time.
pub async fn operations_overlap(World { env, dir, .. }: World) {
    let file = open(&env, &dir.join("file"), OpenMode::Create).await;
    let writes: Vec<_> =
        (0..100_u8).map(|index| file.write_at(u64::from(index) * 700, vec![bytes(index, 700)])).collect();
    for write in writes {
        write.await.expect("writes");
    }
    let reads: Vec<_> = (0..100_u8).map(|index| file.read_at(u64::from(index) * 700, 700)).collect();
    for (index, read) in (0..100_u8).zip(reads) {
        assert_eq!(read.await.expect("reads"), bytes(index, 700));
    }
}

/// Allocating extends with zeros and never cuts; a length does both.
pub async fn allocates_and_cuts(World { env, dir, .. }: World) {
    let file = open(&env, &dir.join("file"), OpenMode::Create).await;
    file.write_at(0, vec![bytes(1, 10)]).await.expect("writes");
    file.allocate(10_000).await.expect("allocates");
    assert_eq!(file.len().await.expect("has a length"), 10_000);
    file.allocate(100).await.expect("allocates");
    assert_eq!(file.len().await.expect("has a length"), 10_000);
    assert_eq!(&file.read_at(8, 4).await.expect("reads")[..], [1, 1, 0, 0]);
    file.set_len(5).await.expect("cuts");
    assert_eq!(file.read_at(0, 100).await.expect("reads"), bytes(1, 5));
    file.set_len(8).await.expect("extends");
    assert_eq!(&file.read_at(0, 100).await.expect("reads")[..], [1, 1, 1, 1, 1, 0, 0, 0]);
}

/// The new name is the moved file; who has the replaced one open goes on reading it.
pub async fn renames_over_and_keeps_open_files(World { env, dir, .. }: World) {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let old = open(&env, &to, OpenMode::Create).await;
    old.write_at(0, vec![bytes(1, 4)]).await.expect("writes");
    let new = open(&env, &from, OpenMode::Create).await;
    new.write_at(0, vec![bytes(2, 4)]).await.expect("writes");
    env.disk().rename(&from, &to).await.expect("renames");
    assert!(!env.disk().exists(&from).await.expect("looks"));
    let found = open(&env, &to, OpenMode::Read).await;
    assert_eq!(found.read_at(0, 9).await.expect("reads"), bytes(2, 4));
    assert_eq!(old.read_at(0, 9).await.expect("reads"), bytes(1, 4));
    new.write_at(0, vec![bytes(3, 4)]).await.expect("writes");
    assert_eq!(found.read_at(0, 9).await.expect("reads"), bytes(3, 4));
    let missing = env.disk().rename(&from, &to).await;
    assert_eq!(missing.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    env.disk().create_dir_all(&dir.join("a/b")).await.expect("creates");
    env.disk().rename(&to, &dir.join("a/b/moved")).await.expect("renames into another directory");
    env.disk().rename(&dir.join("a"), &dir.join("c")).await.expect("renames a directory");
    let found = open(&env, &dir.join("c/b/moved"), OpenMode::Read).await;
    assert_eq!(found.read_at(0, 9).await.expect("reads"), bytes(3, 4));
}

/// A file lives until its last handle goes.
pub async fn removed_files_stay_readable_while_open(World { env, dir, .. }: World) {
    let path = dir.join("file");
    let file = open(&env, &path, OpenMode::Create).await;
    file.write_at(0, vec![bytes(1, 4)]).await.expect("writes");
    env.disk().remove_file(&path).await.expect("removes");
    env.disk().sync_dir(&dir).await.expect("syncs");
    assert!(!env.disk().exists(&path).await.expect("looks"));
    assert_eq!(file.read_at(0, 9).await.expect("reads"), bytes(1, 4));
    let again = open(&env, &path, OpenMode::CreateNew).await;
    assert_eq!(again.read_at(0, 9).await.expect("reads"), Bytes::new());
    env.disk().remove_file(&path).await.expect("removes");
    let missing = env.disk().remove_file(&path).await;
    assert_eq!(missing.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// By name, as full paths.
pub async fn lists_sorted(World { env, dir, .. }: World) {
    assert_eq!(env.disk().list(&dir).await.expect("lists").len(), 0);
    for name in ["10", "b", "a", "2", "A"] {
        open(&env, &dir.join(name), OpenMode::CreateNew).await;
    }
    env.disk().create_dir_all(&dir.join("aa/inner")).await.expect("creates");
    let expected: Vec<_> = ["10", "2", "A", "a", "aa", "b"].iter().map(|name| dir.join(name)).collect();
    assert_eq!(env.disk().list(&dir).await.expect("lists"), expected);
    let missing = env.disk().list(&dir.join("none")).await;
    assert_eq!(missing.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// Directories with all that is in them.
pub async fn creates_and_removes_trees(World { env, dir, .. }: World) {
    let disk = env.disk();
    let tree = dir.join("one/two/three");
    disk.create_dir_all(&tree).await.expect("creates");
    disk.create_dir_all(&tree).await.expect("is content with what is there");
    open(&env, &tree.join("file"), OpenMode::CreateNew).await;
    assert!(disk.create_dir_all(&tree.join("file")).await.is_err());
    disk.remove_dir_all(&dir.join("one")).await.expect("removes");
    assert!(!disk.exists(&dir.join("one")).await.expect("looks"));
    assert!(disk.exists(&dir).await.expect("looks"));
    let missing = disk.remove_dir_all(&dir.join("one")).await;
    assert_eq!(missing.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// That they can be called; what they do shows only in the simulation.
pub async fn syncs_files_and_directories(World { env, dir, .. }: World) {
    let file = open(&env, &dir.join("file"), OpenMode::Create).await;
    file.sync_data().await.expect("syncs an empty file");
    file.write_at_and_sync(0, vec![bytes(1, 9)]).await.expect("writes and syncs");
    assert_eq!(file.read_at(0, 99).await.expect("reads"), bytes(1, 9));
    env.disk().sync_dir(&dir).await.expect("syncs");
    let missing = env.disk().sync_dir(&dir.join("none")).await;
    assert_eq!(missing.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// One holder at a time.
pub async fn locks_a_directory_once(World { env, dir, .. }: World) {
    let lock = env.disk().lock_dir(&dir).await.expect("locks");
    let second = env.disk().lock_dir(&dir).await.err().expect("is held already");
    assert_eq!(second.kind(), ErrorKind::WouldBlock);
    assert!(second.to_string().contains("in use by process"), "{second}");
    drop(lock);
    env.disk().lock_dir(&dir).await.expect("locks again");
    let missing = env.disk().lock_dir(&dir.join("none")).await;
    assert_eq!(missing.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// Two numbers, where the directory exists.
pub async fn knows_the_space(World { env, dir, .. }: World) {
    let space = env.disk().space(&dir).await.expect("knows");
    assert!(space.free > 0 && space.total >= space.free, "{space:?}");
    assert!(env.disk().space(&dir.join("none")).await.is_err());
}

/// On a file system of a few MiB (or where files cannot grow past that): writing fails, what was written stays, and
/// when space is back it works again. Not in the list: it needs such a directory.
pub async fn a_full_disk_refuses_and_recovers(World { env, dir, .. }: World) {
    let is_full = |kind: ErrorKind| matches!(kind, ErrorKind::StorageFull | ErrorKind::FileTooLarge);
    let file = open(&env, &dir.join("file"), OpenMode::Create).await;
    file.write_at_and_sync(0, vec![bytes(1, 4096)]).await.expect("fits");
    let refused = file.allocate(64 << 20).await.expect_err("does not fit");
    assert!(is_full(refused.kind()), "{refused}");
    let mut at = 4096;
    let refused = loop {
        assert!(at < 64 << 20, "the disk is small");
        match file.write_at(at, vec![bytes(2, 65_536)]).await {
            Ok(()) => at += 65_536,
            Err(error) => break error,
        }
    };
    assert!(is_full(refused.kind()), "{refused}");
    assert_eq!(file.read_at(0, 4096).await.expect("reads"), bytes(1, 4096));
    file.set_len(4096).await.expect("gives space back");
    file.write_at_and_sync(4096, vec![bytes(3, 65_536)]).await.expect("fits again");
    assert_eq!(file.read_at(4096, 65_536).await.expect("reads"), bytes(3, 65_536));
}

/// In a world with at most a few hundred descriptors: opening fails, what is open works, and closing helps. Not in the
/// list: it needs such a world.
pub async fn descriptors_run_out_and_come_back(World { env, dir, ip }: World) {
    const EMFILE: i32 = 24;
    let listener = env.net().listen((ip, 0).into()).await.expect("listens");
    let path = dir.join("file");
    let mut files = Vec::new();
    let refused = loop {
        assert!(files.len() < 100_000, "descriptors are limited");
        match env.disk().open(&path, OpenMode::Create).await {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(EMFILE), "{refused}");
    let refused = env.net().connect(listener.local_addr()).await.err().expect("no descriptor is left");
    assert_eq!(refused.raw_os_error(), Some(EMFILE), "{refused}");
    files[0].write_at(0, vec![bytes(1, 4)]).await.expect("open files go on");
    files.truncate(1);
    soon(&env, async {
        while env.disk().open(&path, OpenMode::Read).await.is_err() {
            env.sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
    let (client, server) = tokio::join!(env.net().connect(listener.local_addr()), listener.accept());
    client.expect("connects");
    server.expect("accepts");
}
