//! What a scenario can do to the network.

use std::sync::Arc;

use super::conn;
use super::link::LinkConfig;
use super::state::{Conn, EndState};
use crate::host::{Effects, Node, SharedState, State};

/// Control over the network.
pub struct NetControl {
    shared: Arc<SharedState>,
}

impl NetControl {
    pub(crate) fn new(shared: Arc<SharedState>) -> Self {
        Self { shared }
    }

    fn act<T>(&self, action: impl FnOnce(&mut State, u64, &mut Effects) -> T) -> T {
        let now = self.shared.now();
        self.shared.with(|state, effects| action(state, now, effects))
    }

    /// Changes how the link from one node to another behaves, in that direction.
    pub fn set_link(&self, from: &Node, to: &Node, config: LinkConfig) {
        self.act(|state, _, _| state.net.link(from.index(), to.index()).config = config);
    }

    /// Changes how all links between different nodes behave, those to come too.
    pub fn set_all_links(&self, config: LinkConfig) {
        self.act(|state, _, _| {
            for (_, link) in state.net.links.iter_mut().filter(|((from, to), _)| from != to) {
                link.config = config.clone();
            }
            state.net.default_link = config;
        });
    }

    /// Nothing passes from one node to the other any more. What is sent waits.
    pub fn block(&self, from: &Node, to: &Node) {
        self.act(|state, now, _| {
            state.net.link(from.index(), to.index()).blocked = true;
            state.trace.line(now, "net", format_args!("block {} to {}", from.index(), to.index()));
        });
    }

    /// Undoes [`Self::block`]. Connections that stalled go on after a while.
    pub fn unblock(&self, from: &Node, to: &Node) {
        self.act(|state, now, effects| unblock(state, now, from.index(), to.index(), effects));
    }

    /// Cuts the nodes of one side off from those of the other, both ways.
    pub fn partition(&self, left: &[&Node], right: &[&Node]) {
        for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (*a, *b))) {
            self.block(a, b);
            self.block(b, a);
        }
    }

    /// Undoes all blocks.
    pub fn heal(&self) {
        self.act(|state, now, effects| {
            let blocked: Vec<(usize, usize)> =
                state.net.links.iter().filter(|(_, link)| link.blocked).map(|(pair, _)| *pair).collect();
            for (from, to) in blocked {
                unblock(state, now, from, to, effects);
            }
        });
    }

    /// Resets every connection between two nodes; returns how many.
    pub fn reset(&self, a: &Node, b: &Node) -> usize {
        let mut pair = [a.index(), b.index()];
        pair.sort_unstable();
        self.reset_where(|nodes| nodes == pair)
    }

    /// Resets every connection of a node; returns how many.
    pub fn reset_node(&self, node: &Node) -> usize {
        self.reset_where(|nodes| nodes.contains(&node.index()))
    }

    fn reset_where(&self, matches: impl Fn([usize; 2]) -> bool) -> usize {
        self.act(|state, now, effects| {
            let mut ids = connections(state, matches);
            ids.retain(|id| state.net.conns[id].ends.iter().any(|end| end.state != EndState::Gone));
            for &id in &ids {
                state.trace.line(now, "net", format_args!("reset c{id}"));
                conn::reset_both(state, id, effects);
            }
            ids.len()
        })
    }
}

fn connections(state: &State, matches: impl Fn([usize; 2]) -> bool) -> Vec<u64> {
    let nodes = |conn: &Conn| {
        let mut pair = [conn.ends[0].node, conn.ends[1].node];
        pair.sort_unstable();
        pair
    };
    state.net.conns.iter().filter(|(_, conn)| matches(nodes(conn))).map(|(id, _)| *id).collect()
}

fn unblock(state: &mut State, now: u64, from: usize, to: usize, effects: &mut Effects) {
    state.net.link(from, to).blocked = false;
    state.trace.line(now, "net", format_args!("unblock {from} to {to}"));
    let mut pair = [from, to];
    pair.sort_unstable();
    for id in connections(state, |nodes| nodes == pair) {
        conn::try_again_soon(state, now, id, effects);
    }
}
