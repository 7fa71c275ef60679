//! Reading Produce requests. The records stay slices of the request.
//!
//! Versions 0 to 2 are read as well, though only to be refused partition by partition: their records are of formats that
//! are not supported.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::MessageError;
use super::length::finish_frame;
use crate::api::ApiKey;
use crate::error_code::ErrorCode;
use crate::header::{put_response_header, skip_tagged_fields, unsigned_varint};
use crate::types::KafkaString;
use crate::types::produce_types::{PartitionProduceData, ProduceRequestData, TopicProduceData};

/// Topics and partitions in one request. Real ones have a few; the bound keeps a request of empty entries, three bytes
/// each, from taking fifty times its size in memory.
const ENTRIES_MAX: usize = 100_000;
const FLEXIBLE_FROM: i16 = 9;
const TRANSACTIONAL_ID_FROM: i16 = 3;

/// Reads the body of any version up to 9.
pub(super) fn read_request(body: &mut Bytes, version: i16) -> Result<ProduceRequestData, &'static str> {
    if !(0..=9).contains(&version) {
        return Err("this version is not supported");
    }
    let mut reader = ProduceReader { body, flexible: version >= FLEXIBLE_FROM, entries: 0 };
    let transactional_id = if version >= TRANSACTIONAL_ID_FROM { reader.nullable_string()? } else { None };
    let acks = reader.body.try_get_i16().map_err(|_| "acks is missing")?;
    let timeout_ms = reader.body.try_get_i32().map_err(|_| "the time-out is missing")?;
    let mut topic_data = Vec::new();
    for _ in 0..reader.array_len()? {
        topic_data.push(reader.topic()?);
    }
    reader.tagged_fields()?;
    Ok(ProduceRequestData { transactional_id, acks, timeout_ms, topic_data, ..ProduceRequestData::default() })
}

/// The whole answer frame to a request of version 0 to 2, length included: the same error for all partitions.
pub fn encode_old_response(
    request: &ProduceRequestData,
    version: i16,
    correlation_id: i32,
    error: ErrorCode,
) -> Result<Bytes, MessageError> {
    let mut out = BytesMut::new();
    out.put_i32(0);
    put_response_header(&mut out, ApiKey::Produce, version, correlation_id);
    // The bound on entries keeps all counts far below their types' ends.
    out.put_i32(request.topic_data.len() as i32);
    for topic in &request.topic_data {
        out.put_i16(topic.name.len() as i16);
        out.put_slice(topic.name.as_bytes());
        out.put_i32(topic.partition_data.len() as i32);
        for partition in &topic.partition_data {
            out.put_i32(partition.index);
            out.put_i16(error.code());
            out.put_i64(-1); // base offset
            if version >= 2 {
                out.put_i64(-1); // append time
            }
        }
    }
    if version >= 1 {
        out.put_i32(0); // throttle time
    }
    finish_frame(out, ApiKey::Produce, version)
}

struct ProduceReader<'a> {
    body: &'a mut Bytes,
    flexible: bool,
    entries: usize,
}

impl ProduceReader<'_> {
    fn topic(&mut self) -> Result<TopicProduceData, &'static str> {
        let name = self.nullable_string()?.ok_or("a topic name is null")?;
        let mut partition_data = Vec::new();
        for _ in 0..self.array_len()? {
            let index = self.body.try_get_i32().map_err(|_| "a partition is missing")?;
            let records = self.nullable_bytes()?;
            self.tagged_fields()?;
            partition_data.push(PartitionProduceData { index, records, ..PartitionProduceData::default() });
        }
        self.tagged_fields()?;
        Ok(TopicProduceData { name, partition_data, ..TopicProduceData::default() })
    }

    /// The length of an array, each entry of which is counted. A null array is an empty one.
    fn array_len(&mut self) -> Result<usize, &'static str> {
        let len = if self.flexible {
            unsigned_varint(self.body).ok_or("a count is missing")?.saturating_sub(1) as usize
        } else {
            let len = self.body.try_get_i32().map_err(|_| "a count is missing")?;
            usize::try_from(len).unwrap_or(0)
        };
        self.entries = self.entries.saturating_add(len);
        if self.entries > ENTRIES_MAX { Err("more than 100000 topics and partitions") } else { Ok(len) }
    }

    fn nullable_bytes(&mut self) -> Result<Option<Bytes>, &'static str> {
        let len = if self.flexible {
            i64::from(unsigned_varint(self.body).ok_or("a length is missing")?) - 1
        } else {
            i64::from(self.body.try_get_i32().map_err(|_| "a length is missing")?)
        };
        self.take(len)
    }

    fn nullable_string(&mut self) -> Result<Option<KafkaString>, &'static str> {
        let len = if self.flexible {
            i64::from(unsigned_varint(self.body).ok_or("a length is missing")?) - 1
        } else {
            i64::from(self.body.try_get_i16().map_err(|_| "a length is missing")?)
        };
        let bytes = self.take(len)?;
        bytes.map(KafkaString::new).transpose().map_err(|_| "a string is not UTF-8")
    }

    /// The next `len` bytes; −1 stands for null.
    fn take(&mut self, len: i64) -> Result<Option<Bytes>, &'static str> {
        if len == -1 {
            return Ok(None);
        }
        let len = usize::try_from(len).map_err(|_| "a length is negative")?;
        if len > self.body.len() {
            return Err("a length is beyond the end");
        }
        Ok(Some(self.body.split_to(len)))
    }

    fn tagged_fields(&mut self) -> Result<(), &'static str> {
        if self.flexible { skip_tagged_fields(self.body).ok_or("bad tagged fields") } else { Ok(()) }
    }
}
