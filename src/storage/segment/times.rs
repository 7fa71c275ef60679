//! Look-ups by timestamp. The index says which batches cannot hold the answer; the answer itself is a record with its own
//! timestamp and offset (KAFKA-16310).

use super::error::SegmentError;
use super::lock::lock;
use super::read::{Start, StartBy, check_start};
use super::state::{Segment, View};
use super::walk::{Met, WalkError, Walker};
use crate::storage::frame::MAGIC_LEN;
use crate::wire::batch::RecordBatch;

/// A record's timestamp and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedOffset {
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
}

/// The first record of `batch` at or behind offset `from` whose timestamp is `timestamp` or later.
///
/// Where the records cannot be read (a topic may take compressed batches without looking into them), the batch stands for
/// its first record.
pub fn first_at_or_after(
    batch: &RecordBatch,
    timestamp: i64,
    from: i64,
    decompressed_bytes_max: usize,
) -> Option<TimestampedOffset> {
    if batch.max_timestamp() < timestamp || batch.last_offset() < from {
        return None;
    }
    let unreadable = TimestampedOffset { timestamp: batch.max_timestamp(), offset: batch.base_offset().max(from) };
    let Ok(records) = batch.records(decompressed_bytes_max) else { return Some(unreadable) };
    for record in records {
        match record {
            Err(_) => return Some(unreadable),
            Ok(record) if record.offset >= from && record.timestamp >= timestamp => {
                return Some(TimestampedOffset { timestamp: record.timestamp, offset: record.offset });
            }
            Ok(_) => {}
        }
    }
    None
}

impl Segment {
    /// The first record with an offset in `from..end_offset` whose timestamp is `timestamp` or later.
    pub async fn find_time(
        &self,
        timestamp: i64,
        from: i64,
        end_offset: i64,
    ) -> Result<Option<TimestampedOffset>, SegmentError> {
        loop {
            let view = self.view().await?;
            match self.find_time_once(&view, timestamp, from, end_offset).await {
                Err(_) if self.was_cut_since(&view) => {}
                result => return result,
            }
        }
    }

    /// The first of the records with the segment's largest timestamp. `None` if none has a timestamp.
    pub async fn max_timestamp_record(&self) -> Result<Option<TimestampedOffset>, SegmentError> {
        match self.max_timestamp() {
            -1 => Ok(None),
            max => self.find_time(max, self.base_offset(), i64::MAX).await,
        }
    }

    async fn find_time_once(
        &self,
        view: &View,
        timestamp: i64,
        from: i64,
        end_offset: i64,
    ) -> Result<Option<TimestampedOffset>, SegmentError> {
        if timestamp > view.max_timestamp || from >= view.next_offset {
            return Ok(None);
        }
        let mut start = self.time_start(view, timestamp, from).await?;
        'walk: loop {
            let mut walker = self.walker_at(view, start);
            loop {
                let met = match next_from(&mut walker, start).await {
                    Ok(Some(met)) if met.header.base_offset < end_offset => met,
                    Ok(_) => return Ok(None),
                    Err(error) => {
                        self.start_again(view, start, from, error).await?;
                        start = self.time_start(view, timestamp, from).await?;
                        continue 'walk;
                    }
                };
                if met.header.max_timestamp < timestamp || met.header.last_offset < from {
                    continue;
                }
                let found = self.search_batch(&mut walker, &met, timestamp, from).await?;
                if let Some(found) = found {
                    return Ok((found.offset < end_offset).then_some(found));
                }
            }
        }
    }

    /// Where the first batch that can hold the answer cannot be before.
    async fn time_start(&self, view: &View, timestamp: i64, from: i64) -> Result<Start, SegmentError> {
        let by_offset = self.start_for(view, from).await?;
        let resident = self.resident(view).await?;
        let by_time = lock(&resident.times).search_from(timestamp).filter(|entry| entry.position < view.len);
        Ok(match by_time {
            Some(entry) if entry.position > by_offset.position => {
                Start { offset: entry.offset, position: entry.position, by: StartBy::Index }
            }
            _ => by_offset,
        })
    }

    async fn search_batch(
        &self,
        walker: &mut Walker,
        met: &Met,
        timestamp: i64,
        from: i64,
    ) -> Result<Option<TimestampedOffset>, SegmentError> {
        let frame = walker.frame(met).await.map_err(|error| self.walk_error(error))?;
        let mut bytes = frame.slice(MAGIC_LEN..);
        let batch = RecordBatch::take_first(&mut bytes).expect("a verified frame holds a whole batch");
        let bytes_max = self.0.options.decompressed_bytes_max;
        let search = move || first_at_or_after(&batch, timestamp, from, bytes_max);
        self.0.env.compute(search).await.ok_or(SegmentError::Stopped)
    }
}

async fn next_from(walker: &mut Walker, start: Start) -> Result<Option<Met>, WalkError> {
    let met = walker.next().await?;
    if let Some(met) = &met {
        check_start(met, start)?;
    }
    Ok(met)
}
