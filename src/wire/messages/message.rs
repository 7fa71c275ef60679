//! What a message is, and which type is which.

use bytes::{Buf, Bytes, BytesMut};

use super::error::MessageError;
use super::produce;
use crate::api::ApiKey;
use crate::header::unsigned_varint;
use crate::types::{
    ApiVersionsRequestData, ApiVersionsResponseData, CreateTopicsRequestData, CreateTopicsResponseData,
    DescribeConfigsRequestData, DescribeConfigsResponseData, FetchRequestData, FetchResponseData,
    FindCoordinatorRequestData, FindCoordinatorResponseData, InitProducerIdRequestData, InitProducerIdResponseData,
    ListOffsetsRequestData, ListOffsetsResponseData, MetadataRequestData, MetadataResponseData, ProduceRequestData,
    ProduceResponseData,
};

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
