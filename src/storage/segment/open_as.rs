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
    /// Nothing is known: every frame is verified, and the file is cut at the first invalid one.
    Scan(OffsetRule),
}

/// What a scan met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Where the scan stopped before the end of the file, and why. The file has been cut there, unless it was opened as
    /// [`OpenAs::Past`].
    pub stopped: Option<(u64, FrameError)>,
}
