//! The simulator's tests that need no process of their own, in one program: linked once.

mod conformance;
mod determinism;
mod disk_model;
mod lifecycle;
mod log_recovery;
mod metadata_recovery;
mod network;
mod requests;
mod segment_recovery;
mod wal_recovery;
