//! gzip: one member. Readers differ in what they make of more: Java's and Python's read on, librdkafka's stops behind the
//! first without a word.

use std::io::Read;

use flate2::bufread::GzDecoder;

use super::kind::{Codec, CodecError};

const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The one method of compression.
const DEFLATE: u8 = 8;
/// Flags that no version of the format knows. zlib refuses them.
const RESERVED_FLAGS: u8 = 0xe0;
/// The shortest member: header, an empty deflate stream, checksum and size.
const MEMBER_BYTES_MIN: usize = 10 + 2 + 8;

/// Checks the header. Where the member ends, only decompressing can tell.
pub(super) fn check_framing(input: &[u8]) -> Result<(), CodecError> {
    if !input.starts_with(&MAGIC) {
        return Err(damaged("not a gzip member"));
    }
    if input.len() < MEMBER_BYTES_MIN {
        return Err(damaged("cut short"));
    }
    let [method, flags] = [input[2], input[3]];
    if method != DEFLATE {
        return Err(damaged("unknown method of compression"));
    }
    if flags & RESERVED_FLAGS != 0 {
        return Err(damaged("a reserved flag is set in the header"));
    }
    Ok(())
}

/// Gives the decompressed bytes.
pub(super) struct GzipReader<'a>(Box<GzDecoder<&'a [u8]>>);

impl<'a> GzipReader<'a> {
    pub(super) fn new(input: &'a [u8]) -> Result<Self, CodecError> {
        check_framing(input)?;
        Ok(Self(Box::new(GzDecoder::new(input))))
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        let read = self.0.read(out).map_err(damaged)?;
        if read == 0 && !self.0.get_ref().is_empty() {
            return Err(damaged("bytes follow the member"));
        }
        Ok(read)
    }
}

fn damaged(reason: impl ToString) -> CodecError {
    CodecError::damaged(Codec::Gzip, reason)
}
