//! Tasks: started, joined, cancelled.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::future::BoxFuture;

/// Lets other tasks of this thread run before going on.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Starts tasks and computations.
pub trait Tasks: Send + Sync {
    /// Starts a task.
    fn spawn_boxed(&self, kind: &'static str, future: BoxFuture<'static, ()>) -> Task;
    /// Runs `work` on a thread meant for it (inline in simulation). A panic in `work` is contained.
    fn compute_boxed(&self, work: Box<dyn FnOnce() + Send>);
}

/// Control over a running task.
pub trait TaskControl: Send + Sync {
    /// Ends the task at its next await point.
    fn cancel(&self);
    /// Resolves when the task has ended, in whatever way.
    fn join(&self) -> BoxFuture<'static, ()>;
}

/// A handle to a task. Dropping it lets the task run on.
#[derive(Clone)]
pub struct Task(Arc<dyn TaskControl>);

impl Task {
    /// Wraps an implementation.
    pub fn new(control: Arc<dyn TaskControl>) -> Self {
        Self(control)
    }

    /// Ends the task at its next await point.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Resolves when the task has ended, in whatever way.
    pub async fn join(&self) {
        self.0.join().await;
    }
}
