//! Reading zstd: streaming for usual windows. A frame that asks for a larger window (the highest levels write it for any
//! length) is decoded in one go into a buffer that grows by what comes out, so that no window is allocated by claim.

use std::io::Read;

use super::{Codec, CodecError, copy_out};

/// Up to this window the streaming decoder may allocate what a frame header asks for.
const STREAM_WINDOW_LOG_MAX: u32 = 23;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Gives the decompressed bytes.
pub(super) enum Reader<'a> {
    Stream(Box<zstd::stream::read::Decoder<'static, &'a [u8]>>),
    Whole { bytes: Vec<u8>, at: usize },
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: &'a [u8], limit: usize) -> Result<Self, CodecError> {
        if wants_large_window(input) {
            return Ok(Self::Whole { bytes: whole(input, limit)?, at: 0 });
        }
        let mut decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(damaged)?;
        decoder.window_log_max(STREAM_WINDOW_LOG_MAX).map_err(damaged)?;
        Ok(Self::Stream(Box::new(decoder)))
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        match self {
            Self::Stream(decoder) => decoder.read(out).map_err(damaged),
            Self::Whole { bytes, at } => Ok(copy_out(bytes, at, out)),
        }
    }
}

/// Whether the first frame's header asks for a window that the streaming decoder may not have.
fn wants_large_window(input: &[u8]) -> bool {
    let Some([descriptor, window, ..]) = input.strip_prefix(&MAGIC) else { return false };
    if descriptor & 0x20 != 0 {
        // In a frame of a single segment the window is the content, and the size claim has four or eight bytes.
        descriptor & 0xc0 >= 0x80
    } else {
        // The low three bits add eighths, so that the window is below the next power of two.
        u32::from(window >> 3) + 10 >= STREAM_WINDOW_LOG_MAX
    }
}

fn whole(input: &[u8], limit: usize) -> Result<Vec<u8>, CodecError> {
    let mut decompressor = zstd::bulk::Decompressor::new().map_err(damaged)?;
    let mut capacity = input.len().saturating_mul(4).max(64 * 1024).min(limit.saturating_add(1));
    loop {
        let mut out = Vec::with_capacity(capacity);
        match decompressor.decompress_to_buffer(input, &mut out) {
            Ok(_) => return Ok(out),
            Err(error) if capacity > limit || !is_too_small(&error) => {
                return Err(if is_too_small(&error) { CodecError::TooLarge { limit } } else { damaged(error) });
            }
            Err(_) => capacity = capacity.saturating_mul(4).min(limit.saturating_add(1)),
        }
    }
}

/// zstd reports by text only; this is the name of its error 70.
fn is_too_small(error: &std::io::Error) -> bool {
    error.to_string().contains("Destination buffer is too small")
}

fn damaged(reason: impl ToString) -> CodecError {
    CodecError::damaged(Codec::Zstd, reason)
}
