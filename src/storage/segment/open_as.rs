//! What is known about a segment that is opened, and what a scan of it met.

use crate::storage::frame::{FrameError, OffsetRule};
use crate::storage::manifest::Sealed;

/// What is known about a segment that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAs {
    /// The manifest has it as closed. Nothing is read before it is needed.
    Sealed(Sealed),
    /// Active, and flushed up to `len`, by the checkpoint. What lies behind is cut off.
    Known {
        /// Valid bytes of the `.log` file.
        len: u64,
        /// The offset after the last record in them.
        next_offset: i64,
    },
    /// Active, flushed up to `len`, and perhaps further: the checkpoint may not be the last one. Valid frames behind it
    /// count; what follows them is left alone until something is appended.
    Past {
        /// Valid bytes of the `.log` file, at least.
        len: u64,
        /// The offset after the last record in them.
        next_offset: i64,
    },
    /// Nothing is known: every frame is verified, and the segment ends before the first invalid one.
    Scan(OffsetRule),
}

/// What a scan met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Where the scan stopped before the end of the file, and why.
    pub stopped: Option<(u64, FrameError)>,
    /// Whether an [`OpenAs::Scan`] that stopped found a whole frame further on: then that may be damage, and no torn end.
    pub goes_on: bool,
}

/// What opening a segment has decided about its files and not done: [`settle`](super::Segment::settle) does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Unsettled {
    /// What lies behind the segment's end goes.
    pub(super) cut: bool,
    /// From here on the segment may be in the page cache alone.
    pub(super) written_from: Option<u64>,
    /// The index files hold what they must not.
    pub(super) index: bool,
}

impl Unsettled {
    /// Whether the file is to be cut.
    pub fn cuts(&self) -> bool {
        self.cut
    }
}
