//! Why the write-ahead log refuses: to open, or to take an entry.

use std::io;
use std::path::PathBuf;

use crate::storage::Lsn;

/// Why an entry was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalFailed {
    /// The disk is full. Entries after it fail too until there is space again; nothing needs to be restarted.
    /// The entry is not acknowledged, but a crash right now may still bring it back.
    #[error("no space is left for the write-ahead log")]
    NoSpace,
    /// A file for it could not be made (out of descriptors, say). The next entry tries again.
    #[error("a file of the write-ahead log could not be created")]
    NoFile,
    /// The log has been closed; the entry was not written.
    #[error("the write-ahead log is closed")]
    Closed,
    /// A write or a flush failed and this incarnation of the broker ends. Whether the entry survives is unknown.
    #[error("the write-ahead log has stopped after a failed write or flush")]
    Stopped,
}

/// Why the write-ahead log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum WalOpenError {
    /// The disk refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: a verb, "read" or "list".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// A file is not there any more, or not all of it.
    #[error(
        "write-ahead log file {} has {found} of its {bytes} bytes (0: it is missing). Acknowledged messages may have been in \
         it, so the broker does not start. Restore it from a copy of the data folder; or, to give up what only the \
         write-ahead log held, remove {} and start again",
        path.display(), list.display()
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// Its length; 0 if it is missing.
        found: u64,
        /// What its length should at least be.
        bytes: u64,
        /// The list that has it.
        list: PathBuf,
    },
    /// The list of files is damaged.
    #[error(
        "{}, the list of the write-ahead log's files, is damaged. Restore it from a copy of the data folder; or, if no file \
         of the write-ahead log is missing, remove it and start again",
        .0.display()
    )]
    List(PathBuf),
    /// A block that had been flushed is not there any more: this is damage, not the torn end that a crash leaves.
    #[error(
        "write-ahead log block {lsn} is missing or damaged at byte {offset} of {} ({found}), yet a later block says that \
         everything below {durable_below} had been flushed. Acknowledged messages would be lost, so the broker does not \
         start. Restore the data folder from a copy or a replica; or, to give up what the log holds from block {lsn} on, \
         move {} and {}.files elsewhere and start again",
        path.display(), path.parent().unwrap_or(path).display(), path.parent().unwrap_or(path).display()
    )]
    Corrupt {
        /// The file where the block should be.
        path: PathBuf,
        /// The byte in it.
        offset: u64,
        /// The block's number.
        lsn: Lsn,
        /// What is there instead.
        found: &'static str,
        /// What a later block claims.
        durable_below: Lsn,
    },
    /// A block is whole (its checksum holds) but what it says is not understood.
    #[error("write-ahead log block {lsn} at byte {offset} of {} is whole but cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The byte in it.
        offset: u64,
        /// The block's number.
        lsn: Lsn,
        /// What is not understood.
        reason: super::entry::EntryError,
    },
    /// A file was written by a newer Kilo.
    #[error("{} has write-ahead log format {version}; this version of Kilo reads format {supported}. Start it with the version \
             that wrote it", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u8,
        /// What this version reads.
        supported: u8,
    },
    /// The visitor refused an entry.
    #[error("cannot apply an entry of write-ahead log block {lsn}: {source}")]
    Visitor {
        /// The block's number.
        lsn: Lsn,
        /// What the visitor said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
