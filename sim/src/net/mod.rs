//! The simulated network: TCP's semantics between nodes with addresses.
//!
//! The system's side of a socket is served whether or not the program runs: what arrives is buffered and acknowledged
//! while there is room. A partition is silence; what was sent is sent again until it gets through or the sender gives
//! up. A receiver never learns that its peer lost power unless it sends something.

mod conn;
mod control;
mod link;
mod setup;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

pub use control::NetControl;
use link::Link;
pub use link::LinkConfig;

use crate::host::world::mix;
use crate::host::{Effects, State};
use conn::Conn;

/// Seconds until a sender gives up that gets no acknowledgement, in nanoseconds. (Linux takes a quarter of an hour.)
const GIVE_UP_NS: u64 = 20_000_000_000;
/// Until connecting gives up, in nanoseconds. (Linux takes two minutes.)
const CONNECT_GIVE_UP_NS: u64 = 15_000_000_000;
/// Connections that may wait to be accepted.
const BACKLOG: usize = 128;
/// First port that connecting takes.
const EPHEMERAL_PORT: u16 = 32_768;

struct ListenerState {
    node: usize,
    addr: SocketAddr,
    backlog: VecDeque<u64>,
    wakers: Vec<Waker>,
}

pub(crate) struct NetState {
    seed: u64,
    /// Connections by number. End 0 connected, end 1 accepted.
    conns: BTreeMap<u64, Conn>,
    next_conn: u64,
    listeners: BTreeMap<u64, ListenerState>,
    next_listener: u64,
    default_link: LinkConfig,
    links: BTreeMap<(usize, usize), Link>,
    ports: BTreeMap<usize, u16>,
    rng: fastrand::Rng,
}

impl NetState {
    pub(crate) fn new(seed: u64, default_link: LinkConfig) -> Self {
        Self {
            seed,
            conns: BTreeMap::new(),
            next_conn: 1,
            listeners: BTreeMap::new(),
            next_listener: 1,
            default_link,
            links: BTreeMap::new(),
            ports: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(mix(seed, &[b"net"])),
        }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let config = &self.default_link;
        self.links
            .entry((from, to))
            .or_insert_with(|| Link::new(if from == to { link::loopback() } else { config.clone() }))
    }

    fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.links.get(&(from, to)).is_some_and(|link| link.blocked)
    }

    fn free_port(&mut self, node: usize) -> u16 {
        let port = self.ports.entry(node).or_insert(EPHEMERAL_PORT);
        *port = port.checked_add(1).unwrap_or(EPHEMERAL_PORT);
        *port
    }

    /// The listener that a connection to `addr` on `node` reaches.
    fn listener_for(&self, node: usize, addr: SocketAddr) -> Option<u64> {
        self.listeners
            .iter()
            .find(|(_, listener)| {
                listener.node == node
                    && listener.addr.port() == addr.port()
                    && (listener.addr.ip().is_unspecified() || listener.addr.ip() == addr.ip())
            })
            .map(|(id, _)| *id)
    }
}

/// The node that has an address, as `from` sees it.
fn node_of(state: &State, from: usize, ip: IpAddr) -> Option<usize> {
    if ip.is_loopback() || ip.is_unspecified() {
        return Some(from);
    }
    state.nodes.iter().position(|node| node.ip == ip)
}

/// A program has ended: the system closes its sockets; or, if power was lost, they are gone without a word.
pub(crate) fn on_exit(state: &mut State, now: u64, node: usize, power_lost: bool, effects: &mut Effects) {
    let gone: Vec<u64> =
        state.net.listeners.iter().filter(|(_, listener)| listener.node == node).map(|(id, _)| *id).collect();
    for id in gone {
        setup::close_listener(state, now, id, power_lost, effects);
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
