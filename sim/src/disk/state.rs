//! What there is of a node's disk: the model, what goes wrong with it and how fast it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::faults::{DiskFaults, DiskSpeed, Fault, Injection, OpKind};
use super::model::DiskModel;
use crate::host::Cause;

/// A fault that waits for its operation.
pub(super) struct Injected {
    pub(super) id: u64,
    pub(super) injection: Injection,
    /// Matching operations seen since it was added.
    pub(super) seen: u64,
    /// The path of the operation that met it.
    pub(super) met: Option<Arc<str>>,
}

/// A node's disk: survives incarnations.
pub(crate) struct DiskState {
    pub(crate) model: DiskModel,
    pub(super) faults: DiskFaults,
    pub(super) injections: Vec<Injected>,
    pub(super) next_injection: u64,
    pub(super) speed: DiskSpeed,
    /// Faults that hit, by kind of operation and fault.
    pub(super) hits: BTreeMap<String, u64>,
    pub(super) rng: fastrand::Rng,
    /// Operations begun.
    pub(super) operations: u64,
    /// When the device has transferred what it was asked to.
    busy_until: u64,
    /// Directories that are locked.
    pub(super) locks: BTreeSet<PathBuf>,
}

impl DiskState {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            model: DiskModel::new(),
            faults: DiskFaults::default(),
            injections: Vec::new(),
            next_injection: 0,
            speed: DiskSpeed::default(),
            hits: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            operations: 0,
            busy_until: 0,
            locks: BTreeSet::new(),
        }
    }

    /// What happens to an operation, and what does it.
    pub(super) fn draw(&mut self, kind: OpKind, path: &Arc<str>) -> Option<(Fault, Cause)> {
        let mut fault = self.faults.draw(kind, &mut self.rng).map(|fault| (fault, Cause::DiskRates));
        for Injected { id, injection, seen, met } in &mut self.injections {
            if injection.op == kind && path.contains(&injection.path) {
                if *seen == injection.nth {
                    fault = Some((injection.fault, Cause::Injection(*id)));
                    *met = Some(path.clone());
                }
                *seen += 1;
            }
        }
        if let Some((fault, _)) = fault {
            *self.hits.entry(format!("{} {fault:?}", kind.name())).or_default() += 1;
        }
        fault
    }

    /// When an operation that starts now ends.
    pub(super) fn ends_at(&mut self, now: u64, kind: OpKind, bytes: u64, fault: Option<Fault>) -> u64 {
        let transfer = bytes.saturating_mul(1_000_000_000) / self.speed.bytes_per_s.max(1);
        self.busy_until = self.busy_until.max(now) + transfer;
        let slow = if let Some(Fault::Slow(ms)) = fault { ms * 1_000_000 } else { 0 };
        self.busy_until + self.speed.latency_ns(kind, &mut self.rng) + slow
    }
}
