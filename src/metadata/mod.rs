//! What the cluster agrees on: brokers, topics, partitions, leader epochs, producer id blocks, topic configuration.
//!
//! [`ClusterImage`] is a pure state machine: [`Command`]s carry every id and timestamp, applying reads no clock and no
//! rng. [`MetadataStore`] makes commands durable in a checksummed log of its own and applies them in order. A cluster
//! of one uses the same path as a larger one will: `propose(command).await`, entries with (term, index), and "not the
//! controller" as a possible answer. Nothing here knows of requests or protocol codes.

mod codec;
mod command;
pub mod config_def;
mod end;
mod folder;
mod image;
mod log;
mod look;
mod names;
mod snapshot;
mod store;
#[cfg(test)]
mod tests;
mod topic_config;

pub use command::{Command, NewPartition};
pub use folder::{DataFolder, FolderError};
pub use image::{Broker, ClusterImage, LogId, Outcome, Partition, Rejection, Topic};
pub use log::LogError;
pub use names::{TopicNameError, collision_key, validate_topic_name};
pub use store::{Applied, FoundMetadata, MetadataStore, ProposeError};
pub use topic_config::{CleanupPolicy, TopicConfig, TopicConfigError, TopicDefaults, TopicKey, topic_keys};
