//! Message types, and reading and writing them with their headers.
//!
//! The types come from `kacrab-protocol`, re-exported here and named nowhere else, so that it can be replaced. Of the hot
//! path, Produce requests are read and Fetch answers are written here: without copying records, and with memory that no
//! count in a request can blow up.
//!
//! Bytes after the end of a body are tolerated: librdkafka sends some.

mod fetch;
mod produce;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kacrab_protocol::generated;

pub use fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};
pub use kacrab_protocol::{KafkaString, KafkaUuid};
pub use produce::encode_old_response as encode_old_produce_response;

use super::api::ApiKey;
use super::header::{RequestHeader, put_response_header, take_response_header, unsigned_varint};

/// Types of ApiVersions (18).
pub mod api_versions {
    pub use super::generated::api_versions_request::*;
    pub use super::generated::api_versions_response::*;
}
/// Types of CreateTopics (19).
pub mod create_topics {
    pub use super::generated::create_topics_request::*;
    pub use super::generated::create_topics_response::*;
}
/// Types of DescribeConfigs (32).
pub mod describe_configs {
    pub use super::generated::describe_configs_request::*;
    pub use super::generated::describe_configs_response::*;
}
/// Types of Fetch (1).
pub mod fetch_types {
    pub use super::generated::fetch_request::*;
    pub use super::generated::fetch_response::*;
}
/// Types of FindCoordinator (10).
pub mod find_coordinator {
    pub use super::generated::find_coordinator_request::*;
    pub use super::generated::find_coordinator_response::*;
}
/// Types of InitProducerId (22).
pub mod init_producer_id {
    pub use super::generated::init_producer_id_request::*;
    pub use super::generated::init_producer_id_response::*;
}
/// Types of ListOffsets (2).
pub mod list_offsets {
    pub use super::generated::list_offsets_request::*;
    pub use super::generated::list_offsets_response::*;
}
/// Types of Metadata (3).
pub mod metadata {
    pub use super::generated::metadata_request::*;
    pub use super::generated::metadata_response::*;
}
/// Types of Produce (0).
pub mod produce_types {
    pub use super::generated::produce_request::*;
    pub use super::generated::produce_response::*;
}

pub use api_versions::{ApiVersionsRequestData, ApiVersionsResponseData};
pub use create_topics::{CreateTopicsRequestData, CreateTopicsResponseData};
pub use describe_configs::{DescribeConfigsRequestData, DescribeConfigsResponseData};
pub use fetch_types::{FetchRequestData, FetchResponseData};
pub use find_coordinator::{FindCoordinatorRequestData, FindCoordinatorResponseData};
pub use init_producer_id::{InitProducerIdRequestData, InitProducerIdResponseData};
pub use list_offsets::{ListOffsetsRequestData, ListOffsetsResponseData};
pub use metadata::{MetadataRequestData, MetadataResponseData};
pub use produce_types::{ProduceRequestData, ProduceResponseData};

/// Why a message cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{message} version {version}: {reason}")]
pub struct MessageError {
    message: &'static str,
    version: i16,
    reason: String,
}

impl MessageError {
    fn new(api: ApiKey, version: i16, reason: impl ToString) -> Self {
        Self { message: api.api().name, version, reason: reason.to_string() }
    }
}

/// A message body that can be read and written.
pub trait Message: Sized + Send + Sync + 'static {
    /// The API it belongs to.
    const API: ApiKey;
    /// Reads it; what follows it in `body` is left there.
    fn read_body(body: &mut Bytes, version: i16) -> Result<Self, MessageError>;
    /// Appends it.
    fn write_body(&self, out: &mut BytesMut, version: i16) -> Result<(), MessageError>;
    /// Bytes that [`write_body`](Self::write_body) will append.
    fn body_len(&self, version: i16) -> Result<usize, MessageError>;
}

/// A request, which knows the type of its answer.
pub trait Request: Message {
    /// The answer.
    type Response: Message;
}

/// Implements [`Message`] by the methods of a generated type; `read` may be replaced.
macro_rules! message {
    ($type:ty, $api:ident) => {
        message!($type, $api, <$type>::read);
    };
    ($type:ty, $api:ident, $read:expr) => {
        impl Message for $type {
            const API: ApiKey = ApiKey::$api;

            fn read_body(body: &mut Bytes, version: i16) -> Result<Self, MessageError> {
                $read(body, version).map_err(|error| MessageError::new(Self::API, version, error))
            }

            fn write_body(&self, out: &mut BytesMut, version: i16) -> Result<(), MessageError> {
                self.write(out, version).map_err(|error| MessageError::new(Self::API, version, error))
            }

            fn body_len(&self, version: i16) -> Result<usize, MessageError> {
                self.encoded_len(version).map_err(|error| MessageError::new(Self::API, version, error))
            }
        }
    };
}

macro_rules! api {
    ($api:ident, $request:ty, $response:ty $(, $read:expr)?) => {
        message!($request, $api $(, $read)?);
        message!($response, $api);

        impl Request for $request {
            type Response = $response;
        }
    };
}

api!(ApiVersions, ApiVersionsRequestData, ApiVersionsResponseData);
api!(CreateTopics, CreateTopicsRequestData, CreateTopicsResponseData);
api!(DescribeConfigs, DescribeConfigsRequestData, DescribeConfigsResponseData);
api!(Fetch, FetchRequestData, FetchResponseData);
api!(FindCoordinator, FindCoordinatorRequestData, FindCoordinatorResponseData);
api!(InitProducerId, InitProducerIdRequestData, InitProducerIdResponseData);
api!(ListOffsets, ListOffsetsRequestData, ListOffsetsResponseData);
api!(Metadata, MetadataRequestData, MetadataResponseData, read_metadata);
api!(Produce, ProduceRequestData, ProduceResponseData, produce::read_request);

/// Topics that one Metadata request may name: an entry of two bytes takes fifty times as much once it is read.
const METADATA_TOPICS_MAX: usize = 100_000;
/// From this version on, Metadata has tagged fields.
const METADATA_FLEXIBLE_FROM: i16 = 9;

/// Reads a Metadata request, after a look at how much it would be.
fn read_metadata(body: &mut Bytes, version: i16) -> Result<MetadataRequestData, String> {
    let mut start = body.clone();
    let topics = if version >= METADATA_FLEXIBLE_FROM {
        unsigned_varint(&mut start).map(|len| len.saturating_sub(1) as usize)
    } else {
        start.try_get_i32().ok().map(|len| usize::try_from(len).unwrap_or(0))
    };
    match topics {
        Some(topics) if topics > METADATA_TOPICS_MAX => Err(format!("more than {METADATA_TOPICS_MAX} topics")),
        _ => MetadataRequestData::read(body, version).map_err(|error| error.to_string()),
    }
}

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

/// Puts the length in front, for which four bytes are kept there.
fn finish_frame(mut out: BytesMut, api: ApiKey, version: i16) -> Result<Bytes, MessageError> {
    let len =
        i32::try_from(out.len() - 4).map_err(|_| MessageError::new(api, version, "larger than a frame can be"))?;
    out[..4].copy_from_slice(&len.to_be_bytes());
    Ok(out.freeze())
}

/// The most that a text for people takes in an answer, in bytes. What it quotes may be as long as a string can be.
const TEXT_BYTES_MAX: usize = 4096;

/// A text for people, cut if it quotes something very long.
pub fn text(text: &str) -> KafkaString {
    if text.len() <= TEXT_BYTES_MAX {
        return string(text);
    }
    string(&format!("{}…", &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]))
}

/// A string for a message field.
pub fn string(text: &str) -> KafkaString {
    KafkaString::from(text.to_owned())
}

#[cfg(test)]
mod tests;
