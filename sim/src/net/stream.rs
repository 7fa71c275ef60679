//! The program's side of a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use kilo::io::{Abort, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conn;
use super::state::EndState;
use crate::host::env::SimHost;
use crate::host::node_state::Incarnation;
use crate::host::{SharedState, State};

/// Which end of which connection, and whose.
struct Socket {
    shared: Arc<SharedState>,
    incarnation: Arc<Incarnation>,
    id: u64,
    end: usize,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The end of the incarnation has closed everything.
        if self.incarnation.is_alive() {
            let now = self.shared.now();
            self.shared.with(|state, effects| {
                let node = &mut state.nodes[self.incarnation.node];
                node.descriptors = node.descriptors.saturating_sub(1);
                conn::close(state, now, self.id, self.end, effects);
            });
        }
    }
}

impl Socket {
    fn check(&self, state: &mut State, what: &str) -> io::Result<()> {
        SimHost::new(self.shared.clone(), self.incarnation.clone()).check_alive(state, what)?;
        match state.net.conns.get(&self.id) {
            Some(conn) if !conn.ends[self.end].aborted => Ok(()),
            _ => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// Builds the halves that a program gets.
pub(super) fn open(host: &SimHost, state: &State, id: u64, end: usize) -> Option<Stream> {
    let conn = state.net.conns.get(&id)?;
    let socket =
        |shared: &Arc<SharedState>| Socket { shared: shared.clone(), incarnation: host.incarnation.clone(), id, end };
    let shared = Arc::new(socket(&host.shared));
    Some(Stream {
        local: conn.ends[end].addr,
        peer: conn.ends[1 - end].addr,
        abort: Arc::new(SimAbort { shared: host.shared.clone(), incarnation: host.incarnation.clone(), id, end }),
        read: Box::new(SimRead(shared.clone())),
        write: Box::new(SimWrite(shared)),
    })
}

struct SimRead(Arc<Socket>);

impl AsyncRead for SimRead {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Socket { shared, id, end, .. } = &*self.0;
        let now = shared.now();
        shared.with(|state, effects| {
            self.0.check(state, "read")?;
            let Some(conn) = state.net.conns.get_mut(id) else { return Poll::Ready(Ok(())) };
            let this = &mut conn.ends[*end];
            if this.received_bytes > 0 {
                // A read often ends where a segment did.
                let stops_early = conn.rng.u8(..) < 64;
                while buf.remaining() > 0
                    && let Some(first) = this.received.front_mut()
                {
                    let len = first.len().min(buf.remaining());
                    buf.put_slice(&first[..len]);
                    first.advance(len);
                    this.received_bytes -= len;
                    if first.is_empty() {
                        this.received.pop_front();
                    }
                    if stops_early {
                        break;
                    }
                }
                conn::after_read(state, now, *id, *end, effects);
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = this.error.take() {
                return Poll::Ready(Err(error.into()));
            }
            if this.fin_received || this.state != EndState::Open {
                return Poll::Ready(Ok(()));
            }
            effects.drop_later(this.reader.replace(context.waker().clone()));
            Poll::Pending
        })
    }
}

struct SimWrite(Arc<Socket>);

impl SimWrite {
    fn poll_with(&self, context: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let Socket { shared, id, end, .. } = &*self.0;
        let now = shared.now();
        shared.with(|state, effects| {
            self.0.check(state, "write")?;
            let Some(conn) = state.net.conns.get_mut(id) else {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            };
            let this = &mut conn.ends[*end];
            if let Some(error) = this.error.take() {
                return Poll::Ready(Err(error.into()));
            }
            if this.shut || this.state != EndState::Open {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let wanted = bufs.iter().map(|buf| buf.len()).sum::<usize>();
            if wanted == 0 {
                return Poll::Ready(Ok(0));
            }
            let mut taken = conn.space(*end).min(wanted);
            if taken == 0 {
                effects.drop_later(conn.ends[*end].writer.replace(context.waker().clone()));
                return Poll::Pending;
            }
            if conn.rng.u8(..) < 16 {
                taken = conn.rng.usize(1..=taken);
            }
            conn.push(*end, gather(bufs, taken));
            conn::pump(state, now, *id, *end, effects);
            Poll::Ready(Ok(taken))
        })
    }
}

fn gather(bufs: &[IoSlice<'_>], len: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(len);
    for buf in bufs {
        let part = buf.len().min(len - bytes.len());
        bytes.extend_from_slice(&buf[..part]);
    }
    bytes.freeze()
}

impl AsyncWrite for SimWrite {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(context, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(context, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shared.with(|state, _| self.0.check(state, "flush")))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Socket { shared, id, end, .. } = &*self.0;
        let now = shared.now();
        Poll::Ready(shared.with(|state, effects| {
            self.0.check(state, "shutdown")?;
            match state.net.conns.get(id) {
                Some(conn) if conn.ends[*end].state == EndState::Open => {
                    conn::finish(state, now, *id, *end, effects);
                    Ok(())
                }
                _ => Err(io::ErrorKind::NotConnected.into()),
            }
        }))
    }
}

/// Does not keep the socket open.
struct SimAbort {
    shared: Arc<SharedState>,
    incarnation: Arc<Incarnation>,
    id: u64,
    end: usize,
}

impl Abort for SimAbort {
    fn abort(&self) {
        if self.incarnation.is_alive() {
            let now = self.shared.now();
            self.shared.with(|state, effects| {
                let held = state.net.conns.get(&self.id).is_some_and(|conn| conn.ends[self.end].held);
                if held {
                    conn::abort(state, now, self.id, self.end, effects);
                }
            });
        }
    }
}
