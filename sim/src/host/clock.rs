//! The world's clock: sleeps on it, and the one task that serves the queue, on one timer of madsim at a time.
//!
//! madsim's own sleeps register a timer at each poll and never cancel one; they also last a millisecond at least. Here
//! an entry goes when its sleep is dropped, and microseconds count.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::queue::Key;
use super::world::SharedState;

/// A sleep on the world's clock.
pub(super) struct Sleep {
    shared: Arc<SharedState>,
    deadline: u64,
    key: Option<Key>,
}

impl Sleep {
    pub(super) fn new(shared: Arc<SharedState>, deadline: u64) -> Self {
        Self { shared, deadline, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.now() >= self.deadline {
            return Poll::Ready(());
        }
        let (deadline, key) = (self.deadline, self.key);
        let key = self.shared.with(|state, effects| state.events.wake_at(deadline, key, context.waker(), effects));
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shared.with(|state, effects| state.events.cancel(key, effects));
        }
    }
}

/// Serves the queue forever.
pub(super) async fn drive(shared: Arc<SharedState>) {
    let mut timer = Box::pin(madsim::time::sleep(Duration::from_secs(1)));
    std::future::poll_fn(|context| {
        shared.with(|state, _| state.events.driver_is_awake());
        while let Some(action) = shared.with(|state, effects| state.events.next_due(shared.now(), effects)) {
            shared.with(|state, effects| action(state, shared.now(), effects));
        }
        let arm = shared.with(|state, _| state.events.arm(shared.now(), context.waker()));
        if let Some(at) = arm {
            let elapsed = Duration::from_nanos(at.saturating_sub(shared.now()));
            // `reset` takes the deadline as it is; creating a sleep would round it up to a millisecond.
            timer.as_mut().reset(shared.instant() + elapsed);
            if timer.as_mut().poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
        }
        Poll::Pending
    })
    .await
}
