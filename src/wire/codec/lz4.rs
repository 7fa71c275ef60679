//! LZ4 frames. The block codec and the compressor are `lz4_flex`'s; frames are read here because its frame decoder takes a
//! frame that is cut off between two blocks for a whole one, and sizes its buffers by the claimed block size.
//!
//! Blocks that depend on earlier ones are refused, as Kafka's own reader refuses them: Java consumers could not read them.

use std::hash::Hasher;
use std::io::{self, Write};

use twox_hash::XxHash32;

use super::copy::copy_out;
use super::kind::{Codec, CodecError};

const MAGIC: u32 = 0x184d_2204;
const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;
/// One byte of compressed data stands for at most 255 bytes.
const EXPANSION_MAX: usize = 255;

pub(super) fn compress(input: &[u8]) -> io::Result<Vec<u8>> {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_mode(lz4_flex::frame::BlockMode::Independent)
        .block_size(lz4_flex::frame::BlockSize::Max64KB);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(input)?;
    encoder.finish().map_err(io::Error::other)
}

/// Gives the decompressed bytes.
pub(super) struct Lz4Reader<'a> {
    rest: &'a [u8],
    frame: Option<Frame>,
    /// The block being given out.
    block: Vec<u8>,
    at: usize,
}

/// What the header of the current frame said, and what has come out of it.
struct Frame {
    block_bytes_max: usize,
    block_checksums: bool,
    content_hash: Option<XxHash32>,
    content_bytes_claimed: Option<u64>,
    content_bytes: u64,
}

impl<'a> Lz4Reader<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { rest: input, frame: None, block: Vec::new(), at: 0 }
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        while self.at == self.block.len() {
            match self.frame.take() {
                None if self.rest.is_empty() => return Ok(0),
                None => self.frame = self.read_frame_header()?,
                Some(frame) => self.frame = self.read_block(frame)?,
            }
        }
        Ok(copy_out(&self.block, &mut self.at, out))
    }

    /// Reads a frame header; `None` after a skippable frame.
    fn read_frame_header(&mut self) -> Result<Option<Frame>, CodecError> {
        let magic = self.u32()?;
        if magic & !0xf == SKIPPABLE_MAGIC {
            let len = self.u32()? as usize;
            self.take(len)?;
            return Ok(None);
        }
        if magic != MAGIC {
            return Err(damaged("not an LZ4 frame"));
        }
        let header = self.rest;
        let [flags, block_descriptor] = *self.array::<2>()?;
        if flags >> 6 != 1 {
            return Err(damaged("unknown frame version"));
        }
        if flags & 0x20 == 0 {
            return Err(damaged("blocks that depend on each other are not supported"));
        }
        if flags & 0x01 != 0 {
            return Err(damaged("dictionaries are not supported"));
        }
        let content_bytes_claimed =
            if flags & 0x08 != 0 { Some(u64::from_le_bytes(*self.array::<8>()?)) } else { None };
        let described = &header[..header.len() - self.rest.len()];
        let [checksum] = *self.array::<1>()?;
        if checksum != (hash(described) >> 8) as u8 {
            return Err(damaged("wrong checksum of the frame header"));
        }
        let block_bytes_max = match block_descriptor >> 4 & 7 {
            size @ 4..=7 => 1 << (8 + 2 * size),
            _ => return Err(damaged("unknown block size")),
        };
        Ok(Some(Frame {
            block_bytes_max,
            block_checksums: flags & 0x10 != 0,
            content_hash: (flags & 0x04 != 0).then(|| XxHash32::with_seed(0)),
            content_bytes_claimed,
            content_bytes: 0,
        }))
    }

    /// Reads a block into `self.block`; `None` at the end of the frame.
    fn read_block(&mut self, mut frame: Frame) -> Result<Option<Frame>, CodecError> {
        self.block.clear();
        self.at = 0;
        let size = self.u32()?;
        if size == 0 {
            self.end_frame(&frame)?;
            return Ok(None);
        }
        let (stored, len) = (size & 0x8000_0000 != 0, (size & 0x7fff_ffff) as usize);
        if len > frame.block_bytes_max {
            return Err(damaged("a block is larger than the frame allows"));
        }
        let data = self.take(len)?;
        if frame.block_checksums && self.u32()? != hash(data) {
            return Err(damaged("wrong checksum of a block"));
        }
        if stored {
            self.block.extend_from_slice(data);
        } else {
            self.block.resize(frame.block_bytes_max.min(len.saturating_mul(EXPANSION_MAX)), 0);
            let len = lz4_flex::block::decompress_into(data, &mut self.block).map_err(damaged)?;
            self.block.truncate(len);
        }
        if let Some(content_hash) = &mut frame.content_hash {
            content_hash.write(&self.block);
        }
        frame.content_bytes += self.block.len() as u64;
        Ok(Some(frame))
    }

    fn end_frame(&mut self, frame: &Frame) -> Result<(), CodecError> {
        if frame.content_bytes_claimed.is_some_and(|claimed| claimed != frame.content_bytes) {
            return Err(damaged("the frame holds another number of bytes than it says"));
        }
        if let Some(content_hash) = &frame.content_hash
            && u64::from(self.u32()?) != content_hash.finish()
        {
            return Err(damaged("wrong checksum of the content"));
        }
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, CodecError> {
        self.array::<4>().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], CodecError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn hash(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}

fn cut() -> CodecError {
    damaged("cut short")
}

fn damaged(reason: impl ToString) -> CodecError {
    CodecError::damaged(Codec::Lz4, reason)
}
