//! zstd: one frame. Reading is streaming for usual windows. A frame that asks for a larger window (the highest levels write it for any
//! length) is decoded in one go into a buffer that grows by what comes out, so that no window is allocated by claim.

use std::cell::Cell;
use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{
    DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, find_frame_compressed_size, get_dict_id_from_frame,
    get_error_name, get_frame_content_size,
};

use super::copy::copy_out;
use super::kind::{Codec, CodecError};

/// Up to this window the streaming decoder may allocate what a frame header asks for.
const STREAM_WINDOW_LOG_MAX: u32 = 23;
/// A decoder that has grown beyond this is not kept.
const KEPT_BYTES_MAX: usize = 512 * 1024;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;
/// The smallest window that a frame can ask for.
const WINDOW_LOG_MIN: u32 = 10;
/// The largest that readers allocate without being told to: libzstd's own limit, which Java's and librdkafka's keep.
const WINDOW_LOG_MAX: u32 = 27;
const WINDOW_TOO_LARGE: &str = "the frame asks for a window of more than 128 MiB";

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

/// Decodes the frame piece by piece.
pub(super) struct Stream<'a> {
    decoder: Option<DCtx<'static>>,
    input: InBuffer<'a>,
    /// The frame's end has been seen and checked.
    is_over: bool,
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
        Ok(Self { decoder: Some(decoder), input: InBuffer::around(input), is_over: false })
    }

    fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        let Some(decoder) = &mut self.decoder else { return Ok(0) };
        let mut out = OutBuffer::around(out);
        while out.pos() == 0 && !self.is_over {
            let is_all_in = self.input.pos() == self.input.src.len();
            self.is_over = decoder.decompress_stream(&mut out, &mut self.input).map_err(failed)? == 0;
            if is_all_in && out.pos() == 0 && !self.is_over {
                return Err(damaged("the frame is cut off"));
            }
        }
        Ok(out.pos())
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
        if check_framing(input)? == Window::Large {
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

/// How much a frame asks to be kept for looking back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// What the streaming decoder may allocate.
    Usual,
    /// More than that.
    Large,
}

/// Checks that `input` is one frame that every reader takes, from its header over the sizes of its blocks to its end,
/// without decompressing.
pub(super) fn check_framing(input: &[u8]) -> Result<Window, CodecError> {
    let Some((magic, header)) = input.split_first_chunk::<4>() else { return Err(damaged("cut short")) };
    if u32::from_le_bytes(*magic) & !0xf == SKIPPABLE_MAGIC {
        return Err(damaged("a skippable frame is not supported"));
    }
    if *magic != MAGIC {
        return Err(damaged("not a zstd frame of version 1"));
    }
    let Some(&descriptor) = header.first() else { return Err(damaged("cut short")) };
    if descriptor & 0x08 != 0 {
        return Err(damaged("a reserved bit is set in the frame header"));
    }
    let window = if descriptor & 0x20 != 0 {
        // A frame of a single segment: the window is the content.
        content_window(input, descriptor)?
    } else {
        let Some(&window) = header.get(1) else { return Err(damaged("cut short")) };
        // The low three bits add eighths.
        let log = u32::from(window >> 3) + WINDOW_LOG_MIN;
        if log > WINDOW_LOG_MAX || log == WINDOW_LOG_MAX && window & 7 != 0 {
            return Err(damaged(WINDOW_TOO_LARGE));
        }
        if log >= STREAM_WINDOW_LOG_MAX { Window::Large } else { Window::Usual }
    };
    if get_dict_id_from_frame(input).is_some() {
        return Err(damaged("dictionaries are not supported"));
    }
    if find_frame_compressed_size(input).map_err(failed)? != input.len() {
        return Err(damaged("bytes follow the frame"));
    }
    Ok(window)
}

fn content_window(input: &[u8], descriptor: u8) -> Result<Window, CodecError> {
    let claimed = get_frame_content_size(input).map_err(|_| damaged("the frame header is cut short"))?;
    if claimed.is_some_and(|claimed| claimed > 1 << WINDOW_LOG_MAX) {
        return Err(damaged(WINDOW_TOO_LARGE));
    }
    // A size of four or eight bytes can claim more than the streaming decoder may allocate.
    Ok(if descriptor & 0xc0 >= 0x80 { Window::Large } else { Window::Usual })
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
