//! A bound on the bytes of requests over all connections.
//!
//! Each connection has an allowance of its own ([`ALLOWANCE_BYTES`]): a request that fits in what is left of it passes,
//! whatever others hold. Any other takes room for its *whole* frame out of one budget before more of it is read. Whoever
//! holds a part and waits for the rest could wait for others that do the same, forever; so nobody does. Room is given
//! first come first served, and given back when the request has its answer or its connection ends.

use std::sync::{Arc, MutexGuard};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::io::{CoreMutex, Env, Held, Monotonic};

/// What each connection may hold beside the budget: in requests that wait for their answers, and once more in bytes of
/// a request that has no room yet.
pub(super) const ALLOWANCE_BYTES: usize = 64 * 1024;

/// The budget of all connections.
pub(super) struct Budget {
    room: Arc<Semaphore>,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(bytes)), bytes }
    }
}

/// What one connection holds.
pub(super) struct Account {
    env: Env,
    room: Arc<Semaphore>,
    /// The whole budget: what is larger takes all of it and passes alone.
    borrow_max: usize,
    state: CoreMutex<State>,
    /// Something of the allowance has come back. Only the connection's reader waits for it.
    returned: Notify,
}

struct State {
    allowance: usize,
    /// Requests without an answer.
    open: usize,
    /// When the last answer was made.
    answered: Monotonic,
}

impl Account {
    pub(super) fn new(env: &Env, budget: &Budget) -> Arc<Self> {
        let state = State { allowance: ALLOWANCE_BYTES, open: 0, answered: env.now() };
        Arc::new(Self {
            env: env.clone(),
            room: Arc::clone(&budget.room),
            borrow_max: budget.bytes,
            state: CoreMutex::new(env, "a connection's account", state),
            returned: Notify::new(),
        })
    }

    /// Room for a request of so many bytes, as soon as there is. Dropping the future gives up the place in the queue.
    pub(super) async fn reserve(self: &Arc<Self>, bytes: usize) -> Ticket {
        if let Some(ticket) = self.within_allowance(bytes) {
            return ticket;
        }
        let permits = u32::try_from(bytes.min(self.borrow_max)).unwrap_or(u32::MAX);
        let mut borrowing = std::pin::pin!(Arc::clone(&self.room).acquire_many_owned(permits));
        loop {
            tokio::select! { biased;
                borrowed = &mut borrowing => {
                    self.lock().open += 1;
                    let borrowed = Some(borrowed.expect("nobody closes the budget"));
                    return Ticket { account: Arc::clone(self), allowance: 0, borrowed };
                }
                // A small request waits for its own connection's answers too, not for others alone.
                () = self.returned.notified() => {
                    if let Some(ticket) = self.within_allowance(bytes) {
                        return ticket;
                    }
                }
            }
        }
    }

    fn within_allowance(self: &Arc<Self>, bytes: usize) -> Option<Ticket> {
        let mut state = self.lock();
        state.allowance = state.allowance.checked_sub(bytes)?;
        state.open += 1;
        Some(Ticket { account: Arc::clone(self), allowance: bytes, borrowed: None })
    }

    /// Since when no request has been waiting for its answer; `None` while one is.
    pub(super) fn quiet_since(&self) -> Option<Monotonic> {
        let state = self.lock();
        (state.open == 0).then_some(state.answered)
    }

    fn lock(&self) -> Held<'_, MutexGuard<'_, State>> {
        self.state.lock()
    }
}

/// Room for one request. Dropping it gives it back.
pub(super) struct Ticket {
    account: Arc<Account>,
    allowance: usize,
    borrowed: Option<OwnedSemaphorePermit>,
}

impl Ticket {
    /// Whether others may have to wait until this is given back.
    pub(super) fn is_borrowed(&self) -> bool {
        self.borrowed.is_some()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.account.lock();
        state.allowance += self.allowance;
        state.open -= 1;
        state.answered = self.account.env.now();
        drop(state);
        self.account.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use super::*;
    use crate::io::real::block_on_test;

    /// What the future gives at once, if anything.
    async fn now<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[test]
    fn large_requests_wait_for_all_of_their_room_in_turn_and_small_ones_pass() {
        block_on_test(|env| async move {
            let budget = Budget::new(1_000_000);
            let accounts: Vec<_> = (0..4).map(|_| Account::new(&env, &budget)).collect();
            let first = accounts[0].reserve(600_000).await;
            let mut second = pin!(accounts[1].reserve(600_000));
            assert!(now(second.as_mut()).await.is_none());
            let mut third = pin!(accounts[2].reserve(100_000));
            assert!(now(third.as_mut()).await.is_none(), "there would be room, but it is not its turn");
            assert!(!accounts[3].reserve(ALLOWANCE_BYTES).await.is_borrowed(), "that is its own");
            drop(first);
            let second = now(second.as_mut()).await.expect("it is its turn");
            let third = now(third.as_mut()).await.expect("there is room for both");
            assert!(second.is_borrowed() && accounts[1].quiet_since().is_none());
            drop((second, third));
            assert!(accounts[1].quiet_since().is_some());
            assert_eq!(budget.room.available_permits(), 1_000_000);
        });
    }

    #[test]
    fn a_request_larger_than_the_budget_passes_alone() {
        block_on_test(|env| async move {
            let budget = Budget::new(100_000);
            let (one, two) = (Account::new(&env, &budget), Account::new(&env, &budget));
            let small = one.reserve(70_000).await;
            let mut large = pin!(two.reserve(1 << 30));
            assert!(now(large.as_mut()).await.is_none());
            drop(small);
            assert!(now(large.as_mut()).await.is_some());
        });
    }

    #[test]
    fn small_requests_wait_for_their_own_answers_when_the_budget_is_used_up() {
        block_on_test(|env| async move {
            let budget = Budget::new(100_000);
            let (one, two) = (Account::new(&env, &budget), Account::new(&env, &budget));
            let _all = one.reserve(100_000).await;
            let held = two.reserve(60_000).await;
            let mut next = pin!(two.reserve(10_000));
            assert!(now(next.as_mut()).await.is_none());
            drop(held);
            assert!(!now(next.as_mut()).await.expect("its own allowance is back").is_borrowed());
        });
    }

    #[test]
    fn whoever_leaves_the_queue_holds_up_nobody() {
        block_on_test(|env| async move {
            let budget = Budget::new(100_000);
            let (one, two) = (Account::new(&env, &budget), Account::new(&env, &budget));
            let held = one.reserve(80_000).await;
            {
                let mut leaves = pin!(two.reserve(90_000));
                assert!(now(leaves.as_mut()).await.is_none());
            }
            drop(held);
            assert_eq!(budget.room.available_permits(), 100_000);
        });
    }
}
