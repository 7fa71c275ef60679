//! What comes with an entry that is handed in.

use super::error::WalFailed;
use crate::storage::Lsn;

/// Whose entries come first when not all fit into a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryClass {
    /// Internal topics (offsets, metadata): a part of each block is theirs.
    Internal,
    /// All others.
    User,
}

/// Called once with the block's number when the entry is written as the sync mode asks, or with the failure. Runs on
/// the writer task (or, once the log is closed, on a task of its own), never within the call that submits: short, no
/// blocking.
pub type Done = Box<dyn FnOnce(Result<Lsn, WalFailed>) + Send>;
