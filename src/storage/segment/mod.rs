//! A segment: the `.log` file with frames one after the other, and its two index files.
//!
//! | state | what may happen |
//! |---|---|
//! | active | one writer appends, flushes, cuts; any number of readers; the file is closed, when colder than others, only while all that was written to it is flushed |
//! | sealed | read only; file and index are opened at the first read and closed again when colder than others |
//!
//! A cut makes a sealed segment active again. Appending, flushing, cutting and sealing are for one caller at a time, who
//! awaits each of them to its end: an abandoned call may still be writing.
//!
//! # What a crash can leave
//! * **The file of a segment that no manifest lists**: creation was under way. It is garbage, and `create` empties it.
//! * **Bytes past the flushed position**: whole frames, torn ones, zeros, in any mixture. `settle` after
//!   an `open` with a known length cuts them off (what is in them is in the write-ahead log); after one with a scan it keeps
//!   the valid frames at the front.
//! * **A file shorter than its known length, or damage before it**: not left by a crash, for that part was flushed.
//!   [`SegmentError::Short`], [`SegmentError::Damaged`]. A segment whose last frames cannot be walked opens as closed.
//! * **Index files missing, short, torn or stale**: see [`super::index`]. They are completed by walking the segment, and
//!   never believed.

mod error;
mod hints;
mod index_files;
mod inspect;
mod load;
mod lock;
mod open;
mod open_as;
mod open_files;
mod read;
mod resident;
mod state;
mod times;
mod walk;
mod write;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "damages real files behind the segment's back")]
mod tests;

pub use error::SegmentError;
pub use inspect::{Inspected, inspect};
pub use open_as::{OpenAs, ScanReport, Unsettled};
pub use state::{Segment, SegmentContext, SegmentOptions};
pub use times::{TimestampedOffset, first_at_or_after};
