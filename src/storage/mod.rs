//! Files: write-ahead log, segments, indexes, the tail ring, manifest and checkpoint. Knows nothing of the protocol
//! beyond the record batch that it stores verbatim.

pub mod checkpoint;
pub(crate) mod durable;
pub mod frame;
mod ids;
mod index;
pub mod manifest;
pub mod names;
pub mod ring;
pub mod segment;
mod time_index;
pub mod wal;

pub use checkpoint::{Checkpoint, CheckpointStore, EpochStart};
pub use ids::{Lsn, PartitionKey, TopicId};
pub use index::IndexRule;
pub use manifest::{Manifest, Sealed, SegmentMeta, Tier};
pub use names::{FileKind, PartitionDir, PartitionName};
pub use ring::{Ring, RingRead};
pub use segment::{Segment, SegmentContext, SegmentOptions};
