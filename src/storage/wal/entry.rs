//! Entries, and their format within a block's payload. Pure; every length is checked.
//!
//! An entry is: kind (1 byte), length of what follows (4 bytes), body. All integers big endian.
//!
//! | kind | body |
//! |---|---|
//! | 1 Append     | topic id 16, partition 4, record batches verbatim |
//! | 2 Truncate   | topic id 16, partition 4, end offset 8 |
//! | 3 LogStart   | topic id 16, partition 4, offset 8 |
//! | 4 EpochStart | topic id 16, partition 4, leader epoch 4, start offset 8 |
//! | 5 Drop       | topic id 16 |

use bytes::{Buf, Bytes};

use crate::storage::{PartitionKey, TopicId};
use crate::wire::batch::{BatchError, RecordBatch};

/// Kind and length.
const PREFIX_BYTES: usize = 5;
const PARTITION_BYTES: usize = 20;
const TOPIC_BYTES: usize = 16;

const APPEND: u8 = 1;
const TRUNCATE: u8 = 2;
const LOG_START: u8 = 3;
const EPOCH_START: u8 = 4;
const DROP: u8 = 5;

/// What the log records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Batches appended to a partition, offsets and leader epoch already in them.
    Append {
        /// The partition.
        partition: PartitionKey,
        /// In offset order; stored verbatim.
        batches: Vec<RecordBatch>,
    },
    /// A partition's log was cut.
    Truncate {
        /// The partition.
        partition: PartitionKey,
        /// The first offset that is gone.
        end_offset: i64,
    },
    /// A partition's log start moved up.
    LogStart {
        /// The partition.
        partition: PartitionKey,
        /// The first offset that remains.
        offset: i64,
    },
    /// A leader epoch began.
    EpochStart {
        /// The partition.
        partition: PartitionKey,
        /// The epoch.
        leader_epoch: i32,
        /// The first offset of the epoch.
        start_offset: i64,
    },
    /// A topic was deleted.
    Drop {
        /// The topic.
        topic: TopicId,
    },
}

impl Entry {
    /// The partition it is about; `None` for a whole topic.
    pub fn partition(&self) -> Option<PartitionKey> {
        match self {
            Self::Append { partition, .. }
            | Self::Truncate { partition, .. }
            | Self::LogStart { partition, .. }
            | Self::EpochStart { partition, .. } => Some(*partition),
            Self::Drop { .. } => None,
        }
    }

    /// Its size in the log, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        encoded_bytes(self)
    }
}

/// Why a payload, whose checksum holds, is not a list of entries.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// An entry is cut off or longer than it should be.
    #[error("entry {index} has a wrong length")]
    Length {
        /// Its position in the block.
        index: u32,
    },
    /// A kind that this version does not know.
    #[error("entry {index} is of unknown kind {kind}")]
    Kind {
        /// Its position in the block.
        index: u32,
        /// The kind.
        kind: u8,
    },
    /// A batch in an Append is malformed.
    #[error("entry {index} holds a malformed record batch: {source}")]
    Batch {
        /// Its position in the block.
        index: u32,
        /// What is wrong with it.
        source: BatchError,
    },
    /// The block has fewer or more entries than its header says.
    #[error("the block holds {found} entries, its header says {expected}")]
    Count {
        /// How many there are.
        found: u32,
        /// How many the header says.
        expected: u32,
    },
}

/// Takes the encoded pieces in order.
pub trait Sink {
    /// A few bytes, to be copied.
    fn small(&mut self, bytes: &[u8]);
    /// Bytes that may be shared rather than copied.
    fn shared(&mut self, bytes: &Bytes);
}

/// The bytes of an entry in a payload.
pub fn encoded_bytes(entry: &Entry) -> usize {
    PREFIX_BYTES
        + match entry {
            Entry::Append { batches, .. } => PARTITION_BYTES + batches.iter().map(RecordBatch::size).sum::<usize>(),
            Entry::Truncate { .. } | Entry::LogStart { .. } => PARTITION_BYTES + 8,
            Entry::EpochStart { .. } => PARTITION_BYTES + 12,
            Entry::Drop { .. } => TOPIC_BYTES,
        }
}

/// Encodes an entry.
pub fn encode(entry: &Entry, out: &mut impl Sink) {
    let kind = match entry {
        Entry::Append { .. } => APPEND,
        Entry::Truncate { .. } => TRUNCATE,
        Entry::LogStart { .. } => LOG_START,
        Entry::EpochStart { .. } => EPOCH_START,
        Entry::Drop { .. } => DROP,
    };
    let length = u32::try_from(encoded_bytes(entry) - PREFIX_BYTES).expect("a request is bounded far below 4 GiB");
    out.small(&[kind]);
    out.small(&length.to_be_bytes());
    match entry {
        Entry::Append { partition, batches } => {
            partition_key(partition, out);
            for batch in batches {
                out.small(batch.header_bytes());
                out.shared(batch.records_bytes());
            }
        }
        Entry::Truncate { partition, end_offset: offset } | Entry::LogStart { partition, offset } => {
            partition_key(partition, out);
            out.small(&offset.to_be_bytes());
        }
        Entry::EpochStart { partition, leader_epoch, start_offset } => {
            partition_key(partition, out);
            out.small(&leader_epoch.to_be_bytes());
            out.small(&start_offset.to_be_bytes());
        }
        Entry::Drop { topic } => out.small(&topic.0),
    }
}

fn partition_key(partition: &PartitionKey, out: &mut impl Sink) {
    out.small(&partition.topic.0);
    out.small(&partition.index.to_be_bytes());
}

/// Decodes a payload whose checksum holds. Batches share the payload's memory.
pub fn decode(mut payload: Bytes, expected: u32) -> Result<Vec<Entry>, EntryError> {
    let mut entries = Vec::new();
    let mut index = 0;
    while !payload.is_empty() {
        entries.push(decode_one(&mut payload, index)?);
        index += 1;
    }
    if index != expected {
        return Err(EntryError::Count { found: index, expected });
    }
    Ok(entries)
}

fn decode_one(payload: &mut Bytes, index: u32) -> Result<Entry, EntryError> {
    let wrong_length = EntryError::Length { index };
    if payload.len() < PREFIX_BYTES {
        return Err(wrong_length);
    }
    let kind = payload.get_u8();
    let length = payload.get_u32() as usize;
    if length > payload.len() {
        return Err(wrong_length);
    }
    let mut body = payload.split_to(length);
    let fixed = match kind {
        APPEND => None,
        TRUNCATE | LOG_START => Some(PARTITION_BYTES + 8),
        EPOCH_START => Some(PARTITION_BYTES + 12),
        DROP => Some(TOPIC_BYTES),
        kind => return Err(EntryError::Kind { index, kind }),
    };
    if fixed.map_or(length < PARTITION_BYTES, |fixed| fixed != length) {
        return Err(wrong_length);
    }
    let mut topic = TopicId::default();
    body.copy_to_slice(&mut topic.0);
    if kind == DROP {
        return Ok(Entry::Drop { topic });
    }
    let partition = PartitionKey { topic, index: body.get_i32() };
    Ok(match kind {
        TRUNCATE => Entry::Truncate { partition, end_offset: body.get_i64() },
        LOG_START => Entry::LogStart { partition, offset: body.get_i64() },
        EPOCH_START => Entry::EpochStart { partition, leader_epoch: body.get_i32(), start_offset: body.get_i64() },
        _ => {
            let batches = RecordBatch::split(body).map_err(|source| EntryError::Batch { index, source })?;
            Entry::Append { partition, batches }
        }
    })
}
