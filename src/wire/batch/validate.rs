//! The full check of what a producer sent: nothing is stored that a consumer could not read.

use super::record::RawRecord;
use super::{ATTRIBUTE_DELETE_HORIZON, BatchError, NO_PRODUCER_ID, NO_TIMESTAMP, RecordBatch, Stamp, TimestampType};
use crate::codec::{Codec, Decompressor, check_framing};
use crate::varint::Cursor;

/// How far compressed batches are looked into. Uncompressed ones are always walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// Decompressed and walked record by record.
    #[default]
    Strict,
    /// Header, checksum and the framing of the compression.
    Relaxed,
}

/// Bounds of the check.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Bytes that may come out of a compressed batch.
    pub decompressed_bytes_max: usize,
}

impl Default for BatchLimits {
    /// As much as could have come uncompressed in the largest request.
    fn default() -> Self {
        Self { decompressed_bytes_max: 100 * 1024 * 1024 }
    }
}

/// What the check found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFacts {
    /// Records in it, at least one.
    pub records: i32,
    /// Whether the records were walked. If not, timestamps are the header's and keys are not known.
    pub walked: bool,
    /// The largest timestamp, in milliseconds since the epoch; −1 where no record has one.
    pub max_timestamp: i64,
    /// Offset, relative to the batch, of the first record that has the largest timestamp.
    pub max_timestamp_delta: i32,
    /// The smallest timestamp among the records that have one.
    pub min_timestamp: Option<i64>,
    /// Number of the first record without a key, which a compacted topic does not take.
    pub first_unkeyed: Option<i32>,
    /// Bytes of the records when decompressed; as sent where they were not walked.
    pub decompressed_bytes: usize,
}

impl BatchFacts {
    /// What [`RecordBatch::assign`] must do to the timestamps of `batch` in a topic that keeps the producer's: some
    /// clients leave the maximum unset.
    pub fn create_stamp(&self, batch: &RecordBatch) -> Stamp {
        if self.walked && batch.max_timestamp() != self.max_timestamp {
            Stamp::Max(self.max_timestamp)
        } else {
            Stamp::Keep
        }
    }
}

/// Bytes decompressed at a time.
const WINDOW_BYTES: usize = 32 * 1024;

impl RecordBatch {
    /// Checks all that a producer can get wrong, and tells what the records hold.
    pub fn validate(&self, mode: Validation, limits: &BatchLimits) -> Result<BatchFacts, BatchError> {
        self.check_header()?;
        let codec = self.codec()?;
        let mut walk = Walk::new(self);
        match (codec, mode) {
            (Codec::None, _) => walk.slice(self.records_bytes())?,
            (_, Validation::Strict) => walk.stream(codec, self.records_bytes(), limits.decompressed_bytes_max)?,
            (_, Validation::Relaxed) => {
                check_framing(codec, self.records_bytes())?;
                return Ok(BatchFacts {
                    records: self.records_count(),
                    walked: false,
                    max_timestamp: self.max_timestamp(),
                    max_timestamp_delta: self.last_offset_delta(),
                    min_timestamp: (self.base_timestamp() != NO_TIMESTAMP).then(|| self.base_timestamp()),
                    first_unkeyed: None,
                    decompressed_bytes: self.records_bytes().len(),
                });
            }
        }
        walk.finish()
    }

    fn check_header(&self) -> Result<(), BatchError> {
        self.check_crc()?;
        if self.base_offset() != 0 {
            return Err(BatchError::BaseOffset(self.base_offset()));
        }
        if self.is_control() {
            return Err(BatchError::Control);
        }
        if self.attributes() & ATTRIBUTE_DELETE_HORIZON != 0 {
            return Err(BatchError::Attributes(self.attributes()));
        }
        if self.timestamp_type() == TimestampType::Append {
            return Err(BatchError::Timestamp("only the broker sets append times"));
        }
        let (count, last_offset_delta) = (self.records_count(), self.last_offset_delta());
        if count < 1 || last_offset_delta != count - 1 {
            return Err(BatchError::Count { count, last_offset_delta, found: count });
        }
        let (producer_id, producer_epoch, base_sequence) =
            (self.producer_id(), self.producer_epoch(), self.base_sequence());
        let sane = match producer_id {
            NO_PRODUCER_ID => !self.is_transactional(),
            0.. => producer_epoch >= 0 && base_sequence >= 0,
            _ => false,
        };
        if sane { Ok(()) } else { Err(BatchError::Producer { producer_id, producer_epoch, base_sequence }) }
    }
}

/// What has been seen on the way through the records.
struct Walk {
    base_timestamp: i64,
    count: i32,
    index: i32,
    max_timestamp: i64,
    max_timestamp_delta: i32,
    min_timestamp: i64,
    first_unkeyed: Option<i32>,
    bytes: usize,
}

impl Walk {
    fn new(batch: &RecordBatch) -> Self {
        Self {
            base_timestamp: batch.base_timestamp(),
            count: batch.records_count(),
            index: 0,
            max_timestamp: i64::MIN,
            max_timestamp_delta: 0,
            min_timestamp: i64::MAX,
            first_unkeyed: None,
            bytes: 0,
        }
    }

    /// Walks records that lie there in one piece.
    fn slice(&mut self, bytes: &[u8]) -> Result<(), BatchError> {
        self.bytes = bytes.len();
        let mut cursor = Cursor::new(bytes);
        while !cursor.is_empty() {
            let body = cursor
                .varint()
                .and_then(|len| cursor.take(usize::try_from(len).ok()?))
                .ok_or_else(|| self.malformed("longer than the batch"))?;
            self.record(body)?;
        }
        Ok(())
    }

    /// Walks records as they come out of the decompression. Memory grows to the largest record and no further.
    fn stream(&mut self, codec: Codec, compressed: &[u8], bytes_max: usize) -> Result<(), BatchError> {
        let mut decompressor = Decompressor::new(codec, compressed, bytes_max)?;
        let mut window = vec![0; WINDOW_BYTES];
        let (mut start, mut end) = (0, 0);
        loop {
            start += self.complete_records(&window[start..end])?;
            if start > 0 {
                window.copy_within(start..end, 0);
                end -= start;
                start = 0;
            }
            if end == window.len() {
                window.resize(window.len() * 2, 0);
            }
            match decompressor.read(&mut window[end..])? {
                0 if end == 0 => return Ok(()),
                0 => return Err(self.malformed("longer than the batch")),
                read => {
                    end += read;
                    self.bytes += read;
                }
            }
        }
    }

    /// Walks the records that are whole; tells how many bytes they have.
    fn complete_records(&mut self, bytes: &[u8]) -> Result<usize, BatchError> {
        let mut cursor = Cursor::new(bytes);
        loop {
            let before = cursor;
            let body = match cursor.varint() {
                Some(len) => {
                    let len = usize::try_from(len).map_err(|_| self.malformed("negative length"))?;
                    cursor.take(len)
                }
                // Five bytes hold any length: with that many there, it is malformed.
                None if before.rest().len() >= 5 => return Err(self.malformed("bad length")),
                None => None,
            };
            match body {
                Some(body) => self.record(body)?,
                None => return Ok(bytes.len() - before.rest().len()),
            }
        }
    }

    #[inline]
    fn record(&mut self, body: &[u8]) -> Result<(), BatchError> {
        let index = self.index;
        if index >= self.count {
            let count = self.count;
            return Err(BatchError::Count { count, last_offset_delta: count - 1, found: count.saturating_add(1) });
        }
        let record = RawRecord::parse(body).map_err(|reason| self.malformed(reason))?;
        record.check_headers().map_err(|reason| self.malformed(reason))?;
        if record.offset_delta != index {
            return Err(self.malformed("its offset is not the next one"));
        }
        let timestamp = self
            .base_timestamp
            .checked_add(record.timestamp_delta)
            .ok_or(BatchError::Timestamp("one does not fit 64 bits"))?;
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.max_timestamp_delta = index;
        }
        if timestamp < self.min_timestamp && timestamp != NO_TIMESTAMP {
            self.min_timestamp = timestamp;
        }
        if record.key.is_none() && self.first_unkeyed.is_none() {
            self.first_unkeyed = Some(index);
        }
        self.index = index + 1;
        Ok(())
    }

    fn finish(self) -> Result<BatchFacts, BatchError> {
        if self.index != self.count {
            let count = self.count;
            return Err(BatchError::Count { count, last_offset_delta: count - 1, found: self.index });
        }
        Ok(BatchFacts {
            records: self.count,
            walked: true,
            max_timestamp: self.max_timestamp.max(NO_TIMESTAMP),
            max_timestamp_delta: self.max_timestamp_delta,
            min_timestamp: (self.min_timestamp != i64::MAX).then_some(self.min_timestamp),
            first_unkeyed: self.first_unkeyed,
            decompressed_bytes: self.bytes,
        })
    }

    #[cold]
    fn malformed(&self, reason: &'static str) -> BatchError {
        BatchError::Record { index: self.index, reason }
    }
}
