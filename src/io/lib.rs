//! The one seam to the outside world: time, network, disk, spawning and randomness.
//!
//! An [`Env`] is a value handed to constructors. [`real`] implements it on tokio and the file system; the simulator
//! implements it on a virtual clock, network and disk. Nothing else in `src/` may reach the outside world.
//!
//! An `Env` belongs to one *incarnation* of a node: once that incarnation has been killed, every call fails.

#[doc(hidden)]
pub mod conformance;
mod disk;
mod future;
mod lock;
mod log_limit;
mod may_log;
mod net;
mod panic;
pub mod probe;
pub mod real;
mod task;
mod time;

use std::sync::Arc;

pub use disk::{DirLock, Disk, DiskFile, File, OpenMode, Space, is_no_space, is_too_many_open_files};
pub use future::BoxFuture;
pub use lock::{CoreMutex, CoreRwLock, Held};
pub use log_limit::{INTERVAL as LOG_INTERVAL, LINES_MAX as LOG_LINES_MAX, LogLimit, Summary, Verdict};
pub use net::{Abort, AbortHandle, Listener, Net, ReadHalf, Stream, WriteHalf};
pub use panic::{catch_panic, panic_message};
pub use task::{Task, TaskControl, Tasks, yield_now};
pub use time::{Clock, Monotonic, WallMs};

/// Why an incarnation of the broker ends itself on purpose.
///
/// The discriminant is the process's exit code in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum FailStop {
    /// A flush to stable storage failed: the page cache cannot be believed any more.
    FsyncFailed = 70,
    /// A panic, or a broken invariant, in the core.
    Bug = 71,
    /// A write to the log failed in a way that was not foreseen.
    WriteFailed = 72,
}

/// What an implementation of the seam provides. See [`Env`] for how it is used.
pub trait Host: Clock + Net + Disk + Tasks {
    /// A seed for the random stream of `purpose`: one stream per purpose and entity, so that a new draw in one place
    /// does not move all others.
    fn seed(&self, purpose: &str) -> u64;

    /// How many descriptors this incarnation may have open at the same time.
    fn descriptors_max(&self) -> u64;

    /// Ends this incarnation: the process in the server, the node in simulation. Returns only in the sense that the
    /// caller's task goes no further: see [`Env::fail_stop`].
    fn fail_stop(&self, code: FailStop, message: &str);
}

/// The outside world as one incarnation of a node sees it. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    host: Arc<dyn Host>,
    limiter: Arc<log_limit::Limiter>,
}

impl Env {
    /// Wraps an implementation of the seam.
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self { host, limiter: Arc::default() }
    }

    /// Monotonic time.
    pub fn now(&self) -> Monotonic {
        self.host.now()
    }

    /// Wall-clock time in milliseconds since the Unix epoch. May jump both ways.
    pub fn wall(&self) -> WallMs {
        self.host.wall()
    }

    /// Waits until `deadline` on the monotonic clock. Keep one sleep per deadline rather than re-creating it.
    pub fn sleep_until(&self, deadline: Monotonic) -> BoxFuture<'static, ()> {
        self.host.sleep_until(deadline)
    }

    /// Waits for `duration`.
    pub fn sleep(&self, duration: std::time::Duration) -> BoxFuture<'static, ()> {
        self.host.sleep_until(self.host.now() + duration)
    }

    /// The disk.
    pub fn disk(&self) -> &dyn Disk {
        &*self.host
    }

    /// The network.
    pub fn net(&self) -> &dyn Net {
        &*self.host
    }

    /// Starts a task. `kind` names it in traces and thread dumps. Dropping the [`Task`] lets it run on.
    pub fn spawn(&self, kind: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Task {
        self.host.spawn_boxed(kind, Box::pin(future))
    }

    /// Starts a task of the core: a panic in it is a broken invariant, and therefore a fail-stop. Elsewhere a panic ends
    /// the one task and is logged.
    pub fn spawn_core(&self, kind: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Task {
        let env = self.clone();
        self.spawn(kind, async move {
            if let Err(message) = catch_panic(future).await {
                env.fail_stop(FailStop::Bug, &format!("task {kind} panicked: {message}")).await;
            }
        })
    }

    /// Runs CPU-heavy work (CRC of large buffers, decompression, compaction) off the reactor. It is submitted by the call;
    /// dropping the future does not cancel it.
    ///
    /// Returns `None` when this incarnation has ended, or the closure panicked.
    pub fn compute<T, W>(&self, work: W) -> impl Future<Output = Option<T>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.host.compute_boxed(Box::new(move || {
            let _ = sender.send(work());
        }));
        async move { receiver.await.ok() }
    }

    /// A random generator for `purpose` (one stream per purpose and entity).
    pub fn rng(&self, purpose: &str) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.host.seed(purpose))
    }

    /// How many descriptors this incarnation may have open at the same time: files, connections and what the system needs.
    pub fn descriptors_max(&self) -> u64 {
        self.host.descriptors_max()
    }

    /// Ends this incarnation with a named code. In the server it does not return; in simulation it does, and nothing
    /// that the caller does from then on gets out.
    pub fn fail_stop_now(&self, code: FailStop, message: &str) {
        self.host.fail_stop(code, message);
    }

    /// Ends this incarnation with a named code. The calling task goes no further.
    pub async fn fail_stop(&self, code: FailStop, message: &str) -> ! {
        self.fail_stop_now(code, message);
        std::future::pending::<()>().await;
        unreachable!("a pending future does not resolve")
    }
}
