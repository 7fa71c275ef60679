//! Why an operation on a segment failed.

use std::io;
use std::path::PathBuf;

use crate::io::{is_no_space, is_too_many_open_files};
use crate::storage::frame::FrameError;

/// Why an operation on a segment failed.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The disk failed, or is full.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The file is shorter than what was flushed to it.
    #[error(
        "{path} has {found} bytes where {known} had been flushed: it was cut short. Restore it from a copy of the data folder; \
         or, to give up the partition's records, put an empty directory in the place of the one that it lies in"
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
        /// What it should at least be.
        known: u64,
    },
    /// What was flushed is not readable any more.
    #[error("{path} is damaged at byte {position}: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, in bytes.
        position: u64,
        /// What is wrong there.
        why: FrameError,
    },
    /// The incarnation has ended.
    #[error("the broker is stopping")]
    Stopped,
}

impl SegmentError {
    /// Whether the same may succeed later with nothing done: the disk is full, or too many files are open.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Io { error, .. } if is_no_space(error) || is_too_many_open_files(error))
    }
}
