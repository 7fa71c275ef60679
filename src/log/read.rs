//! Reading a partition: from the ring at the tail, from the segment files below it; and look-ups by time.

use bytes::Bytes;

use super::partition::PartitionLog;
use super::segments::List;
use super::write_behind::unwritten;
use crate::storage::RingRead;
use crate::storage::manifest::MAX_TIMESTAMP_UNKNOWN;
use crate::storage::segment::{Segment, SegmentError, TimestampedOffset, first_at_or_after};
use crate::wire::batch::{HEADER_BYTES, RecordBatch};

/// Bytes that one compressed batch may take when it is looked into for a timestamp.
const LOOKUP_BYTES_MAX: usize = 100 * 1024 * 1024;

/// What a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Everything appended, durable or not: followers.
    LogEnd,
    /// What is durable (`read_uncommitted`).
    HighWatermark,
    /// What is durable and of decided transactions (`read_committed`). Without transactions the same.
    LastStable,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadResult {
    /// Whole record batches, verbatim, possibly in several pieces. The first may begin below the offset asked for.
    pub batches: Vec<Bytes>,
    /// End of what is durable.
    pub high_watermark: i64,
    /// End of what is of decided transactions.
    pub last_stable_offset: i64,
    /// First offset that may be read.
    pub log_start_offset: i64,
}

impl ReadResult {
    /// Bytes of all batches.
    pub fn bytes(&self) -> usize {
        self.batches.iter().map(Bytes::len).sum()
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Below the log start or past the log end.
    #[error("offset {offset} is outside the log, which holds {log_start}..{log_end}")]
    OutOfRange {
        /// The offset asked for.
        offset: i64,
        /// First offset that may be read.
        log_start: i64,
        /// The next offset to be given.
        log_end: i64,
    },
    /// The segment files cannot be read there.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Where the first bytes of a read come from.
enum ReadSource {
    Nothing,
    Memory(Vec<RecordBatch>),
    /// Segment files, up to this offset.
    Files(i64),
}

impl PartitionLog {
    /// Reads whole batches from the one that holds `offset` on, at most `max_bytes`. With `min_one`, the first batch
    /// is given even if it is larger.
    ///
    /// At the end of what `isolation` shows there is nothing to read, and no error.
    pub async fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        min_one: bool,
        isolation: Isolation,
    ) -> Result<ReadResult, ReadError> {
        let (mut result, source) = self.plan(offset, max_bytes, isolation)?;
        if !min_one && max_bytes < HEADER_BYTES {
            // No batch is that small: nothing is read to find that out.
            return Ok(result);
        }
        match source {
            ReadSource::Nothing => {}
            ReadSource::Memory(batches) => {
                for batch in batches {
                    result.batches.push(batch.header_bytes().clone());
                    result.batches.push(batch.records_bytes().clone());
                }
            }
            ReadSource::Files(end) => {
                let list = self.segments.list();
                let at = list.partition_point(|segment| segment.base_offset() <= offset);
                if let Some(segment) = at.checked_sub(1).map(|index| &list[index]) {
                    result.batches = if min_one {
                        segment.read(offset, max_bytes, end).await?
                    } else {
                        segment.read_fitting(offset, max_bytes, end).await?
                    };
                }
            }
        }
        if !min_one && result.bytes() > max_bytes {
            result.batches.clear();
        }
        Ok(result)
    }

    fn plan(&self, offset: i64, max_bytes: usize, isolation: Isolation) -> Result<(ReadResult, ReadSource), ReadError> {
        let inner = self.lock();
        let (log_start, log_end) = (inner.append.log_start(), inner.append.log_end());
        let high_watermark = inner.append.high_watermark();
        let result = ReadResult {
            batches: Vec::new(),
            high_watermark,
            last_stable_offset: high_watermark,
            log_start_offset: log_start,
        };
        if !(log_start..=log_end).contains(&offset) {
            return Err(ReadError::OutOfRange { offset, log_start, log_end });
        }
        let end = match isolation {
            Isolation::LogEnd => log_end,
            Isolation::HighWatermark => result.high_watermark,
            Isolation::LastStable => result.last_stable_offset,
        };
        let source = if offset >= end {
            ReadSource::Nothing
        } else if offset >= high_watermark {
            ReadSource::Memory(inner.append.in_flight_from(offset, max_bytes))
        } else {
            match inner.ring.read(offset, max_bytes, end) {
                RingRead::Hit(batches) => ReadSource::Memory(batches),
                RingRead::Older => {
                    crate::sometimes!("log.read_from_files");
                    ReadSource::Files(end.min(inner.ring.written_offset()))
                }
            }
        };
        Ok((result, source))
    }

    /// The first record whose timestamp is `timestamp` (milliseconds) or later.
    pub async fn offset_for_time(&self, timestamp: i64) -> Result<Option<TimestampedOffset>, ReadError> {
        let (start, list, tail) = self.everything();
        for segment in list.iter().filter(|segment| segment.max_timestamp() >= timestamp) {
            match segment.find_time(timestamp, start, i64::MAX).await {
                Err(error) if is_unknown_and_gone(segment, &error) => {}
                found => {
                    if let Some(found) = found? {
                        return Ok(Some(found));
                    }
                }
            }
        }
        for batch in &tail {
            let found = first_at_or_after(&self.shared.env, batch, timestamp, start, LOOKUP_BYTES_MAX).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first record that has the largest timestamp of all.
    pub async fn max_timestamp(&self) -> Result<Option<TimestampedOffset>, ReadError> {
        let (_, list, tail) = self.everything();
        let mut newest = tail.iter().map(RecordBatch::max_timestamp).max().unwrap_or(-1);
        for segment in list.iter() {
            newest = newest.max(match segment.max_timestamp() {
                MAX_TIMESTAMP_UNKNOWN => match segment.readable_max_timestamp().await {
                    Err(error) if is_unknown_and_gone(segment, &error) => continue,
                    readable => readable?,
                },
                known => known,
            });
        }
        if newest < 0 {
            return Ok(None);
        }
        self.offset_for_time(newest).await
    }

    /// The log start, the segment files, and the durable batches that they do not hold.
    fn everything(&self) -> (i64, List, Vec<RecordBatch>) {
        let inner = self.lock();
        let tail = unwritten(&inner, usize::MAX);
        (inner.append.log_start(), self.segments.list(), tail)
    }
}

/// Whether a segment could not be asked for timestamps because it is missing, with all that was known about it: none of
/// its records can be read, and the others answer.
fn is_unknown_and_gone(segment: &Segment, error: &SegmentError) -> bool {
    let is_gone = matches!(error, SegmentError::Io { error, .. } if error.kind() == std::io::ErrorKind::NotFound);
    is_gone && segment.max_timestamp() == MAX_TIMESTAMP_UNKNOWN
}
