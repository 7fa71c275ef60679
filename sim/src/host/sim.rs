//! A run from its start to its end, and the supervisor's handle to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kilo::io::Monotonic;

use super::clock;
use super::finding::Finding;
use super::hits::{Cause, Hit};
use super::node::{self, Node};
use super::running;
use super::seed::mix;
use super::world::SharedState;
use crate::net::{LinkConfig, NetControl, NetState};
use crate::trace::{PositionAt, Trace, TraceMode};

/// What a run starts from. The seed decides everything that is random.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The seed of every random stream.
    pub seed: u64,
    /// The seed of the scheduler, which picks among the tasks that are ready.
    pub scheduler: u64,
    /// What becomes of the trace.
    pub trace: TraceMode,
    /// How links between nodes are unless told otherwise.
    pub link: LinkConfig,
    /// Simulated time after which the run panics, as one that hangs would never end.
    pub time_limit: Duration,
}

impl SimConfig {
    /// The usual world for `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            scheduler: seed,
            trace: TraceMode::default(),
            link: LinkConfig::default(),
            time_limit: Duration::from_secs(24 * 3600),
        }
    }
}

/// Runs `scenario` in a world of its own, on this thread. Afterwards all nodes are killed.
///
/// # Panics
/// When the scenario panics, when everything waits forever, or when the time limit has passed.
pub fn run<F: Future>(config: SimConfig, scenario: impl FnOnce(Sim) -> F) -> F::Output {
    let mut runtime = madsim::runtime::Runtime::with_seed_and_config(config.scheduler, madsim::Config::default());
    runtime.set_time_limit(config.time_limit);
    runtime.block_on(async move {
        let net = NetState::new(config.seed, config.link);
        let shared = Arc::new(SharedState::new(config.seed, net, Trace::new(config.trace)));
        running::enter(&shared);
        let driver = madsim::task::spawn_local(clock::drive(shared.clone()));
        let sim = Sim { shared };
        let output = scenario(sim.clone()).await;
        for node in sim.nodes() {
            node.kill();
        }
        // Lets what the nodes owned be dropped inside the runtime.
        sim.sleep(Duration::from_millis(1)).await;
        driver.abort();
        output
    })
}

/// The supervisor's random stream of `purpose` in the run of a seed.
pub fn stream(seed: u64, purpose: &str) -> fastrand::Rng {
    fastrand::Rng::with_seed(mix(seed, &[b"sim", purpose.as_bytes()]))
}

/// The supervisor's view of the world. Cheap to clone.
#[derive(Clone)]
pub struct Sim {
    shared: Arc<SharedState>,
}

impl Sim {
    /// The run's seed.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// Time since the run began.
    pub fn now(&self) -> Monotonic {
        Monotonic(self.shared.now())
    }

    /// Waits, on the supervisor's side.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }

    /// Waits until a point in time, on the supervisor's side.
    pub async fn sleep_until(&self, deadline: Monotonic) {
        clock::Sleep::new(self.shared.clone(), deadline.0).await;
    }

    /// The random stream of `purpose`. The same purpose gives the same stream again.
    pub fn rng(&self, purpose: &str) -> fastrand::Rng {
        stream(self.shared.seed, purpose)
    }

    /// Creates a machine with an empty disk and an address of its own, switched on, with nothing running.
    pub fn create_node(&self, name: &str) -> Node {
        node::create(&self.shared, name)
    }

    /// All nodes, in the order of their creation.
    pub fn nodes(&self) -> Vec<Node> {
        let count = self.shared.with(|state, _| state.nodes.len());
        (0..count).map(|index| Node::new(self.shared.clone(), index)).collect()
    }

    /// Control over the network.
    pub fn net(&self) -> NetControl {
        NetControl::new(self.shared.clone())
    }

    /// Adds a line of the scenario's own to the trace.
    pub fn trace(&self, what: fmt::Arguments<'_>) {
        self.shared.with(|state, _| state.trace.line(self.shared.now(), "sim", what));
    }

    /// The trace's hash so far.
    pub fn trace_hash(&self) -> u64 {
        self.shared.with(|state, _| state.trace.hash())
    }

    /// How many lines the trace has.
    pub fn trace_lines(&self) -> u64 {
        self.shared.with(|state, _| state.trace.lines())
    }

    /// The trace's text: all of it or its end, by [`SimConfig::trace`].
    pub fn trace_text(&self) -> String {
        self.shared.with(|state, _| state.trace.text())
    }

    /// From now on the positions that the broker notes are kept.
    pub fn keep_positions(&self) {
        self.shared.with(|state, _| state.trace.keep_positions());
    }

    /// The positions kept.
    pub fn positions(&self) -> Vec<PositionAt> {
        self.shared.with(|state, _| state.trace.positions().to_vec())
    }

    /// From now on what `cause` does to operations is the doing of this fault of the plan.
    pub fn blame(&self, cause: Cause, fault: u32) {
        self.shared.with(|state, _| state.hits.blame(cause, fault));
    }

    /// Notes that a fault of the plan hits now.
    pub fn note_hit(&self, fault: u32, what: fmt::Arguments<'_>) {
        self.shared.with(|state, _| state.hits.note(self.shared.now(), fault, what));
    }

    /// Whether a fault of the plan has hit.
    pub fn has_hit(&self, fault: u32) -> bool {
        self.shared.with(|state, _| state.hits.has_hit(fault))
    }

    /// The moments at which faults hit, in their order: the first hundred of each fault.
    pub fn hits(&self) -> Vec<Hit> {
        self.shared.with(|state, _| state.hits.all())
    }

    /// What should not have happened, so far.
    pub fn findings(&self) -> Vec<Finding> {
        self.shared.with(|state, _| state.findings.clone())
    }
}
