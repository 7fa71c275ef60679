//! zstd. Reading is streaming for usual windows. A frame that asks for a larger window (the highest levels write it for any
//! length) is decoded in one go into a buffer that grows by what comes out, so that no window is allocated by claim.

use std::cell::Cell;
use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, get_error_name};

use super::copy::copy_out;
use super::kind::{Codec, CodecError};

/// Up to this window the streaming decoder may allocate what a frame header asks for.
const STREAM_WINDOW_LOG_MAX: u32 = 23;
/// A decoder that has grown beyond this is not kept.
const KEPT_BYTES_MAX: usize = 512 * 1024;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

thread_local! {
    /// The decoder that the last batch used: making one costs more than decoding a small batch.
    static KEPT: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
    /// And the compressor.
    static COMPRESSOR: Cell<Option<Compressor<'static>>> = const { Cell::new(None) };
}

/// Compresses into one frame.
pub(super) fn compress(input: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = match COMPRESSOR.take() {
        Some(compressor) => compressor,
        None => Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL)?,
    };
    let output = compressor.compress(input)?;
    COMPRESSOR.set(Some(compressor));
    Ok(output)
}

/// Gives the decompressed bytes.
pub(super) enum ZstdReader<'a> {
    Stream(Stream<'a>),
    Whole { bytes: Vec<u8>, at: usize },
}

/// Decodes frame after frame.
pub(super) struct Stream<'a> {
    decoder: Option<DCtx<'static>>,
    input: InBuffer<'a>,
    /// After a whole frame. Not before the first: no bytes at all are no frame.
    is_at_border: bool,
}

impl<'a> Stream<'a> {
    fn new(input: &'a [u8]) -> Result<Self, CodecError> {
        let decoder = match KEPT.take() {
            Some(decoder) => decoder,
            None => {
                let mut decoder = DCtx::try_create().ok_or_else(|| damaged("there is no memory for a decoder"))?;
                decoder.set_parameter(DParameter::WindowLogMax(STREAM_WINDOW_LOG_MAX)).map_err(failed)?;
                decoder
            }
        };
        Ok(Self { decoder: Some(decoder), input: InBuffer::around(input), is_at_border: false })
    }

    fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        let Some(decoder) = &mut self.decoder else { return Ok(0) };
        let mut out = OutBuffer::around(out);
        loop {
            let is_over = self.input.pos() == self.input.src.len();
            if is_over && self.is_at_border {
                return Ok(out.pos());
            }
            let hint = decoder.decompress_stream(&mut out, &mut self.input).map_err(failed)?;
            self.is_at_border = hint == 0;
            if out.pos() > 0 {
                return Ok(out.pos());
            }
            if is_over && !self.is_at_border {
                return Err(damaged("the frame is cut off"));
            }
        }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if let Some(mut decoder) = self.decoder.take()
            && decoder.reset(ResetDirective::SessionOnly).is_ok()
            && decoder.sizeof() <= KEPT_BYTES_MAX
        {
            KEPT.set(Some(decoder));
        }
    }
}

impl<'a> ZstdReader<'a> {
    pub(super) fn new(input: &'a [u8], limit: usize) -> Result<Self, CodecError> {
        if wants_large_window(input) {
            return Ok(Self::Whole { bytes: whole(input, limit)?, at: 0 });
        }
        Ok(Self::Stream(Stream::new(input)?))
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        match self {
            Self::Stream(stream) => stream.read(out),
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

fn failed(code: usize) -> CodecError {
    damaged(get_error_name(code))
}

fn damaged(reason: impl ToString) -> CodecError {
    CodecError::damaged(Codec::Zstd, reason)
}
