//! Reading a slot file: from block to block, and past damage in steps of 4 KiB.

use std::io;
use std::path::PathBuf;

use bytes::Bytes;

use super::block::{BLOCK_ALIGN, BlockHeader, HEADER_BYTES, HeaderError};
use super::slots::SlotNumber;
use crate::io::File;

/// Read at once while replaying, and where there are no blocks.
const WINDOW_BYTES: usize = 1024 * 1024;
/// Read at once while only headers are looked at.
const HEADER_WINDOW_BYTES: usize = 64 * 1024;

/// An existing slot file.
#[derive(Clone)]
pub(super) struct SlotFile {
    pub(super) slot: SlotNumber,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) bytes: u64,
    /// The header at its start, if that is one.
    pub(super) first: Option<BlockHeader>,
}

impl SlotFile {
    /// Whether a block belongs to the file's present life.
    pub(super) fn owns(&self, header: &BlockHeader) -> bool {
        self.first.is_some_and(|first| (first.file_sequence, first.writer) == (header.file_sequence, header.writer))
    }
}

/// What lies at a place in a file where a block could begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// A block's header. Its payload may be torn.
    Block(BlockHeader),
    /// A whole header of an earlier life of the file.
    Stale(BlockHeader),
    /// Zeros: nothing was ever written here.
    Nothing,
    /// The beginning of a header, and a checksum that does not match.
    Torn,
    /// Something else: damage, or the middle of a block.
    Other,
}

impl At {
    /// For an error message.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Block(_) => "a block",
            Self::Stale(_) => "a block of an earlier life of the file",
            Self::Nothing => "zeros",
            Self::Torn => "no block: its header is damaged",
            Self::Other => "no block",
        }
    }
}

/// Walks through a file.
pub(super) struct Walker<'a> {
    slot: &'a SlotFile,
    position: u64,
    window: Bytes,
    window_from: u64,
    /// How much to read at a block whose payload is wanted or not.
    window_bytes: usize,
    is_stepping: bool,
}

impl<'a> Walker<'a> {
    /// From the start, looking at headers only.
    pub(super) fn headers(slot: &'a SlotFile) -> Self {
        Self::new(slot, HEADER_WINDOW_BYTES)
    }

    /// From the start, reading payloads too.
    pub(super) fn payloads(slot: &'a SlotFile) -> Self {
        Self::new(slot, WINDOW_BYTES)
    }

    fn new(slot: &'a SlotFile, window_bytes: usize) -> Self {
        Self { slot, position: 0, window: Bytes::new(), window_from: 0, window_bytes, is_stepping: false }
    }

    /// The next place where a block may begin, and what is there; `None` at the end of the file.
    pub(super) async fn next(&mut self, owns: impl Fn(&BlockHeader) -> bool) -> io::Result<Option<(u64, At)>> {
        if self.position + BLOCK_ALIGN > self.slot.bytes {
            return Ok(None);
        }
        let offset = self.position;
        let page = self.read(offset, BLOCK_ALIGN).await?;
        let at = match BlockHeader::decode(&page) {
            Ok(header) if !owns(&header) => At::Stale(header),
            Ok(header) if offset + header.block_bytes() <= self.slot.bytes => At::Block(header),
            Err(HeaderError::Magic) if page.iter().all(|byte| *byte == 0) => At::Nothing,
            Err(HeaderError::Crc) => At::Torn,
            _ => At::Other,
        };
        self.is_stepping = !matches!(at, At::Block(_));
        self.position += match at {
            At::Block(header) => header.block_bytes(),
            _ => BLOCK_ALIGN,
        };
        Ok(Some((offset, at)))
    }

    /// The payload of the block at `offset`.
    pub(super) async fn payload(&mut self, offset: u64, header: &BlockHeader) -> io::Result<Bytes> {
        self.read(offset + HEADER_BYTES as u64, u64::from(header.payload_bytes)).await
    }

    /// Reads exactly `len` bytes, or to the end of the file, through the window.
    async fn read(&mut self, offset: u64, len: u64) -> io::Result<Bytes> {
        let window_end = self.window_from + self.window.len() as u64;
        if offset < self.window_from || offset + len > window_end {
            let least = if self.is_stepping { WINDOW_BYTES } else { self.window_bytes };
            let wanted = len.max(least as u64).min(self.slot.bytes.saturating_sub(offset));
            let wanted = usize::try_from(wanted).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.window = self.slot.file.read_at(offset, wanted).await?;
            self.window_from = offset;
        }
        let from = usize::try_from(offset - self.window_from).expect("within the window").min(self.window.len());
        let to = from.saturating_add(usize::try_from(len).unwrap_or(usize::MAX)).min(self.window.len());
        Ok(self.window.slice(from..to))
    }
}
