//! Which partition a log is for, as the layers above describe it.

use super::config::LogConfig;
use crate::storage::PartitionKey;

/// A partition as the cluster's metadata describes it.
#[derive(Clone, Debug)]
pub struct PartitionSpec {
    /// Which partition.
    pub key: PartitionKey,
    /// The topic's name: directories and files are named after it.
    pub topic: String,
    /// The epoch in which this broker leads it.
    pub leader_epoch: i32,
    /// The topic's settings.
    pub config: LogConfig,
}
