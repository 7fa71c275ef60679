//! Foresees a full disk: produce is refused before an offset is given when too little space would be left once all
//! that is in memory has been written. Reading goes on, and producing resumes by itself.

use std::path::PathBuf;
use std::sync::Mutex;

use tokio::sync::Notify;

use crate::io::Env;

/// Appends are refused: the disk is full, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageFull;

/// What is known of free space. Pure but for [`SpaceGuard::measure`].
#[derive(Debug)]
struct Budget {
    /// Bytes that may be appended before the next look at the disk; `None` before the first.
    left: Option<u64>,
    /// While appends are refused: what the last refused one would have needed.
    refused: Option<u64>,
}

/// Free space of the data folder's file system.
pub struct SpaceGuard {
    env: Env,
    data_dir: PathBuf,
    reserve: u64,
    budget: Mutex<Budget>,
    look: Notify,
}

/// How often data is written: once to the write-ahead log, once to the segment file.
const COPIES: u64 = 2;

impl SpaceGuard {
    /// Watches `data_dir`, keeping `reserve` bytes free.
    pub fn new(env: Env, data_dir: PathBuf, reserve: u64) -> Self {
        Self { env, data_dir, reserve, budget: Mutex::new(Budget { left: None, refused: None }), look: Notify::new() }
    }

    /// Counts `bytes` against the space that was free at the last look.
    pub fn admit(&self, bytes: u64) -> Result<(), StorageFull> {
        let needed = bytes * COPIES;
        let mut budget = self.lock();
        match budget.left {
            None => Ok(()),
            Some(left) if left >= needed => {
                budget.left = Some(left - needed);
                Ok(())
            }
            Some(left) => {
                crate::sometimes!("log.storage_full_refused");
                if budget.refused.replace(needed).is_none() {
                    let folder = self.data_dir.display();
                    tracing::warn!(left, needed, %folder, "the disk is full: produce is refused until there is space");
                }
                self.look.notify_one();
                Err(StorageFull)
            }
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

    /// Looks at the disk. `unwritten` bytes are in memory and still have to find room.
    pub async fn measure(&self, unwritten: u64) {
        let free = match self.env.disk().free_space(&self.data_dir).await {
            Ok(free) => free,
            Err(error) => {
                tracing::warn!(%error, folder = %self.data_dir.display(), "cannot tell the free space");
                return;
            }
        };
        let left = free.saturating_sub(self.reserve).saturating_sub(unwritten);
        let mut budget = self.lock();
        budget.left = Some(left);
        if budget.refused.is_some_and(|needed| left >= needed) {
            crate::sometimes!("log.storage_full_recovered");
            tracing::info!(free, "there is space again: produce is accepted");
            budget.refused = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Budget> {
        self.budget.lock().expect("no holder of the lock panics")
    }
}
