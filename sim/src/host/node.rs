//! A machine: it runs one incarnation of a program at a time, and keeps its disk.
//!
//! | from | call | to | page cache | sockets |
//! |---|---|---|---|---|
//! | stopped | `start`, `restart` | running | | |
//! | running | `kill`, a fail-stop, the program returns | stopped | kept | closed by the system |
//! | any | `power_loss` | off | lost | vanish without a word |
//! | off | `start`, `restart` | running | | |
//! | running | `pause`, `resume` | paused, running | | served by the system |

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use kilo::io::{BoxFuture, Env, FailStop, catch_panic};
use madsim::task::NodeId;

use super::env::SimHost;
use super::world::mix;
use super::{Effects, SharedState, State};
use crate::disk::{CrashReport, DiskControl, DiskState, Keep, settle_in_flight};

/// Milliseconds since the epoch at which runs begin: an arbitrary day.
const WALL_START_MS: i64 = 1_790_000_000_000;

type Program = Arc<dyn Fn(Env) -> BoxFuture<'static, ()> + Send + Sync>;

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
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}

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
    wall_offset_ns: i64,
    /// Parts per million by which the wall clock is too fast.
    wall_drift_ppm: i64,
    incarnations: u32,
    current: Option<Arc<Incarnation>>,
    exit: Option<Exit>,
    waiters: Vec<Waker>,
    program: Option<Program>,
    rng: fastrand::Rng,
    pub(crate) compute_rng: fastrand::Rng,
}

impl NodeState {
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

pub(super) fn create(shared: &Arc<SharedState>, name: &str) -> Node {
    let index = shared.with(|state, _| {
        let index = state.nodes.len();
        assert!(state.nodes.iter().all(|node| node.name != name), "node names are unique: {name}");
        let number = u8::try_from(index + 1).expect("a run has fewer than 256 nodes");
        state.nodes.push(NodeState {
            name: name.to_owned(),
            label: name.to_owned(),
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
            powered: true,
            disk: DiskState::new(mix(shared.seed, &[b"disk", name.as_bytes()])),
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
            rng: fastrand::Rng::with_seed(mix(shared.seed, &[b"node", name.as_bytes()])),
            compute_rng: fastrand::Rng::with_seed(mix(shared.seed, &[b"compute", name.as_bytes()])),
        });
        index
    });
    Node::new(shared.clone(), index)
}

/// Ends an incarnation if it is the current one of its node. Its tasks are dropped soon after and never polled again.
pub(crate) fn end(
    shared: &Arc<SharedState>,
    state: &mut State,
    now: u64,
    node: usize,
    exit: Exit,
    effects: &mut Effects,
) {
    let Some(incarnation) = state.nodes[node].current.take() else { return };
    incarnation.alive.store(false, Ordering::Relaxed);
    state.trace(now, node, format_args!("exit {exit:?}"));
    crate::net::on_exit(state, now, node, matches!(exit, Exit::PowerLost), effects);
    let mut rng = fastrand::Rng::with_seed(state.nodes[node].rng.u64(..));
    settle_in_flight(state, now, node, &mut rng, effects);
    let this = &mut state.nodes[node];
    this.descriptors = 0;
    this.exit = Some(exit);
    effects.wakes.append(&mut this.waiters);
    let shared = shared.clone();
    effects.after(move || {
        // Paused tasks go back to the scheduler, which drops them; killing would drop them under its lock.
        shared.runtime.resume(incarnation.madsim);
        shared.runtime.kill(incarnation.madsim);
    });
}

/// Control over one machine. Cheap to clone.
#[derive(Clone)]
pub struct Node {
    shared: Arc<SharedState>,
    index: usize,
}

impl Node {
    pub(super) fn new(shared: Arc<SharedState>, index: usize) -> Self {
        Self { shared, index }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    fn with<T>(&self, action: impl FnOnce(&mut NodeState) -> T) -> T {
        self.shared.with(|state, _| action(&mut state.nodes[self.index]))
    }

    /// The node's name.
    pub fn name(&self) -> String {
        self.with(|node| node.name.clone())
    }

    /// The node's address.
    pub fn ip(&self) -> IpAddr {
        self.with(|node| node.ip)
    }

    /// Starts the first incarnation of `program`, which [`Self::restart`] starts again. The node must not be running.
    /// When the program returns, everything else that it started is killed.
    pub fn start<F>(&self, program: impl Fn(Env) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.with(|node| node.program = Some(Arc::new(move |env| Box::pin(program(env)))));
        self.restart();
    }

    /// Starts an incarnation of the program given to [`Self::start`], on the disk as it is.
    ///
    /// # Panics
    /// When the node is running, or was never started.
    pub fn restart(&self) {
        let program = self.with(|node| node.program.clone()).expect("a node is started before it is restarted");
        let env = self.begin();
        let Self { shared, index } = self.clone();
        let host = env.1;
        let main = async move {
            let exit = match catch_panic(program(env.0)).await {
                Ok(()) => Exit::Returned,
                Err(message) => Exit::Panicked(message),
            };
            let now = shared.now();
            shared.with(|state, effects| end(&shared, state, now, index, exit, effects));
        };
        host.spawn_on_node(main);
    }

    /// Starts an incarnation with no program of its own and returns its world: for a test's own code, which may run on
    /// the supervisor. It lives until it is killed.
    pub fn enter(&self) -> Env {
        self.begin().0
    }

    fn begin(&self) -> (Env, Arc<SimHost>) {
        let name = self.name();
        let madsim = self.shared.runtime.create_node().name(name.as_str()).build().id();
        let now = self.shared.now();
        let incarnation = self.shared.with(|state, effects| {
            let node = &mut state.nodes[self.index];
            assert!(node.current.is_none(), "a node runs one incarnation at a time: {name}");
            let was_off = !std::mem::replace(&mut node.powered, true);
            node.incarnations += 1;
            node.label = format!("{name}#{}", node.incarnations);
            node.exit = None;
            let incarnation = Arc::new(Incarnation {
                node: self.index,
                number: node.incarnations,
                start: now,
                madsim,
                alive: AtomicBool::new(true),
            });
            node.current = Some(incarnation.clone());
            state.trace(now, self.index, format_args!("start"));
            if was_off {
                crate::net::on_power(state, now, self.index, effects);
            }
            incarnation
        });
        let host = Arc::new(SimHost::new(self.shared.clone(), incarnation));
        (Env::new(host.clone()), host)
    }

    /// Whether an incarnation is running (or paused).
    pub fn is_running(&self) -> bool {
        self.with(|node| node.current.is_some())
    }

    /// Why the last incarnation ended, if none is running.
    pub fn exit(&self) -> Option<Exit> {
        self.with(|node| node.exit.clone())
    }

    /// Waits until no incarnation is running; says why the last one ended.
    ///
    /// # Panics
    /// When the node was never started.
    pub async fn exited(&self) -> Exit {
        std::future::poll_fn(|context| {
            self.with(|node| match (&node.current, &node.exit) {
                (None, Some(exit)) => Poll::Ready(exit.clone()),
                (None, None) => panic!("a node is started before its end is awaited"),
                (Some(_), _) => {
                    node.waiters.push(context.waker().clone());
                    Poll::Pending
                }
            })
        })
        .await
    }

    /// `kill -9`: tasks end, the system closes sockets and keeps the page cache. Nothing if not running.
    pub fn kill(&self) {
        let now = self.shared.now();
        self.shared.with(|state, effects| end(&self.shared, state, now, self.index, Exit::Killed, effects));
    }

    /// Cuts the power: as [`Self::kill`], but sockets vanish without a word and of what was not synced only what `keep`
    /// says is there when the node starts again. Works on a stopped node too.
    pub fn power_loss(&self, keep: Keep) -> CrashReport {
        let now = self.shared.now();
        self.shared.with(|state, effects| {
            end(&self.shared, state, now, self.index, Exit::PowerLost, effects);
            let node = &mut state.nodes[self.index];
            node.powered = false;
            node.exit = Some(Exit::PowerLost);
            let mut rng = fastrand::Rng::with_seed(node.rng.u64(..));
            let report = node.disk.model.crash(&mut rng, keep);
            crate::net::on_exit(state, now, self.index, true, effects);
            state.trace(
                now,
                self.index,
                format_args!(
                    "power_loss sectors={}/{} names={}/{}",
                    report.sectors_lost, report.sectors_pending, report.names_lost, report.names_pending
                ),
            );
            report
        })
    }

    /// Stops the program's execution; the system goes on serving its sockets and disk.
    pub fn pause(&self) {
        self.stop_or_go("pause", |runtime, id| runtime.pause(id));
    }

    /// Undoes [`Self::pause`].
    pub fn resume(&self) {
        self.stop_or_go("resume", |runtime, id| runtime.resume(id));
    }

    fn stop_or_go(&self, what: &str, action: fn(&madsim::runtime::Handle, NodeId)) {
        let now = self.shared.now();
        let current = self.shared.with(|state, _| {
            let current = state.nodes[self.index].current.clone();
            if current.is_some() {
                state.trace(now, self.index, format_args!("{what}"));
            }
            current
        });
        if let Some(incarnation) = current {
            action(&self.shared.runtime, incarnation.madsim);
        }
    }

    /// Moves the wall clock by so many milliseconds.
    pub fn jump_wall_clock(&self, by_ms: i64) {
        let now = self.shared.now();
        self.shared.with(|state, _| {
            let node = &mut state.nodes[self.index];
            node.wall_offset_ns = node.wall_offset_ns.saturating_add(by_ms.saturating_mul(1_000_000));
            state.trace(now, self.index, format_args!("wall_jump {by_ms}"));
        });
    }

    /// Makes the wall clock run too fast by so many parts per million, from now on without a jump.
    pub fn drift_wall_clock(&self, ppm: i64) {
        let now = self.shared.now();
        self.with(|node| {
            let kept = i128::from(now) * i128::from(node.wall_drift_ppm - ppm) / 1_000_000;
            node.wall_offset_ns = node.wall_offset_ns.saturating_add(i64::try_from(kept).unwrap_or(0));
            node.wall_drift_ppm = ppm;
        });
    }

    /// Limits how many files and sockets may be open at the same time.
    pub fn limit_descriptors(&self, max: u32) {
        self.with(|node| node.descriptors_max = max);
    }

    /// Control over the node's disk.
    pub fn disk(&self) -> DiskControl {
        DiskControl::new(self.shared.clone(), self.index)
    }
}
