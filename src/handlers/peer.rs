//! Who is at the other end of a connection.

use std::net::SocketAddr;

/// A connection as far as handlers care.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The client's address.
    pub remote: SocketAddr,
    /// The address that it has reached.
    pub local: SocketAddr,
}
