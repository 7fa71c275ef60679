//! Settings of the write-ahead log and what each sync mode promises.

use std::time::Duration;

use super::block::BLOCK_ALIGN;

/// Upper bound of a group: lengths in a block have 32 bits.
const GROUP_BYTES_LIMIT: usize = 1 << 30;
/// Upper bound of blocks in flight: each needs a descriptor of its own per file.
const WRITES_IN_FLIGHT_LIMIT: usize = 8;

/// When an entry counts as written (`wal.sync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalSync {
    /// `always`: after write and flush (`fdatasync`). Acknowledged data survives a crash of the process, of the
    /// machine, and a power cut. One flush serves every entry that waits.
    Always,
    /// `interval`: after the write; a flush follows within this time. A crash of the process loses nothing. A power
    /// cut or a crash of the machine loses what was acknowledged since the last flush: up to this time plus one flush.
    Interval(Duration),
    /// `os`: after the write; the operating system flushes when it likes (Linux: about 30 s), the log itself only when
    /// a file is full. A crash of the process loses nothing. A power cut or a crash of the machine loses up to a whole
    /// file (`wal.file.bytes`) of acknowledged data, or more if flushing it takes long.
    Os,
}

/// Settings of the write-ahead log. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalConfig {
    /// `wal.file.bytes`: size of a file. Rounded up to 4 KiB; an entry that needs more gets a larger file of its own.
    pub file_bytes: u64,
    /// Size of the file that a start creates when it finds none to reuse: small, so that starting is quick.
    pub first_file_bytes: u64,
    /// `wal.max.bytes`: how much may be live (not released). [`super::Wal::pressure`] asks for a release in time.
    pub max_bytes: u64,
    /// The most entry bytes in one block, unless a single entry is larger.
    pub group_bytes_max: usize,
    /// The part of `group_bytes_max` that entries of internal topics get before others when both wait.
    pub group_bytes_internal: usize,
    /// How many blocks may be in flight at once. At least 1.
    pub writes_in_flight_max: usize,
    /// While a block is in flight the next one starts only when this much waits (otherwise it gathers).
    pub overlap_bytes_min: usize,
    /// When an entry counts as written.
    pub sync: WalSync,
}

impl Default for WalConfig {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            file_bytes: 64 * MIB,
            first_file_bytes: 4 * MIB,
            max_bytes: 256 * MIB,
            group_bytes_max: 4 * 1024 * 1024,
            group_bytes_internal: 512 * 1024,
            writes_in_flight_max: 2,
            overlap_bytes_min: 256 * 1024,
            sync: WalSync::Always,
        }
    }
}

impl WalConfig {
    /// The same with every value brought into the range that the log can work with.
    pub(super) fn checked(mut self) -> Self {
        self.file_bytes = self.file_bytes.max(2 * BLOCK_ALIGN).next_multiple_of(BLOCK_ALIGN);
        self.first_file_bytes =
            self.first_file_bytes.max(2 * BLOCK_ALIGN).next_multiple_of(BLOCK_ALIGN).min(self.file_bytes);
        self.max_bytes = self.max_bytes.max(2 * self.file_bytes);
        // Blocks that are small against a file waste little at its end.
        let group_bytes = usize::try_from(self.file_bytes / 4).unwrap_or(usize::MAX);
        self.group_bytes_max = self.group_bytes_max.min(group_bytes).min(GROUP_BYTES_LIMIT);
        self.group_bytes_internal = self.group_bytes_internal.min(self.group_bytes_max / 2);
        self.writes_in_flight_max = self.writes_in_flight_max.clamp(1, WRITES_IN_FLIGHT_LIMIT);
        self
    }

    /// Small limits for simulation, so that files roll and are recycled within seconds of load.
    pub fn sim() -> Self {
        Self {
            file_bytes: 256 * 1024,
            first_file_bytes: 64 * 1024,
            max_bytes: 1024 * 1024,
            group_bytes_max: 64 * 1024,
            group_bytes_internal: 8 * 1024,
            writes_in_flight_max: 2,
            overlap_bytes_min: 8 * 1024,
            sync: WalSync::Always,
        }
    }
}
