//! The state that all nodes share, behind one lock, and how code gets at it.
//!
//! The lock is short: whatever runs foreign code (waking a task, sending to one, dropping what it owned, killing a node)
//! is put into [`Effects`] and happens after the lock has been released.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::effects::Effects;
use super::finding::Finding;
use super::hits::{Cause, Hits};
use super::node_state::NodeState;
use super::queue::{Action, Events};
use crate::net::NetState;
use crate::trace::Trace;

/// How many tasks are started until madsim is made to forget those that have ended.
const TASKS_BETWEEN_COUNTS: u64 = 8192;

/// The world of one run.
pub(crate) struct SharedState {
    pub(crate) seed: u64,
    pub(crate) runtime: madsim::runtime::Handle,
    time: madsim::time::TimeHandle,
    spawned: AtomicU64,
    state: Mutex<State>,
}

/// What the lock guards.
pub(crate) struct State {
    pub(crate) events: Events<State>,
    pub(crate) nodes: Vec<NodeState>,
    /// What the nodes' disks are asked and have not done, by node and number.
    pub(crate) disk_jobs: BTreeMap<(usize, u64), Action<State>>,
    pub(crate) net: NetState,
    pub(crate) trace: Trace,
    pub(crate) findings: Vec<Finding>,
    pub(crate) hits: Hits,
}

impl SharedState {
    pub(crate) fn new(seed: u64, net: NetState, trace: Trace) -> Self {
        Self {
            seed,
            runtime: madsim::runtime::Handle::current(),
            time: madsim::time::TimeHandle::current(),
            spawned: AtomicU64::new(0),
            state: Mutex::new(State {
                events: Events::default(),
                nodes: Vec::new(),
                disk_jobs: BTreeMap::new(),
                net,
                trace,
                findings: Vec::new(),
                hits: Hits::default(),
            }),
        }
    }

    /// Nanoseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.time.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The same as madsim's instant.
    pub(crate) fn instant(&self) -> Instant {
        self.time.now_instant()
    }

    /// Counts a task. madsim remembers every task of a node until it is asked how many there are.
    pub(crate) fn count_task(&self) {
        if self.spawned.fetch_add(1, Ordering::Relaxed).is_multiple_of(TASKS_BETWEEN_COUNTS) {
            self.runtime.metrics().num_tasks();
        }
    }

    /// Runs `action` with the lock held, then its after-effects without it.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut State, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let result = action(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner), &mut effects);
        effects.run();
        result
    }
}

impl State {
    /// A line in the trace about a node.
    pub(crate) fn trace(&mut self, now: u64, node: usize, what: fmt::Arguments<'_>) {
        self.trace.line(now, &self.nodes[node].label, what);
    }

    /// Notes that a fault of the plan hits, if one is behind `cause`.
    pub(crate) fn hit(&mut self, now: u64, cause: Cause, what: fmt::Arguments<'_>) {
        if let Some(fault) = self.hits.blamed(cause) {
            self.hits.note(now, fault, what);
        }
    }

    /// Records something that should not have happened.
    pub(crate) fn finding(&mut self, now: u64, node: usize, what: String) {
        self.trace(now, node, format_args!("FINDING {what}"));
        self.findings.push(Finding { at_ns: now, node: self.nodes[node].label.clone(), what });
    }
}
