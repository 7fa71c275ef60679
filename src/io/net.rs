//! Connections: owned read and write halves in tokio's I/O traits, plus an abort.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::future::BoxFuture;

/// The reading half of a connection.
pub type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
/// The writing half. `poll_shutdown` sends FIN; dropping both halves without it resets or closes like TCP does.
/// Vectored writes are supported and worth using.
pub type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// An open connection.
pub struct Stream {
    /// What the peer sends.
    pub read: ReadHalf,
    /// What is sent to the peer.
    pub write: WriteHalf,
    /// The peer's address.
    pub peer: SocketAddr,
    /// This end's address.
    pub local: SocketAddr,
    /// Ends the connection at once, from any task.
    pub abort: AbortHandle,
}

/// Ends a connection at once (RST): both halves fail from then on.
pub trait Abort: Send + Sync {
    /// Resets the connection. Idempotent.
    fn abort(&self);
}

/// Shared handle to [`Abort`].
pub type AbortHandle = Arc<dyn Abort>;

/// A listening socket.
pub trait Listener: Send + Sync {
    /// The next connection. Cancel-safe.
    fn accept(&self) -> BoxFuture<'_, io::Result<Stream>>;
    /// The bound address (with the port the system chose, where 0 was asked for).
    fn local_addr(&self) -> SocketAddr;
}

/// The network.
pub trait Net: Send + Sync {
    /// Binds and listens.
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>>;
    /// Connects. `TCP_NODELAY` is set on both ends.
    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Stream>>;
    /// Resolves `host:port` to addresses.
    fn resolve<'a>(&'a self, host_port: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}
