//! What callers and the writer task share.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};

use tokio::sync::{Notify, watch};

use super::core::Core;
use super::entry::Entry;
use super::error::WalFailed;
use super::submission::{Done, EntryClass};
use crate::io::{CoreMutex, Env, Held};
use crate::storage::Lsn;

/// Where the log is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Takes entries.
    Open,
    /// Takes no more; what waits is still written.
    Closing,
    /// Its handle was dropped: ends without writing what waits.
    Abandoned,
    /// The writer task has ended.
    Ended(WalFailed),
}

pub(super) struct State {
    pub(super) core: Core<Done>,
    pub(super) phase: Phase,
}

pub(super) struct WalShared {
    env: Env,
    state: CoreMutex<State>,
    /// Wakes the writer task.
    pub(super) wake: Notify,
    pressure: watch::Sender<Lsn>,
    ended: watch::Sender<bool>,
    pub(super) counters: Counters,
}

impl WalShared {
    /// A log that takes entries. Who writes them is started apart from it.
    pub(super) fn new(env: &Env, core: Core<Done>) -> Arc<Self> {
        let shared = Arc::new(Self {
            env: env.clone(),
            state: CoreMutex::new(env, "the write-ahead log", State { core, phase: Phase::Open }),
            wake: Notify::new(),
            pressure: watch::Sender::new(Lsn(0)),
            ended: watch::Sender::new(false),
            counters: Counters::default(),
        });
        shared.update_pressure();
        shared
    }

    /// The state. Never held across a callback or an await.
    pub(super) fn state(&self) -> Held<'_, MutexGuard<'_, State>> {
        self.state.lock()
    }

    pub(super) fn submit(&self, class: EntryClass, entry: Entry, done: Done) {
        let refused = {
            let mut state = self.state();
            match state.phase {
                Phase::Open => {
                    state.core.push(class, entry, done);
                    None
                }
                Phase::Closing | Phase::Abandoned => Some((done, WalFailed::Closed)),
                Phase::Ended(why) => Some((done, why)),
            }
        };
        match refused {
            None => self.wake.notify_one(),
            // Never within this call: the caller may hold a lock that the callback takes.
            Some((done, why)) => drop(self.env.spawn_core("wal-refusal", async move { done(Err(why)) })),
        }
    }

    pub(super) fn release(&self, lsn: Lsn) {
        let opened = self.state().core.release(lsn);
        if opened {
            self.wake.notify_one();
        }
        self.update_pressure();
    }

    /// The callbacks of all blocks up to this have run.
    pub(super) fn settled(&self, lsn: Lsn) {
        self.state().core.settled_at(lsn);
        self.update_pressure();
    }

    fn update_pressure(&self) {
        let wanted = self.state().core.pressure();
        self.pressure.send_if_modified(|asked| std::mem::replace(asked, wanted) != wanted);
    }

    pub(super) fn pressure(&self) -> watch::Receiver<Lsn> {
        self.pressure.subscribe()
    }

    pub(super) async fn close(&self) {
        let mut ended = self.ended.subscribe();
        {
            let mut state = self.state();
            if state.phase == Phase::Open {
                state.phase = Phase::Closing;
            }
        }
        self.wake.notify_one();
        // The sender lives in `self`.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    pub(super) fn abandon(&self) {
        {
            let mut state = self.state();
            if matches!(state.phase, Phase::Open | Phase::Closing) {
                state.phase = Phase::Abandoned;
            }
        }
        self.wake.notify_one();
    }

    /// The writer task takes nothing more.
    pub(super) fn end(&self, why: WalFailed) {
        let waiting = {
            let mut state = self.state();
            if !matches!(state.phase, Phase::Ended(_)) {
                state.phase = Phase::Ended(why);
            }
            state.core.take_waiting()
        };
        waiting.into_iter().for_each(|item| (item.tag)(Err(why)));
        self.ended.send_replace(true);
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Blocks written.
    pub blocks: u64,
    /// Entries in them.
    pub entries: u64,
    /// Their bytes on disk, padding included.
    pub bytes: u64,
    /// Flushes of written blocks. Entries per flush is how many requests one flush served.
    pub flushes: u64,
    /// Files created.
    pub files_created: u64,
    /// Times that a file was started over.
    pub files_recycled: u64,
    /// Entries that failed because the disk was full.
    pub no_space: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    blocks: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    flushes: AtomicU64,
    created: AtomicU64,
    recycled: AtomicU64,
    no_space: AtomicU64,
}

impl Counters {
    pub(super) fn wrote(&self, entries: usize, bytes: usize, recycles: bool) {
        self.blocks.fetch_add(1, Relaxed);
        self.entries.fetch_add(entries as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.recycled.fetch_add(u64::from(recycles), Relaxed);
    }

    pub(super) fn flushed(&self) {
        self.flushes.fetch_add(1, Relaxed);
    }

    pub(super) fn created(&self) {
        self.created.fetch_add(1, Relaxed);
    }

    pub(super) fn no_space(&self, entries: usize) {
        self.no_space.fetch_add(entries as u64, Relaxed);
    }

    pub(super) fn snapshot(&self) -> WalStats {
        WalStats {
            blocks: self.blocks.load(Relaxed),
            entries: self.entries.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            files_created: self.created.load(Relaxed),
            files_recycled: self.recycled.load(Relaxed),
            no_space: self.no_space.load(Relaxed),
        }
    }
}
