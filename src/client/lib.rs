//! Clients of the protocol: the pipelined connection and what is built on it. Uses `io` and `wire` only.
//!
//! [`Connection`] carries requests to one broker; [`Cluster`] finds the brokers that lead partitions; [`partition_for_key`]
//! chooses the partition that other Kafka clients choose.

mod cluster;
mod connection;
mod partitioner;

pub use cluster::{Cluster, ClusterError, Create, PartitionInfo, TopicInfo};
pub use connection::{Call, CallError, ConnectError, Connection, ConnectionConfig};
pub use partitioner::{murmur2, partition_for_key};
