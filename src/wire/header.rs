//! Headers of requests and answers.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::api::ApiKey;
use super::types::KafkaString;

/// The header of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API's number, which may be none that is known.
    pub api_key: i16,
    /// The version of header and body.
    pub api_version: i16,
    /// Comes back in the answer.
    pub correlation_id: i32,
    /// What the client calls itself. `None` also where API or version are unknown: the header is then not read further.
    pub client_id: Option<KafkaString>,
}

/// Why a header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed request header: {0}")]
pub struct HeaderError(&'static str);

impl RequestHeader {
    /// Takes the header off the front of a request. Where API or version are unknown, only what all versions have in
    /// common is taken: enough to say so in an answer.
    pub fn decode(frame: &mut Bytes) -> Result<Self, HeaderError> {
        if frame.len() < 8 {
            return Err(HeaderError("shorter than any header"));
        }
        let api_key = frame.get_i16();
        let api_version = frame.get_i16();
        let correlation_id = frame.get_i32();
        let api = ApiKey::from_code(api_key).map(ApiKey::api).filter(|api| api.accepts(api_version));
        let client_id = match api {
            None => None,
            Some(api) => {
                let client_id = take_client_id(frame)?;
                if api.is_flexible(api_version) {
                    skip_tagged_fields(frame).ok_or(HeaderError("bad tagged fields"))?;
                }
                client_id
            }
        };
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    /// Appends the header of a request that this side sends.
    pub(crate) fn encode(&self, api: ApiKey, out: &mut BytesMut) {
        out.put_i16(self.api_key);
        out.put_i16(self.api_version);
        out.put_i32(self.correlation_id);
        match &self.client_id {
            None => out.put_i16(-1),
            Some(client_id) => {
                let len = client_id.len().min(i16::MAX as usize);
                out.put_i16(len as i16);
                out.put_slice(&client_id.as_bytes()[..len]);
            }
        }
        if api.api().is_flexible(self.api_version) {
            out.put_u8(0);
        }
    }
}

fn take_client_id(frame: &mut Bytes) -> Result<Option<KafkaString>, HeaderError> {
    let malformed = HeaderError("bad client id");
    let len = frame.try_get_i16().map_err(|_| malformed)?;
    if len < 0 {
        return Ok(None);
    }
    let len = len as usize;
    if len > frame.len() {
        return Err(malformed);
    }
    KafkaString::new(frame.split_to(len)).map(Some).map_err(|_| malformed)
}

/// Skips a section of tagged fields. Nothing is kept of it: no field of a request header or of the hot path has a tag.
pub(super) fn skip_tagged_fields(bytes: &mut Bytes) -> Option<()> {
    let count = unsigned_varint(bytes)?;
    for _ in 0..count {
        unsigned_varint(bytes)?;
        let len = unsigned_varint(bytes)? as usize;
        if len > bytes.len() {
            return None;
        }
        bytes.advance(len);
    }
    Some(())
}

/// Reads an unsigned varint of 32 bits.
pub(super) fn unsigned_varint(bytes: &mut Bytes) -> Option<u32> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = bytes.try_get_u8().ok()?;
        if shift == 28 && byte > 0x0f {
            return None;
        }
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Appends an unsigned varint.
pub(super) fn put_unsigned_varint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Appends the header of an answer.
pub(super) fn put_response_header(out: &mut BytesMut, api: ApiKey, version: i16, correlation_id: i32) {
    out.put_i32(correlation_id);
    if api.api().response_header_version(version) > 0 {
        out.put_u8(0);
    }
}

/// Takes the header off the front of an answer and tells its correlation id.
pub(crate) fn take_response_header(frame: &mut Bytes, api: ApiKey, version: i16) -> Result<i32, HeaderError> {
    let correlation_id = frame.try_get_i32().map_err(|_| HeaderError("shorter than any header"))?;
    if api.api().response_header_version(version) > 0 {
        skip_tagged_fields(frame).ok_or(HeaderError("bad tagged fields"))?;
    }
    Ok(correlation_id)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{RequestHeader as Theirs, ResponseHeader};
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use proptest::prelude::*;

    use super::*;
    use crate::api::APIS;

    #[test]
    fn headers_are_those_of_another_implementation() {
        for api in APIS {
            for version in api.implemented_min..=api.max {
                let header_version = if api.is_flexible(version) { 2 } else { 1 };
                let mut theirs = BytesMut::new();
                Theirs::default()
                    .with_request_api_key(api.key.code())
                    .with_request_api_version(version)
                    .with_correlation_id(77)
                    .with_client_id(Some(StrBytes::from_static_str("me")))
                    .encode(&mut theirs, header_version)
                    .expect("they write it");
                let mut frame = theirs.clone().freeze();
                let header = RequestHeader::decode(&mut frame).expect("well-formed");
                assert!(frame.is_empty());
                assert_eq!(
                    (header.correlation_id, header.client_id.as_ref().map(KafkaString::as_str)),
                    (77, Some("me"))
                );
                let mut ours = BytesMut::new();
                header.encode(api.key, &mut ours);
                assert_eq!(ours, theirs);

                let mut response = BytesMut::new();
                put_response_header(&mut response, api.key, version, 78);
                let mut theirs = response.clone().freeze();
                let header_version = api.response_header_version(version);
                let read = ResponseHeader::decode(&mut theirs, header_version).expect("they read it");
                assert_eq!((read.correlation_id, theirs.len()), (78, 0));
                let mut ours = response.freeze();
                assert_eq!(take_response_header(&mut ours, api.key, version), Ok(78));
                assert!(ours.is_empty());
            }
        }
    }

    #[test]
    fn unknown_apis_and_versions_leave_the_rest_alone() {
        for (key, version) in [(999, 0), (18, 99), (3, 150), (3, -1)] {
            let mut frame = BytesMut::new();
            frame.put_i16(key);
            frame.put_i16(version);
            frame.put_slice(&[0, 0, 0, 5, 0xff, 0xff, 0xff]);
            let mut frame = frame.freeze();
            let header = RequestHeader::decode(&mut frame).expect("enough to answer");
            assert_eq!((header.api_key, header.api_version, header.correlation_id), (key, version, 5));
            assert_eq!(header.client_id, None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_header_or_an_error(key in 0..40_i16, version in 0..20_i16, rest in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut frame = BytesMut::new();
            frame.put_i16(key);
            frame.put_i16(version);
            frame.put_slice(&rest);
            let _ = RequestHeader::decode(&mut frame.freeze());
        }
    }
}
