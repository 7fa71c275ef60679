//! The broker as a server: configuration, accept loop, connections, ordered answers, start and stop.

pub mod config;

pub use config::Config;
