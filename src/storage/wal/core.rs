//! The state of the log between its callers and its files. Pure: the writer task executes what it says.
//!
//! A block's life: *waiting* entries → `next_block` (in flight, LSN given) → `completed` (in LSN order) → callbacks →
//! `settled`. In the sync mode `always` completion means durable; in the others `flushed` says so later.
//!
//! Numbers, always `floor_durable ≤ floor`, `settled < durable_below` (mode `always`), `durable_below ≤ next_lsn`:
//! * `next_lsn`: the next block's;
//! * `completed_below`: blocks below it are written;
//! * `durable_below`: blocks below it are flushed;
//! * `floor`: what callers released; `floor_durable`: the part of it that a flushed block says, so that files may be
//!   overwritten.

use std::collections::VecDeque;

use super::block::BlockIdentity;
use super::config::{WalConfig, WalSync};
use super::entry::Entry;
use super::group::{GroupLimits, GroupQueue, Item};
use super::slots::{NewSlot, Place, SlotLimits, SlotNumber, Slots, placed_bytes};
use super::submission::EntryClass;
use crate::storage::Lsn;

/// Live bytes are known to this precision.
const MARK_BYTES: u64 = 64 * 1024;

/// What a start found.
#[derive(Clone, Copy, Debug)]
pub struct CoreStart {
    /// Number of this incarnation.
    pub writer: u64,
    /// The first new block's number.
    pub next_lsn: Lsn,
    /// The first block that was replayed; `next_lsn` if none.
    pub replayed_from: Lsn,
    /// Bytes of the replayed blocks.
    pub replayed_bytes: u64,
}

/// What the writer should do next.
pub enum Next<T> {
    /// Nothing, until something changes.
    Idle,
    /// Prepare a file; the group that needs it is kept.
    Prepare(NewSlot),
    /// Write this block.
    Write(Block<T>),
}

/// A block to write.
pub struct Block<T> {
    /// What its header says.
    pub identity: BlockIdentity,
    /// Where it goes.
    pub place: Place,
    /// Its entries.
    pub items: Vec<Item<T>>,
    /// Whether it must be flushed before the next one is written, whatever the sync mode.
    pub takes_over: bool,
}

struct Flight {
    lsn: Lsn,
    floor: Lsn,
}

/// See the module.
pub struct Core<T> {
    config: WalConfig,
    writer: u64,
    queue: GroupQueue<T>,
    /// A group that waits for a file, with its size on disk.
    staged: Option<(Vec<Item<T>>, u64)>,
    /// The files.
    pub slots: Slots,
    in_flight: VecDeque<Flight>,
    /// Blocks have failed, and the next one takes over their numbers in another file: it is flushed, and nothing is written
    /// before that. Later blocks without it would go on behind the failed ones, which may be there whole.
    takeover: bool,
    start_lsn: Lsn,
    next_lsn: Lsn,
    settled: Lsn,
    completed_below: Lsn,
    completed_floor: Lsn,
    durable_below: Lsn,
    floor: Lsn,
    floor_durable: Lsn,
    live: LiveBytes,
}

impl<T> Core<T> {
    /// The state after a start. `slots` holds the files found.
    pub fn new(config: WalConfig, start: CoreStart, slots: Slots) -> Self {
        let mut live = LiveBytes::default();
        if start.replayed_bytes > 0 {
            live.wrote(start.replayed_from, start.replayed_bytes);
        }
        Self {
            config,
            writer: start.writer,
            queue: GroupQueue::default(),
            staged: None,
            slots,
            in_flight: VecDeque::new(),
            takeover: false,
            start_lsn: start.next_lsn,
            next_lsn: start.next_lsn,
            settled: Lsn(start.next_lsn.0.saturating_sub(1)),
            completed_below: start.next_lsn,
            completed_floor: start.replayed_from,
            durable_below: start.next_lsn,
            floor: start.replayed_from,
            floor_durable: start.replayed_from,
            live,
        }
    }

    /// The limits of the files for `config`.
    pub fn slot_limits(config: &WalConfig) -> SlotLimits {
        SlotLimits {
            file_bytes: config.file_bytes,
            first_file_bytes: config.first_file_bytes,
            keep_bytes_max: config.max_bytes + config.file_bytes,
        }
    }

    /// Adds an entry.
    pub fn push(&mut self, class: EntryClass, entry: Entry, tag: T) {
        self.queue.push(class, entry, tag);
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn is_quiet(&self) -> bool {
        self.is_drained() && self.in_flight.is_empty()
    }

    fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.staged.is_none()
    }

    /// Whether a group waits for a file to be prepared.
    pub fn needs_file(&self) -> bool {
        self.staged.is_some()
    }

    /// Whether writing waits for what was replayed to be made durable elsewhere.
    pub fn is_gated(&self) -> bool {
        self.floor < self.start_lsn
    }

    /// What to do next.
    pub fn next_block(&mut self) -> Next<T> {
        if self.is_gated() || self.is_drained() || self.in_flight.len() >= self.config.writes_in_flight_max.max(1) {
            return Next::Idle;
        }
        if self.takeover && !self.in_flight.is_empty() {
            return Next::Idle;
        }
        let (items, bytes) = match self.staged.take() {
            Some(staged) => staged,
            None if !self.in_flight.is_empty() && self.queue.bytes() < self.config.overlap_bytes_min => {
                return Next::Idle;
            }
            None => {
                let limits = GroupLimits {
                    bytes_max: self.config.group_bytes_max,
                    internal_bytes: self.config.group_bytes_internal,
                };
                let items = self.queue.take_group(limits);
                let bytes = placed_bytes(items.iter().map(|item| item.bytes).sum());
                (items, bytes)
            }
        };
        let Some(place) = self.slots.place(self.next_lsn, bytes) else {
            self.staged = Some((items, bytes));
            return self.slots.prepare_for(bytes).map_or(Next::Idle, Next::Prepare);
        };
        let identity = BlockIdentity {
            writer: self.writer,
            file_sequence: place.file_sequence,
            lsn: self.next_lsn,
            durable_below: self.durable_below,
            floor: self.floor,
        };
        self.in_flight.push_back(Flight { lsn: self.next_lsn, floor: self.floor });
        self.live.wrote(self.next_lsn, bytes);
        self.next_lsn = self.next_lsn.next();
        Next::Write(Block { identity, place, items, takes_over: self.takeover })
    }

    /// The oldest block in flight is written, and flushed too in the mode `always`. Returns its number and the files to
    /// remove.
    pub fn completed(&mut self) -> (Lsn, Vec<SlotNumber>) {
        let flight = self.in_flight.pop_front().expect("a block was in flight");
        self.completed_below = flight.lsn.next();
        self.completed_floor = flight.floor;
        self.takeover = false;
        let removed = if self.config.sync == WalSync::Always { self.flushed(self.completed_now()) } else { Vec::new() };
        (flight.lsn, removed)
    }

    /// What is written now: pass it to [`Self::flushed`] when a flush that started after this call has succeeded.
    pub fn completed_now(&self) -> Completed {
        Completed { below: self.completed_below, floor: self.completed_floor }
    }

    /// Blocks written before a flush are durable. Returns the files to remove.
    pub fn flushed(&mut self, completed: Completed) -> Vec<SlotNumber> {
        self.durable_below = self.durable_below.max(completed.below);
        self.floor_durable = self.floor_durable.max(completed.floor);
        self.slots.reclaim(self.floor_durable)
    }

    /// The callbacks of this block and all before it have run.
    pub fn settled_at(&mut self, lsn: Lsn) {
        self.settled = lsn;
    }

    /// A write failed for lack of space and nothing is in flight any more: all blocks that were in flight fail. Their
    /// numbers are given again, in another file.
    pub fn no_space(&mut self) {
        if let Some(first) = self.in_flight.front() {
            self.next_lsn = first.lsn;
            self.slots.abandon_active(self.next_lsn);
            self.live.forget_from(self.next_lsn);
            self.takeover = true;
        }
        self.in_flight.clear();
    }

    /// Takes everything that waits, to fail it.
    pub fn take_waiting(&mut self) -> Vec<Item<T>> {
        let mut items = self.staged.take().map_or_else(Vec::new, |(items, _)| items);
        items.extend(self.queue.take_all());
        items
    }

    /// Everything below `lsn` is not needed any more. Returns whether this opened the gate.
    pub fn release(&mut self, lsn: Lsn) -> bool {
        let was_gated = self.is_gated();
        // No caller can know that a block is not needed before it is written.
        self.floor = self.floor.max(lsn.min(self.completed_below));
        if self.floor == self.next_lsn {
            self.live.clear();
        } else {
            self.live.release(self.floor);
        }
        was_gated && !self.is_gated()
    }

    /// The first block of this incarnation.
    pub fn start_lsn(&self) -> Lsn {
        self.start_lsn
    }

    /// The next block's number.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// The last block whose callbacks have run.
    pub fn settled(&self) -> Lsn {
        self.settled
    }

    /// Blocks below this are flushed.
    pub fn durable_below(&self) -> Lsn {
        self.durable_below
    }

    /// Bytes of blocks that are not released.
    pub fn live_bytes(&self) -> u64 {
        self.live.bytes()
    }

    /// Which blocks should be released to stay below the limit: all below the one returned; `Lsn(0)` when calm.
    pub fn pressure(&self) -> Lsn {
        let max = self.config.max_bytes;
        if self.live.bytes() > max / 4 * 3 { self.live.release_to(max / 2) } else { Lsn(0) }
    }
}

/// How far the log was written at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    below: Lsn,
    floor: Lsn,
}

/// Bytes of live blocks, from marks along the log.
#[derive(Default)]
struct LiveBytes {
    /// Bytes written since the start.
    end: u64,
    /// Bytes before the first live block.
    start: u64,
    /// Blocks and the bytes before them.
    marks: VecDeque<(Lsn, u64)>,
}

impl LiveBytes {
    fn bytes(&self) -> u64 {
        self.end - self.start
    }

    fn wrote(&mut self, lsn: Lsn, bytes: u64) {
        if self.marks.back().is_none_or(|(_, before)| self.end - before >= MARK_BYTES) {
            self.marks.push_back((lsn, self.end));
        }
        self.end += bytes;
    }

    fn release(&mut self, floor: Lsn) {
        // A mark covers the blocks up to the next mark; it goes when all of them are below the floor.
        while let Some((_, next_before)) = self.marks.get(1).filter(|(lsn, _)| *lsn <= floor) {
            self.start = *next_before;
            self.marks.pop_front();
        }
    }

    /// Blocks from `lsn` on were not written after all. Their bytes stay counted with the block before them.
    fn forget_from(&mut self, lsn: Lsn) {
        while self.marks.pop_back_if(|(marked, _)| *marked >= lsn).is_some() {}
        if self.marks.is_empty() {
            self.start = self.end;
        }
    }

    /// Everything is released.
    fn clear(&mut self) {
        self.marks.clear();
        self.start = self.end;
    }

    fn release_to(&self, bytes: u64) -> Lsn {
        let position = self.end.saturating_sub(bytes);
        self.marks.iter().find(|(_, before)| *before >= position).or(self.marks.back()).map_or(Lsn(0), |(lsn, _)| *lsn)
    }
}
