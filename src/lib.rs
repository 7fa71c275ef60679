//! Kilo: a light, durable message broker that speaks the Kafka protocol.
//!
//! The layout is the layer diagram; imports run downward only: `cli`, `server`, `handlers`, `groups`, `metadata`,
//! `replication`, `log`, `storage`, `client`, `wire`, `io`. ARCHITECTURE.md tells what lives where.

pub mod cli;
pub mod client;
pub mod handlers;
pub mod io;
pub mod log;
pub mod metadata;
pub mod server;
pub mod storage;
pub mod wire;
