//! The seam as an incarnation of a simulated node sees it: clock, tasks, seeds and the end. Disk and network are in
//! [`crate::disk`] and [`crate::net`].

use std::io;
use std::sync::Arc;

use kilo::io::{
    BoxFuture, Clock, FailStop, Host, Monotonic, Task, TaskControl, Tasks, WallMs, catch_panic, panic_message,
};
use tokio::sync::watch;

use super::clock::Sleep;
use super::end::end;
use super::node_state::{Exit, Incarnation};
use super::running::Run;
use super::seed::mix;
use super::world::{SharedState, State};

/// How long a computation takes at most, in nanoseconds: enough for others to get in between.
const COMPUTE_NS_MAX: u64 = 50_000;

/// What the system grants an incarnation at its start: so few that it has to close files that are not in use. A scenario
/// may take most of them away later.
const DESCRIPTORS_MAX: u64 = 100;

/// An incarnation's world.
pub(crate) struct SimHost {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) incarnation: Arc<Incarnation>,
}

impl SimHost {
    pub(crate) fn new(shared: Arc<SharedState>, incarnation: Arc<Incarnation>) -> Self {
        Self { shared, incarnation }
    }

    /// The error of every call by an incarnation that has ended. Its tasks are dropped and not polled, so that whoever
    /// calls is a destructor (or a test): in a real process it would not run.
    pub(crate) fn check_alive(&self, state: &mut State, what: &str) -> io::Result<()> {
        if self.incarnation.is_alive() {
            return Ok(());
        }
        let Incarnation { node, number, .. } = *self.incarnation;
        state.finding(self.shared.now(), node, format!("I/O after the end of incarnation {number}: {what}"));
        Err(dead())
    }

    pub(crate) fn spawn_on_node(&self, future: impl Future<Output = ()> + Send + 'static) -> madsim::task::AbortHandle {
        self.shared.count_task();
        let Incarnation { node, number, madsim, .. } = *self.incarnation;
        let future = Run::new(node, number, future);
        let node = self.shared.runtime.get_node(madsim).expect("madsim keeps every node it created");
        node.spawn(future).abort_handle()
    }
}

/// What calls of an incarnation that has ended return.
pub(crate) fn dead() -> io::Error {
    io::Error::other("this incarnation of the node has ended")
}

impl Clock for SimHost {
    fn now(&self) -> Monotonic {
        Monotonic(self.shared.now().saturating_sub(self.incarnation.start))
    }

    fn wall(&self) -> WallMs {
        let now = self.shared.now();
        WallMs(self.shared.with(|state, _| state.nodes[self.incarnation.node].wall_ms(now)))
    }

    fn sleep_until(&self, deadline: Monotonic) -> BoxFuture<'static, ()> {
        Box::pin(Sleep::new(self.shared.clone(), deadline.0.saturating_add(self.incarnation.start)))
    }
}

struct SimTask {
    /// None if the incarnation had ended before the task could start.
    abort: Option<madsim::task::AbortHandle>,
    /// Closed when the task has ended: its sender lives inside the task.
    ended: watch::Receiver<()>,
}

impl TaskControl for SimTask {
    fn cancel(&self) {
        if let Some(abort) = &self.abort {
            abort.abort();
        }
    }

    fn join(&self) -> BoxFuture<'static, ()> {
        let mut ended = self.ended.clone();
        Box::pin(async move { while ended.changed().await.is_ok() {} })
    }
}

impl Tasks for SimHost {
    fn spawn_boxed(&self, kind: &'static str, future: BoxFuture<'static, ()>) -> Task {
        let (running, ended) = watch::channel(());
        let work = (future, running);
        if !self.incarnation.is_alive() {
            return Task::new(Arc::new(SimTask { abort: None, ended }));
        }
        let Self { shared, incarnation } = self;
        let (shared, node) = (shared.clone(), incarnation.node);
        let abort = self.spawn_on_node(async move {
            // The future goes first, so that whoever joins finds what the task owned dropped.
            let (future, _running) = work;
            if let Err(message) = catch_panic(future).await {
                let now = shared.now();
                shared.with(|state, _| state.finding(now, node, format!("task {kind} panicked: {message}")));
            }
        });
        Task::new(Arc::new(SimTask { abort: Some(abort), ended }))
    }

    fn compute_boxed(&self, work: Box<dyn FnOnce() + Send>) {
        let now = self.shared.now();
        let node = self.incarnation.node;
        let delay = self.shared.with(|state, _| state.nodes[node].compute_rng.u64(0..COMPUTE_NS_MAX));
        let sleep = Sleep::new(self.shared.clone(), now + delay);
        let shared = self.shared.clone();
        let job = async move {
            sleep.await;
            if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                let message = panic_message(&*panic).to_owned();
                let now = shared.now();
                shared.with(|state, _| state.finding(now, node, format!("a computation panicked: {message}")));
            }
        };
        if self.incarnation.is_alive() {
            self.spawn_on_node(job);
        }
    }
}

impl Host for SimHost {
    fn seed(&self, purpose: &str) -> u64 {
        self.shared.with(|state, _| {
            let node = &mut state.nodes[self.incarnation.node];
            let count = node.seeds.entry(purpose.to_owned()).or_default();
            *count += 1;
            mix(self.shared.seed, &[node.name.as_bytes(), purpose.as_bytes(), &count.to_le_bytes()])
        })
    }

    fn descriptors_max(&self) -> u64 {
        DESCRIPTORS_MAX
    }

    fn fail_stop(&self, code: FailStop, message: &str) {
        if self.incarnation.is_alive() {
            let now = self.shared.now();
            let exit = Exit::FailStop(code, message.to_owned());
            self.shared.with(|state, effects| end(&self.shared, state, now, self.incarnation.node, exit, effects));
        }
    }
}
