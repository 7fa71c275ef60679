//! What the log must remember: a list, and what has happened to each entry on it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, BytesMut};
use kilo::storage::wal::{Entry, WalFailed};
use kilo::storage::{Lsn, PartitionKey, TopicId};
use kilo::wire::batch::RecordBatch;

/// The entry of this id: its base offset is the id, its records depend on it.
pub fn append(id: usize, partition: i32, bytes: usize) -> Entry {
    let mut whole = BytesMut::with_capacity(bytes);
    whole.put_u64(id as u64);
    whole.put_u32(u32::try_from(bytes - 12).expect("small"));
    whole.put_u32(0);
    whole.put_u8(2);
    let mut rng = fastrand::Rng::with_seed(id as u64);
    whole.extend((whole.len()..bytes).map(|_| rng.u8(..)));
    Entry::Append {
        partition: PartitionKey { topic: TopicId([3; 16]), index: partition },
        batches: RecordBatch::split(whole.freeze()).expect("one batch"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Not answered.
    Open,
    /// Answered with a block's number.
    Acked(Lsn),
    /// Answered with a failure.
    Failed,
    /// A finished recovery has not found it: it must never be seen again.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    partition: i32,
    bytes: usize,
    life: u32,
    fate: Fate,
    /// Acknowledged in a mode or in circumstances that do not promise that it survives what happened.
    may_be_lost: bool,
}

#[derive(Default)]
pub struct Model {
    entries: Vec<Known>,
    life: u32,
    last_answer: Lsn,
    /// Everything below is durable elsewhere.
    pub floor: Lsn,
    /// The highest number that a checkpoint names.
    pub checkpointed: Lsn,
    /// Blocks up to this were flushed, at least.
    durable: Lsn,
    /// Whether this life has made durable elsewhere what it replayed: before that, what an earlier one had written and
    /// not flushed still is not.
    has_recovered: bool,
    pub failure: Option<String>,
}

impl Model {
    pub fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    pub fn submitted(&mut self, partition: i32, bytes: usize) -> usize {
        let (life, fate) = (self.life, Fate::Open);
        self.entries.push(Known { partition, bytes, life, fate, may_be_lost: false });
        self.entries.len() - 1
    }

    pub fn answered(&mut self, id: usize, result: Result<Lsn, WalFailed>) {
        let known = self.entries[id];
        if known.fate != Fate::Open {
            self.fail(format!("entry {id} was answered twice"));
        }
        let Ok(lsn) = result else {
            self.entries[id].fate = Fate::Failed;
            return;
        };
        if lsn < self.last_answer || lsn <= self.checkpointed.min(Lsn(self.floor.0.saturating_sub(1))) {
            self.fail(format!("entry {id} was acknowledged in block {lsn}, after block {}", self.last_answer));
        }
        let overtaken = self.entries[..id]
            .iter()
            .any(|other| other.life == known.life && other.partition == known.partition && other.fate == Fate::Open);
        if overtaken {
            self.fail(format!("entry {id} was acknowledged before an earlier one of its partition"));
        }
        self.last_answer = lsn;
        self.entries[id].fate = Fate::Acked(lsn);
    }

    pub fn is_waiting(&self) -> bool {
        self.entries.iter().any(|known| known.life == self.life && known.fate == Fate::Open)
    }

    /// Declares a part of what is settled durable elsewhere.
    pub fn release(&mut self, percent: u64, settled: Lsn) -> Lsn {
        let left = settled.next().0.saturating_sub(self.floor.0);
        self.floor = Lsn(self.floor.0 + left * percent / 100);
        self.checkpointed = self.checkpointed.max(Lsn(self.floor.0.saturating_sub(1)));
        self.floor
    }

    /// Blocks up to this are flushed, if those before this life are.
    pub fn flushed(&mut self, lsn: Lsn) {
        if self.has_recovered {
            self.durable = lsn;
        }
    }

    /// The life is over. Unless `all_survives`, only what was flushed must be there at the next start.
    pub fn crashed(&mut self, all_survives: bool) {
        for known in &mut self.entries {
            if matches!(known.fate, Fate::Acked(lsn) if lsn > self.durable) && !all_survives {
                known.may_be_lost = true;
            }
        }
        self.has_recovered = false;
        self.life += 1;
        self.last_answer = Lsn(0);
    }

    /// Judges a replay.
    pub fn replayed(&mut self, replayed: &[(Lsn, Entry)], next: Lsn) {
        let mut found: BTreeMap<usize, Lsn> = BTreeMap::new();
        let mut last_of: BTreeMap<i32, usize> = BTreeMap::new();
        let mut blocks: BTreeSet<Lsn> = BTreeSet::new();
        for (lsn, entry) in replayed {
            let Entry::Append { batches, .. } = entry else {
                return self.fail(format!("an invented entry: {entry:?}"));
            };
            let id = usize::try_from(batches[0].base_offset()).unwrap_or(usize::MAX);
            let Some(known) = self.entries.get(id).copied() else {
                return self.fail(format!("an invented entry: {entry:?}"));
            };
            if *entry != append(id, known.partition, known.bytes) {
                self.fail(format!("entry {id} came back changed"));
            }
            if found.insert(id, *lsn).is_some() {
                self.fail(format!("entry {id} came back twice"));
            }
            if last_of.insert(known.partition, id).is_some_and(|before| before > id) {
                self.fail(format!("entry {id} came back before an earlier one of its partition"));
            }
            match known.fate {
                Fate::Acked(acked) if acked != *lsn => {
                    self.fail(format!("entry {id} of block {acked} came back in block {lsn}"));
                }
                Fate::Gone => self.fail(format!("entry {id} came back in block {lsn} after it was gone")),
                _ => {}
            }
            if blocks.last().is_some_and(|last| last > lsn) || *lsn >= next {
                self.fail(format!("block {lsn} is out of order; the next is to be {next}"));
            }
            blocks.insert(*lsn);
        }
        if let (Some(first), Some(last)) = (blocks.first(), blocks.last())
            && last.0 - first.0 + 1 != blocks.len() as u64
        {
            self.fail(format!("the replay goes on after a gap: {blocks:?}"));
        }
        self.check_complete(&found);
        if next <= self.checkpointed {
            self.fail(format!("block {next} would be written again; {} is in a checkpoint", self.checkpointed));
        }
    }

    fn check_complete(&mut self, found: &BTreeMap<usize, Lsn>) {
        let mut missing_before: BTreeMap<(u32, i32), usize> = BTreeMap::new();
        for (id, known) in self.entries.clone().into_iter().enumerate() {
            let place = (known.life, known.partition);
            if found.contains_key(&id) {
                if let Some(missing) = missing_before.get(&place) {
                    self.fail(format!("entry {id} came back, the earlier {missing} of its partition did not"));
                }
                continue;
            }
            match known.fate {
                Fate::Acked(lsn) if lsn < self.floor => {}
                Fate::Acked(lsn) if !known.may_be_lost => {
                    self.fail(format!("entry {id}, acknowledged in block {lsn}, is lost (floor {})", self.floor));
                }
                Fate::Acked(_) | Fate::Open => {
                    missing_before.insert(place, id);
                }
                Fate::Failed | Fate::Gone => {}
            }
        }
    }

    /// Everything that was replayed is durable elsewhere; what was not is gone.
    pub fn recovered(&mut self, replayed: &[(Lsn, Entry)], next: Lsn) {
        let found: BTreeMap<i64, Lsn> = replayed
            .iter()
            .filter_map(|(lsn, entry)| match entry {
                Entry::Append { batches, .. } => Some((batches[0].base_offset(), *lsn)),
                _ => None,
            })
            .collect();
        for (id, known) in self.entries.iter_mut().enumerate().filter(|(_, known)| known.life < self.life) {
            known.fate = match (found.get(&(id as i64)), known.fate) {
                (Some(lsn), _) => Fate::Acked(*lsn),
                (None, Fate::Acked(lsn)) if lsn < self.floor => Fate::Acked(lsn),
                (None, _) => Fate::Gone,
            };
        }
        self.floor = next;
        let newest = found.values().copied().max().unwrap_or_default();
        self.checkpointed = self.checkpointed.max(newest);
        self.durable = Lsn(next.0 - 1);
        self.has_recovered = true;
    }
}
