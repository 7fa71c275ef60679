//! The clients of a run: producers and consumers on [`kilo::client::Connection`], over the simulated network, on nodes
//! of their own. What they do and see goes into the [`crate::history`]; they judge nothing, except that a well-formed
//! request must not be refused for a reason that cannot be ([`world::World::complain`]).

mod admin;
mod draw;
mod link;
mod prober;
mod producer;
mod reader;
mod record;
mod setup;
mod window;
pub mod world;

pub use draw::{Clients, draw};
pub use prober::probe;
pub use reader::last_read;
pub use setup::create_topics;
