//! Foresees a full disk: produce is refused before an offset is given when too little space would be left once all
//! that is in memory has been written. Reading goes on, and producing resumes by itself.
//!
//! The reserve is for what a start has to write, and for the administrator: a disk that is full to the last byte is hard
//! to put right.

use std::path::PathBuf;
use std::sync::MutexGuard;
use std::time::Duration;

use tokio::sync::Notify;

use crate::io::{CoreMutex, Env, Held, Monotonic, Space};

/// Appends are refused: the disk is full, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageFull;

/// What is known of free space. Pure but for [`SpaceGuard::measure`].
#[derive(Debug)]
struct Budget {
    /// Bytes that may be appended before the next look at the disk; `None` before the first.
    left: Option<u64>,
    /// What was free at the last look, and how much of it is kept.
    free: u64,
    reserve: u64,
    /// While appends are refused: what the last refused one would have needed.
    refused: Option<u64>,
    /// Whether the log says that the disk is full, and until when it does not say so again.
    announced: bool,
    quiet_until: Option<Monotonic>,
}

/// Free space of the data folder's file system.
pub struct SpaceGuard {
    env: Env,
    data_dir: PathBuf,
    reserve_max: u64,
    budget: CoreMutex<Budget>,
    look: Notify,
}

/// How often data is written: once to the write-ahead log, once to the segment file.
const COPIES: u64 = 2;
/// How often at most the log says that the disk is full: one that nearly is may be so by turns, for large batches alone.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(10);
/// One of so many bytes of the file system is kept free, if that is less than the configured reserve.
const RESERVE_SHARE: u64 = 10;

/// How much of a file system of `total` bytes is kept free.
fn reserve(reserve_max: u64, total: u64) -> u64 {
    reserve_max.min(total / RESERVE_SHARE)
}

impl SpaceGuard {
    /// Watches `data_dir`, keeping `reserve_max` bytes free, or less where the file system is small.
    pub fn new(env: Env, data_dir: PathBuf, reserve_max: u64) -> Self {
        let budget =
            Budget { left: None, free: 0, reserve: reserve_max, refused: None, announced: false, quiet_until: None };
        let budget = CoreMutex::new(&env, "the free space", budget);
        Self { env, data_dir, reserve_max, budget, look: Notify::new() }
    }

    /// Counts `bytes` against the space that was free at the last look. Writes no log line: the caller holds a lock, and
    /// calls [`Self::refused`] when it does not any more.
    pub fn admit(&self, bytes: u64) -> Result<(), StorageFull> {
        let needed = bytes * COPIES;
        let mut budget = self.lock();
        match budget.left {
            None => Ok(()),
            Some(left) if left >= needed => {
                budget.left = Some(left - needed);
                Ok(())
            }
            Some(_) => {
                crate::sometimes!("log.storage_full_refused");
                budget.refused = Some(needed);
                self.look.notify_one();
                Err(StorageFull)
            }
        }
    }

    /// Says, now and then, that appends are refused.
    pub fn refused(&self) {
        let now = self.env.now();
        let told = {
            let mut budget = self.lock();
            let is_due = !budget.announced && budget.quiet_until.is_none_or(|until| now >= until);
            // While it was not held, a look may have found space.
            budget.refused.filter(|_| is_due).map(|needed| {
                budget.announced = true;
                budget.quiet_until = Some(now + ANNOUNCE_EVERY);
                (budget.free, budget.reserve, needed)
            })
        };
        if let Some((free, reserve, needed)) = told {
            let folder = self.data_dir.display();
            tracing::warn!(
                free, reserve, needed, %folder,
                "the disk is full: produce is refused until there is space beyond the reserve"
            );
        }
    }

    /// Something failed that looks like a full disk: look again soon.
    pub fn suspect(&self) {
        self.look.notify_one();
    }

    /// Resolves when a look is asked for.
    pub async fn look_asked(&self) {
        self.look.notified().await;
    }

    /// The first look, at start: says if there is too little space already.
    pub async fn measure_at_start(&self, unwritten: u64) {
        self.measure(unwritten).await;
        let Budget { left, free, reserve, .. } = *self.lock();
        if left == Some(0) {
            let folder = self.data_dir.display();
            tracing::warn!(
                free, reserve, %folder,
                "the disk is full: produce will be refused until there is space beyond the reserve"
            );
        }
    }

    /// Looks at the disk. `unwritten` bytes are in memory and still have to find room.
    pub async fn measure(&self, unwritten: u64) {
        let Space { free, total } = match self.env.disk().space(&self.data_dir).await {
            Ok(space) => space,
            Err(error) => {
                if self.env.may_log("free space that cannot be told", None) {
                    tracing::warn!(%error, folder = %self.data_dir.display(), "cannot tell the free space");
                }
                return;
            }
        };
        let reserve = reserve(self.reserve_max, total);
        let left = free.saturating_sub(reserve).saturating_sub(unwritten);
        let is_announced = {
            let mut budget = self.lock();
            (budget.left, budget.free, budget.reserve) = (Some(left), free, reserve);
            let has_recovered = budget.refused.is_some_and(|needed| left >= needed);
            if has_recovered {
                crate::sometimes!("log.storage_full_recovered");
                budget.refused = None;
            }
            has_recovered && std::mem::take(&mut budget.announced)
        };
        if is_announced {
            tracing::info!(free, reserve, "there is space again: produce is accepted");
        }
    }

    fn lock(&self) -> Held<'_, MutexGuard<'_, Budget>> {
        self.budget.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_system_has_a_small_reserve() {
        const MIB: u64 = 1 << 20;
        assert_eq!(reserve(64 * MIB, 60 * MIB), 6 * MIB);
        assert_eq!(reserve(64 * MIB, 640 * MIB), 64 * MIB);
        assert_eq!(reserve(64 * MIB, u64::MAX), 64 * MIB);
        assert_eq!(reserve(0, 60 * MIB), 0);
    }
}
