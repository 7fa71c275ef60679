//! LZ4: one frame of independent blocks. The block codec and the compressor are `lz4_flex`'s; frames are read here because
//! its frame decoder takes a frame that is cut off between two blocks for a whole one, and sizes its buffers by the claimed
//! block size.
//!
//! What Java's reader cannot read is refused, though the format allows it: blocks that depend on earlier ones, a second
//! frame (it stops behind the first), skippable frames, dictionaries.

use std::hash::Hasher;
use std::io::{self, Write};
use std::num::NonZeroU64;

use twox_hash::XxHash32;

use super::copy::copy_out;
use super::kind::{Codec, CodecError};

const MAGIC: u32 = 0x184d_2204;
/// One byte of compressed data stands for at most 255 bytes.
const EXPANSION_MAX: usize = 255;
/// In the word before a block: the block is not compressed.
const STORED: u32 = 0x8000_0000;

pub(super) fn compress(input: &[u8]) -> io::Result<Vec<u8>> {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_mode(lz4_flex::frame::BlockMode::Independent)
        .block_size(lz4_flex::frame::BlockSize::Max64KB);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(input)?;
    encoder.finish().map_err(io::Error::other)
}

/// Checks the frame from its header to its end without looking into the blocks.
pub(super) fn check_framing(input: &[u8]) -> Result<(), CodecError> {
    let mut frame = Frame::open(input)?;
    while frame.next_block()?.is_some() {}
    Ok(())
}

/// The one frame, block by block.
struct Frame<'a> {
    rest: &'a [u8],
    block_bytes_max: usize,
    has_block_checksums: bool,
    has_content_checksum: bool,
    content_bytes_claimed: Option<NonZeroU64>,
    /// Of the content; there once the end has been seen.
    content_checksum: Option<u32>,
    is_over: bool,
}

struct Block<'a> {
    data: &'a [u8],
    is_stored: bool,
    checksum: Option<u32>,
}

impl<'a> Frame<'a> {
    fn open(input: &'a [u8]) -> Result<Self, CodecError> {
        let mut rest = input;
        if u32(&mut rest)? != MAGIC {
            return Err(damaged("not an LZ4 frame"));
        }
        let described = rest;
        let [flags, block_descriptor] = *array::<2>(&mut rest)?;
        if flags >> 6 != 1 {
            return Err(damaged("unknown frame version"));
        }
        if flags & 0x20 == 0 {
            return Err(damaged("blocks that depend on each other are not supported"));
        }
        if flags & 0x02 != 0 {
            return Err(damaged("a reserved bit is set in the frame's flags"));
        }
        if flags & 0x01 != 0 {
            return Err(damaged("dictionaries are not supported"));
        }
        if block_descriptor & 0x8f != 0 {
            return Err(damaged("a reserved bit is set in the frame's block descriptor"));
        }
        let block_bytes_max = match block_descriptor >> 4 {
            size @ 4..=7 => 1 << (8 + 2 * size),
            _ => return Err(damaged("unknown block size")),
        };
        // Readers take a size of zero for one that is not known.
        let content_bytes_claimed =
            if flags & 0x08 != 0 { NonZeroU64::new(u64::from_le_bytes(*array::<8>(&mut rest)?)) } else { None };
        let described = &described[..described.len() - rest.len()];
        let [checksum] = *array::<1>(&mut rest)?;
        if checksum != (hash(described) >> 8) as u8 {
            return Err(damaged("wrong checksum of the frame header"));
        }
        Ok(Self {
            rest,
            block_bytes_max,
            has_block_checksums: flags & 0x10 != 0,
            has_content_checksum: flags & 0x04 != 0,
            content_bytes_claimed,
            content_checksum: None,
            is_over: false,
        })
    }

    /// The next block; `None` at the end of the frame, which must be the end of everything.
    fn next_block(&mut self) -> Result<Option<Block<'a>>, CodecError> {
        if self.is_over {
            return Ok(None);
        }
        let size = u32(&mut self.rest)?;
        if size == 0 {
            self.content_checksum = self.has_content_checksum.then(|| u32(&mut self.rest)).transpose()?;
            if !self.rest.is_empty() {
                return Err(damaged("bytes follow the frame"));
            }
            self.is_over = true;
            return Ok(None);
        }
        let len = (size & !STORED) as usize;
        if len == 0 {
            // Some readers, Java's among them, take it for the end of the frame.
            return Err(damaged("a stored block is empty"));
        }
        if len > self.block_bytes_max {
            return Err(damaged("a block is larger than the frame allows"));
        }
        let data = take(&mut self.rest, len)?;
        let checksum = self.has_block_checksums.then(|| u32(&mut self.rest)).transpose()?;
        Ok(Some(Block { data, is_stored: size & STORED != 0, checksum }))
    }
}

/// Gives the decompressed bytes.
pub(super) struct Lz4Reader<'a> {
    frame: Frame<'a>,
    content_hash: Option<XxHash32>,
    content_bytes: u64,
    /// The block being given out.
    block: Vec<u8>,
    at: usize,
}

impl<'a> Lz4Reader<'a> {
    pub(super) fn new(input: &'a [u8]) -> Result<Self, CodecError> {
        let frame = Frame::open(input)?;
        let content_hash = frame.has_content_checksum.then(|| XxHash32::with_seed(0));
        Ok(Self { frame, content_hash, content_bytes: 0, block: Vec::new(), at: 0 })
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        if self.at == self.block.len() {
            match self.frame.next_block()? {
                Some(block) => self.decompress(&block)?,
                None => {
                    self.check_content()?;
                    return Ok(0);
                }
            }
        }
        Ok(copy_out(&self.block, &mut self.at, out))
    }

    fn decompress(&mut self, block: &Block) -> Result<(), CodecError> {
        self.at = 0;
        self.block.clear();
        if block.checksum.is_some_and(|checksum| checksum != hash(block.data)) {
            return Err(damaged("wrong checksum of a block"));
        }
        if block.is_stored {
            self.block.extend_from_slice(block.data);
        } else {
            let bytes_max = self.frame.block_bytes_max;
            self.block.resize(bytes_max.min(block.data.len().saturating_mul(EXPANSION_MAX)), 0);
            let len = lz4_flex::block::decompress_into(block.data, &mut self.block).map_err(damaged)?;
            self.block.truncate(len);
            if len == 0 {
                return Err(damaged("a block holds nothing"));
            }
            if may_end_badly(block.data, &self.block, bytes_max) && !ends_as_specified(block.data, bytes_max) {
                return Err(damaged("the end of a block is not literal bytes"));
            }
        }
        if let Some(content_hash) = &mut self.content_hash {
            content_hash.write(&self.block);
        }
        self.content_bytes += self.block.len() as u64;
        Ok(())
    }

    fn check_content(&self) -> Result<(), CodecError> {
        if self.frame.content_bytes_claimed.is_some_and(|claimed| claimed.get() != self.content_bytes) {
            return Err(damaged("the frame holds another number of bytes than it says"));
        }
        let computed = self.content_hash.as_ref().map(Hasher::finish);
        if self.frame.content_checksum.map(u64::from) != computed {
            return Err(damaged("wrong checksum of the content"));
        }
        Ok(())
    }
}

/// The last bytes of a block are literals, so many at the least.
const LAST_LITERALS: usize = 5;
/// No match begins nearer to the most that fits into a block.
const MATCH_DISTANCE_MIN: usize = 12;
const MATCH_BYTES_MIN: usize = 4;

/// Whether a block that can be decompressed follows the rules for the end of a block, which let the reference decoder
/// copy in large steps: it refuses blocks that break them, where `lz4_flex` does not.
pub(super) fn ends_as_specified(block: &[u8], bytes_max: usize) -> bool {
    /// The shortest rest behind literals that is not the end: an offset, a token and the last literals.
    const REST_BYTES_MIN: usize = 2 + 1 + LAST_LITERALS;

    let (mut at, mut out) = (0, 0);
    while let Some(&token) = block.get(at) {
        at += 1;
        let Some(literals) = length(block, &mut at, token >> 4) else { return false };
        at += literals;
        out += literals;
        if at == block.len() {
            return true;
        }
        if at + REST_BYTES_MIN > block.len() || out + MATCH_DISTANCE_MIN > bytes_max {
            return false;
        }
        at += 2;
        let Some(copied) = length(block, &mut at, token & 0xf) else { return false };
        out += copied + MATCH_BYTES_MIN;
        if out + LAST_LITERALS > bytes_max {
            return false;
        }
    }
    false
}

/// Whether a block could break the rules that [`ends_as_specified`] checks, told from its end alone: walking all of it
/// takes half as long as decompressing it, and hardly a block needs that.
///
/// One that breaks them has less than five literals at its end, or somewhat more where it fills all that fits. Then there
/// is a token with their number in front of them, an offset in front of that, and what the offset leads to has come out.
pub(super) fn may_end_badly(block: &[u8], content: &[u8], bytes_max: usize) -> bool {
    let is_full = content.len() + MATCH_DISTANCE_MIN > bytes_max;
    let literals_max = if is_full { MATCH_DISTANCE_MIN - MATCH_BYTES_MIN - 1 } else { LAST_LITERALS - 1 };
    (0..=literals_max).any(|literals| {
        let Some((&token, before)) = block.len().checked_sub(literals).and_then(|end| block[..end].split_last()) else {
            return false;
        };
        if usize::from(token >> 4) != literals {
            return false;
        }
        // The length of the match may have a byte of its own behind the offset; of more, all but the last are 255.
        let copied = |before: &[u8]| before.last_chunk::<2>().is_some_and(|at| is_copy(content, literals, *at));
        copied(before) || before.split_last().is_some_and(|(_, before)| copied(before) || before.last() == Some(&0xff))
    })
}

/// Whether the bytes in front of the last `literals` ones are also those at `offset` before them.
fn is_copy(content: &[u8], literals: usize, offset: [u8; 2]) -> bool {
    let offset = usize::from(u16::from_le_bytes(offset));
    let Some(start) = content.len().checked_sub(literals + MATCH_BYTES_MIN) else { return false };
    let Some(from) = start.checked_sub(offset) else { return false };
    content[start..start + MATCH_BYTES_MIN] == content[from..from + MATCH_BYTES_MIN]
}

/// A length of a token, with the bytes at `at` that lengthen it.
#[inline]
fn length(block: &[u8], at: &mut usize, nibble: u8) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 0xf {
        loop {
            let more = *block.get(*at)?;
            *at += 1;
            length += usize::from(more);
            if more != 0xff {
                break;
            }
        }
    }
    Some(length)
}

fn u32(rest: &mut &[u8]) -> Result<u32, CodecError> {
    array::<4>(rest).map(|bytes| u32::from_le_bytes(*bytes))
}

fn array<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], CodecError> {
    let (taken, left) = rest.split_first_chunk::<N>().ok_or_else(cut)?;
    *rest = left;
    Ok(taken)
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], CodecError> {
    let (taken, left) = rest.split_at_checked(len).ok_or_else(cut)?;
    *rest = left;
    Ok(taken)
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
