//! Writing Fetch answers as pieces: what stands around the records is written, the records are passed on as they are.

use bytes::{BufMut, Bytes, BytesMut};

use super::error::MessageError;
use crate::api::ApiKey;
use crate::error_code::ErrorCode;
use crate::frame::Pieces;
use crate::header::{put_response_header, put_unsigned_varint};
use crate::types::KafkaString;

/// An answer to a Fetch request.
#[derive(Clone, Debug)]
pub struct FetchResponse {
    /// How long the client was held back, in milliseconds.
    pub throttle_time_ms: i32,
    /// An error that concerns the whole request; versions before 7 cannot carry it.
    pub error: ErrorCode,
    /// The fetch session, 0 for none; versions before 7 cannot carry it.
    pub session_id: i32,
    /// Topics as they were asked for.
    pub topics: Vec<FetchTopicResponse>,
}

/// A topic in a Fetch answer.
#[derive(Clone, Debug)]
pub struct FetchTopicResponse {
    /// Its name.
    pub topic: KafkaString,
    /// Partitions as they were asked for.
    pub partitions: Vec<FetchPartitionResponse>,
}

/// A partition in a Fetch answer.
#[derive(Clone, Debug)]
pub struct FetchPartitionResponse {
    /// Its number.
    pub index: i32,
    /// What went wrong with it.
    pub error: ErrorCode,
    /// End of what consumers may see; −1 with an error.
    pub high_watermark: i64,
    /// End of what consumers of committed data may see; −1 with an error.
    pub last_stable_offset: i64,
    /// The first offset that there is; −1 with an error.
    pub log_start_offset: i64,
    /// Producer id and first offset of aborted transactions; null where the client did not ask for committed data only.
    pub aborted_transactions: Option<Vec<(i64, i64)>>,
    /// The reader's log parts from this one: the newest common epoch, and where it ended here. From version 12 on.
    pub diverging_epoch: Option<(i32, i64)>,
    /// The broker that the client should read from, −1 for this one.
    pub preferred_read_replica: i32,
    /// Batches one after the other. Never null on the wire: without any, empty bytes are sent.
    pub records: Vec<Bytes>,
}

impl FetchPartitionResponse {
    /// An answer without records that tells an error.
    pub fn failed(index: i32, error: ErrorCode) -> Self {
        Self {
            index,
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted_transactions: None,
            diverging_epoch: None,
            preferred_read_replica: -1,
            records: Vec::new(),
        }
    }

    /// Bytes of its records.
    pub fn records_len(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

const FLEXIBLE_FROM: i16 = 12;

impl FetchResponse {
    /// The whole answer frame, length included, with the records as pieces of it.
    pub fn encode(self, version: i16, correlation_id: i32) -> Result<Pieces, MessageError> {
        if !(4..=12).contains(&version) {
            return Err(MessageError::new(ApiKey::Fetch, version, "this version is not supported"));
        }
        let mut writer = Writer { head: BytesMut::with_capacity(256), pieces: Vec::new(), version };
        put_response_header(&mut writer.head, ApiKey::Fetch, version, correlation_id);
        writer.head.put_i32(self.throttle_time_ms);
        if version >= 7 {
            writer.head.put_i16(self.error.code());
            writer.head.put_i32(self.session_id);
        }
        writer.array_len(self.topics.len());
        for topic in self.topics {
            writer.string(&topic.topic);
            writer.array_len(topic.partitions.len());
            for partition in topic.partitions {
                writer.partition(partition);
            }
            writer.tagged_fields();
        }
        writer.tagged_fields();
        writer.finish()
    }
}

struct Writer {
    /// What is being written around the records.
    head: BytesMut,
    pieces: Vec<Bytes>,
    version: i16,
}

impl Writer {
    fn partition(&mut self, partition: FetchPartitionResponse) {
        let records_len = partition.records_len();
        self.head.put_i32(partition.index);
        self.head.put_i16(partition.error.code());
        self.head.put_i64(partition.high_watermark);
        self.head.put_i64(partition.last_stable_offset);
        if self.version >= 5 {
            self.head.put_i64(partition.log_start_offset);
        }
        match partition.aborted_transactions {
            None if self.flexible() => self.head.put_u8(0),
            None => self.head.put_i32(-1),
            Some(aborted) => {
                self.array_len(aborted.len());
                for (producer_id, first_offset) in aborted {
                    self.head.put_i64(producer_id);
                    self.head.put_i64(first_offset);
                    self.tagged_fields();
                }
            }
        }
        if self.version >= 11 {
            self.head.put_i32(partition.preferred_read_replica);
        }
        // A frame longer than its length can say is refused at the end.
        if self.flexible() {
            put_unsigned_varint(&mut self.head, (records_len as u32).wrapping_add(1));
        } else {
            self.head.put_i32(records_len as i32);
        }
        if records_len > 0 {
            self.pieces.push(self.head.split().freeze());
            self.pieces.extend(partition.records);
        }
        match partition.diverging_epoch {
            Some((epoch, end_offset)) if self.flexible() => {
                // One tagged field: number 0, 13 bytes, which hold two values and no tagged fields of their own.
                self.head.put_slice(&[1, 0, 13]);
                self.head.put_i32(epoch);
                self.head.put_i64(end_offset);
                self.tagged_fields();
            }
            _ => self.tagged_fields(),
        }
    }

    fn flexible(&self) -> bool {
        self.version >= FLEXIBLE_FROM
    }

    fn array_len(&mut self, len: usize) {
        if self.flexible() {
            put_unsigned_varint(&mut self.head, len as u32 + 1);
        } else {
            self.head.put_i32(len as i32);
        }
    }

    fn string(&mut self, text: &KafkaString) {
        if self.flexible() {
            put_unsigned_varint(&mut self.head, text.len() as u32 + 1);
        } else {
            self.head.put_i16(text.len() as i16);
        }
        self.head.put_slice(text.as_bytes());
    }

    fn tagged_fields(&mut self) {
        if self.flexible() {
            self.head.put_u8(0);
        }
    }

    fn finish(mut self) -> Result<Pieces, MessageError> {
        self.pieces.push(self.head.freeze());
        let len: usize = self.pieces.iter().map(Bytes::len).sum();
        let len = i32::try_from(len)
            .map_err(|_| MessageError::new(ApiKey::Fetch, self.version, "larger than a frame can be"))?;
        let mut pieces = Pieces::from(Bytes::copy_from_slice(&len.to_be_bytes()));
        for piece in self.pieces {
            pieces.push(piece);
        }
        Ok(pieces)
    }
}
