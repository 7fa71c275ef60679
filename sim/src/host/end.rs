//! The end of an incarnation, whoever brings it about.

use std::sync::Arc;

use super::effects::Effects;
use super::node_state::Exit;
use super::world::{SharedState, State};
use crate::disk::settle_in_flight;
use crate::net::on_exit;

/// Ends an incarnation if it is the current one of its node. Its tasks are dropped soon after and never polled again.
pub(super) fn end(
    shared: &Arc<SharedState>,
    state: &mut State,
    now: u64,
    node: usize,
    exit: Exit,
    effects: &mut Effects,
) {
    let Some(incarnation) = state.nodes[node].current.take() else { return };
    incarnation.end();
    state.trace(now, node, format_args!("exit {exit:?}"));
    on_exit(state, now, node, matches!(exit, Exit::PowerLost), effects);
    let mut rng = fastrand::Rng::with_seed(state.nodes[node].rng.u64(..));
    settle_in_flight(state, now, node, &mut rng, effects);
    let this = &mut state.nodes[node];
    this.descriptors = 0;
    this.exit = Some(exit);
    effects.wakes.append(&mut this.waiters);
    let shared = shared.clone();
    effects.after(move || {
        // Paused tasks go back to the scheduler, which drops them; killing would drop them under its lock.
        shared.runtime.resume(incarnation.madsim);
        shared.runtime.kill(incarnation.madsim);
    });
}
