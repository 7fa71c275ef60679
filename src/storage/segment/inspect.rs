//! Looking through a segment file whose manifest is lost, without changing it: what is in it, past damage too.

use super::error::SegmentError;
use super::state::{Segment, SegmentContext};
use super::walk::{Met, WalkError, Walker};
use crate::io::{File, OpenMode};
use crate::storage::frame::{FRAME_HEADER_LEN, FrameError, MAGIC_BYTES, MAGIC_LEN, OffsetRule, Sequence};
use crate::storage::names::{FileKind, PartitionDir};

/// Bytes looked through in one go for the beginning of a frame.
const SEARCH_BYTES: usize = 1 << 20;

/// What a segment file holds, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Its length in bytes.
    pub len: u64,
    /// Where the last whole frame ends, in bytes.
    pub end: u64,
    /// The offset after the last record that can be read; the base offset if there is none.
    pub next_offset: i64,
    /// The largest timestamp that can be read; -1 if there is none.
    pub max_timestamp: i64,
    /// The first place that cannot be read, and why.
    pub damage: Option<(u64, FrameError)>,
}

/// Reads every frame of a segment file, and goes on behind damage where the next whole frame is.
pub async fn inspect(
    context: &SegmentContext,
    dir: &PartitionDir,
    base_offset: i64,
) -> Result<Inspected, SegmentError> {
    let path = dir.file(base_offset, FileKind::Log);
    let opened = context.env.disk().open(&path, OpenMode::Read).await;
    let found = match opened {
        Ok(file) => inspect_file(&file, base_offset).await,
        Err(error) => Err(error),
    };
    found.map_err(|error| SegmentError::Io { path, error })
}

impl Segment {
    /// The first offset behind `offset`, where a batch is damaged, from which on one may be whole.
    pub async fn behind_damage(&self, offset: i64) -> Result<Option<i64>, SegmentError> {
        let view = self.view().await?;
        // Where only the records are damaged, the header says where they end.
        let by_header = self.locate(&view, offset).await.ok().flatten().map(|met| met.header.last_offset + 1);
        let index = self.resident(&view).await?;
        let by_index = || index.offsets.above(offset).map(|entry| entry.offset);
        Ok(by_header.or_else(by_index))
    }

    /// The largest timestamp that can be read, where damage keeps the true one from being known.
    pub async fn readable_max_timestamp(&self) -> Result<i64, SegmentError> {
        let view = self.view().await?;
        let found = inspect_file(&view.file, self.0.base_offset).await;
        Ok(found.map_err(|error| self.io_error(error))?.max_timestamp)
    }
}

async fn inspect_file(file: &File, base_offset: i64) -> std::io::Result<Inspected> {
    let len = file.len().await?;
    let mut found = Inspected { len, end: 0, next_offset: base_offset, max_timestamp: -1, damage: None };
    let mut at = Some((0, base_offset));
    while let Some((position, offset)) = at.take() {
        let mut walker = Walker::new(file.clone(), position, len, Sequence::new(OffsetRule::Dense, offset, -1));
        loop {
            match verified(&mut walker).await {
                Ok(Some(met)) => {
                    (found.end, found.next_offset) = (met.end(), met.header.last_offset + 1);
                    found.max_timestamp = found.max_timestamp.max(met.header.max_timestamp);
                }
                Ok(None) => break,
                Err(WalkError::Io(error)) => return Err(error),
                Err(WalkError::Frame { position, why }) => {
                    found.damage.get_or_insert((position, why));
                    at = next_frame(file, position + 1, len, found.next_offset).await?;
                    break;
                }
            }
        }
    }
    Ok(found)
}

/// The first place from `from` on where a whole frame with records at or behind `offset` begins, and its base offset.
pub(super) async fn next_frame(
    file: &File,
    mut from: u64,
    end: u64,
    offset: i64,
) -> std::io::Result<Option<(u64, i64)>> {
    while from + FRAME_HEADER_LEN as u64 <= end {
        let bytes = file.read_at(from, SEARCH_BYTES).await?;
        let mut searched = 0;
        while let Some(skip) = bytes[searched..].windows(MAGIC_LEN).position(|window| window == MAGIC_BYTES) {
            let position = from + (searched + skip) as u64;
            let mut walker = Walker::new(file.clone(), position, end, Sequence::new(OffsetRule::Ascending, offset, -1))
                .reading(FRAME_HEADER_LEN);
            match verified(&mut walker).await {
                Ok(Some(met)) => return Ok(Some((position, met.header.base_offset))),
                Err(WalkError::Io(error)) => return Err(error),
                Ok(None) | Err(WalkError::Frame { .. }) => searched += skip + 1,
            }
        }
        if bytes.len() < MAGIC_LEN {
            break;
        }
        // A magic may lie across the border.
        from += (bytes.len() + 1 - MAGIC_LEN) as u64;
    }
    Ok(None)
}

/// The next frame, with its checksum verified.
pub(super) async fn verified(walker: &mut Walker) -> Result<Option<Met>, WalkError> {
    let Some(met) = walker.next().await? else { return Ok(None) };
    walker.frame(&met).await?;
    Ok(Some(met))
}
