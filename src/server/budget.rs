//! A bound on the bytes of requests over all connections.
//!
//! Each connection may always hold a little ([`ALLOWANCE_BYTES`]), so that small requests never wait for large ones of
//! others. What goes beyond comes out of one budget; while that is used up, those connections are not read. Bytes are
//! charged as they arrive, not as they are announced, and given back when the request has its answer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::io::{BoxFuture, Env, Monotonic, ReadHalf};

/// What each connection may hold beside the budget.
pub(super) const ALLOWANCE_BYTES: usize = 64 * 1024;
/// The most that is taken from the budget at a time.
const STEP_BYTES: usize = 64 * 1024;

/// The budget of all connections.
pub(super) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }
}

/// What one connection holds.
pub(super) struct Charge {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes read and not given back yet.
    held: usize,
    /// Those of them that no frame has taken yet.
    unframed: usize,
    /// When the first of the unframed bytes came.
    frame_began: Monotonic,
    /// What has been taken from the budget for them.
    paid: Option<OwnedSemaphorePermit>,
    /// When the last answer was made.
    answered: Monotonic,
}

impl State {
    fn paid(&self) -> usize {
        self.paid.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// What the budget is to give for the bytes held.
    fn owed(&self) -> usize {
        self.held.saturating_sub(ALLOWANCE_BYTES)
    }
}

impl Charge {
    /// The bytes of an unfinished frame and since when it is being read.
    pub(super) fn unfinished(&self) -> Option<(usize, Monotonic)> {
        let state = self.lock();
        (state.unframed > 0).then_some((state.unframed, state.frame_began))
    }

    /// A frame of so many bytes has been taken out of what was read.
    pub(super) fn framed(&self, bytes: usize, now: Monotonic) {
        let mut state = self.lock();
        state.unframed = state.unframed.saturating_sub(bytes);
        state.frame_began = now;
    }

    /// Since when no request has been waiting for its answer; `None` while one is.
    pub(super) fn quiet_since(&self) -> Option<Monotonic> {
        let state = self.lock();
        (state.held == state.unframed).then_some(state.answered)
    }

    /// A request of so many bytes has its answer.
    pub(super) fn give_back(&self, bytes: usize, now: Monotonic) {
        let mut state = self.lock();
        state.answered = now;
        state.held = state.held.saturating_sub(bytes);
        let excess = state.paid().saturating_sub(state.owed());
        if let Some(paid) = &mut state.paid {
            drop(paid.split(excess));
        }
    }

    fn has_read(&self, bytes: usize, now: Monotonic) {
        let mut state = self.lock();
        if state.unframed == 0 {
            state.frame_began = now;
        }
        state.held += bytes;
        state.unframed += bytes;
    }

    fn pay(&self, permit: OwnedSemaphorePermit) {
        let mut state = self.lock();
        match &mut state.paid {
            Some(paid) => paid.merge(permit),
            none => *none = Some(permit),
        }
    }

    /// What must be paid before more is read.
    fn debt(&self) -> usize {
        let state = self.lock();
        state.owed().saturating_sub(state.paid())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("arithmetic under this lock does not panic")
    }
}

type Acquiring = BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>;

/// The reading half of a connection: charges what it reads, and reads on only when that has been paid.
pub(super) struct Charged {
    inner: ReadHalf,
    env: Env,
    budget: Arc<Semaphore>,
    charge: Arc<Charge>,
    acquiring: Option<Acquiring>,
}

impl Charged {
    pub(super) fn new(inner: ReadHalf, env: &Env, budget: &Budget) -> (Self, Arc<Charge>) {
        let charge = Arc::new(Charge { state: Mutex::default() });
        let budget = Arc::clone(&budget.0);
        (Self { inner, env: env.clone(), budget, charge: Arc::clone(&charge), acquiring: None }, charge)
    }

    fn poll_paid(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let debt = self.charge.debt();
            if debt == 0 {
                // Paid by what was given back in the meantime, perhaps.
                self.acquiring = None;
                return Poll::Ready(Ok(()));
            }
            let step = u32::try_from(debt.min(STEP_BYTES)).expect("a step is far below 4 GiB");
            let budget = &self.budget;
            let acquiring = self.acquiring.get_or_insert_with(|| Box::pin(Arc::clone(budget).acquire_many_owned(step)));
            let permit = ready!(acquiring.as_mut().poll(context));
            self.acquiring = None;
            self.charge.pay(permit.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?);
        }
    }
}

impl AsyncRead for Charged {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_paid(context))?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buf))?;
        let read = buf.filled().len() - before;
        if read > 0 {
            self.charge.has_read(read, self.env.now());
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::io::real::block_on_test;

    /// Reads up to `len` bytes; `None` if the budget makes it wait.
    async fn read(half: &mut Charged, len: usize) -> Option<usize> {
        let mut bytes = vec![0; len];
        let mut buf = ReadBuf::new(&mut bytes);
        poll_fn(|context| match Pin::new(&mut *half).poll_read(context, &mut buf) {
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(result) => {
                result.expect("an endless source");
                Poll::Ready(Some(()))
            }
        })
        .await?;
        Some(buf.filled().len())
    }

    fn half(env: &Env, budget: &Budget) -> (Charged, Arc<Charge>) {
        Charged::new(Box::new(tokio::io::repeat(7)), env, budget)
    }

    #[test]
    fn reading_stops_when_the_budget_is_used_up_and_goes_on_when_some_is_given_back() {
        block_on_test(|env| async move {
            let budget = Budget::new(100_000);
            let (mut first, first_charge) = half(&env, &budget);
            let (mut second, _) = half(&env, &budget);
            for _ in 0..3 {
                assert_eq!(read(&mut first, ALLOWANCE_BYTES).await, Some(ALLOWANCE_BYTES));
            }
            // Two allowances beyond its own are owed, and the budget holds less.
            assert_eq!(read(&mut first, 10).await, None);
            assert_eq!(read(&mut second, 10).await, Some(10), "the allowance of others is untouched");
            assert_eq!(first_charge.unfinished().map(|(bytes, _)| bytes), Some(3 * ALLOWANCE_BYTES));
            first_charge.framed(3 * ALLOWANCE_BYTES, env.now());
            first_charge.give_back(2 * ALLOWANCE_BYTES, env.now());
            assert_eq!(read(&mut first, 10).await, Some(10));
            assert_eq!(first_charge.unfinished().map(|(bytes, _)| bytes), Some(10));
            drop(first);
        });
    }

    #[test]
    fn what_was_paid_comes_back() {
        block_on_test(|env| async move {
            let budget = Budget::new(200_000);
            let (mut half, charge) = half(&env, &budget);
            for _ in 0..3 {
                assert!(read(&mut half, ALLOWANCE_BYTES).await.is_some());
            }
            assert!(budget.0.available_permits() < 200_000);
            charge.give_back(3 * ALLOWANCE_BYTES, env.now());
            assert_eq!(budget.0.available_permits(), 200_000);
        });
    }
}
