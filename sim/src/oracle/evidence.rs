//! What is known about each offset and each value: acknowledged sends and reads put together.

use crate::history::{History, Outcome, Partition, ReadId, Response, SendId, Stamp, Value};

/// The operation that something is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    /// An acknowledged send.
    Ack(SendId),
    /// An answered read.
    Read(ReadId),
    /// An answered question for an offset by time, by its index.
    TimeQuery(u32),
    /// A topic's creation, by its index.
    Creation(u32),
    /// An answered question for all topics, by its index.
    TopicList(u32),
}

/// A record at an offset, as one operation proves it.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// The offset.
    pub offset: i64,
    /// The value there.
    pub value: Value,
    /// Digest of the record (for an acknowledgement, of what was sent).
    pub digest: u64,
    /// When it was proven.
    pub at: Stamp,
    /// By what.
    pub source: Witness,
}

/// Evidence of a whole history.
pub struct Evidence {
    /// All observations of a partition, in the order of their stamps.
    by_partition: Vec<Vec<Observed>>,
    /// Per partition, index of the first observation of each offset (`u32::MAX` if none).
    first_at: Vec<Vec<u32>>,
    /// Per value, where it was first seen: its partition and the index of the observation.
    placed: Vec<Option<(Partition, u32)>>,
}

impl Evidence {
    /// Gathers the evidence.
    pub fn gather(history: &History) -> Self {
        let mut by_partition: Vec<Vec<Observed>> = vec![Vec::new(); history.partitions.len()];
        for (index, send) in history.sends.iter().enumerate() {
            let (Outcome::Acked { base_offset }, Some(at)) = (send.outcome, send.ended) else { continue };
            for record in 0..u64::from(send.records) {
                by_partition[send.partition.0 as usize].push(Observed {
                    offset: base_offset + record as i64,
                    value: send.first_value + record,
                    digest: history.digest_of(send.first_value + record).unwrap_or_default(),
                    at,
                    source: Witness::Ack(SendId(index as u32)),
                });
            }
        }
        for (index, read) in history.reads.iter().enumerate() {
            let source = Witness::Read(ReadId(index as u32));
            by_partition[read.partition.0 as usize].extend(history.records(read).iter().map(|seen| Observed {
                offset: seen.offset,
                value: seen.value,
                digest: seen.digest,
                at: read.ended,
                source,
            }));
        }
        let mut first_at = Vec::with_capacity(by_partition.len());
        let mut placed = vec![None; history.next_value() as usize];
        for (partition, observed) in by_partition.iter_mut().enumerate() {
            observed.sort_by_key(|one| (one.at.order, one.offset));
            first_at.push(first_by_offset(observed));
            for (index, one) in observed.iter().enumerate() {
                if let Some(place @ None) = placed.get_mut(one.value as usize) {
                    *place = Some((Partition(partition as u32), index as u32));
                }
            }
        }
        Self { by_partition, first_at, placed }
    }

    /// Every partition with its observations in order.
    pub fn partitions(&self) -> impl Iterator<Item = (Partition, &[Observed])> {
        self.by_partition.iter().enumerate().map(|(index, all)| (Partition(index as u32), all.as_slice()))
    }

    /// The first observation of an offset.
    pub fn first_at(&self, partition: Partition, offset: i64) -> Option<&Observed> {
        let index = *self.first_at[partition.0 as usize].get(usize::try_from(offset).ok()?)?;
        self.by_partition[partition.0 as usize].get(index as usize)
    }

    /// The first observation of a value.
    pub fn placed(&self, value: Value) -> Option<(Partition, &Observed)> {
        let (partition, index) = (*self.placed.get(value as usize)?)?;
        Some((partition, &self.by_partition[partition.0 as usize][index as usize]))
    }

    /// One past the largest offset observed.
    pub fn end(&self, partition: Partition) -> i64 {
        self.first_at[partition.0 as usize].len() as i64
    }
}

/// Offsets of a run are dense, so a plain vector serves; one absurd offset must not make it absurdly long.
const OFFSETS_MAX: i64 = 1 << 26;

fn first_by_offset(observed: &[Observed]) -> Vec<u32> {
    let in_bounds = |one: &&Observed| (0..OFFSETS_MAX).contains(&one.offset);
    let len = observed.iter().filter(in_bounds).map(|one| one.offset as usize + 1).max().unwrap_or(0);
    let mut first = vec![u32::MAX; len];
    for (index, one) in observed.iter().enumerate() {
        if let Some(slot @ &mut u32::MAX) = usize::try_from(one.offset).ok().and_then(|at| first.get_mut(at)) {
            *slot = index as u32;
        }
    }
    first
}

/// Whether the last read of everything came to the end in this partition.
pub fn last_read_complete(history: &History, partition: Partition) -> bool {
    history.last_read_complete.contains(&partition)
}

/// For each partition with a complete last read, the value that it saw at each offset (0 for none).
pub fn last_read(history: &History, evidence: &Evidence) -> Vec<Option<Vec<Value>>> {
    let complete = |index: usize| last_read_complete(history, Partition(index as u32));
    let mut all: Vec<Option<Vec<Value>>> = (0..history.partitions.len())
        .map(|index| complete(index).then(|| vec![0; evidence.end(Partition(index as u32)) as usize]))
        .collect();
    for read in history.reads.iter().filter(|read| read.last && matches!(read.response, Response::Records { .. })) {
        let Some(values) = &mut all[read.partition.0 as usize] else { continue };
        for seen in history.records(read) {
            if let Some(slot) = usize::try_from(seen.offset).ok().and_then(|at| values.get_mut(at)) {
                *slot = seen.value;
            }
        }
    }
    all
}
