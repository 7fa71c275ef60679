//! The simulated disk: a pure model of a file system that can lose power, and what makes it slow and faulty.

mod control;
pub mod errno;
mod extents;
mod faults;
mod file;
mod in_flight;
mod model;
mod ops;
mod power;
mod state;

pub use control::DiskControl;
pub use faults::{DiskFaults, DiskSpeed, Fault, Injection, OpKind};
pub use file::SECTOR_BYTES;
pub(crate) use in_flight::settle_in_flight;
pub use model::DiskModel;
pub use power::{CrashReport, Keep};
pub(crate) use state::DiskState;
