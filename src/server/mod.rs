//! The broker as a server: configuration, accept loop, connections, ordered answers, start and stop.

mod broker;
mod budget;
pub mod config;
mod connection;
mod descriptors;
mod registry;
mod request_deadline;
#[cfg(test)]
mod tests;

pub use broker::{Broker, StartError};
pub use config::Config;
