//! The writer's side: appending, flushing, sealing, cutting.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::error::SegmentError;
use super::index_files::IndexFlush;
use super::lock::lock;
use super::resident::{Resident, Tail};
use super::state::{Segment, View};
use super::walk::{Met, Walker};
use crate::storage::durable;
use crate::storage::frame::{FRAME_HEADER_LEN, FrameHeader, MAGIC_BYTES, MAGIC_LEN, OffsetRule, Sequence};
use crate::storage::manifest::Sealed;
use crate::storage::names::FileKind;
use crate::wire::batch::RecordBatch;

/// Records up to this size are copied next to their frame's header rather than written as a buffer of their own: copying
/// them costs less than one more buffer in the system call.
const COALESCE_BYTES_MAX: usize = 4096;
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
