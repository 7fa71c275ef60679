//! Record batches of format 2, viewed in place: header fields, patching, validation, and building.
//!
//! A batch is kept as its header apart from its records, so that the fields that a broker sets (base offset, leader epoch,
//! append time) are set in a new header while the records stay where they were received.
//!
//! Header, big endian: base offset 0–7, length 8–11 (what follows it), leader epoch 12–15, magic 16, CRC 17–20 (of all
//! that follows it), attributes 21–22, last offset delta 23–26, base timestamp 27–34, maximum timestamp 35–42, producer id
//! 43–50, producer epoch 51–52, base sequence 53–56, number of records 57–60.

mod builder;
mod error;
mod record;
mod validate;

use std::fmt;

use bytes::{Bytes, BytesMut};

pub use builder::BatchBuilder;
pub use error::{BatchError, BatchFault};
pub use record::{Header, Record, Records};
pub use validate::{BatchFacts, BatchLimits, Validation};

use super::codec::Codec;

/// Bytes of a batch before its first record.
pub const HEADER_BYTES: usize = 61;
/// Bytes before and including the length field, which the length leaves out.
pub const LENGTH_PREFIX_BYTES: usize = 12;
/// The one record format.
pub const MAGIC: i8 = 2;
/// "No producer": not idempotent.
pub const NO_PRODUCER_ID: i64 = -1;
/// "No timestamp".
pub const NO_TIMESTAMP: i64 = -1;

const CRC_COVERS_FROM: usize = 21;
const ATTRIBUTE_CODEC: i16 = 0x07;
const ATTRIBUTE_APPEND_TIME: i16 = 0x08;
const ATTRIBUTE_TRANSACTIONAL: i16 = 0x10;
const ATTRIBUTE_CONTROL: i16 = 0x20;
const ATTRIBUTE_DELETE_HORIZON: i16 = 0x40;

/// Whose clock a batch's timestamps are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    Create,
    /// The broker's, the same for all records of the batch.
    Append,
}

/// What [`RecordBatch::assign`] does to the timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Leaves them as the producer sent them.
    Keep,
    /// Sets the maximum timestamp, which the producer left unset or wrong. Milliseconds since the epoch.
    Max(i64),
    /// Makes this append time the timestamp of all records. Milliseconds since the epoch.
    Append(i64),
}

/// One record batch of format 2: header and records as two slices. Cheap to clone.
///
/// Holding one means: the header is whole, the magic is 2 and the length field is right. Everything else in it is as the
/// producer sent it until [`validate`](Self::validate) has passed.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordBatch {
    header: Bytes,
    records: Bytes,
}

impl RecordBatch {
    /// Splits the `records` field of a Produce request, or a stored or fetched run of bytes. Checks lengths and magic only.
    pub fn split(mut bytes: Bytes) -> Result<Vec<Self>, BatchError> {
        let mut batches = Vec::with_capacity(1);
        while !bytes.is_empty() {
            batches.push(Self::take_first(&mut bytes)?);
        }
        Ok(batches)
    }

    /// Takes the first batch off the front of `bytes`, which stay untouched on an error. A Fetch answer may end in the
    /// middle of a batch: [`BatchError::Truncated`].
    pub fn take_first(bytes: &mut Bytes) -> Result<Self, BatchError> {
        let size = Self::size_of_first(bytes)?;
        let mut header = bytes.split_to(size);
        let records = header.split_off(HEADER_BYTES);
        Ok(Self { header, records })
    }

    /// The size in bytes of the batch at the front of `bytes`, all of which are there. Checks length and magic only.
    pub fn size_of_first(bytes: &[u8]) -> Result<usize, BatchError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Truncated { needed: HEADER_BYTES, available: bytes.len() });
        };
        let length = i32::from_be_bytes(field(header, 8));
        let magic = i8::from_be_bytes(field(header, 16));
        if magic != MAGIC {
            return Err(BatchError::Magic(magic));
        }
        let size = usize::try_from(length).map_err(|_| BatchError::Length(length))? + LENGTH_PREFIX_BYTES;
        if size < HEADER_BYTES {
            return Err(BatchError::Length(length));
        }
        if size > bytes.len() {
            return Err(BatchError::Truncated { needed: size, available: bytes.len() });
        }
        Ok(size)
    }

    /// Offset of the first record.
    pub fn base_offset(&self) -> i64 {
        i64::from_be_bytes(self.field(0))
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset().wrapping_add(i64::from(self.last_offset_delta()))
    }

    /// Offset of the last record less that of the first.
    pub fn last_offset_delta(&self) -> i32 {
        i32::from_be_bytes(self.field(23))
    }

    /// How many records the header says there are.
    pub fn records_count(&self) -> i32 {
        i32::from_be_bytes(self.field(57))
    }

    /// Epoch of the leader that appended it.
    pub fn leader_epoch(&self) -> i32 {
        i32::from_be_bytes(self.field(12))
    }

    /// The attribute bits.
    pub fn attributes(&self) -> i16 {
        i16::from_be_bytes(self.field(21))
    }

    /// How the records are compressed.
    pub fn codec(&self) -> Result<Codec, BatchError> {
        let id = (self.attributes() & ATTRIBUTE_CODEC) as u8;
        Codec::from_id(id).ok_or(BatchError::UnknownCodec(id))
    }

    /// Whose clock the timestamps are from.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes() & ATTRIBUTE_APPEND_TIME != 0 { TimestampType::Append } else { TimestampType::Create }
    }

    /// Whether it is part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes() & ATTRIBUTE_TRANSACTIONAL != 0
    }

    /// Whether it holds markers of a transaction and no data.
    pub fn is_control(&self) -> bool {
        self.attributes() & ATTRIBUTE_CONTROL != 0
    }

    /// What the records' timestamps are relative to, in milliseconds since the epoch.
    pub fn base_timestamp(&self) -> i64 {
        i64::from_be_bytes(self.field(27))
    }

    /// The largest timestamp, in milliseconds since the epoch.
    pub fn max_timestamp(&self) -> i64 {
        i64::from_be_bytes(self.field(35))
    }

    /// Id of the idempotent producer, [`NO_PRODUCER_ID`] without one.
    pub fn producer_id(&self) -> i64 {
        i64::from_be_bytes(self.field(43))
    }

    /// Epoch of the producer.
    pub fn producer_epoch(&self) -> i16 {
        i16::from_be_bytes(self.field(51))
    }

    /// Sequence number of the first record.
    pub fn base_sequence(&self) -> i32 {
        i32::from_be_bytes(self.field(53))
    }

    /// Sequence number of the last record: after the largest number comes 0.
    pub fn last_sequence(&self) -> i32 {
        let sum = i64::from(self.base_sequence()) + i64::from(self.last_offset_delta());
        if sum > i64::from(i32::MAX) { (sum - (1 << 31)) as i32 } else { sum as i32 }
    }

    /// The stored checksum.
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes(self.field(17))
    }

    /// The whole size on the wire, in bytes.
    pub fn size(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// Whether the stored checksum is right.
    pub fn verify_crc(&self) -> bool {
        self.crc() == self.computed_crc()
    }

    /// Fails where the stored checksum is wrong.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        let (stored, computed) = (self.crc(), self.computed_crc());
        if stored == computed { Ok(()) } else { Err(BatchError::Crc { stored, computed }) }
    }

    fn computed_crc(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.header[CRC_COVERS_FROM..]), &self.records)
    }

    /// Sets base offset and leader epoch, which the checksum leaves out, and the timestamps if `stamp` says so, which
    /// makes it computed again. The records are shared, not copied.
    pub fn assign(&self, base_offset: i64, leader_epoch: i32, stamp: Stamp) -> Self {
        let mut header = BytesMut::from(&self.header[..]);
        header[..8].copy_from_slice(&base_offset.to_be_bytes());
        header[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
        match stamp {
            Stamp::Keep => {}
            Stamp::Max(timestamp) => header[35..43].copy_from_slice(&timestamp.to_be_bytes()),
            Stamp::Append(timestamp) => {
                let attributes = self.attributes() | ATTRIBUTE_APPEND_TIME;
                header[21..23].copy_from_slice(&attributes.to_be_bytes());
                // Some readers take the first timestamp of such a batch, others the largest.
                header[27..35].copy_from_slice(&timestamp.to_be_bytes());
                header[35..43].copy_from_slice(&timestamp.to_be_bytes());
            }
        }
        if stamp != Stamp::Keep {
            let crc = crc32c::crc32c_append(crc32c::crc32c(&header[CRC_COVERS_FROM..]), &self.records);
            header[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        Self { header: header.freeze(), records: self.records.clone() }
    }

    /// The first [`HEADER_BYTES`].
    pub fn header_bytes(&self) -> &Bytes {
        &self.header
    }

    /// All after the header, compressed as it was sent.
    pub fn records_bytes(&self) -> &Bytes {
        &self.records
    }

    /// Header and records in one piece (copied).
    pub fn to_bytes(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.size());
        whole.extend_from_slice(&self.header);
        whole.extend_from_slice(&self.records);
        whole.freeze()
    }

    /// Copies header and records into an allocation of their own, so that a small batch does not keep a large request
    /// alive.
    pub fn compact(self) -> Self {
        let mut header = self.to_bytes();
        let records = header.split_off(HEADER_BYTES);
        Self { header, records }
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        let header = self.header.first_chunk::<HEADER_BYTES>().expect("a batch holds a whole header");
        field(header, at)
    }
}

impl fmt::Debug for RecordBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordBatch")
            .field("base_offset", &self.base_offset())
            .field("records", &self.records_count())
            .field("size", &self.size())
            .field("leader_epoch", &self.leader_epoch())
            .field("attributes", &self.attributes())
            .field("producer_id", &self.producer_id())
            .field("base_sequence", &self.base_sequence())
            .finish_non_exhaustive()
    }
}

#[inline]
fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    *header[at..].first_chunk::<N>().expect("the fields lie inside the header")
}

#[cfg(test)]
mod tests;
