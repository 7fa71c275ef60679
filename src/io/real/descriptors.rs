//! The process's limit of open files, and one descriptor kept aside for directories: a directory is open only for as long
//! as listing or flushing it takes, and neither must fail because connections or files have taken the rest.

use std::fs;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::is_too_many_open_files;

/// Where the descriptor kept aside points to: it is never read.
const ASIDE: &str = "/dev/null";

/// Raises the soft limit to the hard one. Best effort: the broker keeps to whatever the limit is then.
pub(super) fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The limit in force.
pub(super) fn max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A descriptor that is given up for a moment when there is no other.
pub(super) struct Spare(Mutex<Option<fs::File>>);

impl Default for Spare {
    fn default() -> Self {
        Self(Mutex::new(fs::File::open(ASIDE).ok()))
    }
}

impl Spare {
    /// Runs something that opens one file and closes it again; a second time, with the descriptor kept aside, if there
    /// was none left.
    pub(super) fn help<T>(&self, operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match operation() {
            Err(error) if is_too_many_open_files(&error) => {
                // One at a time: the others wait for their turn.
                let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                drop(spare.take());
                let outcome = operation();
                *spare = fs::File::open(ASIDE).ok();
                outcome
            }
            outcome => outcome,
        }
    }
}
