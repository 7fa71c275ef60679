//! The disk model against plain vectors: whatever is done and whenever power is lost, what is found was there.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kilo::io::OpenMode;
use kilo_sim::disk::{DiskModel, Keep, SECTOR_BYTES};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Write { file: u8, offset: u64, len: usize, byte: u8 },
    SetLen { file: u8, len: u64 },
    Allocate { file: u8, len: u64 },
    Sync { file: u8 },
    SyncDir,
    Rename { from: u8, to: u8 },
    Remove { file: u8 },
    Crash { seed: u64, keep: Keep },
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..3_u8;
    prop_oneof![
        8 => (file.clone(), 0..3000_u64, 1..2000_usize, 1..=255_u8)
            .prop_map(|(file, offset, len, byte)| Step::Write { file, offset, len, byte }),
        3 => (file.clone(), 0..4000_u64).prop_map(|(file, len)| Step::SetLen { file, len }),
        1 => (file.clone(), 0..4000_u64).prop_map(|(file, len)| Step::Allocate { file, len }),
        3 => file.clone().prop_map(|file| Step::Sync { file }),
        2 => Just(Step::SyncDir),
        1 => (file.clone(), file.clone()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => file.prop_map(|file| Step::Remove { file }),
        2 => (any::<u64>(), prop_oneof![Just(Keep::None), Just(Keep::All), Just(Keep::Some)])
            .prop_map(|(seed, keep)| Step::Crash { seed, keep }),
    ]
}

/// A file as the test knows it: every state since the last flush, the present one last.
type History = Vec<Vec<u8>>;

/// What the test knows of the disk.
#[derive(Default)]
struct Expected {
    files: BTreeMap<u64, History>,
    names: BTreeMap<PathBuf, u64>,
    /// Every state of the names since the directory's last flush, the present one last.
    names_before: Vec<BTreeMap<PathBuf, u64>>,
}

fn path(file: u8) -> PathBuf {
    PathBuf::from(format!("/dir/{file}"))
}

fn check_reads(model: &DiskModel, expected: &Expected) {
    let found: Vec<PathBuf> = model.list(Path::new("/dir")).expect("exists");
    assert_eq!(found, expected.names.keys().cloned().collect::<Vec<_>>());
    for (path, ino) in &expected.names {
        let now = expected.files[ino].last().expect("a history is never empty");
        let found = model.read_file(path).expect("exists");
        assert!(found[..] == now[..], "{}: {} bytes, and not the {} expected", path.display(), found.len(), now.len());
    }
}

/// Sector by sector, what is found stood there at some time since the last flush.
fn check_crashed(found: &[u8], history: &History, keep: Keep) -> Result<(), String> {
    match keep {
        Keep::None if history[0] != found => return Err("an unsynced change was kept".into()),
        Keep::All if history[history.len() - 1] != found => return Err("a change was lost".into()),
        _ => {}
    }
    if !history.iter().any(|state| state.len() == found.len()) {
        return Err(format!("a length that never was: {}", found.len()));
    }
    for (index, sector) in found.chunks(SECTOR_BYTES as usize).enumerate() {
        let at = index * SECTOR_BYTES as usize;
        let is_known = history.iter().any(|state| {
            let part = state.get(at..).unwrap_or_default();
            sector.iter().enumerate().all(|(at, byte)| *byte == part.get(at).copied().unwrap_or(0))
        });
        if !is_known && !sector_mixes_lengths(sector, history, at) {
            return Err(format!("sector {index} never stood there"));
        }
    }
    Ok(())
}

/// The sector that the end of the file falls into may show one state's bytes up to another state's length.
fn sector_mixes_lengths(sector: &[u8], history: &History, at: usize) -> bool {
    history.iter().any(|state| {
        let part = state.get(at..).unwrap_or_default();
        history.iter().any(|other| {
            let end = other.len().saturating_sub(at);
            sector
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == if at < end { part.get(at).copied().unwrap_or(0) } else { 0 })
        })
    })
}

fn crash(model: &mut DiskModel, expected: &mut Expected, next: &mut u64, seed: u64, keep: Keep) {
    model.crash(&mut fastrand::Rng::with_seed(seed), keep);
    let found = model.list(Path::new("/dir")).expect("was synced");
    let mut names = BTreeMap::new();
    for path in found {
        let bytes = model.read_file(&path).expect("exists").to_vec();
        // Which of the files that ever had this name is it? The model's answer is accepted if one fits.
        let candidates: BTreeSet<u64> =
            expected.names_before.iter().filter_map(|names| names.get(&path).copied()).collect();
        let verdicts: BTreeMap<u64, Result<(), String>> =
            candidates.into_iter().map(|ino| (ino, check_crashed(&bytes, &expected.files[&ino], keep))).collect();
        assert!(verdicts.values().any(Result::is_ok), "{}: {verdicts:?}", path.display());
        // From here on it is a file of its own, whichever it was.
        *next += 1;
        names.insert(path, (*next, bytes));
    }
    let only = |names: &BTreeMap<PathBuf, (u64, Vec<u8>)>| names.keys().cloned().collect::<Vec<_>>();
    let states = || expected.names_before.iter().map(|names| names.keys().cloned().collect::<Vec<_>>());
    match keep {
        Keep::None => assert_eq!(Some(only(&names)), states().next()),
        Keep::All => assert_eq!(Some(only(&names)), states().next_back()),
        Keep::Some => {}
    }
    expected.names = names.iter().map(|(path, (ino, _))| (path.clone(), *ino)).collect();
    expected.files.extend(names.into_values().map(|(ino, bytes)| (ino, vec![bytes])));
    expected.names_before = vec![expected.names.clone()];
}

fn apply(model: &mut DiskModel, expected: &mut Expected, next: &mut u64, step: Step) {
    let mut edit = |file: u8, change: &mut dyn FnMut(&mut DiskModel, u64, &mut Vec<u8>)| {
        let ino = model.open(&path(file), OpenMode::Create).expect("the directory exists");
        if let Entry::Vacant(name) = expected.names.entry(path(file)) {
            *next += 1;
            name.insert(*next);
            expected.names_before.push(expected.names.clone());
            expected.files.insert(*next, vec![Vec::new()]);
        }
        let history = expected.files.get_mut(&expected.names[&path(file)]).expect("each name has a file");
        let mut state = history.last().cloned().unwrap_or_default();
        change(model, ino, &mut state);
        history.push(state);
        model.close(ino);
    };
    match step {
        Step::Write { file, offset, len, byte } => edit(file, &mut |model, ino, state| {
            let end = offset as usize + len;
            state.resize(state.len().max(end), 0);
            state[offset as usize..end].fill(byte);
            model.write(ino, offset, &[Bytes::from(vec![byte; len])]).expect("there is space");
        }),
        Step::SetLen { file, len } => edit(file, &mut |model, ino, state| {
            state.resize(len as usize, 0);
            model.set_len(ino, len).expect("is a file");
        }),
        Step::Allocate { file, len } => edit(file, &mut |model, ino, state| {
            state.resize(state.len().max(len as usize), 0);
            model.allocate(ino, len).expect("there is space");
        }),
        Step::Sync { file } => {
            edit(file, &mut |model, ino, _| model.complete_sync(model.begin_sync(ino)).expect("nothing failed"));
            let history = expected.files.get_mut(&expected.names[&path(file)]).expect("each name has a file");
            history.drain(..history.len() - 1);
        }
        Step::SyncDir => {
            model.sync_dir(Path::new("/dir")).expect("exists");
            expected.names_before = vec![expected.names.clone()];
        }
        Step::Rename { from, to } => {
            let done = model.rename(&path(from), &path(to));
            assert_eq!(done.is_ok(), expected.names.contains_key(&path(from)));
            if done.is_ok() && from != to {
                let ino = expected.names.remove(&path(from)).expect("was there");
                expected.names.insert(path(to), ino);
                expected.names_before.push(expected.names.clone());
            }
        }
        Step::Remove { file } => {
            let done = model.remove_file(&path(file));
            assert_eq!(done.is_ok(), expected.names.remove(&path(file)).is_some());
            expected.names_before.push(expected.names.clone());
        }
        Step::Crash { seed, keep } => crash(model, expected, next, seed, keep),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_crash_leaves_was_there(steps in proptest::collection::vec(step(), 1..60)) {
        let mut model = DiskModel::new();
        model.create_dir_all(Path::new("/dir")).expect("is new");
        model.sync_dir(Path::new("/")).expect("exists");
        let mut expected = Expected { names_before: vec![BTreeMap::new()], ..Expected::default() };
        let mut next = 0;
        for step in steps {
            apply(&mut model, &mut expected, &mut next, step);
            check_reads(&model, &expected);
        }
    }
}

#[test]
fn a_rename_between_directories_never_loses_the_file() {
    for seed in 0..200 {
        let mut model = DiskModel::new();
        for dir in ["/a", "/b"] {
            model.create_dir_all(Path::new(dir)).expect("is new");
        }
        model.sync_dir(Path::new("/")).expect("exists");
        let ino = model.open(Path::new("/a/file"), OpenMode::CreateNew).expect("is new");
        model.sync_dir(Path::new("/a")).expect("exists");
        model.rename(Path::new("/a/file"), Path::new("/b/file")).expect("exists");
        if seed % 3 == 1 {
            model.sync_dir(Path::new("/a")).expect("exists");
        }
        model.close(ino);
        model.crash(&mut fastrand::Rng::with_seed(seed), Keep::Some);
        let found = (model.exists(Path::new("/a/file")), model.exists(Path::new("/b/file")));
        assert!(found.0 != found.1, "seed {seed}: {found:?}");
        assert!(seed % 3 != 1 || found.1, "seed {seed}: a synced rename was undone");
    }
}

#[test]
fn space_is_counted_in_blocks_and_comes_back() {
    let mut model = DiskModel::new();
    model.set_capacity(Some(40_960));
    let ino = model.open(Path::new("/file"), OpenMode::CreateNew).expect("is new");
    model.write(ino, 0, &[Bytes::from(vec![1; 100])]).expect("fits");
    assert_eq!(model.used(), 4096);
    model.allocate(ino, 30_000).expect("fits");
    assert_eq!((model.used(), model.free_space()), (32_768, 8192));
    model.write(ino, 0, &[Bytes::from(vec![1; 32_768])]).expect("is reserved");
    assert!(model.write(ino, 32_768, &[Bytes::from(vec![2; 20_000])]).is_err());
    assert_eq!(model.len(ino).expect("is a file"), 40_960);
    model.set_len(ino, 5000).expect("is a file");
    assert_eq!(model.used(), 8192);
    model.remove_file(Path::new("/file")).expect("exists");
    assert_eq!(model.used(), 8192);
    model.close(ino);
    assert_eq!(model.used(), 0);
}
