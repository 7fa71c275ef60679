//! Why the logs of a data folder cannot be opened, and what to do about it.

use std::io;
use std::path::PathBuf;

use super::producer::SnapshotDamaged;
use crate::storage::frame::FrameError;
use crate::storage::names::NameError;
use crate::storage::segment::SegmentError;
use crate::storage::wal::WalOpenError;
use crate::storage::{PartitionKey, checkpoint, manifest};

/// Why the logs could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A topic's name does not fit into a file name.
    #[error("topic {topic:?} cannot be stored: {error}")]
    Name {
        /// The topic.
        topic: String,
        /// Why.
        error: NameError,
    },
    /// The disk failed.
    #[error("{action} of partition {partition}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// For which partition.
        partition: PartitionKey,
        /// Why it failed.
        source: io::Error,
    },
    /// The data folder cannot be listed.
    #[error("looking through data folder {}: {source}", dir.display())]
    Folder {
        /// The data folder.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The manifest cannot be used.
    #[error("the manifest in {}: {error}", dir.display())]
    Manifest {
        /// The partition's directory.
        dir: PathBuf,
        /// Why.
        #[source]
        error: manifest::LoadError,
    },
    /// No checkpoint can be used.
    #[error("the checkpoint in {}: {error}", dir.display())]
    Checkpoint {
        /// The partition's directory.
        dir: PathBuf,
        /// Why.
        #[source]
        error: checkpoint::OpenError,
    },
    /// A segment file cannot be used.
    #[error("a segment in {}: {error}", dir.display())]
    Segment {
        /// The partition's directory.
        dir: PathBuf,
        /// Why.
        #[source]
        error: SegmentError,
    },
    /// The producer snapshot within an undamaged checkpoint cannot be read.
    #[error("the checkpoint in {}: {error}", dir.display())]
    Snapshot {
        /// The partition's directory.
        dir: PathBuf,
        /// Why.
        error: SnapshotDamaged,
    },
    /// The manifest does not list the segment that the checkpoint lies in.
    #[error(
        "the manifest in {} lacks segment {segment}, in which the checkpoint lies: one of the two is of another time. \
         Restore the directory from a copy, or move the manifest elsewhere to have it made anew from the segment files",
        dir.display()
    )]
    Unlisted {
        /// The partition's directory.
        dir: PathBuf,
        /// Base offset of the segment.
        segment: i64,
    },
    /// The metadata does not know a partition that has a directory.
    #[error(
        "{} holds a partition that the metadata does not know: the metadata is of another time, or has lost its topic. \
         Restore the data folder from a copy; or, to give up the partition's records, move the directory elsewhere",
        .0.display()
    )]
    UnknownDirectory(PathBuf),
    /// The metadata does not know a partition that has records in the write-ahead log.
    #[error(
        "the write-ahead log has records of partition {partition}, which the metadata does not know: the metadata is of \
         another time, or has lost its topic. Restore the data folder from a copy; or, to give up what only the \
         write-ahead log holds, for all topics, move {0} and {0}.files elsewhere",
        wal.display()
    )]
    UnknownPartition {
        /// The partition.
        partition: PartitionKey,
        /// The write-ahead log's directory.
        wal: PathBuf,
    },
    /// The segment that a partition goes on in is gone.
    #[error(
        "{} is missing. Restore it from a copy of the data folder; or, to give up the partition's records, put an empty \
         directory in the place of the one that it lay in",
        .0.display()
    )]
    Gone(PathBuf),
    /// Acknowledged records may have been where nothing can be read, and what would tell is lost.
    #[error(
        "{} cannot be read from byte {position} on ({why}), and the checkpoint that would say whether acknowledged records \
         were there is lost ({slot}). Nothing was changed. Restore the data folder from a copy; or, to give up whatever \
         was at offset {end} and behind it, cut the file (truncate -s {position} FILE) and start again",
        path.display()
    )]
    Unproven {
        /// The segment file.
        path: PathBuf,
        /// Where it becomes unreadable, in bytes.
        position: u64,
        /// What is wrong there.
        why: FrameError,
        /// The damaged checkpoint slot.
        slot: String,
        /// The offset after the last record that can be read.
        end: i64,
    },
    /// Records that were acknowledged are in neither the segment files nor the write-ahead log.
    #[error(
        "partition {partition} of topic {topic:?} ends at offset {log_end}, but the write-ahead log goes on at {found}: \
         the records between are lost. Restore the data folder from a copy; or, to give them up, put an empty directory in \
         the place of the partition's"
    )]
    Gap {
        /// The topic.
        topic: String,
        /// The partition.
        partition: PartitionKey,
        /// Where the segment files end.
        log_end: i64,
        /// Where the write-ahead log goes on.
        found: i64,
    },
    /// The write-ahead log cannot be used.
    #[error(transparent)]
    Wal(#[from] WalOpenError),
}
