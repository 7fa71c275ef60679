//! Files and directories. Every operation is *submitted* by the call and then awaited: dropping the future never
//! cancels it.
//!
//! Durability is what POSIX and ext4 give and no more: data is stable after `sync_data` of the file, a name (created,
//! renamed, removed) after `sync_dir` of its directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::future::BoxFuture;

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing, for reading.
    Read,
    /// Existing, for reading and writing.
    ReadWrite,
    /// For reading and writing, created if missing, never truncated.
    Create,
    /// For reading and writing; an error if it exists.
    CreateNew,
}

/// An open file. Cheap to clone; the descriptor closes with the last clone. Operations on it may overlap.
pub type File = Arc<dyn DiskFile>;

/// Operations on an open file, by position.
pub trait DiskFile: Send + Sync {
    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'static, io::Result<Bytes>>;
    /// Writes all buffers one after the other at `offset`. On an error any part may have been written.
    fn write_at(&self, offset: u64, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<()>>;
    /// Makes data and length stable. After an error the file's cached state cannot be believed.
    fn sync_data(&self) -> BoxFuture<'static, io::Result<()>>;
    /// `write_at` then `sync_data` as one submission (one hop to the thread that does it).
    fn write_at_and_sync(&self, offset: u64, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<()>>;
    /// Reserves space and extends the length so that later writes within it cannot meet a full disk; new bytes are zero.
    fn allocate(&self, len: u64) -> BoxFuture<'static, io::Result<()>>;
    /// Cuts or extends (with zeros) to `len`.
    fn set_len(&self, len: u64) -> BoxFuture<'static, io::Result<()>>;
    /// The length in bytes.
    fn len(&self) -> BoxFuture<'static, io::Result<u64>>;
}

/// Holds a directory for this process until dropped.
pub trait DirLock: Send + Sync {}

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What this process may still use.
    pub free: u64,
    /// All there is.
    pub total: u64,
}

/// The disk.
pub trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> BoxFuture<'static, io::Result<File>>;
    /// Creates a directory and its parents. Existing is fine. Not durable before `sync_dir` of the parent.
    fn create_dir_all(&self, path: &Path) -> BoxFuture<'static, io::Result<()>>;
    /// Entries of a directory (full paths), sorted by name.
    fn list(&self, path: &Path) -> BoxFuture<'static, io::Result<Vec<PathBuf>>>;
    /// Whether there is a file or directory of that name.
    fn exists(&self, path: &Path) -> BoxFuture<'static, io::Result<bool>>;
    /// Renames, replacing the target atomically.
    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<'static, io::Result<()>>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> BoxFuture<'static, io::Result<()>>;
    /// Removes a directory and all it holds.
    fn remove_dir_all(&self, path: &Path) -> BoxFuture<'static, io::Result<()>>;
    /// Makes the names in a directory stable.
    fn sync_dir(&self, path: &Path) -> BoxFuture<'static, io::Result<()>>;
    /// Locks a directory against other processes (a lock file in it). `WouldBlock` if another holds it.
    fn lock_dir(&self, path: &Path) -> BoxFuture<'static, io::Result<Box<dyn DirLock>>>;
    /// The space of the file system that holds `path`.
    fn space(&self, path: &Path) -> BoxFuture<'static, io::Result<Space>>;
}

/// Whether an operation failed because the disk, or what this user may use of it, is full.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether an operation failed only because too many files are open, in the process or in the system: nothing was done,
/// and it may succeed later.
pub fn is_too_many_open_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
