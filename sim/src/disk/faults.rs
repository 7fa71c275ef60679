//! What goes wrong on a disk, as data: rates for random faults, and faults injected at a chosen operation.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kinds of disk operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum OpKind {
    Open,
    Read,
    Write,
    Sync,
    Allocate,
    SetLen,
    Len,
    CreateDir,
    List,
    Exists,
    Rename,
    Remove,
    SyncDir,
    Lock,
    FreeSpace,
}

impl OpKind {
    /// The name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Allocate => "allocate",
            Self::SetLen => "set_len",
            Self::Len => "len",
            Self::CreateDir => "create_dir",
            Self::List => "list",
            Self::Exists => "exists",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::SyncDir => "sync_dir",
            Self::Lock => "lock",
            Self::FreeSpace => "free_space",
        }
    }
}

/// One fault of one operation. Where a fault makes no sense for an operation (a flipped bit in a rename) it does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The operation fails with EIO. A write may have been done in part. A flush loses what it covered: the pages count
    /// as clean though they are not stable.
    Eio,
    /// The operation fails with ENOSPC. A write may have been done in part.
    NoSpace,
    /// Opening fails with EMFILE.
    TooManyFiles,
    /// A flush says that it succeeded and has done nothing. Beyond what the broker promises to survive.
    Lie,
    /// One bit of what is read is wrong, this time only.
    FlipBit,
    /// It takes so many milliseconds longer.
    Slow(u64),
}

/// Rates of random faults: each is the chance per operation of the kinds that it concerns. All zero by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskFaults {
    /// Reads that fail with EIO.
    pub read_error: f64,
    /// Writes, allocations, renames and removals that fail with EIO.
    pub write_error: f64,
    /// Flushes of a file that fail and lose what they covered.
    pub sync_error: f64,
    /// Flushes of a file that lie.
    pub sync_lie: f64,
    /// Flushes of a directory that fail with EIO; the names stay pending.
    pub sync_dir_error: f64,
    /// Opens that fail with EMFILE.
    pub open_error: f64,
    /// Reads with one bit flipped.
    pub read_flip: f64,
    /// Operations of any kind that are slow by up to `slow_ms`.
    pub slow: f64,
    /// Milliseconds.
    pub slow_ms: u64,
    /// Operations of any kind that are stuck for `stuck_ms`.
    pub stuck: f64,
    /// Milliseconds.
    pub stuck_ms: u64,
}

impl DiskFaults {
    /// Draws what happens to an operation.
    pub(super) fn draw(&self, kind: OpKind, rng: &mut fastrand::Rng) -> Option<Fault> {
        let mut hits = |rate: f64| rate > 0.0 && rng.f64() < rate;
        if hits(self.stuck) {
            return Some(Fault::Slow(self.stuck_ms));
        }
        let fault = match kind {
            OpKind::Read if hits(self.read_error) => Some(Fault::Eio),
            OpKind::Read if hits(self.read_flip) => Some(Fault::FlipBit),
            OpKind::Write | OpKind::Allocate | OpKind::SetLen | OpKind::Rename | OpKind::Remove
                if hits(self.write_error) =>
            {
                Some(Fault::Eio)
            }
            OpKind::Sync if hits(self.sync_error) => Some(Fault::Eio),
            OpKind::Sync if hits(self.sync_lie) => Some(Fault::Lie),
            OpKind::SyncDir if hits(self.sync_dir_error) => Some(Fault::Eio),
            OpKind::Open if hits(self.open_error) => Some(Fault::TooManyFiles),
            _ => None,
        };
        let slow = fault.is_none() && hits(self.slow);
        if slow { Some(Fault::Slow(rng.u64(0..=self.slow_ms))) } else { fault }
    }
}

impl fmt::Display for DiskFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = [
            ("read errors", self.read_error),
            ("write errors", self.write_error),
            ("flush errors", self.sync_error),
            ("lying flushes", self.sync_lie),
            ("directory flush errors", self.sync_dir_error),
            ("open errors", self.open_error),
            ("flipped bits", self.read_flip),
            ("slow", self.slow),
            ("stuck", self.stuck),
        ];
        let mut comma = "";
        for (name, rate) in rates.into_iter().filter(|(_, rate)| *rate > 0.0) {
            write!(f, "{comma}{name} {rate}")?;
            comma = ", ";
        }
        Ok(())
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of `{}` meets {:?}", self.op.name(), self.nth, self.path, self.fault)
    }
}

/// A fault at a chosen operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// The kind of operation.
    pub op: OpKind,
    /// Part of the path; empty for any.
    #[serde(default)]
    pub path: String,
    /// Which of the matching operations, from 0, counted from when the injection is added.
    pub nth: u64,
    /// What happens.
    pub fault: Fault,
}

/// How fast a disk is. Times are in microseconds, drawn evenly from the range, now and then ten times as long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskSpeed {
    /// Reading.
    pub read_us: (u64, u64),
    /// Writing to the cache, names, lengths.
    pub write_us: (u64, u64),
    /// Flushing.
    pub sync_us: (u64, u64),
    /// Bytes per second that can be read or written, for all operations together.
    pub bytes_per_s: u64,
}

impl Default for DiskSpeed {
    fn default() -> Self {
        Self { read_us: (20, 150), write_us: (5, 60), sync_us: (200, 2500), bytes_per_s: 500_000_000 }
    }
}

impl DiskSpeed {
    /// Nanoseconds that an operation takes, without the transfer of its bytes.
    pub(super) fn latency_ns(&self, kind: OpKind, rng: &mut fastrand::Rng) -> u64 {
        let (low, high) = match kind {
            OpKind::Read => self.read_us,
            OpKind::Sync | OpKind::SyncDir => self.sync_us,
            _ => self.write_us,
        };
        let latency = rng.u64(low * 1000..=high.max(low) * 1000);
        if rng.u8(..) < 3 { latency * 10 } else { latency }
    }
}
