//! Reading snappy as Kafka clients write it: either one raw block, or the Java (xerial) framing, which is a header of 16
//! bytes and then raw blocks, each behind its length. A second stream behind the first, header and all, is refused: only Java
//! reads it.

use super::copy::copy_out;
use super::kind::{Codec, CodecError};

const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// The magic, then version and lowest compatible version, four bytes each.
const XERIAL_HEADER_BYTES: usize = 16;
const XERIAL_VERSION_MIN: i32 = 1;
/// The densest element, three bytes, copies 64.
const EXPANSION_MAX: usize = 22;

/// Checks the framing and what the blocks claim, without decompressing.
pub(super) fn check_framing(input: &[u8]) -> Result<(), CodecError> {
    let mut blocks = Blocks::open(input)?;
    while let Some(block) = blocks.next_block()? {
        claimed_bytes(block)?;
    }
    Ok(())
}

/// The raw blocks.
struct Blocks<'a> {
    rest: &'a [u8],
    is_framed: bool,
}

impl<'a> Blocks<'a> {
    fn open(input: &'a [u8]) -> Result<Self, CodecError> {
        if !input.starts_with(&XERIAL_MAGIC) {
            // A block has at least the byte that says how much comes out of it.
            return if input.is_empty() { Err(empty()) } else { Ok(Self { rest: input, is_framed: false }) };
        }
        let (header, rest) = input
            .split_first_chunk::<XERIAL_HEADER_BYTES>()
            .ok_or_else(|| damaged("the stream header is cut short"))?;
        let version = header[XERIAL_MAGIC.len()..].first_chunk::<4>().expect("the header is longer than that");
        // Some writers have the wrong byte order, which readers take for a large version. The lowest compatible version
        // is looked at by no reader.
        if i32::from_be_bytes(*version) < XERIAL_VERSION_MIN {
            return Err(damaged("the version in the stream header is below 1"));
        }
        if rest.is_empty() {
            return Err(damaged("no block follows the stream header"));
        }
        Ok(Self { rest, is_framed: true })
    }

    fn next_block(&mut self) -> Result<Option<&'a [u8]>, CodecError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if !self.is_framed {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        if self.rest.starts_with(&XERIAL_MAGIC) {
            return Err(damaged("a second stream follows the first"));
        }
        let (len, rest) = self.rest.split_first_chunk::<4>().ok_or_else(|| damaged("a block length is cut short"))?;
        let len = usize::try_from(i32::from_be_bytes(*len)).map_err(|_| damaged("a block length is negative"))?;
        if len == 0 {
            return Err(empty());
        }
        let (block, rest) = rest.split_at_checked(len).ok_or_else(|| damaged("a block is cut short"))?;
        self.rest = rest;
        Ok(Some(block))
    }
}

/// The size that a block claims, in so far as its bytes could hold that much.
fn claimed_bytes(block: &[u8]) -> Result<usize, CodecError> {
    let claimed = snap::raw::decompress_len(block).map_err(damaged)?;
    if claimed > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(damaged("a block claims more bytes than it can hold"));
    }
    Ok(claimed)
}

/// Gives the decompressed bytes.
pub(super) struct SnappyReader<'a> {
    blocks: Blocks<'a>,
    /// The block being given out.
    block: Vec<u8>,
    at: usize,
    limit: usize,
}

impl<'a> SnappyReader<'a> {
    pub(super) fn new(input: &'a [u8], limit: usize) -> Result<Self, CodecError> {
        Ok(Self { blocks: Blocks::open(input)?, block: Vec::new(), at: 0, limit })
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        while self.at == self.block.len() {
            match self.blocks.next_block()? {
                Some(compressed) => self.decompress(compressed)?,
                None => return Ok(0),
            }
        }
        Ok(copy_out(&self.block, &mut self.at, out))
    }

    fn decompress(&mut self, compressed: &[u8]) -> Result<(), CodecError> {
        let claimed = claimed_bytes(compressed)?;
        if claimed > self.limit {
            return Err(CodecError::TooLarge { limit: self.limit });
        }
        self.block.resize(claimed, 0);
        let len = snap::raw::Decoder::new().decompress(compressed, &mut self.block).map_err(damaged)?;
        self.block.truncate(len);
        self.at = 0;
        Ok(())
    }
}

fn empty() -> CodecError {
    damaged("a block has no bytes")
}

fn damaged(reason: impl ToString) -> CodecError {
    CodecError::damaged(Codec::Snappy, reason)
}
