//! Whose code runs at the moment, and when: what log lines begin with.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::world::SharedState;
use crate::trace::Seconds;

thread_local! {
    /// The world of the run on this thread.
    static WORLD: RefCell<Weak<SharedState>> = const { RefCell::new(Weak::new()) };
    /// Index of the node, and number of the incarnation.
    static RUNNING: Cell<Option<(usize, u32)>> = const { Cell::new(None) };
}

/// A run begins on this thread.
pub(super) fn enter(shared: &Arc<SharedState>) {
    WORLD.set(Arc::downgrade(shared));
}

/// A task of an incarnation.
pub(super) struct Run<F> {
    node: usize,
    number: u32,
    task: Pin<Box<F>>,
}

impl<F> Run<F> {
    pub(super) fn new(node: usize, number: u32, task: F) -> Self {
        Self { node, number, task: Box::pin(task) }
    }
}

impl<F: Future> Future for Run<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let outer = RUNNING.replace(Some((self.node, self.number)));
        let polled = self.task.as_mut().poll(context);
        RUNNING.set(outer);
        polled
    }
}

/// Simulated time, node and incarnation, such as `1.204567s broker#3`; nothing outside of a run.
pub struct Now;

impl fmt::Display for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(shared) = WORLD.with_borrow(Weak::upgrade) else { return Ok(()) };
        write!(f, "{}", Seconds(shared.now()))?;
        match RUNNING.get() {
            Some((node, number)) => write!(f, " {}#{number}", shared.with(|state, _| state.nodes[node].name.clone())),
            None => f.write_str(" sim"),
        }
    }
}
