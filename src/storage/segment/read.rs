//! The readers' side: finding the frame that holds an offset, and reading runs of batches.

use bytes::Bytes;

use super::error::SegmentError;
use super::state::{Segment, View};
use super::walk::{BATCH_BYTES_MAX, Met, WalkError, Walker};

use crate::storage::frame::{FRAME_HEADER_LEN, FrameError, FrameHeader, MAGIC_LEN, Sequence};

/// The most that one read returns, unless its first batch alone is larger.
const RUN_BYTES_MAX: usize = 4 << 20;
/// What is read beyond the batches that are wanted, for the magics between them.
const RUN_SLACK_BYTES: usize = 4 << 10;

/// Where a walk begins, and who says that this is a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) offset: i64,
    pub(super) position: u64,
    pub(super) by: StartBy,
}

/// What a walk's first place is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartBy {
    /// The beginning of the file: nothing to believe.
    Beginning,
    /// An index entry.
    Index,
    /// Where an earlier read ended.
    Hint,
}

impl Segment {
    /// Reads the batch that holds `from` (or the first one behind it) and those after it, exactly as they were appended:
    /// whole ones, at most `bytes_max` in sum but always the first, none with a record at or above `end_offset`.
    ///
    /// Empty at the end. What is returned has been verified; a batch that is damaged is an error when it comes first and
    /// the end of the run otherwise.
    pub async fn read(&self, from: i64, bytes_max: usize, end_offset: i64) -> Result<Vec<Bytes>, SegmentError> {
        self.read_run(from, bytes_max, end_offset, true).await
    }

    /// As [`read`](Self::read), and empty if the first batch has more than `bytes_max`: that one is not read at all.
    pub async fn read_fitting(&self, from: i64, bytes_max: usize, end_offset: i64) -> Result<Vec<Bytes>, SegmentError> {
        self.read_run(from, bytes_max, end_offset, false).await
    }

    async fn read_run(
        &self,
        from: i64,
        bytes_max: usize,
        end_offset: i64,
        first_always: bool,
    ) -> Result<Vec<Bytes>, SegmentError> {
        loop {
            let view = self.view().await?;
            match self.read_once(&view, from, bytes_max, end_offset, first_always).await {
                Err(_) if self.was_cut_since(&view) => {}
                result => return result,
            }
        }
    }

    /// Whether a failure since `view` may be the doing of a cut.
    pub(super) fn was_cut_since(&self, view: &View) -> bool {
        self.state().cuts != view.cuts
    }

    async fn read_once(
        &self,
        view: &View,
        from: i64,
        bytes_max: usize,
        end_offset: i64,
        first_always: bool,
    ) -> Result<Vec<Bytes>, SegmentError> {
        if from >= view.next_offset.min(end_offset) {
            return Ok(Vec::new());
        }
        let first_max = if first_always { usize::MAX } else { bytes_max };
        let bytes_max = bytes_max.min(RUN_BYTES_MAX);
        let Some((mut walker, met)) = self.walk_to(view, from, bytes_max + RUN_SLACK_BYTES).await? else {
            return Ok(Vec::new());
        };
        if met.header.last_offset >= end_offset || met.header.batch_len > first_max {
            return Ok(Vec::new());
        }
        let damaged = |error| self.walk_error(error);
        let left = bytes_max.saturating_sub(met.header.batch_len);
        let is_alone = left <= FRAME_HEADER_LEN;
        let first = if is_alone { walker.own_frame(&met).await } else { walker.frame(&met).await };
        let mut batches = vec![first.map_err(damaged)?.slice(MAGIC_LEN..)];
        let mut sequence = *walker.sequence();
        let mut position = met.end();
        if !is_alone {
            let run = walker.bytes_at(position, left + RUN_SLACK_BYTES).await.map_err(|error| self.io_error(error))?;
            let taken = slice_run(&run, left, view.next_offset.min(end_offset), &mut sequence, &mut batches);
            position += taken as u64;
        }
        let mut state = self.state();
        if state.cuts == view.cuts {
            state.hints.put(sequence.next_offset(), position);
        }
        Ok(batches)
    }

    /// The frame that holds `offset`, or the first one behind it.
    pub(super) async fn locate(&self, view: &View, offset: i64) -> Result<Option<Met>, SegmentError> {
        let found = self.walk_to(view, offset, 0).await?;
        Ok(found.map(|(_, met)| met))
    }

    /// A walk that has just met the frame that holds `offset`, or the first one behind it. If it is known exactly where
    /// that is, the first read has `run_bytes`.
    async fn walk_to(&self, view: &View, offset: i64, run_bytes: usize) -> Result<Option<(Walker, Met)>, SegmentError> {
        let mut start = self.start_for(view, offset).await?;
        loop {
            let mut walker = self.walker_at(view, start);
            if start.offset == offset && run_bytes > 0 {
                walker = walker.reading(run_bytes);
            }
            match skip_to(&mut walker, start, offset).await {
                Ok(met) => return Ok(met.map(|met| (walker, met))),
                Err(error) => start = self.start_again(view, start, offset, error).await?,
            }
        }
    }

    pub(super) fn walker_at(&self, view: &View, start: Start) -> Walker {
        let sequence = Sequence::new(view.offsets, start.offset, -1);
        Walker::new(view.file.clone(), start.position, view.len, sequence)
    }

    /// The best place to begin a walk to `offset`.
    pub(super) async fn start_for(&self, view: &View, offset: i64) -> Result<Start, SegmentError> {
        let resident = self.resident(view).await?;
        let hint = self.state().hints.floor(offset).filter(|(_, position)| *position < view.len);
        let entry = resident.offsets.floor(offset).filter(|entry| entry.position < view.len);
        let beginning = Start { offset: self.0.base_offset, position: 0, by: StartBy::Beginning };
        let by_index = entry.map(|e| Start { offset: e.offset, position: e.position, by: StartBy::Index });
        let by_hint = hint.map(|(offset, position)| Start { offset, position, by: StartBy::Hint });
        let nearest = [by_index, by_hint].into_iter().flatten().max_by_key(|start| start.position);
        Ok(nearest.unwrap_or(beginning))
    }

    /// What to try after a walk from `start` failed: if there was no such frame at its first place, whoever said so is
    /// wrong; anywhere else the segment is damaged.
    pub(super) async fn start_again(
        &self,
        view: &View,
        start: Start,
        offset: i64,
        error: WalkError,
    ) -> Result<Start, SegmentError> {
        let at_start = matches!(error, WalkError::Frame { position, .. } if position == start.position);
        match start.by {
            _ if self.was_cut_since(view) => return Err(self.walk_error(error)),
            StartBy::Hint if at_start => self.state().hints.clear(),
            // If the segment is what is damaged, the new index has no entry there, and the walk from the one before it
            // fails in its middle.
            StartBy::Index if at_start => drop(self.rebuild_index(view, start.position).await?),
            _ => return Err(self.walk_error(error)),
        }
        self.start_for(view, offset).await
    }
}

/// Walks on to the frame that holds `offset` or comes first behind it.
async fn skip_to(walker: &mut Walker, start: Start, offset: i64) -> Result<Option<Met>, WalkError> {
    while let Some(met) = walker.next().await? {
        check_start(&met, start)?;
        if met.header.last_offset >= offset {
            return Ok(Some(met));
        }
    }
    Ok(None)
}

/// An index entry or a hint must lead to the frame with exactly its offset.
pub(super) fn check_start(met: &Met, start: Start) -> Result<(), WalkError> {
    let is_first = met.position == start.position;
    if is_first && start.by == StartBy::Index && met.header.base_offset != start.offset {
        let why = FrameError::Gap { expected: start.offset, found: met.header.base_offset };
        return Err(WalkError::Frame { position: met.position, why });
    }
    Ok(())
}

/// Slices the batches at the beginning of `run` off, as long as they are good, whole, wanted, and fit. Returns the bytes
/// of their frames.
fn slice_run(
    run: &Bytes,
    mut left: usize,
    end_offset: i64,
    sequence: &mut Sequence,
    batches: &mut Vec<Bytes>,
) -> usize {
    let mut at = 0;
    while let Ok(header) = FrameHeader::parse(&run[at..], BATCH_BYTES_MAX) {
        let Some(frame) = run.get(at..at + header.frame_len()) else { break };
        let is_wanted = header.batch_len <= left && header.last_offset < end_offset;
        if !is_wanted || header.verify_crc(frame).is_err() || sequence.accept(&header).is_err() {
            break;
        }
        batches.push(run.slice(at + MAGIC_LEN..at + header.frame_len()));
        left -= header.batch_len;
        at += header.frame_len();
    }
    at
}
