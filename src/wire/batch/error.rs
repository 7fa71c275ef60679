//! What can be wrong with a record batch.

use crate::codec::CodecError;

/// Why a record batch is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than a batch has, or than its length says.
    #[error("batch of {needed} bytes is cut short: {available} are there")]
    Truncated {
        /// Bytes of the whole batch, or of its header where not even that is there.
        needed: usize,
        /// Bytes there.
        available: usize,
    },
    /// The length field is not possible.
    #[error("batch length {0} is not possible")]
    Length(i32),
    /// Not the one record format that is supported.
    #[error("record format (magic) {0} is not supported, only 2 is")]
    Magic(i8),
    /// The checksum does not match.
    #[error("wrong CRC: {stored:#010x} is stored, {computed:#010x} computed")]
    Crc {
        /// In the batch.
        stored: u32,
        /// Of the batch.
        computed: u32,
    },
    /// No such compression type.
    #[error("compression type {0} is unknown")]
    UnknownCodec(u8),
    /// The compressed records cannot be read.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A record cannot be read.
    #[error("record {index} of the batch is malformed: {reason}")]
    Record {
        /// Its number in the batch.
        index: i32,
        /// What is wrong.
        reason: &'static str,
    },
    /// The counts in the header contradict each other or the records.
    #[error("batch says {count} records and last offset delta {last_offset_delta}, and {found} records were found")]
    Count {
        /// `records_count` of the header.
        count: i32,
        /// `last_offset_delta` of the header.
        last_offset_delta: i32,
        /// Records counted; `count` again where they were not.
        found: i32,
    },
    /// A producer numbers from zero; the broker assigns.
    #[error("base offset {0} in a batch from a producer, where 0 is expected")]
    BaseOffset(i64),
    /// Control batches come from brokers only.
    #[error("a producer may not send control batches")]
    Control,
    /// Producer id, epoch and sequence do not go together.
    #[error("producer id {producer_id}, epoch {producer_epoch} and base sequence {base_sequence} do not go together")]
    Producer {
        /// Producer id.
        producer_id: i64,
        /// Producer epoch.
        producer_epoch: i16,
        /// First sequence number.
        base_sequence: i32,
    },
    /// Attribute bits that a producer may not set.
    #[error("attributes {0:#06x} are not for producers to set")]
    Attributes(i16),
    /// A producer says that the timestamps are the broker's, or one of them does not fit 64 bits.
    #[error("timestamp of the batch: {0}")]
    Timestamp(&'static str),
}

/// What kind of fault it is: enough to choose the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchFault {
    /// Damaged on its way: sending it again can help.
    Corrupt,
    /// Wrongly made: it will never be accepted.
    Invalid,
    /// Its timestamps are not acceptable.
    Timestamp,
    /// Compressed in a way that is not known.
    UnknownCodec,
    /// More bytes come out of the decompression than the broker takes.
    TooLarge,
}

impl BatchError {
    /// The kind of fault.
    pub fn fault(&self) -> BatchFault {
        match self {
            Self::Truncated { .. } | Self::Length(_) | Self::Crc { .. } => BatchFault::Corrupt,
            // The CRC is right: it is what the producer made.
            Self::Codec(CodecError::Damaged { .. }) => BatchFault::Invalid,
            Self::Codec(CodecError::TooLarge { .. }) => BatchFault::TooLarge,
            Self::UnknownCodec(_) => BatchFault::UnknownCodec,
            Self::Timestamp(_) => BatchFault::Timestamp,
            Self::Magic(_)
            | Self::Record { .. }
            | Self::Count { .. }
            | Self::BaseOffset(_)
            | Self::Control
            | Self::Producer { .. }
            | Self::Attributes(_) => BatchFault::Invalid,
        }
    }
}
