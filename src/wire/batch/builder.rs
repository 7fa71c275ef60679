//! Making record batches: for clients, the simulator's workload, and tests.

use bytes::Bytes;

use super::{
    ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, CRC_COVERS_FROM, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC,
    NO_PRODUCER_ID, NO_TIMESTAMP, RecordBatch,
};
use crate::codec::{Codec, CodecError, compress};
use crate::varint::{put_varlong, varlong_len};

/// Collects records into a batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    codec: Codec,
    attributes: i16,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
    records: Vec<u8>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new(Codec::None)
    }
}

impl BatchBuilder {
    /// An empty batch that will be compressed with `codec`.
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            attributes: i16::from(codec.id()),
            producer_id: NO_PRODUCER_ID,
            producer_epoch: -1,
            base_sequence: -1,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            count: 0,
            records: Vec::new(),
        }
    }

    /// Makes it a batch of an idempotent producer: `base_sequence` is the number of its first record.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id, epoch, base_sequence);
        self
    }

    /// Makes it part of a transaction.
    pub fn transactional(mut self) -> Self {
        self.attributes |= ATTRIBUTE_TRANSACTIONAL;
        self
    }

    /// Makes it a control batch, as only brokers may.
    pub fn control(mut self) -> Self {
        self.attributes |= ATTRIBUTE_CONTROL;
        self
    }

    /// Adds a record without headers. `timestamp` in milliseconds since the epoch.
    pub fn push(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.push_with_headers(timestamp, key, value, &[]);
    }

    /// Adds a record. `timestamp` in milliseconds since the epoch.
    pub fn push_with_headers(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        if self.count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        let offset_delta = i64::from(self.count);
        let body_len = 1
            + varlong_len(timestamp_delta)
            + varlong_len(offset_delta)
            + nullable_len(key)
            + nullable_len(value)
            + varlong_len(headers.len() as i64)
            + headers.iter().map(|(key, value)| nullable_len(Some(key)) + nullable_len(*value)).sum::<usize>();
        let out = &mut self.records;
        put_varlong(out, body_len as i64);
        out.push(0);
        put_varlong(out, timestamp_delta);
        put_varlong(out, offset_delta);
        put_nullable(out, key);
        put_nullable(out, value);
        put_varlong(out, headers.len() as i64);
        for (key, value) in headers {
            put_nullable(out, Some(key));
            put_nullable(out, *value);
        }
        self.count += 1;
    }

    /// Records added so far.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Size of the batch without compression, in bytes.
    pub fn uncompressed_size(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// The finished batch, with base offset 0 and no leader epoch. An empty one can be built but no broker takes it.
    pub fn build(self) -> Result<RecordBatch, CodecError> {
        let records = match self.codec {
            Codec::None => self.records,
            codec => compress(codec, &self.records)?,
        };
        let length = (HEADER_BYTES - LENGTH_PREFIX_BYTES + records.len()) as i32;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&0_i64.to_be_bytes());
        header.extend_from_slice(&length.to_be_bytes());
        header.extend_from_slice(&(-1_i32).to_be_bytes());
        header.extend_from_slice(&MAGIC.to_be_bytes());
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&self.attributes.to_be_bytes());
        header.extend_from_slice(&(self.count - 1).to_be_bytes());
        header.extend_from_slice(&self.base_timestamp.to_be_bytes());
        header.extend_from_slice(&self.max_timestamp.to_be_bytes());
        header.extend_from_slice(&self.producer_id.to_be_bytes());
        header.extend_from_slice(&self.producer_epoch.to_be_bytes());
        header.extend_from_slice(&self.base_sequence.to_be_bytes());
        header.extend_from_slice(&self.count.to_be_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[CRC_COVERS_FROM..]), &records);
        header[17..21].copy_from_slice(&crc.to_be_bytes());
        Ok(RecordBatch { header: Bytes::from(header), records: Bytes::from(records) })
    }
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varlong_len(bytes.len() as i64) + bytes.len())
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varlong(out, -1),
        Some(bytes) => {
            put_varlong(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}
