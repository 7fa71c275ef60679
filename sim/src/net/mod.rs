//! The simulated network: TCP's semantics between nodes with addresses.
//!
//! The system's side of a socket is served whether or not the program runs: what arrives is buffered and acknowledged
//! while there is room. A partition is silence; what was sent is sent again until it gets through or the sender gives
//! up. A receiver never learns that its peer lost power unless it sends something.

mod conn;
mod control;
mod link;
mod setup;
mod state;
mod stream;
mod system;

pub use control::NetControl;
pub use link::LinkConfig;
pub(crate) use state::NetState;
pub(crate) use system::{on_exit, on_power};
