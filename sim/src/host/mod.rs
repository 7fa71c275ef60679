//! The simulated world: [`run`] starts one, [`Sim`] is the supervisor's handle to it, [`Node`] a machine in it, and what
//! a node's program gets is a [`kilo::io::Env`] like any other.
//!
//! ```
//! use kilo_sim::host::{SimConfig, run};
//!
//! let greeting = run(SimConfig::new(1), |sim| async move {
//!     let node = sim.create_node("broker");
//!     node.start(|env| async move { env.sleep(std::time::Duration::from_secs(5)).await });
//!     node.exited().await;
//!     format!("it is {:?}", sim.now())
//! });
//! assert!(greeting.starts_with("it is"));
//! ```

mod clock;
mod effects;
mod end;
pub(crate) mod env;
mod finding;
mod hits;
mod node;
pub(crate) mod node_state;
mod queue;
mod running;
pub(crate) mod seed;
mod sim;
mod world;

pub(crate) use effects::Effects;
pub use finding::Finding;
pub use hits::{Cause, Hit};
pub use node::Node;
pub use node_state::Exit;
pub(crate) use queue::Action;
pub use running::Now;
pub use sim::{Sim, SimConfig, run, stream};
pub(crate) use world::{SharedState, State};
