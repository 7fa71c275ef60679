//! What there is of a machine: its disk, its clock, its descriptors, and the incarnation that it runs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use kilo::io::{BoxFuture, Env, FailStop};
use madsim::task::NodeId;

use super::seed::mix;
use crate::disk::DiskState;

/// Milliseconds since the epoch at which runs begin: an arbitrary day.
const WALL_START_MS: i64 = 1_790_000_000_000;

pub(super) type Program = Arc<dyn Fn(Env) -> BoxFuture<'static, ()> + Send + Sync>;

/// Why an incarnation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Its program returned.
    Returned,
    /// Its program panicked.
    Panicked(String),
    /// It ended itself.
    FailStop(FailStop, String),
    /// It was killed (`kill -9`).
    Killed,
    /// Power was lost.
    PowerLost,
}

/// What identifies an incarnation, shared with every `Env` and handle that belongs to it.
pub(crate) struct Incarnation {
    pub(crate) node: usize,
    pub(crate) number: u32,
    /// When it began, in nanoseconds.
    pub(crate) start: u64,
    pub(crate) madsim: NodeId,
    alive: AtomicBool,
}

impl Incarnation {
    pub(super) fn new(node: usize, number: u32, start: u64, madsim: NodeId) -> Self {
        Self { node, number, start, madsim, alive: AtomicBool::new(true) }
    }

    pub(super) fn end(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}

/// A machine, as the world keeps it.
pub(crate) struct NodeState {
    pub(crate) name: String,
    /// Name and incarnation, for traces.
    pub(crate) label: String,
    pub(crate) ip: IpAddr,
    pub(crate) powered: bool,
    pub(crate) disk: DiskState,
    pub(crate) seeds: BTreeMap<String, u64>,
    /// Descriptors that may be open at the same time.
    pub(crate) descriptors_max: u32,
    pub(crate) descriptors: u32,
    /// What the wall clock is ahead of the world's time, in nanoseconds.
    pub(super) wall_offset_ns: i64,
    /// Parts per million by which the wall clock is too fast.
    pub(super) wall_drift_ppm: i64,
    pub(super) incarnations: u32,
    pub(super) current: Option<Arc<Incarnation>>,
    pub(super) exit: Option<Exit>,
    pub(super) waiters: Vec<Waker>,
    pub(super) program: Option<Program>,
    pub(super) rng: fastrand::Rng,
    pub(crate) compute_rng: fastrand::Rng,
}

impl NodeState {
    /// The machine of number `index` in the run of a seed: switched on, with an empty disk and nothing running.
    pub(super) fn new(seed: u64, index: usize, name: &str) -> Self {
        let number = u8::try_from(index + 1).expect("a run has fewer than 256 nodes");
        Self {
            name: name.to_owned(),
            label: name.to_owned(),
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
            powered: true,
            disk: DiskState::new(mix(seed, &[b"disk", name.as_bytes()])),
            seeds: BTreeMap::new(),
            descriptors_max: u32::MAX,
            descriptors: 0,
            wall_offset_ns: 0,
            wall_drift_ppm: 0,
            incarnations: 0,
            current: None,
            exit: None,
            waiters: Vec::new(),
            program: None,
            rng: fastrand::Rng::with_seed(mix(seed, &[b"node", name.as_bytes()])),
            compute_rng: fastrand::Rng::with_seed(mix(seed, &[b"compute", name.as_bytes()])),
        }
    }

    /// The wall clock in milliseconds since the epoch.
    pub(crate) fn wall_ms(&self, now: u64) -> i64 {
        let now = i128::from(now);
        let wall = now + now * i128::from(self.wall_drift_ppm) / 1_000_000 + i128::from(self.wall_offset_ns);
        WALL_START_MS + i64::try_from(wall.div_euclid(1_000_000)).unwrap_or(i64::MAX / 2)
    }

    /// Whether another descriptor may be opened.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.descriptors < self.descriptors_max
    }

    /// Takes a descriptor if there is one.
    pub(crate) fn take_descriptor(&mut self) -> bool {
        let free = self.has_descriptor();
        self.descriptors += u32::from(free);
        free
    }
}
