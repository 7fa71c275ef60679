//! Whole frames: a message with its header, and the length in front.

use bytes::{BufMut, Bytes, BytesMut};

use super::error::MessageError;
use super::length::finish_frame;
use super::message::{Message, Request};
use crate::header::{RequestHeader, put_response_header, take_response_header};
use crate::types::KafkaString;

/// Reads the body of a request, which its header has been taken off. Bytes left over are tolerated.
pub fn decode_request<R: Request>(mut body: Bytes, version: i16) -> Result<R, MessageError> {
    R::read_body(&mut body, version)
}

/// A whole request frame, length included.
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: Option<&KafkaString>,
) -> Result<Bytes, MessageError> {
    let body_len = request.body_len(version)?;
    let client_id = client_id.cloned();
    let mut out = BytesMut::with_capacity(4 + 11 + client_id.as_ref().map_or(0, KafkaString::len) + body_len);
    out.put_i32(0);
    RequestHeader { api_key: R::API.code(), api_version: version, correlation_id, client_id }.encode(R::API, &mut out);
    request.write_body(&mut out, version)?;
    finish_frame(out, R::API, version)
}

/// A whole answer frame, length included.
pub fn encode_response<A: Message>(response: &A, version: i16, correlation_id: i32) -> Result<Bytes, MessageError> {
    let mut out = BytesMut::with_capacity(4 + 5 + response.body_len(version)?);
    out.put_i32(0);
    put_response_header(&mut out, A::API, version, correlation_id);
    response.write_body(&mut out, version)?;
    finish_frame(out, A::API, version)
}

/// Reads an answer frame without its length: correlation id and body.
pub fn decode_response<A: Message>(mut frame: Bytes, version: i16) -> Result<(i32, A), MessageError> {
    let correlation_id =
        take_response_header(&mut frame, A::API, version).map_err(|error| MessageError::new(A::API, version, error))?;
    Ok((correlation_id, A::read_body(&mut frame, version)?))
}
