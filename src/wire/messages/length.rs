//! The length in front of a frame.

use bytes::{Bytes, BytesMut};

use super::error::MessageError;
use crate::api::ApiKey;

/// Puts the length in front, for which four bytes are kept there.
pub(super) fn finish_frame(mut out: BytesMut, api: ApiKey, version: i16) -> Result<Bytes, MessageError> {
    let len =
        i32::try_from(out.len() - 4).map_err(|_| MessageError::new(api, version, "larger than a frame can be"))?;
    out[..4].copy_from_slice(&len.to_be_bytes());
    Ok(out.freeze())
}
