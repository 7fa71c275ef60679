//! A segment's state, and what readers and the writer do with it alike.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use super::error::SegmentError;
use super::hints::Hints;
use super::lock::lock;
use super::open_files::OpenFileLru;
use super::resident::{Resident, Tail};
use super::walk::WalkError;
use crate::io::{Env, File, OpenMode};
use crate::storage::frame::OffsetRule;
use crate::storage::index::IndexRule;
use crate::storage::manifest::Sealed;
use crate::storage::names::{FileKind, PartitionDir};

/// What all segments of a broker share.
#[derive(Clone)]
pub struct SegmentContext {
    pub(super) env: Env,
    open_files: Arc<Hot>,
}

impl SegmentContext {
    /// At most `sealed_max` sealed segments keep their file open and their index in memory, and about `active_max` active
    /// ones their file.
    pub fn new(env: Env, sealed_max: usize, active_max: usize) -> Self {
        let sealed = OpenFileLru::<Inner>::new(sealed_max, |segment| &segment.sealed_tick);
        let active = OpenFileLru::<Inner>::new(active_max, |segment| &segment.active_tick);
        Self { env, open_files: Arc::new(Hot { sealed, active }) }
    }
}

/// The segments in use.
struct Hot {
    sealed: OpenFileLru<Inner>,
    active: OpenFileLru<Inner>,
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

/// A segment. Cheap to clone; all clones are one segment.
#[derive(Clone)]
pub struct Segment(pub(super) Arc<Inner>);

/// What the clones share.
pub(super) struct Inner {
    pub(super) env: Env,
    open_files: Arc<Hot>,
    pub(super) dir: PartitionDir,
    pub(super) base_offset: i64,
    pub(super) options: SegmentOptions,
    state: Mutex<State>,
    /// The segment's place in the order of use among sealed ones, and among active ones; 0: not in it.
    sealed_tick: AtomicU64,
    active_tick: AtomicU64,
}

/// What the lock guards.
pub(super) struct State {
    pub(super) len: u64,
    pub(super) next_offset: i64,
    pub(super) tail: Tail,
    pub(super) offsets: OffsetRule,
    pub(super) sealed: bool,
    /// Raised when the file is cut: a reader that failed looks whether that was why.
    pub(super) cuts: u64,
    /// A failed write may have left bytes behind `len`.
    pub(super) tail_is_dirty: bool,
    /// What was written is not flushed yet: the file stays open, since a failed write-back is told to those who have it
    /// open.
    pub(super) unflushed: bool,
    pub(super) file: Option<File>,
    pub(super) resident: Option<Arc<Resident>>,
    pub(super) hints: Hints,
}

/// What a reader goes by from beginning to end: what was complete when it began.
#[derive(Clone)]
pub(super) struct View {
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) next_offset: i64,
    pub(super) max_timestamp: i64,
    pub(super) offsets: OffsetRule,
    pub(super) cuts: u64,
}

impl Segment {
    pub(super) fn with(
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    pub(super) fn path(&self, kind: FileKind) -> PathBuf {
        self.0.dir.file(self.0.base_offset, kind)
    }

    pub(super) fn io_error(&self, error: io::Error) -> SegmentError {
        SegmentError::Io { path: self.path(FileKind::Log), error }
    }

    pub(super) fn walk_error(&self, error: WalkError) -> SegmentError {
        match error {
            WalkError::Io(error) => self.io_error(error),
            WalkError::Frame { position, why } => {
                SegmentError::Damaged { path: self.path(FileKind::Log), position, why }
            }
        }
    }

    /// The file, opened if it is not.
    pub(super) async fn file(&self) -> Result<File, SegmentError> {
        if let Some(file) = &self.state().file {
            return Ok(file.clone());
        }
        let path = self.path(FileKind::Log);
        let file = self.0.env.disk().open(&path, OpenMode::ReadWrite).await.map_err(|error| self.io_error(error))?;
        Ok(self.state().file.get_or_insert(file).clone())
    }

    pub(super) async fn view(&self) -> Result<View, SegmentError> {
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
    pub(super) fn touch(&self, sealed: bool) {
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
            state.hints = Hints::default();
        }
    }
}

impl State {
    pub(super) fn new(len: u64, next_offset: i64, max_timestamp: i64, offsets: OffsetRule, sealed: bool) -> Self {
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
            hints: Hints::default(),
        }
    }
}
