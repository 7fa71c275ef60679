//! Compression of record batches: gzip, snappy (raw and in the Java framing), LZ4 frames, zstd.
//!
//! Decompression is streaming and bounded: memory grows with the bytes that really come out, never with a claimed size.
//!
//! It is also strict: what is taken here, every reader of the protocol takes. The formats allow more than that, and readers
//! differ in it; where one of Java's, librdkafka's and kafka-python's cannot read something that no producer writes, it is
//! damaged here. So each batch holds one frame (member, stream) with nothing in front of it and nothing behind it.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::io::{self, Read, Write};

/// How the records of a batch are compressed: the low three bits of its attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Codec {
    /// Not compressed.
    #[default]
    None = 0,
    /// gzip.
    Gzip = 1,
    /// snappy, raw or in the Java (xerial) framing.
    Snappy = 2,
    /// LZ4 frames of independent blocks.
    Lz4 = 3,
    /// zstd.
    Zstd = 4,
}

impl Codec {
    /// All codecs, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of a number in batch attributes.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }

    /// The number in batch attributes.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The name in configuration (`compression.type`).
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The codec of a name in configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

/// Why bytes could not be compressed or decompressed.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The data does not follow its format.
    #[error("{codec} data is damaged: {reason}", codec = .codec.name())]
    Damaged {
        /// The codec.
        codec: Codec,
        /// What is wrong.
        reason: String,
    },
    /// More comes out than is allowed.
    #[error("more than {limit} bytes come out of the decompression")]
    TooLarge {
        /// The bound, in bytes.
        limit: usize,
    },
}

impl CodecError {
    fn damaged(codec: Codec, reason: impl ToString) -> Self {
        Self::Damaged { codec, reason: reason.to_string() }
    }
}

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

/// Checks as much of what every reader needs as can be told without decompressing. [`Decompressor`] checks all of it.
pub fn check_framing(codec: Codec, input: &[u8]) -> Result<(), CodecError> {
    match codec {
        Codec::None => Ok(()),
        Codec::Gzip => gzip::check_framing(input),
        Codec::Snappy => snappy::check_framing(input),
        Codec::Lz4 => lz4::check_framing(input),
        Codec::Zstd => zstd::check_framing(input).map(|_| ()),
    }
}

/// Gives the decompressed bytes piece by piece, up to a bound.
pub struct Decompressor<'a> {
    codec: Codec,
    source: Source<'a>,
    /// Bytes that may still come out.
    left: usize,
    limit: usize,
}

enum Source<'a> {
    Plain(&'a [u8]),
    Gzip(gzip::Reader<'a>),
    Snappy(snappy::Reader<'a>),
    Lz4(lz4::Reader<'a>),
    Zstd(zstd::Reader<'a>),
}

impl<'a> Decompressor<'a> {
    /// Starts on `input`; at most `limit` bytes will come out.
    pub fn new(codec: Codec, input: &'a [u8], limit: usize) -> Result<Self, CodecError> {
        let source = match codec {
            Codec::None => Source::Plain(input),
            Codec::Gzip => Source::Gzip(gzip::Reader::new(input)?),
            Codec::Snappy => Source::Snappy(snappy::Reader::new(input, limit)?),
            Codec::Lz4 => Source::Lz4(lz4::Reader::new(input)?),
            Codec::Zstd => Source::Zstd(zstd::Reader::new(input, limit)?),
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
            Source::Plain(rest) => rest.read(out).map_err(|error| CodecError::damaged(self.codec, error)),
            Source::Gzip(reader) => reader.read(out),
            Source::Snappy(reader) => reader.read(out),
            Source::Lz4(reader) => reader.read(out),
            Source::Zstd(reader) => reader.read(out),
        }?;
        self.left = self.left.checked_sub(read).ok_or(CodecError::TooLarge { limit: self.limit })?;
        Ok(read)
    }
}

/// Copies from the front of `from` at `at` into `out`, moving `at`.
fn copy_out(from: &[u8], at: &mut usize, out: &mut [u8]) -> usize {
    let len = out.len().min(from.len() - *at);
    out[..len].copy_from_slice(&from[*at..*at + len]);
    *at += len;
    len
}

#[cfg(test)]
mod tests;
