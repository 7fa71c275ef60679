//! Kilo: a light, durable message broker that speaks the Kafka protocol.
//!
//! The layout is the layer diagram; imports run downward only: `cli`, `server`, `handlers`, `groups`, `metadata`,
//! `replication`, `log`, `storage`, `client`, `wire`, `io`. ARCHITECTURE.md tells what lives where.

pub mod cli;
pub mod handlers;
pub mod log;
pub mod metadata;
pub mod server;
pub mod storage;

pub use kilo_client as client;
pub use kilo_io as io;
pub use kilo_io::{mutant, position, sometimes};
pub use kilo_wire as wire;

#[cfg(all(test, not(feature = "sim-probes")))]
mod tests {
    #[test]
    fn without_the_feature_a_probe_is_nothing() {
        crate::sometimes!("test.probe", unreachable!("evaluated"));
        assert!(!crate::mutant!("test.mutant"));
    }
}
