//! The index of a segment in memory, and what its writer has to remember to go on with it.

use std::sync::Mutex;

use super::lock::lock;
use super::walk::Met;
use crate::storage::frame::FrameHeader;
use crate::storage::index::{IndexEntry, IndexRule, OffsetIndex, Spacing};
use crate::storage::time_index::{TimeEntry, TimeIndex};

/// The index of a segment in memory.
#[derive(Default)]
pub(super) struct Resident {
    /// Offset → position. Readers take no lock.
    pub(super) offsets: OffsetIndex,
    /// The same places with the timestamps before them.
    pub(super) times: Mutex<TimeIndex>,
    /// How much of it is in the index files.
    pub(super) files: Mutex<IndexFiles>,
}

/// The index files as the writer knows them.
#[derive(Default)]
pub(super) struct IndexFiles {
    /// Entries that are in the files.
    pub(super) written: u32,
    /// Entries that are in them for good.
    pub(super) flushed: u32,
    /// Whether the files may hold more than `written` entries: cut before the next is written.
    pub(super) cut: bool,
    /// Whether this incarnation has written them.
    pub(super) made: bool,
}

impl Resident {
    /// Adds an entry for the batch at `position`, if one is due, and counts the batch.
    pub(super) fn account(&self, base_offset: i64, rule: IndexRule, tail: &mut Tail, met: &Met) {
        let Met { position, header } = met;
        let entry = IndexEntry { offset: header.base_offset, position: *position };
        if *position > 0 && tail.spacing.is_due(rule) && entry.is_storable(base_offset) {
            let max_before = tail.max_timestamp;
            self.add(TimeEntry { max_before, offset: entry.offset, position: entry.position });
            tail.spacing = Spacing::default();
        }
        tail.count(header);
    }

    /// Drops the entries at or behind `position`.
    pub(super) fn cut(&self, position: u64) {
        self.offsets.cut(position);
        let left = {
            let mut times = lock(&self.times);
            times.cut(position);
            times.len()
        };
        let mut files = lock(&self.files);
        files.written = files.written.min(left);
        files.flushed = files.flushed.min(left);
        files.cut = true;
    }

    pub(super) fn add(&self, entry: TimeEntry) {
        lock(&self.times).push(entry);
        self.offsets.push(IndexEntry { offset: entry.offset, position: entry.position });
    }
}

/// What goes on at the end of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) spacing: Spacing,
    pub(super) max_timestamp: i64,
}

impl Default for Tail {
    fn default() -> Self {
        Self { spacing: Spacing::default(), max_timestamp: -1 }
    }
}

impl Tail {
    pub(super) fn count(&mut self, header: &FrameHeader) {
        self.spacing.count(header.records, header.frame_len() as u64);
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp);
    }
}
