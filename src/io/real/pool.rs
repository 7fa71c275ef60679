//! The I/O threads (`kilo-io-N`): they execute file operations and computations, in the order submitted.
//!
//! A pool of our own rather than tokio's blocking pool, so that `num.io.threads` is exactly the number of threads, and
//! so that computations can never occupy all of them while a flush waits.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::{BoxFuture, panic_message};

/// Stack of an I/O thread. Jobs are shallow: system calls, codecs and checksums.
const STACK_BYTES: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Hands jobs to the I/O threads.
pub(super) struct Pool {
    shared: Arc<PoolState>,
}

struct PoolState {
    queues: Mutex<Queues>,
    work: Condvar,
    /// How many threads may compute at the same time: all but one, which stays free for the disk.
    computing_max: usize,
}

#[derive(Default)]
struct Queues {
    operations: VecDeque<Job>,
    computations: VecDeque<Job>,
    computing: usize,
    idle: usize,
    closed: bool,
}

/// The threads. Dropping it lets them finish what was submitted, then ends them.
pub(super) struct Threads {
    shared: Arc<PoolState>,
    handles: Vec<JoinHandle<()>>,
}

/// Starts `count` I/O threads.
pub(super) fn start(count: usize) -> io::Result<(Pool, Threads)> {
    let shared = Arc::new(PoolState {
        queues: Mutex::new(Queues::default()),
        work: Condvar::new(),
        computing_max: count.saturating_sub(1).max(1),
    });
    let mut threads = Threads { shared: shared.clone(), handles: Vec::with_capacity(count) };
    for number in 0..count {
        let shared = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("kilo-io-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || shared.run())?;
        threads.handles.push(thread);
    }
    Ok((Pool { shared }, threads))
}

impl Pool {
    /// Queues an operation now; the future only waits for it. Dropping the future does not cancel the operation.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.shared.push(
            false,
            Box::new(move || {
                let _ = sender.send(operation());
            }),
        );
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(ended())) })
    }

    /// Queues a computation.
    pub(super) fn compute(&self, work: Job) {
        self.shared.push(true, work);
    }
}

fn ended() -> io::Error {
    io::Error::other("this incarnation of the broker has ended")
}

impl PoolState {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        // Jobs run outside the lock, so a panic cannot leave the queues half changed.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, is_computation: bool, job: Job) {
        let mut queues = self.queues();
        if queues.closed {
            return; // Dropping the job tells its waiter.
        }
        if is_computation {
            queues.computations.push_back(job);
        } else {
            queues.operations.push_back(job);
        }
        let wake = queues.idle > 0;
        drop(queues);
        if wake {
            self.work.notify_one();
        }
    }

    fn run(&self) {
        let mut queues = self.queues();
        loop {
            let (job, is_computation) = if let Some(job) = queues.operations.pop_front() {
                (job, false)
            } else if queues.computing < self.computing_max
                && let Some(job) = queues.computations.pop_front()
            {
                queues.computing += 1;
                (job, true)
            } else if queues.closed && queues.computations.is_empty() {
                return;
            } else {
                queues.idle += 1;
                queues = self.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
                queues.idle -= 1;
                continue;
            };
            drop(queues);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                // Where it was is told by the hook, which is limited.
                tracing::debug!("a job on an I/O thread panicked: {}", panic_message(&*panic));
            }
            queues = self.queues();
            if is_computation {
                queues.computing -= 1;
                if !queues.computations.is_empty() || queues.closed {
                    self.work.notify_all();
                }
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.queues().closed = true;
        self.shared.work.notify_all();
        for thread in self.handles.drain(..) {
            // The last handle to the broker may go on an I/O thread itself; that one ends on its own.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
