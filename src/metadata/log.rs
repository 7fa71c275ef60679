//! The metadata log on disk: an append-only file of checksummed records, and a snapshot that lets it be cut.
//!
//! `snapshot` holds an image ([`super::snapshot`]); `log-<first index, 20 digits>` holds the entries after it:
//!
//! ```text
//! file    0 magic "KILOMLOG"   8 format u32   12 first index u64   20 CRC-32 of bytes 0..20 u32
//! record  0 length of command u32   4 CRC-32 of what follows u32   8 term u64   16 index u64   24 durable index u64   32 command
//! ```
//!
//! "Durable index" is the last index known to be flushed when the record was written. One write may carry several
//! records; the next write begins only when the flush of the last one is over.
//!
//! | state that a crash can leave | what opening does |
//! |---|---|
//! | the last write is torn, in any subset of its sectors | the records from the first break on are cut, and the cut is flushed |
//! | a break, and a later record says that the broken index was durable | refuses: this is damage, not a torn write |
//! | a new snapshot, and still the old log file | entries that the snapshot holds are skipped |
//! | a new log file whose header is torn | removed: nothing was written to it yet. Refuses if it is the first one in a folder that has been in use: its header was flushed before that was noted |
//! | a log file without an entry, beside others | removed: what its making was a part of did not come to its end, and the file before it may have grown since |
//! | both log files | read one after the other |
//! | a temporary file | removed |
//! | what was read is in the page cache only | written again and flushed before anything is built on it |
//!
//! Flushing alone would not do: after a flush that failed, the cache holds the pages as clean, so the next flush succeeds
//! without writing them. What no later record proves to be durable is therefore written again.
//!
//! A log that was cut short, or whose very last record rots, looks like a torn write. What tells them apart is [`End`],
//! beside the log: it refuses a log that ends before what was flushed, unless a power cut took it as well.

use std::io;
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::codec::DecodeError;
use super::command::Command;
use super::end::End;
use super::image::{ClusterImage, LogId};
use super::snapshot::{self, SnapshotError};
use crate::io::{Env, File, OpenMode};
use crate::storage::durable;

const MAGIC: &[u8; 8] = b"KILOMLOG";
const FORMAT: u32 = 1;
pub(super) const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 32;
/// No command is longer (ten thousand partitions take less than one MiB).
const COMMAND_LEN_MAX: usize = 16 << 20;
pub(super) const SNAPSHOT: &str = "snapshot";
pub(super) const SNAPSHOT_TEMPORARY: &str = "snapshot.tmp";

/// Why the metadata log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk said no.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A record in the middle is damaged.
    #[error(
        "metadata log {path} is damaged at byte {position}: entry {index} is unreadable, and entry {witness} after it proves that it was durable; restore the folder from a copy"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        position: u64,
        /// The entry that should be there.
        index: u64,
        /// A later entry that was written when it was durable.
        witness: u64,
    },
    /// The file does not begin as it must.
    #[error("{0} is not a metadata log, or its first bytes are damaged; restore the folder from a copy")]
    Header(PathBuf),
    /// Written by a newer version.
    #[error(
        "metadata log {path} has format {found}, and this version of Kilo reads up to format {FORMAT}: use a newer one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The snapshot was refused.
    #[error("metadata snapshot {0} {1}")]
    Snapshot(PathBuf, SnapshotError),
    /// A whole record could not be read.
    #[error("metadata log {path}: entry {index} {source}")]
    Command {
        /// The file.
        path: PathBuf,
        /// The entry.
        index: u64,
        /// Why not.
        source: DecodeError,
    },
    /// Entries are missing between two files.
    #[error("metadata log {path} begins at entry {found}, and entry {wanted} is missing")]
    Gap {
        /// The file.
        path: PathBuf,
        /// Its first entry.
        found: u64,
        /// The entry that should come next.
        wanted: u64,
    },
    /// The log has lost entries at its end.
    #[error(
        "the metadata log in {dir} ends at entry {found}, and entry {flushed} had been flushed: it was cut short or damaged. \
         Restore {dir} from a copy of the data folder; or, to give up what the lost entries say (topics that were created, \
         for example), remove {} and start again",
        End::path(dir).display()
    )]
    Cut {
        /// The metadata's directory.
        dir: PathBuf,
        /// The last entry that can be read.
        found: u64,
        /// The last entry that had been flushed.
        flushed: u64,
    },
    /// The folder has been in use and its metadata is gone.
    #[error("{0} holds no metadata, though the data folder has been in use: restore it from a copy")]
    Missing(PathBuf),
}

/// The log, open for appending.
pub(super) struct MetadataLog {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) durable: u64,
    pub(super) end: End,
}

/// Whether a log must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// A first start: an empty directory is fine.
    MayBeNew,
    /// The data folder has been in use.
    MustExist,
}

impl MetadataLog {
    pub(super) async fn create(env: &Env, dir: &Path, first: u64) -> Result<Self, LogError> {
        let path = dir.join(format!("log-{first:020}"));
        let mut header = BytesMut::with_capacity(FILE_HEADER_LEN);
        header.put_slice(MAGIC);
        header.put_u32(FORMAT);
        header.put_u64(first);
        let crc = crc32fast::hash(&header);
        header.put_u32(crc);
        // A file of that name can only be one whose header did not fit on a full disk: it holds no entry.
        if env.disk().exists(&path).await.map_err(fail("look for", &path))? {
            disk_remove(env, &path).await?;
        }
        let file = env.disk().open(&path, OpenMode::CreateNew).await.map_err(fail("create", &path))?;
        file.write_at(0, vec![header.freeze()]).await.map_err(fail("write", &path))?;
        durable::sync_data(env, &file, &path).await;
        durable::sync_dir(env, dir).await;
        let end = End::open(env, dir).await;
        Ok(Self {
            env: env.clone(),
            dir: dir.to_owned(),
            path,
            file,
            len: FILE_HEADER_LEN as u64,
            durable: first - 1,
            end,
        })
    }

    /// Bytes in the current file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Writes entries at the end, all or none, without flushing. On an error the end is where it was, if the file could
    /// be cut back; if not, the error is [`AppendError::Stuck`].
    pub(super) async fn write(&mut self, entries: &[(LogId, Bytes)]) -> Result<u64, AppendError> {
        let mut out = BytesMut::new();
        for (id, command) in entries {
            put_record(&mut out, *id, self.durable, command);
        }
        let len = out.len() as u64;
        if let Err(source) = self.file.write_at(self.len, vec![out.freeze()]).await {
            return match self.file.set_len(self.len).await {
                Ok(()) => Err(AppendError::Refused(source)),
                Err(cut) => Err(AppendError::Stuck(cut)),
            };
        }
        Ok(self.len + len)
    }

    /// Flushes what [`Self::write`] wrote and moves the end to what it returned. After an error the file's cached state
    /// cannot be believed, so the caller ends the incarnation.
    pub(super) async fn flush(&mut self, end: u64, last: LogId) -> io::Result<()> {
        self.file.sync_data().await?;
        self.len = end;
        self.durable = last.index;
        self.end.say(last.index).await;
        Ok(())
    }

    /// Stores `image`, which holds every entry written so far, and starts a new file after it. After an error the log
    /// goes on in its present file; an empty new one may stay behind.
    pub(super) async fn snapshot(&mut self, image: &ClusterImage) -> Result<(), LogError> {
        let stored = durable::replace(&self.env, &self.dir, SNAPSHOT, snapshot::encode(image)).await;
        stored.map_err(fail("write", &self.dir.join(SNAPSHOT)))?;
        let old = self.path.clone();
        *self = Self::create(&self.env, &self.dir, image.applied().index + 1).await?;
        crate::sometimes!("metadata.snapshot");
        disk_remove(&self.env, &old).await?;
        durable::sync_dir(&self.env, &self.dir).await;
        Ok(())
    }
}

/// Why an append changed nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum AppendError {
    /// The disk refused, and the log is as it was.
    #[error("cannot write the metadata log: {0}")]
    Refused(io::Error),
    /// The disk refused, and the half-written entry could not be cut off.
    #[error("cannot cut a half-written entry off the metadata log: {0}")]
    Stuck(io::Error),
}

pub(super) enum Header {
    Good(u64),
    Newer(u32),
    Torn,
}

pub(super) fn read_header(bytes: &Bytes) -> Header {
    if bytes.len() < FILE_HEADER_LEN || &bytes[..8] != MAGIC {
        return Header::Torn;
    }
    let mut rest = bytes.slice(8..FILE_HEADER_LEN);
    let (format, first, crc) = (rest.get_u32(), rest.get_u64(), rest.get_u32());
    if crc32fast::hash(&bytes[..20]) != crc {
        return Header::Torn;
    }
    if format == FORMAT { Header::Good(first) } else { Header::Newer(format) }
}

fn put_record(out: &mut BytesMut, id: LogId, durable: u64, command: &Bytes) {
    let start = out.len();
    out.put_u32(u32::try_from(command.len()).expect("a command is shorter than 16 MiB"));
    out.put_u32(0);
    out.put_u64(id.term);
    out.put_u64(id.index);
    out.put_u64(durable);
    out.put_slice(command);
    let crc = crc32fast::hash(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_be_bytes());
}

struct Record {
    id: LogId,
    /// The last index known to be durable when it was written.
    durable: u64,
    command: Bytes,
    len: usize,
}

/// The record at `at`, if a whole one with a right checksum is there.
fn read_record(bytes: &Bytes, at: usize) -> Option<Record> {
    let mut header = bytes.slice(at..at.checked_add(RECORD_HEADER_LEN).filter(|end| *end <= bytes.len())?);
    let command_len = header.get_u32() as usize;
    let crc = header.get_u32();
    let len = RECORD_HEADER_LEN.checked_add(command_len)?;
    if command_len > COMMAND_LEN_MAX || at + len > bytes.len() || crc32fast::hash(&bytes[at + 8..at + len]) != crc {
        return None;
    }
    let id = LogId { term: header.get_u64(), index: header.get_u64() };
    let durable = header.get_u64();
    Some(Record { id, durable, command: bytes.slice(at + RECORD_HEADER_LEN..at + len), len })
}

pub(super) struct Replayed {
    /// Bytes up to the end of the last good record.
    pub(super) len: usize,
    /// From here on no record proves that what was written is durable.
    pub(super) unproven: usize,
    /// The entry that should have come next, if bytes follow.
    pub(super) broken: Option<u64>,
}

pub(super) fn replay(path: &Path, bytes: &Bytes, first: u64, image: &mut ClusterImage) -> Result<Replayed, LogError> {
    let (mut at, mut index) = (FILE_HEADER_LEN, first);
    // The first record of each write: only the newest write may be unproven, with all before it if it is the first.
    let (mut unproven, mut proven) = (0, first.saturating_sub(1));
    while at < bytes.len() {
        let Some(record) = read_record(bytes, at).filter(|record| record.id.index == index) else {
            return Ok(Replayed { len: at, unproven, broken: Some(index) });
        };
        if record.durable > proven {
            (unproven, proven) = (at, record.durable);
        }
        if index > image.applied().index {
            let command = Command::decode(record.command).map_err(|source| LogError::Command {
                path: path.to_owned(),
                index,
                source,
            })?;
            // A refusal is as much a part of history as a change: the same entry is refused again.
            let _ = image.apply(record.id, &command);
        }
        at += record.len;
        index += 1;
    }
    Ok(Replayed { len: at, unproven, broken: None })
}

/// A record after `from` that was written when entry `index` was durable.
pub(super) fn find_witness(bytes: &Bytes, from: usize, index: u64) -> Option<u64> {
    (from + 1..bytes.len()).find_map(|at| {
        // The checksum is only worth computing where the fixed fields make sense.
        let header = bytes.get(at..at + RECORD_HEADER_LEN)?;
        let field = |from: usize| u64::from_be_bytes(header[from..from + 8].try_into().expect("eight bytes"));
        let (found, durable) = (field(16), field(24));
        if found <= index || durable < index || durable >= found {
            return None;
        }
        read_record(bytes, at).map(|record| record.id.index)
    })
}

pub(super) async fn read_file(env: &Env, path: &Path) -> Result<Bytes, LogError> {
    let file = env.disk().open(path, OpenMode::Read).await.map_err(fail("open", path))?;
    let len = file.len().await.map_err(fail("read", path))?;
    let len = usize::try_from(len).expect("a metadata file fits in memory");
    file.read_at(0, len).await.map_err(fail("read", path))
}

pub(super) async fn disk_remove(env: &Env, path: &Path) -> Result<(), LogError> {
    env.disk().remove_file(path).await.map_err(fail("remove", path))
}

pub(super) fn fail(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError + use<> {
    let path = path.to_owned();
    move |source| LogError::Io { action, path, source }
}
