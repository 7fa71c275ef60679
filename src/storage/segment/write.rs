//! The writer's side: appending, flushing, sealing, cutting, and keeping the index files up.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::load::{Resident, Tail};
use super::walk::{Met, Walker};
use super::{Segment, SegmentError, View, lock};
use crate::io::{File, OpenMode};
use crate::storage::durable;
use crate::storage::frame::{FRAME_HEADER_LEN, FrameHeader, MAGIC_BYTES, MAGIC_LEN, OffsetRule, Sequence};
use crate::storage::index::{self, IndexEntry};
use crate::storage::manifest::Sealed;
use crate::storage::names::FileKind;
use crate::storage::time_index;
use crate::wire::batch::RecordBatch;

/// Records up to this size are copied next to their frame's header rather than written as a buffer of their own: copying
/// them costs less than one more buffer in the system call.
const COALESCE_BYTES_MAX: usize = 4096;
/// Index entries that may be in the files without having been flushed. With the default interval, a power cut costs a
/// walk over so many MiB at most.
const UNFLUSHED_ENTRIES_MAX: u32 = 64;

/// How far the index files are made stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexFlush {
    /// When many entries have been written since the last time.
    WhenMany,
    /// Now.
    Now,
}

impl Segment {
    /// Appends batches in one write. They can be read when it answers; they are durable after [`Self::sync`].
    ///
    /// After an error nothing of it is in the segment.
    ///
    /// # Panics
    /// When the segment is sealed, or the batches do not follow its last record: who appends has assigned the offsets.
    pub async fn append(&self, batches: &[RecordBatch]) -> Result<(), SegmentError> {
        if batches.is_empty() {
            return Ok(());
        }
        let file = self.file().await?;
        let (len, tail_is_dirty) = {
            let mut state = self.state();
            // From here on it stays open until it is flushed.
            state.unflushed = true;
            state.file = Some(file.clone());
            assert!(!state.sealed, "nothing is appended to a sealed segment");
            let mut due = state.next_offset;
            for batch in batches {
                let follows = match state.offsets {
                    OffsetRule::Dense => batch.base_offset() == due,
                    OffsetRule::Ascending => batch.base_offset() >= due,
                };
                assert!(follows, "{batch:?} does not follow offset {due}");
                due = batch.last_offset() + 1;
            }
            (state.len, state.tail_is_dirty)
        };
        if tail_is_dirty {
            // Frames of the failed write could otherwise be taken for successors of what is written now.
            file.set_len(len).await.map_err(|error| self.io_error(error))?;
        }
        self.state().tail_is_dirty = true;
        file.write_at(len, encode(batches)).await.map_err(|error| self.io_error(error))?;
        self.publish(batches);
        if len == 0 {
            // The index files stand beside the segment from the start.
            self.write_index_or_warn(IndexFlush::WhenMany).await;
        }
        Ok(())
    }

    /// Makes what has been written visible to readers.
    fn publish(&self, batches: &[RecordBatch]) {
        let mut state = self.state();
        let resident = state.resident.clone().expect("the index of an active segment is in memory");
        let mut tail = state.tail;
        let mut position = state.len;
        for batch in batches {
            let header = FrameHeader::of(batch);
            let met = Met { position, header };
            resident.account(self.0.base_offset, self.0.options.index, &mut tail, &met);
            position = met.end();
            state.next_offset = header.last_offset + 1;
        }
        state.len = position;
        state.tail = tail;
        state.tail_is_dirty = false;
    }

    /// Makes all that was appended durable. A failed flush ends the incarnation.
    ///
    /// Also writes the index files on; an error there is not one of this call, since they can be made anew.
    pub async fn sync(&self) -> Result<(), SegmentError> {
        let file = self.file().await?;
        durable::sync_data(&self.0.env, &file, &self.path(FileKind::Log)).await;
        self.flushed();
        self.write_index_or_warn(IndexFlush::WhenMany).await;
        Ok(())
    }

    /// All that was written is flushed: the file may be closed.
    fn flushed(&self) {
        let sealed = {
            let mut state = self.state();
            state.unflushed = false;
            state.sealed
        };
        self.touch(sealed);
    }

    /// Makes all durable and closes the segment for writing.
    pub async fn seal(&self) -> Result<Sealed, SegmentError> {
        let file = self.file().await?;
        durable::sync_data(&self.0.env, &file, &self.path(FileKind::Log)).await;
        self.write_index_or_warn(IndexFlush::Now).await;
        self.state().sealed = true;
        self.flushed();
        Ok(self.sealed().expect("it has just been sealed"))
    }

    /// Cuts off every batch that holds a record at or above `end_offset`; durable when it answers. Returns the next
    /// offset, which is below `end_offset` where that lies within a batch. A sealed segment becomes active.
    ///
    /// After an error readers see the shorter segment already; calling again makes it durable.
    pub async fn truncate(&self, end_offset: i64) -> Result<i64, SegmentError> {
        let view = self.view().await?;
        let resident = self.resident(&view).await?;
        if end_offset >= view.next_offset {
            let tail = self.tail_of(&view, &resident, view.len).await?;
            self.publish_cut(&resident, tail, view.len, view.next_offset);
            self.finish_cut(&view, &resident, view.len).await?;
            return Ok(view.next_offset);
        }
        let first_cut = if end_offset > self.0.base_offset { self.locate(&view, end_offset).await? } else { None };
        let (position, next_offset) = match first_cut {
            Some(met) => (met.position, met.header.base_offset.min(end_offset)),
            None if end_offset > self.0.base_offset => (view.len, end_offset),
            None => (0, self.0.base_offset),
        };
        let tail = self.tail_of(&view, &resident, position).await?;
        self.publish_cut(&resident, tail, position, next_offset);
        self.finish_cut(&view, &resident, position).await?;
        Ok(next_offset)
    }

    /// Readers go by the shorter length before the bytes are gone.
    fn publish_cut(&self, resident: &Arc<Resident>, tail: Tail, len: u64, next_offset: i64) {
        {
            let mut state = self.state();
            state.cuts += 1;
            (state.sealed, state.tail_is_dirty, state.unflushed) = (false, true, true);
            (state.len, state.next_offset, state.tail) = (len, next_offset, tail);
            state.hints.clear();
            state.resident = Some(resident.clone());
        }
        resident.cut(len);
    }

    /// First the indexes, for good: an entry for what was cut must not meet what will be written in its place.
    async fn finish_cut(&self, view: &View, resident: &Resident, len: u64) -> Result<(), SegmentError> {
        self.write_index(resident, IndexFlush::Now).await?;
        view.file.set_len(len).await.map_err(|error| self.io_error(error))?;
        durable::sync_data(&self.0.env, &view.file, &self.path(FileKind::Log)).await;
        self.state().tail_is_dirty = false;
        self.flushed();
        Ok(())
    }

    /// The tail that the segment has, or would have with only `len` bytes.
    async fn tail_of(&self, view: &View, resident: &Resident, len: u64) -> Result<Tail, SegmentError> {
        let last = lock(&resident.times).last_before(len);
        let (position, offset) = last.map_or((0, self.0.base_offset), |entry| (entry.position, entry.offset));
        let mut tail = Tail { max_timestamp: last.map_or(-1, |entry| entry.max_before), ..Tail::default() };
        let mut walker = Walker::new(view.file.clone(), position, len, Sequence::new(view.offsets, offset, -1));
        while let Some(met) = walker.next().await.map_err(|error| self.walk_error(error))? {
            tail.count(&met.header);
        }
        Ok(tail)
    }

    pub(super) async fn write_index_or_warn(&self, flush: IndexFlush) {
        let resident = self.state().resident.clone();
        let Some(resident) = resident else { return };
        if let Err(error) = self.write_index(&resident, flush).await
            && self.0.env.may_log("index files that cannot be written", None)
        {
            tracing::warn!(%error, "cannot write an index file; it will be made anew when it is needed");
        }
    }

    /// Brings the index files up to what is in memory.
    pub(super) async fn write_index(&self, resident: &Resident, flush: IndexFlush) -> Result<(), SegmentError> {
        let (first, cut, new) = {
            let files = lock(&resident.files);
            (files.written, files.cut, files.written == 0 && !files.made)
        };
        let (entries, buffers) = self.encode_index(resident, first);
        // A new segment has its index files from the start, though they hold no entry yet.
        if entries == first && !cut && !new && flush == IndexFlush::WhenMany {
            return Ok(());
        }
        let handles = self.index_files().await?;
        let at = if first == 0 { 0 } else { entry_at(first) };
        for ((file, buffer), kind) in handles.iter().zip(buffers).zip([FileKind::Index, FileKind::TimeIndex]) {
            let failed = |error| SegmentError::Io { path: self.path(kind), error };
            if cut {
                file.set_len(at).await.map_err(failed)?;
            }
            file.write_at(at, vec![buffer]).await.map_err(failed)?;
        }
        let flush_now = {
            let mut files = lock(&resident.files);
            (files.written, files.cut, files.made) = (entries, false, true);
            flush == IndexFlush::Now || entries - files.flushed.min(entries) >= UNFLUSHED_ENTRIES_MAX
        };
        if flush_now {
            for (file, kind) in handles.iter().zip([FileKind::Index, FileKind::TimeIndex]) {
                durable::sync_data(&self.0.env, file, &self.path(kind)).await;
            }
            lock(&resident.files).flushed = entries;
        }
        Ok(())
    }

    /// The entries from number `first` on as they stand in the two files, with the header if they are the first ones.
    fn encode_index(&self, resident: &Resident, first: u32) -> (u32, [Bytes; 2]) {
        let base_offset = self.0.base_offset;
        let (mut places, mut maxima) = (BytesMut::new(), BytesMut::new());
        if first == 0 {
            places.extend_from_slice(&index::file_header(base_offset));
            maxima.extend_from_slice(&time_index::file_header(base_offset));
        }
        let times = lock(&resident.times);
        for (ordinal, entry) in (first..).zip(times.tail(first)) {
            let place = IndexEntry { offset: entry.offset, position: entry.position };
            index::encode_entry(base_offset, ordinal, place, &mut places);
            time_index::encode_entry(base_offset, ordinal, *entry, &mut maxima);
        }
        (times.len(), [places.freeze(), maxima.freeze()])
    }

    /// Opened for each write: they are written rarely, and descriptors are few.
    async fn index_files(&self) -> Result<[File; 2], SegmentError> {
        let open = async |kind| -> Result<File, SegmentError> {
            let path = self.path(kind);
            let opened: io::Result<File> = self.0.env.disk().open(&path, OpenMode::Create).await;
            opened.map_err(|error| SegmentError::Io { path, error })
        };
        Ok([open(FileKind::Index).await?, open(FileKind::TimeIndex).await?])
    }
}

fn entry_at(ordinal: u32) -> u64 {
    index::HEADER_BYTES as u64 + u64::from(ordinal) * index::ENTRY_BYTES as u64
}

/// Frames as buffers for one vectored write: small pieces together, large records where they are.
fn encode(batches: &[RecordBatch]) -> Vec<Bytes> {
    let small = |batch: &RecordBatch| match batch.records_bytes().len() {
        len if len <= COALESCE_BYTES_MAX => FRAME_HEADER_LEN + len,
        _ => FRAME_HEADER_LEN,
    };
    let mut pieces = BytesMut::with_capacity(batches.iter().map(small).sum());
    let mut buffers = Vec::new();
    for batch in batches {
        pieces.extend_from_slice(&MAGIC_BYTES);
        pieces.extend_from_slice(batch.header_bytes());
        let records = batch.records_bytes();
        if records.len() <= COALESCE_BYTES_MAX {
            pieces.extend_from_slice(records);
        } else {
            buffers.push(pieces.split().freeze());
            buffers.push(records.clone());
        }
    }
    if !pieces.is_empty() {
        buffers.push(pieces.freeze());
    }
    buffers
}

impl FrameHeader {
    /// The header that the frame of a batch has.
    fn of(batch: &RecordBatch) -> Self {
        let mut frame = [0; FRAME_HEADER_LEN];
        frame[..MAGIC_LEN].copy_from_slice(&MAGIC_BYTES);
        frame[MAGIC_LEN..].copy_from_slice(batch.header_bytes());
        Self::parse(&frame, super::walk::BATCH_BYTES_MAX).expect("what is appended has been validated")
    }
}
