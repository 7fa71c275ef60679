//! The file system: every operation is one job on an I/O thread.

use std::fs;
use std::io::{self, IoSlice, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{FallocateFlags, FlockOperation};

use super::RealHost;
use super::pool::Pool;
use crate::{BoxFuture, DirLock, Disk, DiskFile, File, OpenMode, Space};

/// The most buffers one `pwritev` takes (IOV_MAX on Linux).
const BUFFERS_PER_CALL: usize = 1024;
/// Reads up to this size allocate what was asked for, without looking at the file's length first.
const READ_UNCHECKED_BYTES: usize = 64 * 1024;
/// Zeros written at once where the file system cannot preallocate.
const ZEROS_BYTES: usize = 256 * 1024;
/// The lock file in a data folder. It stays when the broker stops: the lock is what counts, not the file.
const LOCK_FILE: &str = ".lock";

struct RealFile {
    file: Arc<fs::File>,
    pool: Arc<Pool>,
}

impl RealFile {
    fn submit<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&fs::File) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let file = self.file.clone();
        self.pool.submit(move || operation(&file))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'static, io::Result<Bytes>> {
        self.submit(move |file| read_at(file, offset, len))
    }

    fn write_at(&self, offset: u64, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<()>> {
        self.submit(move |file| write_at(file, offset, &buffers))
    }

    fn sync_data(&self) -> BoxFuture<'static, io::Result<()>> {
        self.submit(|file| Ok(rustix::fs::fdatasync(file)?))
    }

    fn write_at_and_sync(&self, offset: u64, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<()>> {
        self.submit(move |file| {
            write_at(file, offset, &buffers)?;
            Ok(rustix::fs::fdatasync(file)?)
        })
    }

    fn allocate(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        self.submit(move |file| allocate(file, len))
    }

    fn set_len(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        self.submit(move |file| file.set_len(len))
    }

    fn len(&self) -> BoxFuture<'static, io::Result<u64>> {
        self.submit(|file| Ok(file.metadata()?.len()))
    }
}

fn read_at(file: &fs::File, offset: u64, len: usize) -> io::Result<Bytes> {
    let len = if len <= READ_UNCHECKED_BYTES {
        len
    } else {
        // A caller may ask for more than there is; the buffer is no larger than what the file can give.
        let left = file.metadata()?.len().saturating_sub(offset);
        usize::try_from(left).map_or(len, |left| left.min(len))
    };
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let position = offset + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), position) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(len);
    Ok(bytes.into())
}

fn write_at(file: &fs::File, offset: u64, buffers: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> =
        buffers.iter().filter(|bytes| !bytes.is_empty()).map(|bytes| IoSlice::new(bytes)).collect();
    let mut rest = slices.as_mut_slice();
    let mut position = offset;
    while !rest.is_empty() {
        let batch = &rest[..rest.len().min(BUFFERS_PER_CALL)];
        match rustix::io::pwritev(file, batch, position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                position += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn allocate(file: &fs::File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => allocate_by_writing(file, len),
        Err(error) => Err(error.into()),
    }
}

/// For file systems without preallocation. Holes below the present end stay holes.
fn allocate_by_writing(file: &fs::File, len: u64) -> io::Result<()> {
    let zeros = Bytes::from(vec![0; ZEROS_BYTES]);
    let mut position = file.metadata()?.len();
    while position < len {
        let step = usize::try_from(len - position).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        write_at(file, position, &[zeros.slice(..step)])?;
        position += step as u64;
    }
    Ok(())
}

/// Holding the open file holds the lock; the system lets go of it when the process ends, in whatever way.
struct RealLock {
    _file: fs::File,
}

impl DirLock for RealLock {}

fn lock_dir(dir: &Path) -> io::Result<Box<dyn DirLock>> {
    let path = dir.join(LOCK_FILE);
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            let _ = (&file).take(32).read_to_string(&mut holder);
            let message = format!("{} is in use by process {}", dir.display(), holder.trim());
            return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
        }
        Err(error) => return Err(error.into()),
    }
    // Who holds it is a help for whoever reads the message above: on a full disk it may be missing.
    let _ = write_at(&file, 0, &[format!("{:<10}\n", std::process::id()).into()]).and_then(|()| file.set_len(11));
    Ok(Box::new(RealLock { _file: file }))
}

fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

impl Disk for RealHost {
    fn open(&self, path: &Path, mode: OpenMode) -> BoxFuture<'static, io::Result<File>> {
        let pool = self.pool.clone();
        let path = path.to_owned();
        self.pool.submit(move || {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(mode != OpenMode::Read);
            match mode {
                OpenMode::Read | OpenMode::ReadWrite => {}
                OpenMode::Create => {
                    options.create(true).truncate(false);
                }
                OpenMode::CreateNew => {
                    options.create_new(true);
                }
            }
            let file = Arc::new(options.open(path)?);
            Ok(Arc::new(RealFile { file, pool }) as File)
        })
    }

    fn create_dir_all(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.pool.submit(move || fs::create_dir_all(path))
    }

    fn list(&self, path: &Path) -> BoxFuture<'static, io::Result<Vec<PathBuf>>> {
        let (path, spare) = (path.to_owned(), self.spare.clone());
        self.pool.submit(move || spare.help(|| list(&path)))
    }

    fn exists(&self, path: &Path) -> BoxFuture<'static, io::Result<bool>> {
        let path = path.to_owned();
        self.pool.submit(move || fs::exists(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<'static, io::Result<()>> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.pool.submit(move || fs::rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.pool.submit(move || fs::remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.pool.submit(move || fs::remove_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        let (path, spare) = (path.to_owned(), self.spare.clone());
        // What is tried twice is the opening: no flush answers that there are too many files.
        self.pool.submit(move || spare.help(|| fs::File::open(&path)?.sync_all()))
    }

    fn lock_dir(&self, path: &Path) -> BoxFuture<'static, io::Result<Box<dyn DirLock>>> {
        let path = path.to_owned();
        self.pool.submit(move || lock_dir(&path))
    }

    fn space(&self, path: &Path) -> BoxFuture<'static, io::Result<Space>> {
        let path = path.to_owned();
        self.pool.submit(move || {
            let stat = rustix::fs::statvfs(&path)?;
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            Ok(Space { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
        })
    }
}
