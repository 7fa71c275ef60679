//! How the descriptors that the system grants are shared out: storage keeps what it needs, and connections get the rest,
//! so that no number of them can keep the broker from writing.

use crate::storage::wal::WalConfig;

/// What neither threads nor files of known number need: standard streams, the reactor, the listener, the data folder's
/// lock, the metadata, files that are open for a moment.
const FIXED: u64 = 24;
/// One of so many of the rest goes to segment files.
const SEGMENTS_SHARE: u64 = 4;
/// Segment files kept open at least and at most.
const SEGMENTS: std::ops::RangeInclusive<u64> = 8..=4096;
/// Closed segments kept open at most: their indexes are in memory.
const SEALED_MAX: u64 = 256;

/// Who may have how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    /// Open connections.
    pub(super) connections: u64,
    /// Closed segments with their file open.
    pub(super) sealed: u64,
    /// Active segments with their file open.
    pub(super) active: u64,
}

/// Shares out `limit` descriptors, of which connections want `connections`.
pub(super) fn share(limit: u64, io_threads: u64, wal: &WalConfig, connections: u64) -> Shares {
    // Files of the write-ahead log: those that are live, one free, one under preparation; once for each block in flight.
    let wal_files = (wal.max_bytes / wal.file_bytes.max(1) + 2).saturating_mul(wal.writes_in_flight_max as u64);
    let left = limit.saturating_sub(FIXED + io_threads).saturating_sub(wal_files);
    let segments = (left / SEGMENTS_SHARE).clamp(*SEGMENTS.start(), *SEGMENTS.end());
    let sealed = (segments / 2).min(SEALED_MAX);
    Shares { connections: left.saturating_sub(segments).clamp(1, connections), sealed, active: segments - sealed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_what_storage_leaves() {
        let share = |limit, wanted| share(limit, 8, &WalConfig::default(), wanted);
        assert_eq!(share(1 << 20, 10_000), Shares { connections: 10_000, sealed: 256, active: 3840 });
        assert_eq!(share(1024, 10_000), Shares { connections: 735, sealed: 122, active: 123 });
        assert_eq!(share(1024, 50).connections, 50);
        assert_eq!(share(64, 10_000), Shares { connections: 12, sealed: 4, active: 4 });
        assert_eq!(share(10, 10_000), Shares { connections: 1, sealed: 4, active: 4 });
        assert_eq!(share(u64::MAX, 10_000).connections, 10_000);
    }
}
