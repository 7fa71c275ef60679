//! What the system does about sockets when their program ends, and when power goes and comes.

use super::conn;
use crate::host::{Effects, State};

/// A program has ended: the system closes its sockets; or, if power was lost, they are gone without a word.
pub(crate) fn on_exit(state: &mut State, now: u64, node: usize, power_lost: bool, effects: &mut Effects) {
    let gone: Vec<u64> =
        state.net.listeners.iter().filter(|(_, listener)| listener.node == node).map(|(id, _)| *id).collect();
    for id in gone {
        close_listener(state, now, id, power_lost, effects);
    }
    let ends: Vec<(u64, usize)> = state
        .net
        .conns
        .iter()
        .flat_map(|(&id, conn)| (0..2).filter(|&end| conn.ends[end].node == node).map(move |end| (id, end)))
        .collect();
    for (id, end) in ends {
        if power_lost {
            conn::lose_power(state, id, end, effects);
        } else {
            conn::close(state, now, id, end, effects);
        }
    }
}

/// A node has power again: those who still send to it hear from it.
pub(crate) fn on_power(state: &mut State, now: u64, node: usize, effects: &mut Effects) {
    let ids: Vec<u64> = state
        .net
        .conns
        .iter()
        .filter(|(_, conn)| conn.ends.iter().any(|end| end.node == node))
        .map(|(id, _)| *id)
        .collect();
    for id in ids {
        conn::try_again_soon(state, now, id, effects);
    }
}

/// Stops listening; who waited to be accepted is reset, unless power was lost.
pub(super) fn close_listener(state: &mut State, now: u64, id: u64, power_lost: bool, effects: &mut Effects) {
    let Some(listener) = state.net.listeners.remove(&id) else { return };
    effects.drop_later(listener.wakers);
    for waiting in listener.backlog {
        if power_lost {
            conn::lose_power(state, waiting, 1, effects);
        } else {
            conn::abort(state, now, waiting, 1, effects);
            conn::close(state, now, waiting, 1, effects);
        }
    }
}
