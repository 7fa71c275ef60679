//! Which file a block goes to, and when a file can be used again. Pure.
//!
//! | state | meaning | leaves it when |
//! |---|---|---|
//! | Preparing | being created, preallocated and made durable | the driver reports success (Free) or failure (gone) |
//! | Free | may be overwritten from its start | a block needs a file (Active) or there are too many (gone) |
//! | Active | blocks are appended | the next block does not fit (Live) |
//! | Live | holds blocks that may be needed | a floor above its last block is durable *in the log* (Free or gone) |
//!
//! The last rule is what makes recycling safe: whoever replays after the file was overwritten finds a block that says
//! that nothing in it was needed.

use std::collections::BTreeMap;

use super::block::{BLOCK_ALIGN, block_bytes};
use crate::storage::Lsn;

/// Number of a file: part of its name, never changes.
pub type SlotNumber = u32;

/// Where a block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub slot: SlotNumber,
    /// The byte in it.
    pub offset: u64,
    /// The file's sequence.
    pub file_sequence: u64,
    /// Whether the file had been used before, and this is the first block that overwrites it.
    pub recycles: bool,
}

/// A file to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSlot {
    /// Its number.
    pub slot: SlotNumber,
    /// Its size in bytes.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Active { file_sequence: u64, used: u64, last: Lsn },
    Live { last: Lsn },
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    bytes: u64,
    state: State,
    /// Whether any block was ever written to it.
    stale: bool,
}

/// Sizes that the plan keeps to, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct SlotLimits {
    /// Size of a file.
    pub file_bytes: u64,
    /// Size of the file made when a start finds none.
    pub first_file_bytes: u64,
    /// Free files are kept while all files together stay below this.
    pub keep_bytes_max: u64,
}

/// All files of the log.
pub struct Slots {
    limits: SlotLimits,
    slots: BTreeMap<SlotNumber, Slot>,
    active: Option<SlotNumber>,
    preparing: Option<NewSlot>,
    started: bool,
    next_slot: SlotNumber,
    next_sequence: u64,
}

impl Slots {
    /// No files yet. `next_sequence` must be above that of any block in any file.
    pub fn new(limits: SlotLimits, next_sequence: u64) -> Self {
        Self {
            limits,
            slots: BTreeMap::new(),
            active: None,
            preparing: None,
            started: false,
            next_slot: 1,
            next_sequence,
        }
    }

    /// A file that a start found: with the last block in it that may be needed, or free.
    pub fn found(&mut self, slot: SlotNumber, bytes: u64, last: Option<Lsn>) {
        let state = last.map_or(State::Free, |last| State::Live { last });
        self.slots.insert(slot, Slot { bytes, state, stale: true });
        self.next_slot = self.next_slot.max(slot.saturating_add(1));
    }

    /// A place for a block of `bytes` (a multiple of 4 KiB), or `None` if a file must be prepared first.
    pub fn place(&mut self, lsn: Lsn, bytes: u64) -> Option<Place> {
        if let Some(slot) = self.active {
            let file = self.slots.get_mut(&slot).expect("the active file exists");
            if let State::Active { file_sequence, used, last } = &mut file.state {
                if file.bytes - *used >= bytes {
                    let place = Place { slot, offset: *used, file_sequence: *file_sequence, recycles: false };
                    *used += bytes;
                    *last = lsn;
                    return Some(place);
                }
                let last = *last;
                file.state = State::Live { last };
            }
            self.active = None;
        }
        let free = self.slots.iter_mut().find(|(_, slot)| slot.state == State::Free && slot.bytes >= bytes);
        let (&slot, file) = free?;
        let file_sequence = self.next_sequence;
        self.next_sequence += 1;
        let recycles = std::mem::replace(&mut file.stale, true);
        file.state = State::Active { file_sequence, used: bytes, last: lsn };
        self.active = Some(slot);
        self.started = true;
        Some(Place { slot, offset: 0, file_sequence, recycles })
    }

    /// The file that must be prepared for a block of `bytes` that found no place. `None` while one is being prepared.
    pub fn prepare_for(&mut self, bytes: u64) -> Option<NewSlot> {
        let usual = if self.started { self.limits.file_bytes } else { self.limits.first_file_bytes };
        self.prepare(if bytes <= usual { usual } else { bytes.max(self.limits.file_bytes) })
    }

    /// The file to prepare ahead of need: when there is no free one and the active one is half full.
    pub fn prepare_ahead(&mut self) -> Option<NewSlot> {
        if self.slots.values().any(|slot| slot.state == State::Free) {
            return None;
        }
        match self.active.and_then(|active| self.slots.get(&active)) {
            Some(Slot { bytes, state: State::Active { used, .. }, .. }) if *used >= bytes / 2 => {
                self.prepare(self.limits.file_bytes)
            }
            _ => None,
        }
    }

    /// The file that a start needs before its first block: none if a free one was found.
    pub fn prepare_first(&mut self) -> Option<NewSlot> {
        if self.slots.values().any(|slot| slot.state == State::Free) {
            return None;
        }
        self.prepare(self.limits.first_file_bytes)
    }

    fn prepare(&mut self, bytes: u64) -> Option<NewSlot> {
        if self.preparing.is_some() {
            return None;
        }
        let new = NewSlot { slot: self.next_slot, bytes: bytes.next_multiple_of(BLOCK_ALIGN) };
        self.next_slot += 1;
        self.preparing = Some(new);
        Some(new)
    }

    /// The file under preparation is durable (`true`) or could not be made.
    pub fn prepared(&mut self, success: bool) {
        let new = self.preparing.take().expect("a file was being prepared");
        if success {
            self.slots.insert(new.slot, Slot { bytes: new.bytes, state: State::Free, stale: false });
        }
    }

    /// Frees the files whose blocks are all below `floor`, which must be durable in the log. Returns those to remove:
    /// files of an unusual size, and free ones beyond what is worth keeping.
    pub fn reclaim(&mut self, floor: Lsn) -> Vec<SlotNumber> {
        let mut total: u64 = self.slots.values().map(|slot| slot.bytes).sum();
        let mut removed = Vec::new();
        for (&number, slot) in &mut self.slots {
            if !matches!(slot.state, State::Live { last } if last < floor) {
                continue;
            }
            slot.state = State::Free;
            if slot.bytes != self.limits.file_bytes || total > self.limits.keep_bytes_max {
                total -= slot.bytes;
                removed.push(number);
            }
        }
        self.slots.retain(|number, _| !removed.contains(number));
        removed
    }

    /// Gives the active file up because a write to it failed: the block `next` and those after it, which may be partly
    /// there, will be written again elsewhere under the same numbers and a higher file sequence.
    pub fn abandon_active(&mut self, next: Lsn) {
        // Blocks in flight may reach back into files that were active before.
        for slot in self.slots.values_mut() {
            match slot.state {
                State::Active { last, .. } | State::Live { last } => {
                    slot.state = State::Live { last: last.min(Lsn(next.0.saturating_sub(1))) };
                }
                State::Free => {}
            }
        }
        self.active = None;
    }

    /// How many bytes the files have on disk.
    pub fn total_bytes(&self) -> u64 {
        self.slots.values().map(|slot| slot.bytes).sum()
    }
}

/// The size on disk of a block with `payload` bytes of entries.
pub fn placed_bytes(payload: usize) -> u64 {
    block_bytes(payload as u64)
}
