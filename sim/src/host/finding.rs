//! What no caller was told.

use std::fmt;

use crate::trace::Seconds;

/// Something that should not have happened and that no caller was told: I/O by a dead incarnation, a panic in a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Nanoseconds since the run began.
    pub at_ns: u64,
    /// The node and its incarnation.
    pub node: String,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", Seconds(self.at_ns), self.node, self.what)
    }
}
