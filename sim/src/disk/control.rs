//! What a scenario can do to a node's disk, and see of it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::faults::{DiskFaults, DiskSpeed, Fault, Injection};
use super::state::{DiskState, Injected};
use crate::host::SharedState;

/// Control over one node's disk.
pub struct DiskControl {
    shared: Arc<SharedState>,
    node: usize,
}

impl DiskControl {
    pub(crate) fn new(shared: Arc<SharedState>, node: usize) -> Self {
        Self { shared, node }
    }

    fn with<T>(&self, action: impl FnOnce(&mut DiskState) -> T) -> T {
        self.shared.with(|state, _| action(&mut state.nodes[self.node].disk))
    }

    /// Replaces the rates of random faults. The default switches them all off.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.with(|disk| disk.faults = faults);
    }

    /// Adds a fault at a chosen operation; returns a number by which it can be removed.
    pub fn inject(&self, injection: Injection) -> u64 {
        self.with(|disk| {
            let id = disk.next_injection;
            disk.next_injection += 1;
            disk.injections.push(Injected { id, injection, seen: 0, met: None });
            id
        })
    }

    /// Removes an injection; returns the path of its operation, if that had come.
    pub fn remove_injection(&self, id: u64) -> Option<Arc<str>> {
        self.with(|disk| {
            let at = disk.injections.iter().position(|one| one.id == id)?;
            disk.injections.remove(at).met
        })
    }

    /// Whether the operation of an injection has come.
    pub fn has_hit(&self, id: u64) -> bool {
        self.with(|disk| disk.injections.iter().any(|one| one.id == id && one.met.is_some()))
    }

    /// Removes all injections, those that have happened and those that have not.
    pub fn clear_injections(&self) {
        self.with(|disk| disk.injections.clear());
    }

    /// Changes how fast the disk is.
    pub fn set_speed(&self, speed: DiskSpeed) {
        self.with(|disk| disk.speed = speed);
    }

    /// Limits the space in bytes; `None` takes the limit away.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.with(|disk| disk.model.set_capacity(capacity));
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.with(|disk| disk.model.used())
    }

    /// Faults that hit so far: "operation fault" and how often.
    pub fn hits(&self) -> BTreeMap<String, u64> {
        self.with(|disk| disk.hits.clone())
    }

    /// How many faults of this name hit so far, at whatever operation.
    pub fn hits_by(&self, fault: Fault) -> u64 {
        let suffix = format!(" {fault:?}");
        self.with(|disk| disk.hits.iter().filter(|(name, _)| name.ends_with(&suffix)).map(|(_, count)| count).sum())
    }

    /// The system drops clean pages, which shows what a failed flush lost.
    pub fn evict(&self) {
        self.with(|disk| disk.model.evict());
    }

    /// Flips one bit of a file at rest.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        self.with(|disk| disk.model.flip_bit(path, offset, bit))
    }

    /// Every file with its length, sorted by path.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.with(|disk| disk.model.files())
    }

    /// What a file reads as.
    pub fn read_file(&self, path: &Path) -> io::Result<Bytes> {
        self.with(|disk| disk.model.read_file(path))
    }
}
