//! Compression of record batches: gzip, snappy (raw and in the Java framing), LZ4 frames, zstd.
//!
//! Decompression is streaming and bounded: memory grows with the bytes that really come out, never with a claimed size.

mod copy;
mod kind;
mod lz4;
mod snappy;
mod zstd;

use std::io::{self, Read, Write};

pub use kind::{Codec, CodecError};

/// Compresses `input` at the codec's usual level.
pub fn compress(codec: Codec, input: &[u8]) -> Result<Vec<u8>, CodecError> {
    let out = match codec {
        Codec::None => Ok(input.to_vec()),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(input).and_then(|()| encoder.finish())
        }
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(input).map_err(io::Error::other),
        Codec::Lz4 => lz4::compress(input),
        Codec::Zstd => zstd::compress(input),
    };
    out.map_err(|error| CodecError::damaged(codec, error))
}

/// Decompresses all of `input`; more than `limit` bytes are an error.
pub fn decompress(codec: Codec, input: &[u8], limit: usize) -> Result<Vec<u8>, CodecError> {
    let mut decompressor = Decompressor::new(codec, input, limit)?;
    let mut out = vec![0; (input.len().saturating_mul(3)).clamp(512, 64 * 1024)];
    let mut len = 0;
    loop {
        if len == out.len() {
            out.resize(len * 2, 0);
        }
        match decompressor.read(&mut out[len..])? {
            0 => break,
            read => len += read,
        }
    }
    out.truncate(len);
    Ok(out)
}

/// Gives the decompressed bytes piece by piece, up to a bound.
pub struct Decompressor<'a> {
    codec: Codec,
    source: Decoder<'a>,
    /// Bytes that may still come out.
    left: usize,
    limit: usize,
}

enum Decoder<'a> {
    Plain(&'a [u8]),
    Gzip(Box<flate2::bufread::MultiGzDecoder<&'a [u8]>>),
    Snappy(snappy::SnappyReader<'a>),
    Lz4(lz4::Lz4Reader<'a>),
    Zstd(zstd::ZstdReader<'a>),
}

impl<'a> Decompressor<'a> {
    /// Starts on `input`; at most `limit` bytes will come out.
    pub fn new(codec: Codec, input: &'a [u8], limit: usize) -> Result<Self, CodecError> {
        let source = match codec {
            Codec::None => Decoder::Plain(input),
            Codec::Gzip => Decoder::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(input))),
            Codec::Snappy => Decoder::Snappy(snappy::SnappyReader::new(input, limit)),
            Codec::Lz4 => Decoder::Lz4(lz4::Lz4Reader::new(input)),
            Codec::Zstd => Decoder::Zstd(zstd::ZstdReader::new(input, limit)?),
        };
        Ok(Self { codec, source, left: limit, limit })
    }

    /// Fills the front of `out` and tells how much; 0 is the end. The end is only reported once the format's own end
    /// has been seen and checked.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        if out.is_empty() {
            return Ok(0);
        }
        let read = match &mut self.source {
            Decoder::Plain(rest) => rest.read(out).map_err(|error| CodecError::damaged(self.codec, error)),
            Decoder::Gzip(decoder) => decoder.read(out).map_err(|error| CodecError::damaged(self.codec, error)),
            Decoder::Snappy(reader) => reader.read(out),
            Decoder::Lz4(reader) => reader.read(out),
            Decoder::Zstd(reader) => reader.read(out),
        }?;
        self.left = self.left.checked_sub(read).ok_or(CodecError::TooLarge { limit: self.limit })?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
