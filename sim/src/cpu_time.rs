//! How much processor time a run takes.

use std::time::Duration;

/// Processor time of this process so far. Not through the C library, whose clocks the simulator replaces.
pub(crate) fn cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}
