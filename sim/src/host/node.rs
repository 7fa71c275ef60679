//! A machine: it runs one incarnation of a program at a time, and keeps its disk.
//!
//! | from | call | to | page cache | sockets |
//! |---|---|---|---|---|
//! | stopped | `start`, `restart` | running | | |
//! | running | `kill`, a fail-stop, the program returns | stopped | kept | closed by the system |
//! | any | `power_loss` | off | lost | vanish without a word |
//! | off | `start`, `restart` | running | | |
//! | running | `pause`, `resume` | paused, running | | served by the system |

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

use kilo::io::{Env, catch_panic};
use madsim::task::NodeId;

use super::end::end;
use super::env::SimHost;
use super::node_state::{Exit, Incarnation, NodeState};
use super::world::SharedState;
use crate::disk::{CrashReport, DiskControl, Keep};
use crate::net::{on_exit, on_power};

pub(super) fn create(shared: &Arc<SharedState>, name: &str) -> Node {
    let index = shared.with(|state, _| {
        let index = state.nodes.len();
        assert!(state.nodes.iter().all(|node| node.name != name), "node names are unique: {name}");
        state.nodes.push(NodeState::new(shared.seed, index, name));
        index
    });
    Node::new(shared.clone(), index)
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
            let incarnation = Arc::new(Incarnation::new(self.index, node.incarnations, now, madsim));
            node.current = Some(incarnation.clone());
            state.trace(now, self.index, format_args!("start"));
            if was_off {
                on_power(state, now, self.index, effects);
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
            on_exit(state, now, self.index, true, effects);
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
