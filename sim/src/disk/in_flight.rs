//! What a disk has been asked and has not done when its process ends.

use crate::host::{Action, Effects, State};

/// The process has ended: what it had in flight happens, or not, each for itself; its handles and locks are gone.
pub(crate) fn settle_in_flight(
    state: &mut State,
    now: u64,
    node: usize,
    rng: &mut fastrand::Rng,
    effects: &mut Effects,
) {
    for job in take_jobs(state, node) {
        if rng.bool() {
            job(state, now, effects);
        } else {
            effects.drop_later(job);
        }
    }
    effects.drop_later(take_jobs(state, node));
    let disk = &mut state.nodes[node].disk;
    disk.locks.clear();
    disk.model.close_all();
}

/// The jobs of a node in their order.
fn take_jobs(state: &mut State, node: usize) -> Vec<Action<State>> {
    state.disk_jobs.extract_if((node, 0)..=(node, u64::MAX), |_, _| true).map(|(_, job)| job).collect()
}
