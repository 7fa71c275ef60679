//! Files: write-ahead log, segments, indexes, the tail ring, manifest and checkpoint. Knows nothing of the protocol
//! beyond the record batch that it stores verbatim.

mod ids;
pub mod wal;

pub use ids::{Lsn, PartitionKey, TopicId};
