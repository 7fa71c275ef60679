//! What a power loss keeps of what was not synced, and what it took.

use std::fmt;

/// What a power cut keeps of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Nothing.
    None,
    /// Everything.
    All,
    /// An arbitrary part: any version of each sector, any of the names.
    Some,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "nothing that is unflushed",
            Self::All => "all that is unflushed",
            Self::Some => "a part of what is unflushed",
        })
    }
}

/// What a power cut took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Sectors with data that was not synced.
    pub sectors_pending: u64,
    /// Those of them that lost some of it.
    pub sectors_lost: u64,
    /// Changes of directories that were not synced.
    pub names_pending: u64,
    /// Those of them that were lost.
    pub names_lost: u64,
}
