//! Message types, and reading and writing them with their headers.
//!
//! Of the hot path, Produce requests are read and Fetch answers are written here: without copying records, and with memory
//! that no count in a request can blow up.
//!
//! Bytes after the end of a body are tolerated: librdkafka sends some.

mod envelope;
mod error;
mod fetch;
mod length;
mod message;
mod produce;
#[cfg(test)]
mod tests;
mod text;

pub use envelope::{decode_request, decode_response, encode_request, encode_response};
pub use error::MessageError;
pub use fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};
pub use message::{Message, Request};
pub use produce::encode_old_response as encode_old_produce_response;
pub use text::{string, text};

pub use crate::types::{
    ApiVersionsRequestData, ApiVersionsResponseData, CreateTopicsRequestData, CreateTopicsResponseData,
    DescribeConfigsRequestData, DescribeConfigsResponseData, FetchRequestData, FetchResponseData,
    FindCoordinatorRequestData, FindCoordinatorResponseData, InitProducerIdRequestData, InitProducerIdResponseData,
    KafkaString, KafkaUuid, ListOffsetsRequestData, ListOffsetsResponseData, MetadataRequestData, MetadataResponseData,
    ProduceRequestData, ProduceResponseData, api_versions, create_topics, describe_configs, fetch_types,
    find_coordinator, init_producer_id, list_offsets, metadata, produce_types,
};
