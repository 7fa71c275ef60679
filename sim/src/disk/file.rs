//! One file of the model: what reads see, what is stable, and what lies between the two.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::extents::Extents;
use super::power::{CrashReport, Keep};

/// What a disk writes as a whole or not at all, in bytes.
pub const SECTOR_BYTES: u64 = 512;
/// The unit in which space is given out, in bytes.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// A change that the cache has and the platter may not have.
#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Bytes },
    SetLen { len: u64 },
}

#[derive(Clone, Debug)]
struct Pending {
    seq: u64,
    change: Change,
}

/// Contents and length, cached and stable.
#[derive(Clone, Debug, Default)]
pub(super) struct FileModel {
    cached: Extents,
    len: u64,
    durable: Extents,
    durable_len: u64,
    pending: VecDeque<Pending>,
    /// Blocks given to the file: from, to (exclusive), in blocks.
    blocks: BTreeMap<u64, u64>,
    /// Open handles.
    pub(super) opens: u32,
    /// Flushes that have failed.
    pub(super) failures: u64,
}

impl FileModel {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Bytes {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        self.cached.read(offset, len.min(left))
    }

    pub(super) fn write(&mut self, seq: u64, offset: u64, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        self.take_blocks(offset, end);
        self.cached.write(offset, bytes.clone());
        self.len = self.len.max(end);
        self.pending.push_back(Pending { seq, change: Change::Write { offset, bytes } });
    }

    pub(super) fn set_len(&mut self, seq: u64, len: u64) {
        if len < self.len {
            self.cached.clear_from(len);
            self.free_blocks_from(len);
        }
        if len != self.len {
            self.len = len;
            self.pending.push_back(Pending { seq, change: Change::SetLen { len } });
        }
    }

    /// Reserves `0..len` and extends the length to it.
    pub(super) fn allocate(&mut self, seq: u64, len: u64) {
        self.take_blocks(0, len);
        if len > self.len {
            self.set_len(seq, len);
        }
    }

    /// Bytes of the disk that the file occupies.
    pub(super) fn allocated(&self) -> u64 {
        self.blocks.iter().map(|(from, to)| (to - from) * BLOCK_BYTES).sum()
    }

    /// How many bytes more the file would occupy with `start..end` in it.
    pub(super) fn needed(&self, start: u64, end: u64) -> u64 {
        let (from, to) = (start / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let first = self.blocks.range(..=from).next_back().map_or(from, |(&at, _)| at);
        let held: u64 = self
            .blocks
            .range(first..to)
            .map(|(&held_from, &held_to)| held_to.min(to).saturating_sub(held_from.max(from)))
            .sum();
        (to.saturating_sub(from)).saturating_sub(held) * BLOCK_BYTES
    }

    fn take_blocks(&mut self, start: u64, end: u64) {
        let (mut from, mut to) = (start / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        if from >= to {
            return;
        }
        if let Some((&at, &until)) = self.blocks.range(..=from).next_back()
            && until >= from
        {
            (from, to) = (at, to.max(until));
        }
        while let Some((&at, &until)) = self.blocks.range(from..=to).next() {
            to = to.max(until);
            self.blocks.remove(&at);
        }
        self.blocks.insert(from, to);
    }

    fn free_blocks_from(&mut self, len: u64) {
        let from = len.div_ceil(BLOCK_BYTES);
        if let Some((&at, &until)) = self.blocks.range(..from).next_back()
            && until > from
        {
            self.blocks.insert(at, from);
        }
        self.blocks.retain(|&at, _| at < from);
    }

    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending
            .iter()
            .map(|pending| match &pending.change {
                Change::Write { bytes, .. } => bytes.len() as u64,
                Change::SetLen { .. } => 0,
            })
            .sum()
    }

    /// Makes every change up to `seq` stable.
    pub(super) fn make_stable(&mut self, seq: u64) {
        while self.pending.front().is_some_and(|pending| pending.seq <= seq) {
            match self.pending.pop_front().map(|pending| pending.change) {
                Some(Change::Write { offset, bytes }) => {
                    self.durable_len = self.durable_len.max(offset + bytes.len() as u64);
                    self.durable.write(offset, bytes);
                }
                Some(Change::SetLen { len }) => {
                    if len < self.durable_len {
                        self.durable.clear_from(len);
                    }
                    self.durable_len = len;
                }
                None => {}
            }
        }
    }

    /// A failed flush of every change up to `seq`: some of it may have reached the platter, none of it will be tried
    /// again, and reads go on seeing it.
    pub(super) fn lose(&mut self, seq: u64, rng: &mut fastrand::Rng) {
        let count = self.pending.iter().take_while(|pending| pending.seq <= seq).count();
        let lost: Vec<Change> = self.pending.drain(..count).map(|pending| pending.change).collect();
        self.settle_some(&lost, rng, &mut CrashReport::default());
    }

    /// Reads see what is on the platter again, plus what is still to be written: pages were evicted.
    pub(super) fn evict(&mut self) {
        self.cached = self.durable.clone();
        self.len = self.durable_len;
        for pending in &self.pending {
            match &pending.change {
                Change::Write { offset, bytes } => {
                    self.len = self.len.max(offset + bytes.len() as u64);
                    self.cached.write(*offset, bytes.clone());
                }
                Change::SetLen { len } => {
                    if *len < self.len {
                        self.cached.clear_from(*len);
                    }
                    self.len = *len;
                }
            }
        }
    }

    /// Power is lost: what was pending is kept in part.
    pub(super) fn crash(&mut self, rng: &mut fastrand::Rng, keep: Keep, report: &mut CrashReport) {
        self.opens = 0;
        match keep {
            Keep::All => self.make_stable(u64::MAX),
            Keep::None | Keep::Some => {
                let pending: Vec<Change> = self.pending.drain(..).map(|pending| pending.change).collect();
                if keep == Keep::Some {
                    self.settle_some(&pending, rng, report);
                } else {
                    report.sectors_pending += sectors(&pending);
                    report.sectors_lost += sectors(&pending);
                }
            }
        }
        self.evict();
        self.blocks.clear();
        self.take_blocks(0, self.len);
    }

    /// Flips one bit, in the cache and on the platter.
    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) {
        for (extents, len) in [(&mut self.cached, self.len), (&mut self.durable, self.durable_len)] {
            if offset < len {
                let byte = extents.read(offset, 1)[0] ^ (1 << (bit % 8));
                extents.write(offset, Bytes::copy_from_slice(&[byte]));
            }
        }
    }

    /// Applies an arbitrary, physically possible part of `changes` to the platter.
    ///
    /// A file system commits cuts in order, so a prefix of the cuts happened; a write after a cut that did not happen
    /// went to blocks that nobody refers to. Of each sector one version is found: a sector is written back as the cache
    /// has it at that moment, thus with all writes up to some point in time and none after it.
    fn settle_some(&mut self, changes: &[Change], rng: &mut fastrand::Rng, report: &mut CrashReport) {
        let cuts = cuts(changes, self.durable_len);
        let committed = rng.usize(0..=cuts.len());
        let (done, undone) = cuts.split_at(committed);
        for &(_, len) in done {
            self.durable.clear_from(len);
        }
        let mut versions: BTreeMap<u64, Vec<(u64, Bytes)>> = BTreeMap::new();
        for (index, change) in changes.iter().enumerate() {
            let Change::Write { offset, bytes } = change else { continue };
            let limit = |cuts: &[(usize, u64)], relevant: &dyn Fn(usize) -> bool| {
                cuts.iter().filter(|(at, _)| relevant(*at)).map(|(_, len)| *len).min().unwrap_or(u64::MAX)
            };
            // The sector in which a cut that did not happen falls has lost its tail in the cache: it stays as it was.
            let cut_off = limit(undone, &|at| at < index) / SECTOR_BYTES * SECTOR_BYTES;
            let end = (offset + bytes.len() as u64).min(limit(done, &|at| at > index)).min(cut_off);
            let mut at = *offset;
            while at < end {
                let next = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
                let piece = bytes.slice((at - offset) as usize..(next.min(end) - offset) as usize);
                versions.entry(at / SECTOR_BYTES).or_default().push((at, piece));
                at = next;
            }
        }
        self.choose_versions(versions, rng, report);
        let first = done.last().map_or(0, |(at, _)| at + 1);
        let last = undone.first().map_or(changes.len(), |(at, _)| *at);
        let mut lengths = vec![done.last().map_or(self.durable_len, |(_, len)| *len)];
        for change in &changes[first..last] {
            let before = *lengths.last().expect("the list starts with one length");
            lengths.push(match change {
                Change::Write { offset, bytes } => before.max(offset + bytes.len() as u64),
                Change::SetLen { len } => *len,
            });
        }
        self.durable_len = match rng.u8(0..4) {
            0 => lengths[0],
            1 => lengths[rng.usize(..lengths.len())],
            _ => lengths[lengths.len() - 1],
        };
        self.durable.clear_from(self.durable_len);
    }

    fn choose_versions(
        &mut self,
        versions: BTreeMap<u64, Vec<(u64, Bytes)>>,
        rng: &mut fastrand::Rng,
        report: &mut CrashReport,
    ) {
        // From "nearly nothing was written back" to "nearly everything".
        let keep_all = [0.0, 0.1, 0.5, 0.9, 1.0][rng.usize(..5)];
        let keep_versions = rng.bool();
        for writes in versions.into_values() {
            let count = if rng.f64() < keep_all {
                writes.len()
            } else if keep_versions {
                rng.usize(0..=writes.len())
            } else {
                0
            };
            report.sectors_pending += 1;
            report.sectors_lost += u64::from(count < writes.len());
            for (offset, bytes) in writes.into_iter().take(count) {
                self.durable.write(offset, bytes);
            }
        }
    }
}

/// The changes that make the file shorter: their index and the length they leave.
fn cuts(changes: &[Change], mut len: u64) -> Vec<(usize, u64)> {
    let mut cuts = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        match change {
            Change::Write { offset, bytes } => len = len.max(offset + bytes.len() as u64),
            Change::SetLen { len: new } => {
                if *new < len {
                    cuts.push((index, *new));
                }
                len = *new;
            }
        }
    }
    cuts
}

fn sectors(changes: &[Change]) -> u64 {
    changes
        .iter()
        .map(|change| match change {
            Change::Write { offset, bytes } => {
                (offset + bytes.len() as u64).div_ceil(SECTOR_BYTES) - offset / SECTOR_BYTES
            }
            Change::SetLen { .. } => 0,
        })
        .sum()
}
