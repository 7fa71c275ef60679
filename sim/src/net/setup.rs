//! Listening, connecting and accepting.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;

use kilo::io::{BoxFuture, Listener, Net, Stream};
use tokio::sync::oneshot;

use super::conn;
use super::state::{Conn, ListenerState};
use super::stream;
use super::system::close_listener;
use crate::disk::errno::{self, os_error};
use crate::host::env::{SimHost, dead};
use crate::host::seed::mix;
use crate::host::{Cause, Effects, State};

/// Until connecting gives up, in nanoseconds. (Linux takes two minutes.)
const CONNECT_GIVE_UP_NS: u64 = 15_000_000_000;
/// Connections that may wait to be accepted.
const BACKLOG: usize = 128;
/// How long the first wait for an answer is, in nanoseconds; each next one is twice as long.
const RETRY_NS: u64 = 1_000_000_000;

struct SimListener {
    host: SimHost,
    id: u64,
    addr: SocketAddr,
}

impl Listener for SimListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Stream>> {
        Box::pin(std::future::poll_fn(move |context| {
            self.host.shared.with(|state, effects| {
                self.host.check_alive(state, "accept")?;
                let node = self.host.incarnation.node;
                let Some(listener) = state.net.listeners.get_mut(&self.id) else { return Poll::Ready(Err(dead())) };
                let Some(&conn) = listener.backlog.front() else {
                    if !listener.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                        listener.wakers.push(context.waker().clone());
                    }
                    return Poll::Pending;
                };
                if !state.nodes[node].take_descriptor() {
                    let now = self.host.shared.now();
                    state.hit(now, Cause::Descriptors, format_args!("accepting connection c{conn} failed: EMFILE"));
                    return Poll::Ready(Err(os_error(errno::EMFILE)));
                }
                listener.backlog.pop_front();
                let Some(stream) = stream::open(&self.host, state, conn, 1) else {
                    state.nodes[node].descriptors -= 1;
                    effects.wakes.push(context.waker().clone());
                    return Poll::Pending;
                };
                let now = self.host.shared.now();
                state.trace(now, node, format_args!("net accept c{conn} {}", stream.peer));
                Poll::Ready(Ok(stream))
            })
        }))
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        if self.host.incarnation.is_alive() {
            let now = self.host.shared.now();
            self.host.shared.with(|state, effects| {
                let node = &mut state.nodes[self.host.incarnation.node];
                node.descriptors = node.descriptors.saturating_sub(1);
                close_listener(state, now, self.id, false, effects);
            });
        }
    }
}

type Completion = oneshot::Sender<io::Result<Stream>>;

/// A connection in the making.
struct Attempt {
    host: Arc<SimHost>,
    local: SocketAddr,
    target: SocketAddr,
    /// Where the target is, if anywhere.
    to: Option<usize>,
    deadline: u64,
    retry_ns: u64,
    completion: Completion,
}

impl Attempt {
    fn from(&self) -> usize {
        self.host.incarnation.node
    }

    fn response(self, state: &mut State, result: io::Result<Stream>, effects: &mut Effects) {
        if result.is_err() && self.host.incarnation.is_alive() {
            let node = &mut state.nodes[self.from()];
            node.descriptors = node.descriptors.saturating_sub(1);
        }
        effects.after(move || {
            let _ = self.completion.send(result);
        });
    }

    /// SYN leaves.
    fn knock(self, state: &mut State, now: u64, effects: &mut Effects) {
        if now >= self.deadline {
            return self.response(state, Err(io::ErrorKind::TimedOut.into()), effects);
        }
        let Some(to) = self.to else { return self.knock_again(state, now, effects) };
        let mut rng = state.net.rng.fork();
        let at = now + state.net.link(self.from(), to).latency_ns(&mut rng);
        state.events.at(at, effects, move |state, now, effects| self.arrive(state, now, to, effects));
    }

    fn knock_again(mut self, state: &mut State, now: u64, effects: &mut Effects) {
        let at = (now + self.retry_ns).min(self.deadline);
        self.retry_ns *= 2;
        state.events.at(at, effects, move |state, now, effects| self.knock(state, now, effects));
    }

    /// SYN arrives, or does not.
    fn arrive(self, state: &mut State, now: u64, to: usize, effects: &mut Effects) {
        let from = self.from();
        if !self.host.incarnation.is_alive() {
            return self.response(state, Err(dead()), effects);
        }
        if state.net.is_blocked(from, to) || state.net.is_blocked(to, from) || !state.nodes[to].powered {
            if state.nodes[to].powered {
                let (a, b) = (state.nodes[from].name.clone(), state.nodes[to].name.clone());
                state.hit(now, Cause::Links, format_args!("{a} cannot connect to {b}"));
            }
            return self.knock_again(state, now, effects);
        }
        let mut rng = state.net.rng.fork();
        let back_at = now + state.net.link(to, from).latency_ns(&mut rng);
        let Some(listener_id) = state.net.listener_for(to, self.target) else {
            state.trace(now, to, format_args!("net refuses {} to {}", self.local, self.target));
            state.events.at(back_at, effects, move |state, _, effects| {
                self.response(state, Err(io::ErrorKind::ConnectionRefused.into()), effects);
            });
            return;
        };
        if state.net.listeners[&listener_id].backlog.len() >= BACKLOG {
            return self.knock_again(state, now, effects);
        }
        let id = state.net.next_conn;
        state.net.next_conn += 1;
        let seed = mix(state.net.seed, &[b"conn", &id.to_le_bytes()]);
        let mut conn = Conn::new([from, to], [self.local, self.target], fastrand::Rng::with_seed(seed));
        let accept_at = back_at + state.net.link(from, to).latency_ns(&mut rng);
        conn.not_before(0, accept_at);
        state.net.conns.insert(id, conn);
        state.trace(now, to, format_args!("net c{id} {} to {}", self.local, self.target));
        state.events.at(back_at, effects, move |state, now, effects| self.connected(state, now, id, effects));
        state
            .events
            .at(accept_at, effects, move |state, now, effects| acceptable(state, now, id, listener_id, effects));
    }

    fn connected(self, state: &mut State, now: u64, id: u64, effects: &mut Effects) {
        let host = self.host.clone();
        if !host.incarnation.is_alive() {
            conn::abort(state, now, id, 0, effects);
            conn::close(state, now, id, 0, effects);
            return self.response(state, Err(dead()), effects);
        }
        let stream = stream::open(&host, state, id, 0).ok_or_else(|| io::ErrorKind::ConnectionReset.into());
        self.response(state, stream, effects);
    }
}

/// The node that has an address, as `from` sees it.
fn node_of(state: &State, from: usize, ip: IpAddr) -> Option<usize> {
    if ip.is_loopback() || ip.is_unspecified() {
        return Some(from);
    }
    state.nodes.iter().position(|node| node.ip == ip)
}

/// The handshake is complete: the connection waits to be accepted.
fn acceptable(state: &mut State, now: u64, id: u64, listener: u64, effects: &mut Effects) {
    if !state.net.conns.contains_key(&id) {
        return;
    }
    if let Some(listener) = state.net.listeners.get_mut(&listener) {
        listener.backlog.push_back(id);
        effects.wakes.append(&mut listener.wakers);
    } else {
        conn::abort(state, now, id, 1, effects);
        conn::close(state, now, id, 1, effects);
    }
}

impl SimHost {
    fn listen_now(&self, state: &mut State, addr: SocketAddr) -> io::Result<SimListener> {
        self.check_alive(state, "listen")?;
        let node = self.incarnation.node;
        if !addr.ip().is_unspecified() && !addr.ip().is_loopback() && addr.ip() != state.nodes[node].ip {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let mut addr = addr;
        if addr.port() == 0 {
            addr.set_port(state.net.free_port(node));
        }
        let is_taken = state.net.listeners.values().any(|other| {
            other.node == node
                && other.addr.port() == addr.port()
                && (other.addr.ip() == addr.ip() || other.addr.ip().is_unspecified() || addr.ip().is_unspecified())
        });
        if is_taken {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if !state.nodes[node].take_descriptor() {
            state.hit(self.shared.now(), Cause::Descriptors, format_args!("listening at {addr} failed: EMFILE"));
            return Err(os_error(errno::EMFILE));
        }
        let id = state.net.next_listener;
        state.net.next_listener += 1;
        let listener = ListenerState { node, addr, backlog: Default::default(), wakers: Vec::new() };
        state.net.listeners.insert(id, listener);
        state.trace(self.shared.now(), node, format_args!("net listen {addr}"));
        Ok(SimListener { host: self.again(), id, addr })
    }

    fn again(&self) -> SimHost {
        SimHost::new(self.shared.clone(), self.incarnation.clone())
    }
}

impl Net for SimHost {
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = self.shared.with(|state, _| self.listen_now(state, addr))?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }

    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Stream>> {
        Box::pin(async move {
            let (completion, receiver) = oneshot::channel();
            let now = self.shared.now();
            self.shared.with(|state, effects| {
                self.check_alive(state, "connect")?;
                let from = self.incarnation.node;
                if !state.nodes[from].take_descriptor() {
                    return Err(os_error(errno::EMFILE));
                }
                let is_local = addr.ip().is_loopback();
                let ip = if is_local { addr.ip() } else { state.nodes[from].ip };
                let attempt = Attempt {
                    host: Arc::new(self.again()),
                    local: SocketAddr::new(ip, state.net.free_port(from)),
                    target: addr,
                    to: node_of(state, from, addr.ip()),
                    deadline: now + CONNECT_GIVE_UP_NS,
                    retry_ns: RETRY_NS,
                    completion,
                };
                attempt.knock(state, now, effects);
                Ok(())
            })?;
            receiver.await.unwrap_or_else(|_| Err(dead()))
        })
    }

    fn resolve<'a>(&'a self, host_port: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            if let Ok(addr) = host_port.parse() {
                return Ok(vec![addr]);
            }
            let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("not host:port: {host_port}"));
            let (host, port) = host_port.rsplit_once(':').ok_or_else(invalid)?;
            let port = port.parse().map_err(|_| invalid())?;
            if host == "localhost" {
                return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
            }
            self.shared.with(|state, _| {
                self.check_alive(state, "resolve")?;
                let node = state.nodes.iter().find(|node| node.name == host);
                let node =
                    node.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no such host: {host}")))?;
                Ok(vec![SocketAddr::new(node.ip, port)])
            })
        })
    }
}
