//! The simulated disk: a pure model of a file system that can lose power, and what makes it slow and faulty.

mod control;
pub mod errno;
mod extents;
mod faults;
mod file;
mod model;
mod ops;
mod power;

pub use control::DiskControl;
pub use faults::{DiskFaults, DiskSpeed, Fault, Injection, OpKind};
pub use file::SECTOR_BYTES;
pub use model::DiskModel;
pub(crate) use ops::{DiskState, settle_in_flight};
pub use power::{CrashReport, Keep};
