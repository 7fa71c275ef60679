//! Opening: the index of a segment in memory, made from its files as far as they are good and from the segment for the
//! rest; and the scan that verifies every frame.

use std::sync::Arc;

use super::error::SegmentError;
use super::index_files::IndexFlush;
use super::inspect::{next_frame, verified};
use super::lock::lock;
use super::open_as::{ScanReport, Unsettled};
use super::resident::{Resident, Tail};
use super::state::{Segment, View};
use super::walk::{WalkError, Walker};
use crate::io::{File, is_no_space, is_too_many_open_files};
use crate::storage::durable;
use crate::storage::frame::{FRAME_HEADER_LEN, FrameError, OffsetRule, Sequence};
use crate::storage::index;
use crate::storage::names::FileKind;
use crate::storage::time_index::{self, TimeEntry};

/// Bytes written again in one go.
const REWRITE_BYTES: usize = 1 << 20;

/// An index made, and what the walk that completed it found.
pub(super) struct Loaded {
    pub(super) resident: Arc<Resident>,
    pub(super) tail: Tail,
    /// Why the walk did not reach the end of the segment at its next offset.
    pub(super) failure: Option<(u64, FrameError)>,
}

impl Segment {
    /// The file's length, which is at least what is known to have been flushed.
    async fn len_on_disk(&self, view: &View) -> Result<u64, SegmentError> {
        let found = view.file.len().await.map_err(|error| self.io_error(error))?;
        if found < view.len {
            return Err(SegmentError::Short { path: self.path(FileKind::Log), found, known: view.len });
        }
        Ok(found)
    }

    /// Opens the active segment at its checkpointed length.
    pub(super) async fn open_known(&self) -> Result<Unsettled, SegmentError> {
        let view = self.view().await?;
        let found = self.len_on_disk(&view).await?;
        let loaded = self.load_index(&view).await?;
        let index = lock(&loaded.resident.files).cut;
        {
            let mut state = self.state();
            state.resident = Some(loaded.resident);
            state.tail = loaded.tail;
            state.tail_is_dirty = found > view.len;
            // Damage must not stop the others: what is behind it cannot be read, and what comes goes to a new segment.
            state.sealed = loaded.failure.is_some();
        }
        if let Some((position, why)) = loaded.failure {
            crate::sometimes!("segment.closed_damaged");
            let (segment, end) = (self.path(FileKind::Log), view.next_offset);
            tracing::error!(
                segment = %segment.display(), position, %why,
                "the segment is damaged: records from there on cannot be read, up to offset {end} in this segment. The partition \
                 goes on in a new one. Restore the file from a copy to have them back"
            );
        }
        // An entry for what is cut off must not meet, after the next crash, what will be written in its place.
        Ok(Unsettled { cut: found > view.len, written_from: None, index })
    }

    /// Opens the active segment at a length that is known and goes on over the valid frames behind it.
    pub(super) async fn open_past(&self) -> Result<(ScanReport, Unsettled), SegmentError> {
        let view = self.view().await?;
        let found = self.len_on_disk(&view).await?;
        let Loaded { resident, mut tail, failure } = self.load_index(&view).await?;
        if let Some((position, why)) = failure {
            return Err(SegmentError::Damaged { path: self.path(FileKind::Log), position, why });
        }
        let sequence = Sequence::new(view.offsets, view.next_offset, -1);
        let walker = Walker::new(view.file.clone(), view.len, found, sequence);
        let (len, next_offset, report) = self.scan(walker, (view.len, view.next_offset), &resident, &mut tail).await?;
        let index = lock(&resident.files).cut;
        {
            let mut state = self.state();
            (state.len, state.next_offset, state.tail) = (len, next_offset, tail);
            state.resident = Some(resident);
            state.tail_is_dirty = len < found;
        }
        Ok((report, Unsettled { cut: false, written_from: Some(view.len), index }))
    }

    /// Takes the valid frames that `walker` meets from `start` on, a position and an offset, into the index. Answers with
    /// where they end.
    async fn scan(
        &self,
        mut walker: Walker,
        start: (u64, i64),
        resident: &Resident,
        tail: &mut Tail,
    ) -> Result<(u64, i64, ScanReport), SegmentError> {
        let (mut len, mut next_offset) = start;
        loop {
            match verified(&mut walker).await {
                Ok(Some(met)) => {
                    resident.account(self.0.base_offset, self.0.options.index, tail, &met);
                    (len, next_offset) = (met.end(), met.header.last_offset + 1);
                }
                Ok(None) => return Ok((len, next_offset, ScanReport::default())),
                Err(WalkError::Io(error)) => return Err(self.io_error(error)),
                Err(WalkError::Frame { position, why }) => {
                    return Ok((len, next_offset, ScanReport { stopped: Some((position, why)), goes_on: false }));
                }
            }
        }
    }

    /// Opens the active segment by verifying every frame, up to the first invalid one.
    pub(super) async fn open_scanning(&self) -> Result<(ScanReport, Unsettled), SegmentError> {
        let view = self.view().await?;
        let found = view.file.len().await.map_err(|error| self.io_error(error))?;
        let sequence = Sequence::new(view.offsets, self.0.base_offset, -1);
        let walker = Walker::new(view.file.clone(), 0, found, sequence);
        let resident = Arc::new(Resident::default());
        let mut tail = Tail::default();
        let (len, next_offset, mut report) = self.scan(walker, (0, self.0.base_offset), &resident, &mut tail).await?;
        if let Some((position, _)) = report.stopped {
            let later = next_frame(&view.file, position + 1, found, next_offset).await;
            report.goes_on = later.map_err(|error| self.io_error(error))?.is_some();
        }
        // The index was made anew: whatever is in the files, nothing of it is kept.
        lock(&resident.files).cut = true;
        {
            let mut state = self.state();
            (state.len, state.next_offset, state.tail) = (len, next_offset, tail);
            state.resident = Some(resident);
            state.tail_is_dirty = len < found;
        }
        Ok((report, Unsettled { cut: len < found, written_from: Some(0), index: true }))
    }

    /// Does to the files what opening has decided. Again after an error is fine, and so is never.
    pub async fn settle(&self, unsettled: Unsettled) -> Result<(), SegmentError> {
        let Unsettled { cut, written_from, index } = unsettled;
        if cut || written_from.is_some() {
            let view = self.view().await?;
            if cut {
                crate::sometimes!("segment.cut_to_checkpoint", written_from.is_none());
                crate::sometimes!("segment.torn_tail", written_from.is_some());
                view.file.set_len(view.len).await.map_err(|error| self.io_error(error))?;
                self.state().tail_is_dirty = false;
            }
            if let Some(from) = written_from {
                self.write_again(&view.file, from, view.len).await?;
            }
        }
        if index {
            self.write_index_or_warn(IndexFlush::Now).await;
        }
        Ok(())
    }

    /// Makes what was scanned durable. It may be in the page cache alone, and count as clean there after a flush that
    /// failed: flushing would then succeed without writing anything.
    async fn write_again(&self, file: &File, mut position: u64, len: u64) -> Result<(), SegmentError> {
        while position < len {
            let size = usize::try_from(len - position).unwrap_or(usize::MAX).min(REWRITE_BYTES);
            let bytes = file.read_at(position, size).await.map_err(|error| self.io_error(error))?;
            if bytes.is_empty() {
                break;
            }
            let taken = bytes.len() as u64;
            match file.write_at(position, vec![bytes]).await {
                // On file systems that never write in place even this can meet a full disk; reading must go on then.
                Err(error) if !is_no_space(&error) => return Err(self.io_error(error)),
                _ => position += taken,
            }
        }
        durable::sync_data(&self.0.env, file, &self.path(FileKind::Log)).await;
        Ok(())
    }

    /// Readers come back to what is damaged.
    fn tell_damage(&self, position: u64, why: &FrameError) {
        if self.0.env.may_log("damaged segments", None) {
            tracing::error!(segment = %self.path(FileKind::Log).display(), position, %why, "the segment is damaged");
        }
    }

    /// The index in memory: what there is, or what is loaded now.
    pub(super) async fn resident(&self, view: &View) -> Result<Arc<Resident>, SegmentError> {
        if let Some(resident) = &self.state().resident {
            return Ok(resident.clone());
        }
        let loaded = self.load_index(view).await?;
        if let Some((position, why)) = loaded.failure {
            self.tell_damage(position, &why);
        }
        self.install(view, loaded.resident).await
    }

    /// Throws the index away, files and all, and makes it anew from the segment. It had led to `wrong`, where there is no
    /// such frame. Where the segment is what is damaged, the entries behind the damage are kept: they lead to what is whole
    /// there, and each is verified when it is followed.
    pub(super) async fn rebuild_index(&self, view: &View, wrong: u64) -> Result<Arc<Resident>, SegmentError> {
        crate::sometimes!("segment.index_rebuilt");
        if self.0.env.may_log("indexes that are rebuilt", None) {
            let segment = self.path(FileKind::Log);
            tracing::warn!(segment = %segment.display(), "the index disagrees with its segment: rebuilding it");
        }
        let known = self.resident(view).await?;
        let loaded = self.walk_index(view, Vec::new()).await?;
        if let Some((position, why)) = loaded.failure {
            crate::sometimes!("segment.index_kept_behind_damage");
            self.tell_damage(position, &why);
            let mut max_before = lock(&loaded.resident.times).tail(0).last().map_or(-1, |last| last.max_before);
            for entry in lock(&known.times).tail(0).iter().filter(|e| e.position > position && e.position != wrong) {
                max_before = max_before.max(entry.max_before);
                loaded.resident.add(TimeEntry { max_before, ..*entry });
            }
        }
        lock(&loaded.resident.files).cut = true;
        self.install(view, loaded.resident).await
    }

    async fn install(&self, view: &View, resident: Arc<Resident>) -> Result<Arc<Resident>, SegmentError> {
        let is_sealed = {
            let mut state = self.state();
            if state.cuts == view.cuts {
                state.resident = Some(resident.clone());
            }
            state.sealed && state.cuts == view.cuts
        };
        if is_sealed {
            // Completing the files of a sealed segment spares the next reader the walk; the reader of now has its answer
            // either way.
            let _ = self.write_index(&resident, IndexFlush::WhenMany).await;
        }
        Ok(resident)
    }

    /// Makes the index from the files and a walk over what they leave out.
    async fn load_index(&self, view: &View) -> Result<Loaded, SegmentError> {
        let (entries, has_more) = self.read_index_files(view).await?;
        let had_entries = !entries.is_empty();
        let loaded = self.walk_index(view, entries).await?;
        lock(&loaded.resident.files).cut = has_more;
        if loaded.failure.is_none() || !had_entries {
            return Ok(loaded);
        }
        // Either the index or the segment is damaged. The segment decides; if it is damaged itself, the index may still
        // lead behind the damage.
        let rebuilt = self.walk_index(view, Vec::new()).await?;
        if rebuilt.failure.is_some() {
            return Ok(loaded);
        }
        crate::sometimes!("segment.index_rebuilt");
        lock(&rebuilt.resident.files).cut = true;
        Ok(rebuilt)
    }

    /// The entries that both files have, and whether one of them has more than these.
    async fn read_index_files(&self, view: &View) -> Result<(Vec<TimeEntry>, bool), SegmentError> {
        let entries_max = view.len / FRAME_HEADER_LEN as u64;
        let bytes_max = index::HEADER_BYTES as u64 + entries_max * index::ENTRY_BYTES as u64;
        let mut contents = [bytes::Bytes::new(), bytes::Bytes::new()];
        let mut has_more = false;
        for (contents, kind) in contents.iter_mut().zip([FileKind::Index, FileKind::TimeIndex]) {
            let path = self.path(kind);
            let found = durable::read_prefix(&self.0.env, &path, bytes_max).await;
            match found {
                Ok(None) => {}
                Ok(Some((bytes, len))) => {
                    has_more |= len > bytes_max;
                    *contents = bytes;
                }
                Err(error) if is_too_many_open_files(&error) => return Err(SegmentError::Io { path, error }),
                // Nothing is in it that the segment does not say.
                Err(error) => {
                    if self.0.env.may_log("indexes that cannot be read", None) {
                        tracing::warn!(path = %path.display(), %error, "an index cannot be read: going by its segment");
                    }
                    has_more = true;
                }
            }
        }
        let places = index::decode(&contents[0], self.0.base_offset, view.len, view.next_offset);
        let entries = time_index::decode(&contents[1], self.0.base_offset, &places);
        let expected = index::HEADER_BYTES + entries.len() * index::ENTRY_BYTES;
        has_more |= contents.iter().any(|contents| contents.len() > expected);
        Ok((entries, has_more))
    }

    /// Takes `entries` as they are and walks the segment from the last of them on.
    async fn walk_index(&self, view: &View, entries: Vec<TimeEntry>) -> Result<Loaded, SegmentError> {
        let resident = Arc::new(Resident::default());
        let mut tail = Tail::default();
        let mut sequence = Sequence::new(view.offsets, self.0.base_offset, -1);
        let mut position = 0;
        let mut at_entry = entries.last().copied();
        if let Some(last) = at_entry {
            sequence = Sequence::new(view.offsets, last.offset, -1);
            (position, tail.max_timestamp) = (last.position, last.max_before);
        }
        {
            let mut files = lock(&resident.files);
            files.written =
                u32::try_from(entries.len()).expect("one entry per frame at most, in a file below 2^44 bytes");
        }
        entries.into_iter().for_each(|entry| resident.add(entry));
        let mut walker = Walker::new(view.file.clone(), position, view.len, sequence);
        let failure = loop {
            match walker.next().await {
                Ok(Some(met)) => match at_entry.take() {
                    Some(entry) if met.header.base_offset != entry.offset => {
                        let why = FrameError::Gap { expected: entry.offset, found: met.header.base_offset };
                        break Some((met.position, why));
                    }
                    Some(_) => tail.count(&met.header),
                    None => resident.account(self.0.base_offset, self.0.options.index, &mut tail, &met),
                },
                Ok(None) => break end_gap(&walker, view),
                Err(WalkError::Frame { position, why }) => break Some((position, why)),
                Err(WalkError::Io(error)) => return Err(self.io_error(error)),
            }
        };
        Ok(Loaded { resident, tail, failure })
    }
}

/// The segment must end with its last offset; compaction may have dropped the last records.
fn end_gap(walker: &Walker, view: &View) -> Option<(u64, FrameError)> {
    let found = walker.sequence().next_offset();
    let fits = match view.offsets {
        OffsetRule::Dense => found == view.next_offset,
        OffsetRule::Ascending => found <= view.next_offset,
    };
    (!fits).then_some((view.len, FrameError::Gap { expected: view.next_offset, found }))
}
