//! The partition log: offsets, append, read, producer state, leader epochs, recovery.
//!
//! What lives where: [`producer`], `first_batch`, [`epochs`], [`state`], `reach` and `wal_floor` are pure. `partition` appends and
//! commits, `read` serves, `write_behind` brings durable records to the segment files, `segments` keeps those files. `recovery`
//! puts it all together again at start: `open` and `rebuild` look, `replay` and `reach` decide, `settle` does. [`LogManager`] owns
//! the partitions of a broker.

mod config;
mod context;
pub mod epochs;
mod error;
mod first_batch;
mod manager;
mod open;
mod partition;
pub mod producer;
mod reach;
mod read;
mod rebuild;
mod recovery;
mod replay;
mod restore;
mod segments;
mod settle;
mod space;
mod spec;
pub mod state;
mod wal_floor;
mod write_behind;

#[cfg(test)]
mod tests;

pub use config::{LogConfig, LogManagerConfig, TailConfig, TimestampType};
pub use error::OpenError;
pub use manager::{LogManager, RecoveredLogs};
pub use partition::{AppendError, Offsets, PartitionLog, Pending, QueueFull, QueuePermit};
pub use read::{Isolation, ReadError, ReadResult};
pub use spec::PartitionSpec;
