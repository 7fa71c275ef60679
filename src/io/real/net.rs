//! TCP on tokio's reactor.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::RealHost;
use crate::{Abort, BoxFuture, Listener, Net, Stream};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

struct RealListener {
    listener: TcpListener,
    local: SocketAddr,
}

impl Listener for RealListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Stream>> {
        Box::pin(async move {
            let (stream, peer) = self.listener.accept().await?;
            open(stream, peer)
        })
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// The socket that both halves share: it closes with the last of them.
struct Connection {
    socket: TcpStream,
    aborted: AtomicBool,
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if self.aborted.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

struct RealRead(Arc<Connection>);

impl AsyncRead for RealRead {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            self.0.check()?;
            ready!(self.0.socket.poll_read_ready(cx))?;
            match self.0.socket.try_read_buf(buf) {
                Ok(_) => return Poll::Ready(self.0.check()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(self.0.check().and(Err(error))),
            }
        }
    }
}

struct RealWrite(Arc<Connection>);

impl RealWrite {
    fn poll_with(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            self.0.check()?;
            ready!(self.0.socket.poll_write_ready(cx))?;
            match write(&self.0.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(self.0.check().and(Err(error))),
                Ok(written) => return Poll::Ready(Ok(written)),
            }
        }
    }
}

impl AsyncWrite for RealWrite {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |socket| socket.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |socket| socket.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.check())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.check()?;
        Poll::Ready(SockRef::from(&self.0.socket).shutdown(std::net::Shutdown::Write))
    }
}

/// Weak, so that keeping the handle does not keep the socket open.
struct RealAbort(Weak<Connection>);

impl Abort for RealAbort {
    fn abort(&self) {
        let Some(connection) = self.0.upgrade() else { return };
        if connection.aborted.swap(true, Ordering::AcqRel) {
            return;
        }
        let socket = SockRef::from(&connection.socket);
        let _ = socket.set_linger(Some(Duration::ZERO));
        // Dissolving the association resets the connection at once and wakes both halves, whoever holds them. Shutting
        // down instead would send FIN, which the peer could take for an orderly end.
        if rustix::net::connect_unspec(&connection.socket).is_err() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn open(socket: TcpStream, peer: SocketAddr) -> io::Result<Stream> {
    socket.set_nodelay(true)?;
    // So that a peer that vanished without a word is noticed at last.
    SockRef::from(&socket).set_keepalive(true)?;
    let local = socket.local_addr()?;
    let connection = Arc::new(Connection { socket, aborted: AtomicBool::new(false) });
    Ok(Stream {
        abort: Arc::new(RealAbort(Arc::downgrade(&connection))),
        read: Box::new(RealRead(connection.clone())),
        write: Box::new(RealWrite(connection)),
        peer,
        local,
    })
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

impl Net for RealHost {
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            // Registration needs the runtime, whichever thread this is polled on.
            let _runtime = self.runtime.enter();
            let listener = listen(addr)?;
            let local = listener.local_addr()?;
            Ok(Box::new(RealListener { listener, local }) as Box<dyn Listener>)
        })
    }

    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Stream>> {
        Box::pin(async move { open(TcpStream::connect(addr).await?, addr) })
    }

    fn resolve<'a>(&'a self, host_port: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let host_port = host_port.to_owned();
        self.pool.submit(move || Ok(host_port.to_socket_addrs()?.collect()))
    }
}
