//! Walking a `.log` file from frame to frame, reading as little as possible: headers alone where bodies are large.

use std::io;

use bytes::Bytes;

use crate::io::File;
use crate::storage::frame::{FRAME_HEADER_LEN, FrameError, FrameHeader, Sequence};

/// The first read of a walk, in bytes; the reads after it grow. A walk from an index entry goes through half a MiB on
/// average, and another read costs more than reading too much.
const FIRST_READ_BYTES: usize = 256 << 10;
/// The largest read of a walk.
const READ_BYTES_MAX: usize = 1 << 20;
/// The read behind a frame that was longer than the last read: only its successor's header is wanted.
const SPARSE_READ_BYTES: usize = 4 << 10;
/// No batch is longer than its length field can say.
pub(super) const BATCH_BYTES_MAX: usize = i32::MAX as usize;

/// Why a walk stopped.
#[derive(Debug)]
pub(super) enum WalkError {
    /// The disk failed.
    Io(io::Error),
    /// There is no valid frame in this place.
    Frame { position: u64, why: FrameError },
}

/// A frame met on a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    pub(super) position: u64,
    pub(super) header: FrameHeader,
}

impl Met {
    /// Where the next frame begins.
    pub(super) fn end(&self) -> u64 {
        self.position + self.header.frame_len() as u64
    }
}

/// A walk over the frames of a file.
pub(super) struct Walker {
    file: File,
    position: u64,
    end: u64,
    sequence: Sequence,
    chunk: Bytes,
    chunk_at: u64,
    read_bytes: usize,
}

impl Walker {
    /// A walk from the frame at `position` to `end`, which must be the end of a frame.
    pub(super) fn new(file: File, position: u64, end: u64, sequence: Sequence) -> Self {
        let chunk = Bytes::new();
        Self { file, position, end, sequence, chunk, chunk_at: position, read_bytes: FIRST_READ_BYTES }
    }

    /// Makes the first read so large.
    pub(super) fn reading(mut self, bytes: usize) -> Self {
        self.read_bytes = bytes.max(FRAME_HEADER_LEN);
        self
    }

    /// How the next frame would have to go on.
    pub(super) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// The next frame, its header verified in its place. `None` at the exact end.
    pub(super) async fn next(&mut self) -> Result<Option<Met>, WalkError> {
        let position = self.position;
        if position >= self.end {
            return Ok(None);
        }
        let wrong = |why| WalkError::Frame { position, why };
        let bytes = self.bytes_at(position, FRAME_HEADER_LEN).await.map_err(WalkError::Io)?;
        let header = FrameHeader::parse(&bytes, BATCH_BYTES_MAX).map_err(wrong)?;
        let met = Met { position, header };
        if met.end() > self.end {
            return Err(wrong(FrameError::Truncated));
        }
        self.sequence.accept(&header).map_err(wrong)?;
        self.position = met.end();
        Ok(Some(met))
    }

    /// The whole frame that was met, with its CRC verified.
    pub(super) async fn frame(&mut self, met: &Met) -> Result<Bytes, WalkError> {
        let bytes = self.unverified_frame(met).await?;
        met.header.verify_crc(&bytes).map_err(|why| WalkError::Frame { position: met.position, why })?;
        Ok(bytes)
    }

    /// The whole frame that was met, for those who verify its CRC themselves.
    pub(super) async fn unverified_frame(&mut self, met: &Met) -> Result<Bytes, WalkError> {
        let frame_len = met.header.frame_len();
        let mut bytes = self.bytes_at(met.position, frame_len).await.map_err(WalkError::Io)?;
        if bytes.len() < frame_len {
            return Err(WalkError::Frame { position: met.position, why: FrameError::Truncated });
        }
        bytes.truncate(frame_len);
        Ok(bytes)
    }

    /// As [`Self::frame`], in memory of its own if it is a small part of what was read on the way to it.
    pub(super) async fn own_frame(&mut self, met: &Met) -> Result<Bytes, WalkError> {
        let frame = self.frame(met).await?;
        let is_small = frame.len() < self.chunk.len() / 4;
        Ok(if is_small { Bytes::copy_from_slice(&frame) } else { frame })
    }

    /// What is in memory from `position` on: at least `len` bytes, unless the file ends before.
    pub(super) async fn bytes_at(&mut self, position: u64, len: usize) -> io::Result<Bytes> {
        let skip = position.checked_sub(self.chunk_at).and_then(|skip| usize::try_from(skip).ok());
        let held = skip.filter(|skip| skip.saturating_add(len) <= self.chunk.len());
        if let Some(skip) = held {
            return Ok(self.chunk.slice(skip..));
        }
        let is_far = skip.is_none_or(|skip| skip > self.chunk.len() + self.read_bytes);
        let step = if is_far && !self.chunk.is_empty() { SPARSE_READ_BYTES } else { self.read_bytes };
        let left = usize::try_from(self.end.saturating_sub(position)).unwrap_or(usize::MAX);
        self.chunk = self.file.read_at(position, step.max(len).min(left)).await?;
        self.chunk_at = position;
        self.read_bytes = step.saturating_mul(2).clamp(SPARSE_READ_BYTES, READ_BYTES_MAX);
        Ok(self.chunk.clone())
    }
}
