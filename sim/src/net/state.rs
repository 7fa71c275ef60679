//! What there is of the network: links, listeners and connections as data.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::task::Waker;

use bytes::Bytes;

use super::link::{Link, LinkConfig, loopback};
use crate::host::Effects;
use crate::host::seed::mix;

/// First port that connecting takes.
const EPHEMERAL_PORT: u16 = 32_768;
/// Bytes that an end buffers of what arrives, and that a writer may have unacknowledged. Drawn between the two, per
/// connection.
const WINDOW_BYTES: (usize, usize) = (16 * 1024, 256 * 1024);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    Open,
    Closed,
    Gone,
}

pub(super) struct End {
    pub(super) node: usize,
    pub(super) addr: SocketAddr,
    pub(super) state: EndState,
    pub(super) received: VecDeque<Bytes>,
    pub(super) received_bytes: usize,
    pub(super) fin_received: bool,
    /// Told to the program once; afterwards reads end and writes fail.
    pub(super) error: Option<io::ErrorKind>,
    pub(super) aborted: bool,
    /// A program has at least one half of it, or is about to get them.
    pub(super) held: bool,
    pub(super) shut: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl End {
    pub(super) fn wake(&mut self, effects: &mut Effects) {
        effects.wakes.extend(self.reader.take());
        effects.wakes.extend(self.writer.take());
    }
}

pub(super) enum Segment {
    Data(Bytes),
    Fin,
}

/// From one end to the other.
#[derive(Default)]
pub(super) struct Direction {
    /// Written, not yet sent.
    pub(super) queue: VecDeque<Bytes>,
    pub(super) queued_bytes: usize,
    pub(super) fin_queued: bool,
    pub(super) fin_sent: bool,
    pub(super) flying: VecDeque<Segment>,
    /// Sent and not acknowledged.
    pub(super) unacked_bytes: usize,
    /// Delivered, but the acknowledgement did not get through.
    pub(super) ack_held_bytes: usize,
    pub(super) last_arrival: u64,
    /// Grows whenever it stops or goes on, so that an old time-out means nothing.
    pub(super) stall: u64,
    pub(super) stalled: bool,
}

pub(super) struct Conn {
    pub(super) ends: [End; 2],
    pub(super) directions: [Direction; 2],
    pub(super) window_bytes: usize,
    pub(super) rng: fastrand::Rng,
}

impl Conn {
    pub(super) fn new(nodes: [usize; 2], addrs: [SocketAddr; 2], mut rng: fastrand::Rng) -> Self {
        let end = |index: usize| End {
            node: nodes[index],
            addr: addrs[index],
            state: EndState::Open,
            received: VecDeque::new(),
            received_bytes: 0,
            fin_received: false,
            error: None,
            aborted: false,
            held: true,
            shut: false,
            reader: None,
            writer: None,
        };
        let window_bytes = rng.usize(WINDOW_BYTES.0..=WINDOW_BYTES.1);
        Self { ends: [end(0), end(1)], directions: [Direction::default(), Direction::default()], window_bytes, rng }
    }

    /// Nothing arrives before this.
    pub(super) fn not_before(&mut self, from: usize, at: u64) {
        self.directions[from].last_arrival = self.directions[from].last_arrival.max(at);
    }

    /// Bytes that may be written now.
    pub(super) fn space(&self, from: usize) -> usize {
        let direction = &self.directions[from];
        self.window_bytes.saturating_sub(direction.queued_bytes + direction.unacked_bytes)
    }

    pub(super) fn push(&mut self, from: usize, bytes: Bytes) {
        self.directions[from].queued_bytes += bytes.len();
        self.directions[from].queue.push_back(bytes);
    }

    /// The next segment, if one may be sent.
    pub(super) fn next_segment(&mut self, from: usize, bytes_max: usize) -> Option<(Segment, usize)> {
        let unread = self.ends[1 - from].received_bytes;
        let direction = &mut self.directions[from];
        let Some(first) = direction.queue.front_mut() else {
            if !direction.fin_queued || direction.fin_sent {
                return None;
            }
            direction.fin_sent = true;
            return Some((Segment::Fin, 0));
        };
        let room = self.window_bytes.saturating_sub(direction.unacked_bytes + unread);
        let mut len = first.len().min(bytes_max);
        if room < len.min(self.window_bytes / 2) {
            // Small pieces of a window that opens little by little are waited for, as TCP does (RFC 1122, 4.2.3.4).
            return None;
        }
        len = len.min(room);
        if self.rng.u8(..) < 24 {
            len = self.rng.usize(1..=len);
        }
        let bytes = first.split_to(len);
        if first.is_empty() {
            direction.queue.pop_front();
        }
        direction.queued_bytes -= len;
        direction.unacked_bytes += len;
        Some((Segment::Data(bytes), len))
    }
}

/// A socket that listens, and who waits to be accepted.
pub(super) struct ListenerState {
    pub(super) node: usize,
    pub(super) addr: SocketAddr,
    pub(super) backlog: VecDeque<u64>,
    pub(super) wakers: Vec<Waker>,
}

/// The network, as the world keeps it.
pub(crate) struct NetState {
    pub(super) seed: u64,
    /// Connections by number. End 0 connected, end 1 accepted.
    pub(super) conns: BTreeMap<u64, Conn>,
    pub(super) next_conn: u64,
    pub(super) listeners: BTreeMap<u64, ListenerState>,
    pub(super) next_listener: u64,
    pub(super) default_link: LinkConfig,
    pub(super) links: BTreeMap<(usize, usize), Link>,
    ports: BTreeMap<usize, u16>,
    pub(super) rng: fastrand::Rng,
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

    pub(super) fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let config = &self.default_link;
        self.links.entry((from, to)).or_insert_with(|| Link::new(if from == to { loopback() } else { config.clone() }))
    }

    pub(super) fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.links.get(&(from, to)).is_some_and(|link| link.blocked)
    }

    pub(super) fn free_port(&mut self, node: usize) -> u16 {
        let port = self.ports.entry(node).or_insert(EPHEMERAL_PORT);
        *port = port.checked_add(1).unwrap_or(EPHEMERAL_PORT);
        *port
    }

    /// The listener that a connection to `addr` on `node` reaches.
    pub(super) fn listener_for(&self, node: usize, addr: SocketAddr) -> Option<u64> {
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
