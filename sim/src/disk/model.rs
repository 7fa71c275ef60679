//! A file system as a value: no clock, no scheduler, no faults of its own. Usable in property tests.
//!
//! Directories and files have two states. The *cached* one is what calls see. The *durable* one is what a power cut
//! leaves. Between them lie pending changes: writes and lengths until the file is synced, names until their directory
//! is. [`DiskModel::crash`] keeps an arbitrary, physically possible part of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use kilo::io::{OpenMode, Space};

use super::errno::{self, os_error};
use super::file::{BLOCK_BYTES, FileModel};
use super::power::{CrashReport, Keep};

/// An inode's number.
pub type Ino = u64;
const ROOT: Ino = 0;

/// How far a flush that has begun reaches.
#[derive(Clone, Copy, Debug)]
pub struct SyncToken {
    ino: Ino,
    seq: u64,
    /// How many flushes of the file had failed when this one began.
    failures: u64,
}

#[derive(Clone, Debug)]
enum Inode {
    File(FileModel),
    Dir(DirModel),
}

#[derive(Clone, Debug, Default)]
struct DirModel {
    cached: BTreeMap<OsString, Ino>,
    durable: BTreeMap<OsString, Ino>,
    pending: Vec<DirChange>,
}

/// A change of one directory, all or nothing. The two sides of a rename between directories share their `seq`.
#[derive(Clone, Debug)]
struct DirChange {
    seq: u64,
    names: Vec<(OsString, Option<Ino>)>,
    /// The other directory of a rename.
    other: Option<Ino>,
}

impl DirModel {
    fn stage(&mut self, seq: u64, names: Vec<(OsString, Option<Ino>)>, other: Option<Ino>) {
        for (name, ino) in &names {
            set_name(&mut self.cached, name, *ino);
        }
        self.pending.push(DirChange { seq, names, other });
    }

    fn make_stable(&mut self, seq: u64) -> Vec<DirChange> {
        let count = self.pending.iter().take_while(|change| change.seq <= seq).count();
        let changes: Vec<DirChange> = self.pending.drain(..count).collect();
        for (name, ino) in changes.iter().flat_map(|change| &change.names) {
            set_name(&mut self.durable, name, *ino);
        }
        changes
    }
}

fn set_name(names: &mut BTreeMap<OsString, Ino>, name: &OsStr, ino: Option<Ino>) {
    match ino {
        Some(ino) => names.insert(name.to_owned(), ino),
        None => names.remove(name),
    };
}

/// The file system of one node.
#[derive(Clone, Debug)]
pub struct DiskModel {
    inodes: BTreeMap<Ino, Inode>,
    next_ino: Ino,
    next_seq: u64,
    capacity: Option<u64>,
    /// Whether an open file may have no name any more: its last close forgets it.
    has_orphans: bool,
}

impl Default for DiskModel {
    fn default() -> Self {
        let inodes = BTreeMap::from([(ROOT, Inode::Dir(DirModel::default()))]);
        Self { inodes, next_ino: ROOT + 1, next_seq: 1, capacity: None, has_orphans: false }
    }
}

impl DiskModel {
    /// An empty file system without a limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the space, in bytes; `None` for no limit. Files that are there stay, whatever the limit.
    pub fn set_capacity(&mut self, capacity: Option<u64>) {
        self.capacity = capacity;
    }

    /// Bytes free; a large number without a limit.
    pub fn free_space(&self) -> u64 {
        self.capacity.map_or(1 << 50, |capacity| capacity.saturating_sub(self.used()))
    }

    /// What the node is told about its space.
    pub fn space(&self) -> Space {
        Space { free: self.free_space(), total: self.capacity.map_or(1 << 50, |capacity| capacity.max(self.used())) }
    }

    /// Whether the space is limited.
    pub fn is_limited(&self) -> bool {
        self.capacity.is_some()
    }

    /// Bytes in use by files that have a name or are open.
    pub fn used(&self) -> u64 {
        let linked: BTreeSet<Ino> = self.dirs().flat_map(|dir| dir.cached.values().copied()).collect();
        self.inodes
            .iter()
            .filter_map(|(ino, inode)| match inode {
                Inode::File(file) if file.opens > 0 || linked.contains(ino) => Some(file.allocated()),
                _ => None,
            })
            .sum()
    }

    fn dirs(&self) -> impl Iterator<Item = &DirModel> {
        self.inodes.values().filter_map(|inode| match inode {
            Inode::Dir(dir) => Some(dir),
            Inode::File(_) => None,
        })
    }

    fn seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    fn add(&mut self, inode: Inode) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.inodes.insert(ino, inode);
        ino
    }

    fn dir(&self, ino: Ino) -> io::Result<&DirModel> {
        match self.inodes.get(&ino) {
            Some(Inode::Dir(dir)) => Ok(dir),
            _ => Err(os_error(errno::ENOTDIR)),
        }
    }

    fn dir_mut(&mut self, ino: Ino) -> io::Result<&mut DirModel> {
        match self.inodes.get_mut(&ino) {
            Some(Inode::Dir(dir)) => Ok(dir),
            _ => Err(os_error(errno::ENOTDIR)),
        }
    }

    /// The file of an open handle or a name.
    fn file(&self, ino: Ino) -> io::Result<&FileModel> {
        match self.inodes.get(&ino) {
            Some(Inode::File(file)) => Ok(file),
            _ => Err(os_error(errno::EISDIR)),
        }
    }

    fn file_mut(&mut self, ino: Ino) -> io::Result<&mut FileModel> {
        match self.inodes.get_mut(&ino) {
            Some(Inode::File(file)) => Ok(file),
            _ => Err(os_error(errno::EISDIR)),
        }
    }

    fn resolve(&self, path: &Path) -> io::Result<Ino> {
        let mut ino = ROOT;
        for name in names(path) {
            ino = *self.dir(ino)?.cached.get(name).ok_or_else(|| os_error(errno::ENOENT))?;
        }
        Ok(ino)
    }

    fn resolve_parent<'a>(&self, path: &'a Path) -> io::Result<(Ino, &'a OsStr)> {
        let name = names(path).last().ok_or_else(|| os_error(errno::EEXIST))?;
        let parent = self.resolve(path.parent().unwrap_or(Path::new("")))?;
        self.dir(parent)?;
        Ok((parent, name))
    }

    /// Opens a file and counts the handle.
    pub fn open(&mut self, path: &Path, mode: OpenMode) -> io::Result<Ino> {
        let ino = match (self.resolve(path), mode) {
            (Ok(_), OpenMode::CreateNew) => return Err(os_error(errno::EEXIST)),
            (Ok(ino), _) => ino,
            (Err(error), OpenMode::Create | OpenMode::CreateNew) if error.raw_os_error() == Some(errno::ENOENT) => {
                let (parent, name) = self.resolve_parent(path)?;
                let ino = self.add(Inode::File(FileModel::default()));
                let seq = self.seq();
                self.dir_mut(parent)?.stage(seq, vec![(name.to_owned(), Some(ino))], None);
                ino
            }
            (Err(error), _) => return Err(error),
        };
        self.file_mut(ino)?.opens += 1;
        Ok(ino)
    }

    /// Counts one handle more on an open file.
    pub fn hold(&mut self, ino: Ino) {
        if let Ok(file) = self.file_mut(ino) {
            file.opens += 1;
        }
    }

    /// Closes a handle.
    pub fn close(&mut self, ino: Ino) {
        if let Ok(file) = self.file_mut(ino) {
            file.opens = file.opens.saturating_sub(1);
            if file.opens == 0 && self.has_orphans {
                self.forget_unreachable();
            }
        }
    }

    /// Closes every handle: the process that held them ended.
    pub fn close_all(&mut self) {
        for inode in self.inodes.values_mut() {
            if let Inode::File(file) = inode {
                file.opens = 0;
            }
        }
        self.forget_unreachable();
    }

    /// Reads up to `len` bytes; fewer at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> io::Result<Bytes> {
        Ok(self.file(ino)?.read(offset, len))
    }

    /// Writes the buffers one after the other. On a full disk what fits is written.
    pub fn write(&mut self, ino: Ino, offset: u64, buffers: &[Bytes]) -> io::Result<()> {
        let mut free = self.capacity.map(|_| self.free_space());
        let mut at = offset;
        for buffer in buffers {
            let seq = self.seq();
            let file = self.file_mut(ino)?;
            let mut fits = buffer.len();
            if let Some(free) = &mut free {
                while fits > 0 && file.needed(at, at + fits as u64) > *free {
                    let before_last_block = (at + fits as u64 - 1) / BLOCK_BYTES * BLOCK_BYTES;
                    fits = usize::try_from(before_last_block.saturating_sub(at)).unwrap_or(0);
                }
                *free -= file.needed(at, at + fits as u64).min(*free);
            }
            file.write(seq, at, buffer.slice(..fits));
            if fits < buffer.len() {
                return Err(os_error(errno::ENOSPC));
            }
            at += fits as u64;
        }
        Ok(())
    }

    /// Reserves space for `0..len` and extends the length to it.
    pub fn allocate(&mut self, ino: Ino, len: u64) -> io::Result<()> {
        let free = self.free_space();
        let seq = self.seq();
        let file = self.file_mut(ino)?;
        if file.needed(0, len) > free {
            return Err(os_error(errno::ENOSPC));
        }
        file.allocate(seq, len);
        Ok(())
    }

    /// Cuts or extends a file.
    pub fn set_len(&mut self, ino: Ino, len: u64) -> io::Result<()> {
        let seq = self.seq();
        self.file_mut(ino)?.set_len(seq, len);
        Ok(())
    }

    /// A file's length in bytes.
    pub fn len(&self, ino: Ino) -> io::Result<u64> {
        Ok(self.file(ino)?.len())
    }

    /// Begins a flush: it reaches what has been written until now.
    pub fn begin_sync(&self, ino: Ino) -> SyncToken {
        SyncToken { ino, seq: self.next_seq - 1, failures: self.file(ino).map_or(0, |file| file.failures) }
    }

    /// Bytes written to a file and not stable.
    pub fn pending_bytes(&self, ino: Ino) -> u64 {
        self.file(ino).map_or(0, FileModel::pending_bytes)
    }

    /// Ends a flush well; unless another one of the same file failed while it ran, and took with it what this one was to
    /// make stable. Linux tells that to every descriptor of the file.
    pub fn complete_sync(&mut self, token: SyncToken) -> io::Result<()> {
        let file = self.file_mut(token.ino)?;
        file.make_stable(token.seq);
        if file.failures == token.failures { Ok(()) } else { Err(os_error(errno::EIO)) }
    }

    /// Ends a flush badly: what it covered counts as clean, though only some of it is stable.
    pub fn fail_sync(&mut self, token: SyncToken, rng: &mut fastrand::Rng) {
        if let Ok(file) = self.file_mut(token.ino) {
            file.failures += 1;
            file.lose(token.seq, rng);
        }
    }

    /// Creates a directory and its parents.
    pub fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut ino = ROOT;
        for name in names(path) {
            ino = match self.dir(ino)?.cached.get(name) {
                Some(&child) => child,
                None => {
                    let child = self.add(Inode::Dir(DirModel::default()));
                    let seq = self.seq();
                    self.dir_mut(ino)?.stage(seq, vec![(name.to_owned(), Some(child))], None);
                    child
                }
            };
        }
        self.dir(ino).map(|_| ()).map_err(|_| os_error(errno::EEXIST))
    }

    /// The entries of a directory, sorted by name.
    pub fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.dir(self.resolve(path)?)?.cached.keys().map(|name| path.join(name)).collect())
    }

    /// Whether the name exists.
    pub fn exists(&self, path: &Path) -> bool {
        self.resolve(path).is_ok()
    }

    /// Renames, replacing a file (or an empty directory) of the new name.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from_name) = self.resolve_parent(from)?;
        let ino = *self.dir(from_dir)?.cached.get(from_name).ok_or_else(|| os_error(errno::ENOENT))?;
        let (to_dir, to_name) = self.resolve_parent(to)?;
        if let Some(&target) = self.dir(to_dir)?.cached.get(to_name) {
            match (self.dir(ino).is_ok(), self.dir(target)) {
                (false, Ok(_)) => return Err(os_error(errno::EISDIR)),
                (true, Err(_)) => return Err(os_error(errno::ENOTDIR)),
                (true, Ok(dir)) if !dir.cached.is_empty() => return Err(os_error(errno::ENOTEMPTY)),
                _ => {}
            }
        }
        let seq = self.seq();
        if from_dir == to_dir {
            if from_name != to_name {
                let names = vec![(from_name.to_owned(), None), (to_name.to_owned(), Some(ino))];
                self.dir_mut(from_dir)?.stage(seq, names, None);
            }
        } else {
            self.dir_mut(from_dir)?.stage(seq, vec![(from_name.to_owned(), None)], Some(to_dir));
            self.dir_mut(to_dir)?.stage(seq, vec![(to_name.to_owned(), Some(ino))], Some(from_dir));
        }
        Ok(())
    }

    /// Removes a file's name.
    pub fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.resolve_parent(path)?;
        let ino = *self.dir(parent)?.cached.get(name).ok_or_else(|| os_error(errno::ENOENT))?;
        self.file(ino)?;
        let seq = self.seq();
        self.dir_mut(parent)?.stage(seq, vec![(name.to_owned(), None)], None);
        Ok(())
    }

    /// Removes a directory and all it holds, entry by entry.
    pub fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let ino = self.resolve(path)?;
        let entries: Vec<(OsString, Ino)> = self.dir(ino)?.cached.clone().into_iter().collect();
        for (name, child) in entries {
            if self.dir(child).is_ok() {
                self.remove_dir_all(&path.join(name))?;
            } else {
                let seq = self.seq();
                self.dir_mut(ino)?.stage(seq, vec![(name, None)], None);
            }
        }
        let (parent, name) = self.resolve_parent(path)?;
        let seq = self.seq();
        self.dir_mut(parent)?.stage(seq, vec![(name.to_owned(), None)], None);
        Ok(())
    }

    /// Makes the names in a directory stable. A rename into or out of another directory is stable on both sides then,
    /// with everything that came before it there, as a journal does it.
    pub fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let mut todo = vec![(self.resolve(path)?, u64::MAX)];
        while let Some((ino, seq)) = todo.pop() {
            let changes = self.dir_mut(ino)?.make_stable(seq);
            todo.extend(changes.iter().filter_map(|change| Some((change.other?, change.seq))));
        }
        self.forget_unreachable();
        Ok(())
    }

    /// Loses power: the cache goes, and `keep` says what of the pending changes had been written already. All handles
    /// are closed.
    pub fn crash(&mut self, rng: &mut fastrand::Rng, keep: Keep) -> CrashReport {
        let mut report = CrashReport::default();
        self.settle_names(rng, keep, &mut report);
        for inode in self.inodes.values_mut() {
            match inode {
                Inode::File(file) => file.crash(rng, keep, &mut report),
                Inode::Dir(dir) => dir.cached = dir.durable.clone(),
            }
        }
        self.forget_unreachable();
        report
    }

    /// Decides change by change, in order. A change that is lost takes those with it that build on its names.
    fn settle_names(&mut self, rng: &mut fastrand::Rng, keep: Keep, report: &mut CrashReport) {
        let mut changes: BTreeMap<u64, Vec<(Ino, DirChange)>> = BTreeMap::new();
        for (&ino, inode) in &mut self.inodes {
            if let Inode::Dir(dir) = inode {
                for change in dir.pending.drain(..) {
                    changes.entry(change.seq).or_default().push((ino, change));
                }
            }
        }
        let keep_chance = [0.1, 0.5, 0.9][rng.usize(..3)];
        let mut lost: BTreeSet<(Ino, OsString)> = BTreeSet::new();
        for sides in changes.into_values() {
            let names =
                || sides.iter().flat_map(|(ino, change)| change.names.iter().map(move |(name, to)| (*ino, name, to)));
            let keeps = match keep {
                Keep::None => false,
                Keep::All => true,
                Keep::Some => {
                    rng.f64() < keep_chance && !names().any(|(ino, name, _)| lost.contains(&(ino, name.clone())))
                }
            };
            report.names_pending += 1;
            report.names_lost += u64::from(!keeps);
            if !keeps {
                lost.extend(names().map(|(ino, name, _)| (ino, name.clone())));
                continue;
            }
            for (ino, change) in &sides {
                if let Some(Inode::Dir(dir)) = self.inodes.get_mut(ino) {
                    for (name, to) in &change.names {
                        set_name(&mut dir.durable, name, *to);
                    }
                }
            }
        }
    }

    /// The system drops clean pages: files read as they are on the platter, plus what is still to be written. Only
    /// after a failed flush does that make a difference.
    pub fn evict(&mut self) {
        for inode in self.inodes.values_mut() {
            if let Inode::File(file) = inode {
                file.evict();
            }
        }
    }

    /// Flips one bit of a file at rest. Nothing happens past its end.
    pub fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let ino = self.resolve(path)?;
        self.file_mut(ino)?.flip_bit(offset, bit);
        Ok(())
    }

    /// Every file that has a name: path and length, sorted.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let mut files = Vec::new();
        let mut todo = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, ino)) = todo.pop() {
            match self.inodes.get(&ino) {
                Some(Inode::Dir(dir)) => todo.extend(dir.cached.iter().map(|(name, ino)| (path.join(name), *ino))),
                Some(Inode::File(file)) => files.push((path, file.len())),
                None => {}
            }
        }
        files.sort();
        files
    }

    /// What a named file reads as.
    pub fn read_file(&self, path: &Path) -> io::Result<Bytes> {
        let file = self.file(self.resolve(path)?)?;
        Ok(file.read(0, usize::try_from(file.len()).unwrap_or(usize::MAX)))
    }

    /// Drops inodes that no name, stable or cached or pending, and no handle leads to.
    fn forget_unreachable(&mut self) {
        let mut reachable = BTreeSet::from([ROOT]);
        let mut todo = vec![ROOT];
        while let Some(ino) = todo.pop() {
            let Some(Inode::Dir(dir)) = self.inodes.get(&ino) else { continue };
            let pending = dir.pending.iter().flat_map(|change| change.names.iter().filter_map(|(_, ino)| ino.as_ref()));
            for &child in dir.cached.values().chain(dir.durable.values()).chain(pending) {
                if reachable.insert(child) {
                    todo.push(child);
                }
            }
        }
        self.has_orphans = false;
        self.inodes.retain(|ino, inode| {
            let is_orphan = !reachable.contains(ino);
            let is_open = matches!(inode, Inode::File(file) if file.opens > 0);
            self.has_orphans |= is_orphan && is_open;
            !is_orphan || is_open
        });
    }
}

/// The names that a path consists of. There is one root and no working directory: a relative path starts there too.
fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}
