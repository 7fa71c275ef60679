//! The open connections: counted, and ended when the broker stops.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use tokio::sync::watch;

use crate::io::{AbortHandle, CoreMutex, Env, Held};

pub(super) struct Registry {
    open: CoreMutex<BTreeMap<u64, AbortHandle>>,
    count: watch::Sender<usize>,
}

impl Registry {
    pub(super) fn new(env: &Env) -> Self {
        Self { open: CoreMutex::new(env, "the open connections", BTreeMap::new()), count: watch::Sender::new(0) }
    }

    pub(super) fn insert(&self, id: u64, abort: AbortHandle) {
        let mut open = self.lock();
        open.insert(id, abort);
        self.count.send_replace(open.len());
    }

    /// Both tasks of a connection say this at their end: whichever panics, the other one does.
    pub(super) fn remove(&self, id: u64) {
        let mut open = self.lock();
        if open.remove(&id).is_some() {
            self.count.send_replace(open.len());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Resolves when none is open.
    pub(super) async fn empty(&self) {
        let mut count = self.count.subscribe();
        // The sender lives as long as this registry.
        let _ = count.wait_for(|count| *count == 0).await;
    }

    /// Resets all that are open.
    pub(super) fn abort_all(&self) {
        for abort in self.lock().values() {
            abort.abort();
        }
    }

    fn lock(&self) -> Held<'_, MutexGuard<'_, BTreeMap<u64, AbortHandle>>> {
        self.open.lock()
    }
}
