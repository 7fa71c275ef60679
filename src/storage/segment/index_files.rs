//! The index files, kept up with the index in memory.

use std::io;

use bytes::{Bytes, BytesMut};

use super::error::SegmentError;
use super::lock::lock;
use super::resident::Resident;
use super::state::Segment;
use crate::io::{File, OpenMode};
use crate::storage::durable;
use crate::storage::index::{self, IndexEntry};
use crate::storage::names::FileKind;
use crate::storage::time_index;

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
