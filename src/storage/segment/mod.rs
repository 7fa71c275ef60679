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

mod inspect;
mod load;
mod open_files;
mod read;
mod times;
mod walk;
mod write;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "damages real files behind the segment's back")]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::durable;
use super::frame::{FrameError, OffsetRule};
use super::index::IndexRule;
use super::manifest::Sealed;
use super::names::{FileKind, PartitionDir};
use crate::io::{Env, File, OpenMode};
pub use inspect::{Inspected, inspect};
use load::{Resident, Tail};
use open_files::OpenFileLru;
pub use times::{TimestampedOffset, first_at_or_after};
use walk::WalkError;

/// What all segments of a broker share.
#[derive(Clone)]
pub struct SegmentContext {
    env: Env,
    open_files: Arc<Hot>,
}

impl SegmentContext {
    /// At most `sealed_max` sealed segments keep their file open and their index in memory, and about `active_max` active
    /// ones their file.
    pub fn new(env: Env, sealed_max: usize, active_max: usize) -> Self {
        let sealed = OpenFileLru::new(sealed_max, |segment| &segment.sealed_tick);
        let active = OpenFileLru::new(active_max, |segment| &segment.active_tick);
        Self { env, open_files: Arc::new(Hot { sealed, active }) }
    }
}

/// The segments in use.
struct Hot {
    sealed: OpenFileLru,
    active: OpenFileLru,
}

/// What a topic decides about its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// When a batch gets an index entry.
    pub index: IndexRule,
    /// How far a batch may grow when it is decompressed for a look-up by timestamp, in bytes.
    pub decompressed_bytes_max: usize,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self { index: IndexRule::default(), decompressed_bytes_max: 100 << 20 }
    }
}

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

/// What opening a segment has decided about its files and not done: [`Segment::settle`] does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Unsettled {
    /// What lies behind the segment's end goes.
    cut: bool,
    /// From here on the segment may be in the page cache alone.
    written_from: Option<u64>,
    /// The index files hold what they must not.
    index: bool,
}

impl Unsettled {
    /// Whether the file is to be cut.
    pub fn cuts(&self) -> bool {
        self.cut
    }
}

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

/// A segment. Cheap to clone; all clones are one segment.
#[derive(Clone)]
pub struct Segment(Arc<Inner>);

struct Inner {
    env: Env,
    open_files: Arc<Hot>,
    dir: PartitionDir,
    base_offset: i64,
    options: SegmentOptions,
    state: Mutex<State>,
    /// The segment's place in the order of use among sealed ones, and among active ones; 0: not in it.
    sealed_tick: AtomicU64,
    active_tick: AtomicU64,
}

struct State {
    len: u64,
    next_offset: i64,
    tail: Tail,
    offsets: OffsetRule,
    sealed: bool,
    /// Raised when the file is cut: a reader that failed looks whether that was why.
    cuts: u64,
    /// A failed write may have left bytes behind `len`.
    tail_is_dirty: bool,
    /// What was written is not flushed yet: the file stays open, since a failed write-back is told to those who have it
    /// open.
    unflushed: bool,
    file: Option<File>,
    resident: Option<Arc<Resident>>,
    hints: read::Hints,
}

/// What a reader goes by from beginning to end: what was complete when it began.
#[derive(Clone)]
struct View {
    file: File,
    len: u64,
    next_offset: i64,
    max_timestamp: i64,
    offsets: OffsetRule,
    cuts: u64,
}

impl Segment {
    /// Creates an empty active segment. It counts once a manifest lists it, whose switch also makes its name stable.
    pub async fn create(
        context: &SegmentContext,
        dir: &PartitionDir,
        base_offset: i64,
        options: SegmentOptions,
    ) -> Result<Self, SegmentError> {
        let path = dir.file(base_offset, FileKind::Log);
        let disk = context.env.disk();
        let at = |error| SegmentError::Io { path: path.clone(), error };
        let file = disk.open(&path, OpenMode::Create).await.map_err(at)?;
        if file.len().await.map_err(at)? > 0 {
            // Left by a creation that never counted, or by a segment that was removed.
            file.set_len(0).await.map_err(at)?;
            durable::sync_data(&context.env, &file, &path).await;
        }
        for kind in [FileKind::Index, FileKind::TimeIndex] {
            remove_if_there(&context.env, dir, base_offset, kind).await?;
        }
        let state = State::new(0, base_offset, -1, OffsetRule::Dense, false);
        let state = State { file: Some(file), resident: Some(Arc::default()), ..state };
        let segment = Self::with(context, dir, base_offset, options, state);
        segment.touch(false);
        Ok(segment)
    }

    /// Opens a segment, by what is known about it, and settles it.
    pub async fn open(
        context: &SegmentContext,
        dir: &PartitionDir,
        base_offset: i64,
        options: SegmentOptions,
        how: OpenAs,
    ) -> Result<(Self, ScanReport), SegmentError> {
        let (segment, report, unsettled) = Self::look(context, dir, base_offset, options, how).await?;
        segment.settle(unsettled).await?;
        Ok((segment, report))
    }

    /// Opens a segment, by what is known about it, and changes nothing. It can be read; [`settle`](Self::settle) comes
    /// before anything is written to it.
    pub async fn look(
        context: &SegmentContext,
        dir: &PartitionDir,
        base_offset: i64,
        options: SegmentOptions,
        how: OpenAs,
    ) -> Result<(Self, ScanReport, Unsettled), SegmentError> {
        let state = match how {
            OpenAs::Sealed(sealed) => {
                State::new(sealed.len, sealed.next_offset, sealed.max_timestamp, sealed.offsets, true)
            }
            OpenAs::Known { len, next_offset } | OpenAs::Past { len, next_offset } => {
                State::new(len, next_offset, -1, OffsetRule::Dense, false)
            }
            OpenAs::Scan(rule) => State::new(0, base_offset, -1, rule, false),
        };
        let segment = Self::with(context, dir, base_offset, options, state);
        let (report, unsettled) = match how {
            OpenAs::Sealed(_) => Default::default(),
            OpenAs::Known { .. } => (ScanReport::default(), segment.open_known().await?),
            OpenAs::Past { .. } => segment.open_past().await?,
            OpenAs::Scan(_) => segment.open_scanning().await?,
        };
        Ok((segment, report, unsettled))
    }

    fn with(
        context: &SegmentContext,
        dir: &PartitionDir,
        base_offset: i64,
        options: SegmentOptions,
        state: State,
    ) -> Self {
        Self(Arc::new(Inner {
            env: context.env.clone(),
            open_files: context.open_files.clone(),
            dir: dir.clone(),
            base_offset,
            options,
            state: Mutex::new(state),
            sealed_tick: AtomicU64::new(0),
            active_tick: AtomicU64::new(0),
        }))
    }

    /// The first offset that can be in it.
    pub fn base_offset(&self) -> i64 {
        self.0.base_offset
    }

    /// The offset after its last record; its base offset while it is empty.
    pub fn next_offset(&self) -> i64 {
        self.state().next_offset
    }

    /// Bytes of complete frames.
    pub fn len(&self) -> u64 {
        self.state().len
    }

    /// Whether it holds no frame.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest timestamp of its records in milliseconds; -1 if it has none.
    pub fn max_timestamp(&self) -> i64 {
        self.state().tail.max_timestamp
    }

    /// What the manifest says about it. `None` while it is active.
    pub fn sealed(&self) -> Option<Sealed> {
        let state = self.state();
        let (len, next_offset, max_timestamp) = (state.len, state.next_offset, state.tail.max_timestamp);
        state.sealed.then_some(Sealed { len, next_offset, max_timestamp, offsets: state.offsets })
    }

    /// Removes its files. Readers that are under way finish; the names are gone for good after a directory flush. For
    /// segments that no manifest lists any more.
    pub async fn remove(self) -> Result<(), SegmentError> {
        for kind in FileKind::ALL {
            remove_if_there(&self.0.env, &self.0.dir, self.0.base_offset, kind).await?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    fn path(&self, kind: FileKind) -> PathBuf {
        self.0.dir.file(self.0.base_offset, kind)
    }

    fn io_error(&self, error: io::Error) -> SegmentError {
        SegmentError::Io { path: self.path(FileKind::Log), error }
    }

    fn walk_error(&self, error: WalkError) -> SegmentError {
        match error {
            WalkError::Io(error) => self.io_error(error),
            WalkError::Frame { position, why } => {
                SegmentError::Damaged { path: self.path(FileKind::Log), position, why }
            }
        }
    }

    /// The file, opened if it is not.
    async fn file(&self) -> Result<File, SegmentError> {
        if let Some(file) = &self.state().file {
            return Ok(file.clone());
        }
        let path = self.path(FileKind::Log);
        let file = self.0.env.disk().open(&path, OpenMode::ReadWrite).await.map_err(|error| self.io_error(error))?;
        Ok(self.state().file.get_or_insert(file).clone())
    }

    async fn view(&self) -> Result<View, SegmentError> {
        let file = self.file().await?;
        let (view, sealed) = {
            let state = self.state();
            let view = View {
                file,
                len: state.len,
                next_offset: state.next_offset,
                max_timestamp: state.tail.max_timestamp,
                offsets: state.offsets,
                cuts: state.cuts,
            };
            (view, state.sealed)
        };
        self.touch(sealed);
        Ok(view)
    }

    /// Notes that the segment is in use, and lets others go that have not been for longest.
    fn touch(&self, sealed: bool) {
        let order = if sealed { &self.0.open_files.sealed } else { &self.0.open_files.active };
        for cold in order.touch(&self.0) {
            cold.let_go();
        }
    }
}

impl Inner {
    /// Closes the file and, if the segment is sealed, drops the index, as far as no reader holds them.
    fn let_go(&self) {
        let mut state = lock(&self.state);
        if !state.unflushed {
            state.file = None;
        }
        if state.sealed {
            state.resident = None;
            state.hints = read::Hints::default();
        }
    }
}

impl State {
    fn new(len: u64, next_offset: i64, max_timestamp: i64, offsets: OffsetRule, sealed: bool) -> Self {
        Self {
            len,
            next_offset,
            tail: Tail { max_timestamp, ..Tail::default() },
            offsets,
            sealed,
            cuts: 0,
            tail_is_dirty: false,
            unflushed: false,
            file: None,
            resident: None,
            hints: read::Hints::default(),
        }
    }
}

async fn remove_if_there(env: &Env, dir: &PartitionDir, base_offset: i64, kind: FileKind) -> Result<(), SegmentError> {
    let path = dir.file(base_offset, kind);
    match env.disk().remove_file(&path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SegmentError::Io { path, error }),
        _ => Ok(()),
    }
}

/// The state behind these locks is consistent at every point where something could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
