//! The tail of a partition in memory: what was appended last, for readers at the tail and for the write-behind to the
//! segment file. Pure; the partition log guards it with its lock.
//!
//! The bound is soft on one side: a batch that is not yet in the segment file is never dropped, whatever the bound says.
//! Holding producers back before that happens is the log's business.
//!
//! What is charged is memory, not messages: a batch that shares the allocation of a much larger request is copied out, any
//! other is charged with all that it keeps alive.

use std::collections::VecDeque;

use crate::wire::batch::RecordBatch;

/// Bytes that a batch costs beyond its own: two handles, two allocations' bookkeeping, its place in the queue.
const OVERHEAD_BYTES: usize = 192;

struct Entry {
    batch: RecordBatch,
    charged_bytes: usize,
}

/// What the ring has for a reader.
#[derive(Debug, PartialEq, Eq)]
pub enum RingRead {
    /// Batches from the wanted offset on. Empty at the end of the log, or where the caller's end offset is.
    Hit(Vec<RecordBatch>),
    /// The wanted offset is older than the ring: read the segment.
    Older,
}

/// The bounded tail of one partition.
pub struct Ring {
    batches: VecDeque<Entry>,
    bytes_max: usize,
    bytes: usize,
    start_offset: i64,
    next_offset: i64,
    /// Everything below is in the segment file.
    written_offset: i64,
}

impl Ring {
    /// An empty ring at the end of a log whose next offset is `next_offset` and all of which is written.
    pub fn new(bytes_max: usize, next_offset: i64) -> Self {
        Self {
            batches: VecDeque::new(),
            bytes_max,
            bytes: 0,
            start_offset: next_offset,
            next_offset,
            written_offset: next_offset,
        }
    }

    /// The first offset in the ring; the next offset of the log if it is empty.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// The offset after the last record.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Everything below is in the segment file.
    pub fn written_offset(&self) -> i64 {
        self.written_offset
    }

    /// Memory charged, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Changes the bound and drops what no longer fits.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.evict();
    }

    /// Takes a batch that is a part of an allocation of `backing_bytes` (its own size if it was compacted or built).
    ///
    /// # Panics
    /// When the batch does not lie at the end of the log: offsets are assigned by whoever pushes.
    pub fn push(&mut self, batch: RecordBatch, backing_bytes: usize) {
        self.push_all(vec![batch], backing_bytes);
    }

    /// Takes the batches that came in one allocation of `backing_bytes`: copied out together if they are less than half
    /// of it.
    ///
    /// # Panics
    /// As [`Self::push`].
    pub fn push_all(&mut self, batches: Vec<RecordBatch>, backing_bytes: usize) {
        let own_bytes: usize = batches.iter().map(RecordBatch::size).sum();
        let copy = own_bytes < backing_bytes / 2;
        let mut shared_bytes = if copy { 0 } else { backing_bytes.saturating_sub(own_bytes) };
        for batch in batches {
            assert!(batch.base_offset() >= self.next_offset, "a batch is pushed at the end of the log");
            let charged_bytes = batch.size() + OVERHEAD_BYTES + std::mem::take(&mut shared_bytes);
            if self.batches.is_empty() {
                self.start_offset = batch.base_offset();
            }
            self.next_offset = batch.last_offset() + 1;
            self.bytes += charged_bytes;
            let batch = if copy { batch.compact() } else { batch };
            self.batches.push_back(Entry { batch, charged_bytes });
        }
        self.evict();
    }

    /// Batches from the one that holds `from` on: whole ones, at most `bytes_max` in sum but always the first, none with
    /// a record at or above `end_offset`.
    pub fn read(&self, from: i64, bytes_max: usize, end_offset: i64) -> RingRead {
        if from < self.start_offset {
            return RingRead::Older;
        }
        let mut left = bytes_max;
        let mut found = Vec::new();
        for entry in self.batches.range(self.first_holding(from)..) {
            let size = entry.batch.size();
            if entry.batch.last_offset() >= end_offset || (size > left && !found.is_empty()) {
                break;
            }
            left = left.saturating_sub(size);
            found.push(entry.batch.clone());
        }
        RingRead::Hit(found)
    }

    /// What the write-behind takes next: unwritten batches in order, at most `bytes_max` in sum but always one.
    pub fn unwritten(&self, bytes_max: usize, end_offset: i64) -> Vec<RecordBatch> {
        match self.read(self.written_offset.max(self.start_offset), bytes_max, end_offset) {
            RingRead::Hit(batches) => batches,
            RingRead::Older => unreachable!("nothing unwritten leaves the ring"),
        }
    }

    /// Notes that everything below `offset` is in the segment file, and drops what no longer fits.
    pub fn mark_written(&mut self, offset: i64) {
        debug_assert!(offset <= self.next_offset, "nothing is written that was not appended");
        self.written_offset = self.written_offset.max(offset);
        self.evict();
    }

    /// Drops the batches that hold records at or above `end_offset`.
    pub fn truncate(&mut self, end_offset: i64) {
        let mut next_offset = self.next_offset.min(end_offset);
        while let Some(last) = self.batches.back().filter(|entry| entry.batch.last_offset() >= end_offset) {
            // A batch is kept or dropped as a whole: the offsets of its first records become free again, too.
            next_offset = next_offset.min(last.batch.base_offset());
            self.bytes -= last.charged_bytes;
            self.batches.pop_back();
        }
        self.next_offset = next_offset;
        self.written_offset = self.written_offset.min(next_offset);
        self.start_offset = self.start_offset.min(self.next_offset);
        self.settle_start();
    }

    /// Drops the oldest written batches until `bytes` are free or none is left: the budget over all partitions asks.
    /// Returns how much became free.
    pub fn release(&mut self, bytes: usize) -> usize {
        let before = self.bytes;
        while before - self.bytes < bytes && self.drop_oldest_written() {}
        before - self.bytes
    }

    fn evict(&mut self) {
        while self.bytes > self.bytes_max && self.drop_oldest_written() {}
    }

    fn drop_oldest_written(&mut self) -> bool {
        let Some(oldest) = self.batches.front().filter(|entry| entry.batch.last_offset() < self.written_offset) else {
            return false;
        };
        self.bytes -= oldest.charged_bytes;
        self.batches.pop_front();
        self.settle_start();
        true
    }

    fn settle_start(&mut self) {
        self.start_offset = self.batches.front().map_or(self.next_offset, |entry| entry.batch.base_offset());
    }

    fn first_holding(&self, offset: i64) -> usize {
        self.batches.partition_point(|entry| entry.batch.last_offset() < offset)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::batch::{BatchBuilder, Stamp};
    use crate::wire::codec::Codec;

    fn batch(base_offset: i64, records: usize, value_bytes: usize) -> RecordBatch {
        let mut builder = BatchBuilder::new(Codec::None);
        for _ in 0..records {
            builder.push(0, None, Some(&vec![b'x'; value_bytes]));
        }
        builder.build().expect("nothing to compress").assign(base_offset, 0, Stamp::Keep)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { records: usize, value_bytes: usize, backing: usize },
        Write { ahead: i64 },
        Truncate { back: i64 },
        Release { bytes: usize },
        Read { back: i64, bytes_max: usize, end_back: i64 },
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1usize..5, 0usize..400, 0usize..5000)
                .prop_map(|(records, value_bytes, backing)| Step::Push { records, value_bytes, backing }),
            2 => (0i64..30).prop_map(|ahead| Step::Write { ahead }),
            1 => (0i64..10).prop_map(|back| Step::Truncate { back }),
            1 => (0usize..2000).prop_map(|bytes| Step::Release { bytes }),
            4 => (-2i64..40, 0usize..3000, 0i64..10)
                .prop_map(|(back, bytes_max, end_back)| Step::Read { back, bytes_max, end_back }),
        ]
    }

    /// The model: every batch of the log, forever.
    fn model_read(log: &[RecordBatch], from: i64, bytes_max: usize, end_offset: i64) -> Vec<RecordBatch> {
        let mut sum = 0;
        let wanted = log.iter().filter(|b| b.last_offset() >= from).take_while(|b| b.last_offset() < end_offset);
        let fits = wanted.enumerate().take_while(|(at, b)| {
            sum += b.size();
            *at == 0 || sum <= bytes_max
        });
        fits.map(|(_, batch)| batch.clone()).collect()
    }

    fn check(bytes_max: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
        let mut ring = Ring::new(bytes_max, 100);
        let mut log: Vec<RecordBatch> = Vec::new();
        let mut written = 100;
        for step in steps {
            let next = log.last().map_or(100, |batch| batch.last_offset() + 1);
            match step {
                Step::Push { records, value_bytes, backing } => {
                    let batch = batch(next, records, value_bytes);
                    log.push(batch.clone());
                    ring.push(batch, backing);
                }
                Step::Write { ahead } => {
                    let all = ring.unwritten(usize::MAX, i64::MAX);
                    prop_assert_eq!(&all, &model_read(&log, written, usize::MAX, i64::MAX));
                    let done = log.iter().map(|b| b.last_offset() + 1).rfind(|end| *end <= written + ahead);
                    written = done.unwrap_or(written).max(written);
                    ring.mark_written(written);
                }
                Step::Truncate { back } => {
                    let end = log.iter().map(RecordBatch::base_offset).rfind(|base| *base <= next - back);
                    let end = end.unwrap_or(next);
                    log.retain(|batch| batch.last_offset() < end);
                    written = written.min(end);
                    ring.truncate(end);
                }
                Step::Release { bytes } => {
                    let before = ring.bytes();
                    prop_assert_eq!(ring.release(bytes), before - ring.bytes());
                }
                Step::Read { back, bytes_max, end_back } => match ring.read(next - back, bytes_max, next - end_back) {
                    RingRead::Hit(found) => {
                        prop_assert_eq!(found, model_read(&log, next - back, bytes_max, next - end_back));
                    }
                    RingRead::Older => prop_assert!(next - back < ring.start_offset()),
                },
            }
            let next = log.last().map_or(ring.next_offset(), |batch| batch.last_offset() + 1);
            prop_assert_eq!(ring.next_offset(), next);
            prop_assert!(ring.start_offset() <= ring.next_offset());
            prop_assert!(ring.bytes() <= bytes_max || ring.batches[0].batch.last_offset() >= written);
            prop_assert_eq!(ring.bytes(), ring.batches.iter().map(|entry| entry.charged_bytes).sum::<usize>());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn agrees_with_a_log_that_keeps_everything(
            bytes_max in 0usize..4000,
            steps in prop::collection::vec(any_step(), 1..60),
        ) {
            check(bytes_max, steps)?;
        }
    }

    #[test]
    fn a_small_batch_does_not_keep_a_large_request_alive() {
        let small = batch(0, 1, 100);
        let size = small.size();
        let mut ring = Ring::new(1 << 20, 0);
        ring.push(small.clone(), 1 << 20);
        assert_eq!(ring.bytes(), size + OVERHEAD_BYTES);
        // One that is most of its request is not copied, and charged with all of it.
        let mut ring = Ring::new(1 << 20, 0);
        let records = small.records_bytes().clone();
        ring.push(small, size + 100);
        assert_eq!(ring.bytes(), size + 100 + OVERHEAD_BYTES);
        assert_eq!(ring.batches[0].batch.records_bytes().as_ptr(), records.as_ptr());
    }
}
