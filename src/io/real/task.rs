//! Tasks on tokio's runtime.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::RealHost;
use crate::{BoxFuture, Task, TaskControl, Tasks, catch_panic};

struct RealTask {
    abort: AbortHandle,
    /// Closed when the task has ended: its sender lives inside the task.
    ended: watch::Receiver<()>,
}

impl TaskControl for RealTask {
    fn cancel(&self) {
        self.abort.abort();
    }

    fn join(&self) -> BoxFuture<'static, ()> {
        let mut ended = self.ended.clone();
        Box::pin(async move { while ended.changed().await.is_ok() {} })
    }
}

impl Tasks for RealHost {
    fn spawn_boxed(&self, kind: &'static str, future: BoxFuture<'static, ()>) -> Task {
        let (running, ended) = watch::channel(());
        let work = (future, running);
        let task = self.runtime.spawn(async move {
            // The future goes first, so that whoever joins finds what the task owned dropped.
            let (future, _running) = work;
            if let Err(message) = catch_panic(future).await {
                // Where it was is told by the hook, which is limited.
                tracing::debug!("task {kind} panicked: {message}");
            }
        });
        Task::new(Arc::new(RealTask { abort: task.abort_handle(), ended }))
    }

    fn compute_boxed(&self, work: Box<dyn FnOnce() + Send>) {
        self.pool.compute(work);
    }
}
