//! Reading snappy as Kafka clients write it: either one raw block, or the Java (xerial) framing, which is a header of 16
//! bytes and then raw blocks, each behind its length. Streams in that framing may be concatenated, header and all.

use super::copy::copy_out;
use super::kind::{Codec, CodecError};

const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// The magic, then version and lowest compatible version, four bytes each.
const XERIAL_HEADER_BYTES: usize = 16;
/// The densest element, three bytes, copies 64.
const EXPANSION_MAX: usize = 22;

/// Gives the decompressed bytes.
pub(super) struct SnappyReader<'a> {
    rest: &'a [u8],
    framed: bool,
    /// The block being given out.
    block: Vec<u8>,
    at: usize,
    limit: usize,
}

impl<'a> SnappyReader<'a> {
    pub(super) fn new(input: &'a [u8], limit: usize) -> Self {
        Self { rest: input, framed: input.starts_with(&XERIAL_MAGIC), block: Vec::new(), at: 0, limit }
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        while self.at == self.block.len() {
            if self.rest.is_empty() {
                return Ok(0);
            }
            let compressed = self.next_block()?;
            self.decompress(compressed)?;
        }
        Ok(copy_out(&self.block, &mut self.at, out))
    }

    /// The bytes of the next raw block.
    fn next_block(&mut self) -> Result<&'a [u8], CodecError> {
        if !self.framed {
            return Ok(std::mem::take(&mut self.rest));
        }
        if self.rest.starts_with(&XERIAL_MAGIC) {
            self.rest =
                self.rest.get(XERIAL_HEADER_BYTES..).ok_or_else(|| damaged("the stream header is cut short"))?;
            if self.rest.is_empty() {
                return Ok(&[0]);
            }
        }
        let (len, rest) = self.rest.split_first_chunk::<4>().ok_or_else(|| damaged("a block length is cut short"))?;
        let len = usize::try_from(i32::from_be_bytes(*len)).map_err(|_| damaged("a block length is negative"))?;
        let (block, rest) = rest.split_at_checked(len).ok_or_else(|| damaged("a block is cut short"))?;
        self.rest = rest;
        Ok(block)
    }

    fn decompress(&mut self, compressed: &[u8]) -> Result<(), CodecError> {
        // The block claims its size; what its bytes could at most expand to bounds what is believed.
        let claimed = snap::raw::decompress_len(compressed).map_err(damaged)?;
        if claimed > compressed.len().saturating_mul(EXPANSION_MAX) {
            return Err(damaged("a block claims more bytes than it can hold"));
        }
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

fn damaged(reason: impl ToString) -> CodecError {
    CodecError::damaged(Codec::Snappy, reason)
}
