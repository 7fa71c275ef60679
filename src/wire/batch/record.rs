//! Records inside a batch: reading them one by one.
//!
//! A record: its length, attributes (unused), timestamp delta, offset delta, key, value, and headers; lengths and deltas
//! are zigzag varints, −1 stands for null.

use bytes::Bytes;

use super::{BatchError, RecordBatch, TimestampType};
use crate::codec::{Codec, decompress};
use crate::varint::Cursor;

/// A header of a record. Keys may repeat, and order counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The key; UTF-8 by convention only.
    pub key: Bytes,
    /// The value, which may be null.
    pub value: Option<Bytes>,
}

/// A record with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since the epoch, −1 for none.
    pub timestamp: i64,
    /// The key, which may be null.
    pub key: Option<Bytes>,
    /// The value, which may be null.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<Header>,
}

/// Key and value of a header.
type RawHeader<'a> = (&'a [u8], Option<&'a [u8]>);

/// A record as it lies in the decompressed bytes.
pub(super) struct RawRecord<'a> {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    headers: Cursor<'a>,
    headers_count: i32,
}

impl<'a> RawRecord<'a> {
    /// Reads a record without its length. Headers are not looked at; see [`check_headers`](Self::check_headers).
    #[inline]
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, &'static str> {
        let mut cursor = Cursor::new(body);
        cursor.u8().ok_or("it is empty")?;
        let timestamp_delta = cursor.varlong().ok_or("bad timestamp")?;
        let offset_delta = cursor.varint().ok_or("bad offset")?;
        let key = cursor.nullable_bytes().ok_or("bad key length")?;
        let value = cursor.nullable_bytes().ok_or("bad value length")?;
        let headers_count = cursor.varint().ok_or("bad number of headers")?;
        if headers_count < 0 {
            return Err("negative number of headers");
        }
        Ok(Self { timestamp_delta, offset_delta, key, value, headers: cursor, headers_count })
    }

    /// Walks the headers; nothing may be left after them.
    #[inline]
    pub(super) fn check_headers(&self) -> Result<(), &'static str> {
        let mut cursor = self.headers;
        for _ in 0..self.headers_count {
            next_header(&mut cursor)?;
        }
        if cursor.is_empty() { Ok(()) } else { Err("bytes are left over after the headers") }
    }

    fn headers(&self) -> Result<Vec<RawHeader<'a>>, &'static str> {
        // A header has at least two bytes: the claimed count cannot make this larger than what is there.
        let capacity = (self.headers_count as usize).min(self.headers.rest().len() / 2);
        let mut headers = Vec::with_capacity(capacity);
        let mut cursor = self.headers;
        for _ in 0..self.headers_count {
            headers.push(next_header(&mut cursor)?);
        }
        if cursor.is_empty() { Ok(headers) } else { Err("bytes are left over after the headers") }
    }
}

#[inline]
fn next_header<'a>(cursor: &mut Cursor<'a>) -> Result<RawHeader<'a>, &'static str> {
    let key = cursor.nullable_bytes().flatten().ok_or("bad header key")?;
    let value = cursor.nullable_bytes().ok_or("bad header value")?;
    Ok((key, value))
}

/// The records of a batch, one by one, as slices of the decompressed bytes. Ends after the first error.
pub struct Records {
    bytes: Bytes,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
    index: i32,
    count: i32,
}

impl RecordBatch {
    /// Its records, decompressed: more than `bytes_max` bytes of them are an error.
    pub fn records(&self, bytes_max: usize) -> Result<Records, BatchError> {
        let bytes = match self.codec()? {
            Codec::None => self.records_bytes().clone(),
            codec => decompress(codec, self.records_bytes(), bytes_max)?.into(),
        };
        Ok(Records {
            bytes,
            base_offset: self.base_offset(),
            base_timestamp: self.base_timestamp(),
            append_time: (self.timestamp_type() == TimestampType::Append).then(|| self.max_timestamp()),
            index: 0,
            count: self.records_count(),
        })
    }
}

impl Records {
    fn next_record(&mut self) -> Result<Record, &'static str> {
        let mut cursor = Cursor::new(&self.bytes);
        let len = cursor.varint().and_then(|len| usize::try_from(len).ok()).ok_or("bad length")?;
        let body = cursor.take(len).ok_or("longer than the batch")?;
        let raw = RawRecord::parse(body)?;
        let slice = |part: &[u8]| self.bytes.slice_ref(part);
        let headers = raw.headers()?.into_iter();
        let record = Record {
            offset: self.base_offset.wrapping_add(i64::from(raw.offset_delta)),
            timestamp: self.append_time.unwrap_or(self.base_timestamp.wrapping_add(raw.timestamp_delta)),
            key: raw.key.map(slice),
            value: raw.value.map(slice),
            headers: headers.map(|(key, value)| Header { key: slice(key), value: value.map(slice) }).collect(),
        };
        let rest = self.bytes.slice_ref(cursor.rest());
        self.bytes = rest;
        Ok(record)
    }
}

impl Iterator for Records {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.index;
        if index >= self.count {
            return None;
        }
        self.index += 1;
        Some(self.next_record().map_err(|reason| {
            self.index = self.count;
            BatchError::Record { index, reason }
        }))
    }
}
