//! The simulated disk: a pure model of a file system that can lose power, and what makes it slow and faulty.

mod control;
pub mod errno;
mod extents;
mod faults;
mod file;
pub mod model;
mod ops;

pub use control::DiskControl;
pub use faults::{DiskFaults, DiskSpeed, Fault, Injection, OpKind};
pub use file::SECTOR_BYTES;
pub use model::{CrashReport, DiskModel, Keep};
pub(crate) use ops::{DiskState, settle_in_flight};
