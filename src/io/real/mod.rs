//! The seam on the real world: tokio for the network, time and tasks; I/O threads of our own for files and computations.
//!
//! The only place in `src/` that may name `std::{fs,net,thread}` as doors to the system, read a clock, or use tokio's
//! runtime.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "this is the real side of the seam: what is banned elsewhere is implemented here"
)]

mod descriptors;
mod disk;
mod log_writer;
mod net;
mod pool;
mod task;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

pub use log_writer::{LogWriter, log_panics, print_to_stderr, print_to_stdout};

use super::{BoxFuture, Clock, Env, FailStop, Host, Monotonic, WallMs};
use pool::{Pool, Threads};

/// Stack of a network thread: the deepest futures run here.
const NETWORK_STACK_BYTES: usize = 2 * 1024 * 1024;

/// How many threads the real world gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealConfig {
    /// `num.network.threads`: threads of the reactor, `kilo-net-N`. At least 1.
    pub network_threads: usize,
    /// `num.io.threads`: threads for files and computations, `kilo-io-N`. At least 1.
    pub io_threads: usize,
}

impl Default for RealConfig {
    fn default() -> Self {
        Self { network_threads: 3, io_threads: 8 }
    }
}

/// Owns the threads. Dropping it cancels all tasks, finishes the file operations that were submitted, and ends the
/// threads.
pub struct RealEnv {
    // Declared first: tasks end before the threads that serve them.
    runtime: Runtime,
    host: Arc<RealHost>,
    _threads: Threads,
}

struct RealHost {
    runtime: Handle,
    pool: Arc<Pool>,
    spare: Arc<descriptors::Spare>,
    start: Instant,
    seeds: RandomState,
}

impl RealEnv {
    /// Starts the threads. Fails when the system refuses one, or a count is zero.
    pub fn new(config: RealConfig) -> io::Result<Self> {
        if config.network_threads == 0 || config.io_threads == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "at least one thread of each kind is needed"));
        }
        descriptors::raise();
        let number = std::sync::atomic::AtomicUsize::new(0);
        let runtime = Builder::new_multi_thread()
            .worker_threads(config.network_threads)
            .thread_name_fn(move || format!("kilo-net-{}", number.fetch_add(1, std::sync::atomic::Ordering::Relaxed)))
            .thread_stack_size(NETWORK_STACK_BYTES)
            .enable_all()
            .build()?;
        let (pool, threads) = pool::start(config.io_threads)?;
        let host = Arc::new(RealHost {
            runtime: runtime.handle().clone(),
            pool: Arc::new(pool),
            spare: Arc::default(),
            start: Instant::now(),
            seeds: RandomState::new(),
        });
        Ok(Self { runtime, host, _threads: threads })
    }

    /// The world to hand to constructors.
    pub fn env(&self) -> Env {
        Env::new(self.host.clone())
    }

    /// Runs `future` on the calling thread until it is done.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Resolves at the first SIGTERM or SIGINT after it is called, with the signal's name. Call it within
    /// [`Self::block_on`].
    pub fn shutdown_signal(&self) -> io::Result<BoxFuture<'static, &'static str>> {
        let _runtime = self.runtime.enter();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        Ok(Box::pin(async move {
            tokio::select! {
                biased;
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        }))
    }
}

/// Whether what is written to standard output goes nowhere, because its reader has ended. A pipe alone knows.
pub fn reader_of_stdout_is_gone() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    // Asked for nothing, it tells errors and hang-ups alone.
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Runs a test on a small real world.
///
/// # Panics
/// When the system refuses a thread.
pub fn block_on_test<F: Future>(test: impl FnOnce(Env) -> F) -> F::Output {
    let real = RealEnv::new(RealConfig { network_threads: 2, io_threads: 2 }).expect("a test can start four threads");
    real.block_on(test(real.env()))
}

impl Clock for RealHost {
    fn now(&self) -> Monotonic {
        Monotonic::default() + self.start.elapsed()
    }

    fn wall(&self) -> WallMs {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        WallMs(match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        })
    }

    fn sleep_until(&self, deadline: Monotonic) -> BoxFuture<'static, ()> {
        let _runtime = self.runtime.enter();
        Box::pin(match self.start.checked_add(Duration::from_nanos(deadline.0)) {
            Some(instant) => tokio::time::sleep_until(instant.into()),
            None => tokio::time::sleep(Duration::MAX),
        })
    }
}

impl Host for RealHost {
    fn seed(&self, purpose: &str) -> u64 {
        // The keys come from the operating system; the clock tells two calls for one purpose apart.
        self.seeds.hash_one((purpose, self.start.elapsed().as_nanos(), RandomState::new().hash_one(0_u8)))
    }

    fn descriptors_max(&self) -> u64 {
        descriptors::max()
    }

    fn fail_stop(&self, code: FailStop, message: &str) {
        if tracing::dispatcher::has_been_set() {
            tracing::error!("fail-stop {} ({code:?}): {message}", code as i32);
            log_writer::flush_started();
        } else {
            // Nobody listens to the log yet, or this is a test: the reason must not be lost.
            print_to_stderr(&format!("fail-stop {} ({code:?}): {message}\n", code as i32));
        }
        std::process::exit(code as i32);
    }
}
