//! The types of messages. They come from `kacrab-protocol`, re-exported here and named nowhere else, so that it can be
//! replaced.

use kacrab_protocol::generated;
pub use kacrab_protocol::{KafkaString, KafkaUuid};

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
