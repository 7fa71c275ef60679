//! Limits and settings of the partition logs, with Kafka's names in the comments.

use std::path::PathBuf;
use std::time::Duration;

use crate::storage::wal::WalConfig;

const MIB: usize = 1024 * 1024;

/// Which time a record carries (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The broker's, at append.
    LogAppendTime,
}

/// Settings of one topic's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is closed before it would grow past this many bytes.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment is closed this many milliseconds after its first record of this incarnation. Not by what the
    /// records' timestamps say, which producers choose, nor by the wall clock, which may be set by years.
    pub roll_ms: i64,
    /// `index.interval.messages`: an index entry at least every so many messages (0: no such rule).
    pub index_interval_messages: u32,
    /// `index.interval.bytes`: an index entry at least every so many bytes.
    pub index_interval_bytes: u32,
    /// `flush.messages`: the segment file is flushed after so many messages.
    pub flush_interval_messages: u64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far a create time may lie in the past.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far a create time may lie in the future.
    pub timestamp_after_max_ms: i64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            roll_ms: 7 * 24 * 3_600_000,
            index_interval_messages: 1000,
            index_interval_bytes: MIB as u32,
            flush_interval_messages: 1000,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
        }
    }
}

/// Settings of all partition logs of a broker.
#[derive(Clone, Debug)]
pub struct LogManagerConfig {
    /// Where the partition directories and the write-ahead log live.
    pub data_dir: PathBuf,
    /// The write-ahead log's settings.
    pub wal: WalConfig,
    /// `queue.size`: bytes per partition that may wait for the write-ahead log.
    pub queue_bytes: usize,
    /// Bytes per partition that may wait to be written to the segment file, and what the ring keeps for readers at the
    /// tail once written.
    pub tail: TailConfig,
    /// Partitions written behind at the same time.
    pub write_behind_parallelism: usize,
    /// How long durable data may stay out of the segment file.
    pub write_behind_delay: Duration,
    /// A partition is checkpointed when so many bytes were flushed since the last checkpoint.
    pub checkpoint_bytes: u64,
    /// A partition whose flushed data is not covered by a checkpoint for so long gets one.
    pub checkpoint_delay: Duration,
    /// Closed segments that keep their file open and their index in memory.
    pub hot_segments_max: usize,
    /// Active segments that keep their file open, besides those with data that is not flushed.
    pub open_segments_max: usize,
    /// Produce is refused when less than this, or than a tenth of the file system if that is less, would stay free after
    /// all data in memory has been written.
    pub free_space_reserve: u64,
    /// `producer.id.expiration.ms`: idempotent producers idle for so long are forgotten, by monotonic time.
    pub producer_id_expiration_ms: i64,
}

/// Bounds of a partition's tail in memory.
#[derive(Clone, Copy, Debug)]
pub struct TailConfig {
    /// Bytes that may wait to be written to the segment file.
    pub unwritten_bytes: usize,
    /// Bytes kept in the ring for readers at the tail.
    pub ring_bytes: usize,
    /// Waiting bytes that start a write at once, without waiting for more.
    pub write_at_once_bytes: usize,
}

impl LogManagerConfig {
    /// The defaults, for a data folder.
    pub fn new(data_dir: PathBuf, wal: WalConfig) -> Self {
        Self {
            data_dir,
            wal,
            queue_bytes: 32 * MIB,
            tail: TailConfig { unwritten_bytes: 64 * MIB, ring_bytes: 4 * MIB, write_at_once_bytes: MIB },
            write_behind_parallelism: 4,
            write_behind_delay: Duration::from_millis(250),
            checkpoint_bytes: 8 * MIB as u64,
            checkpoint_delay: Duration::from_secs(5),
            hot_segments_max: 256,
            open_segments_max: 4096,
            free_space_reserve: 64 * MIB as u64,
            producer_id_expiration_ms: 24 * 3_600_000,
        }
    }
}
