//! The write-ahead log: one per broker, shared by all partitions, group commit.
//!
//! Callers [`submit`](Wal::submit) entries; a writer task takes what waits, writes it as one block to a slot file, flushes,
//! and runs the callbacks of all entries that the flush served. Replay at the next start hands every entry that may be
//! needed to a [`ReplayVisitor`].
//!
//! * [`block`], [`entry`]: the format (pure). [`group`]: which entries make a block (pure). [`slots`]: which file it
//!   goes to, and recycling (pure). [`core`]: numbers and order (pure). [`writer`]: the task that executes. [`recover`]:
//!   opening and replay. [`list`]: which files there must be.
//!
//! # Files
//! `wal-NNNNNN.slot`, preallocated, recycled, never renamed. A file is made durable (data, then directory) before a block
//! in it is acknowledged. Each time a file is started it gets a higher *file sequence*; blocks follow one another from
//! byte 0, each at a multiple of 4 KiB, never split over files. The log is the files in order of their sequence, each from
//! its first block to where the next one's first block takes over.
//!
//! # What a crash can leave, and what recovery does
//! | on disk | recovery |
//! |---|---|
//! | no file, or files without a valid block | an empty log; listed files are reused, others removed |
//! | a file half created or half preallocated | as above: it has no block |
//! | the last block missing or torn: zeros, part of it, or what the recycled file held before | the log ends before it: it was never acknowledged |
//! | a block missing, later ones whole (several were in flight) | the log ends before the missing one: acknowledgements go in order, so the later ones were not given either |
//! | a first block missing in a recycled file, stale blocks behind it | sequence and writer number do not match: nothing of it counts |
//! | an old tail behind the place where the last recovery ended | writing resumed in another file with a higher sequence, which takes over from its first block on |
//! | blocks that failed for lack of space, and their numbers again in a file of a higher sequence, in the page cache alone | that file takes over; its first header is made durable before anything else, or a power cut would bring the failed blocks back. Nothing is written behind its first block before that is flushed |
//! | a file missing or short that the [`list`] has | no crash does this: [`WalOpenError::Lost`] |
//! | a block missing that a later block calls durable | no crash does this: [`WalOpenError::Corrupt`] |
//! | a file whose blocks are all below the floor | not read |
//!
//! Writing never resumes in a file that an earlier incarnation wrote to, before that file has been recycled.
//!
//! # The contract with the partition logs
//! * **After `kill -9` the page cache lies**: what replay returns may not be on the disk. So nothing is written until
//!   [`Wal::recovered`] says that all of it is durable elsewhere (segments flushed, checkpoints written). Entries
//!   submitted before that wait: do not wait for them before calling it. Only this makes it right that a later replay
//!   does not find those entries again.
//! * **Block numbers that a checkpoint names are never used again**, even if a power cut took those blocks from the log
//!   (the segments may have been flushed earlier than the log in the modes `interval` and `os`, or after `kill -9`):
//!   pass the highest as [`KnownLsns::checkpointed`].
//! * An LSN is a block's, so several entries share one. A checkpoint may claim block `n` only when
//!   [`Wal::settled_lsn`] has reached `n`: then the callbacks of all its entries have run.
//! * [`Wal::release`] says what is not needed any more; [`Wal::pressure`] asks for it.

pub mod block;
mod config;
pub mod core;
pub mod entry;
mod error;
mod files;
pub mod group;
mod list;
mod names;
mod recover;
mod rewrite;
mod scan;
mod shared;
pub mod slots;
mod submission;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

pub use config::{WalConfig, WalSync};
pub use entry::Entry;
pub use error::{WalFailed, WalOpenError};
pub use recover::{KnownLsns, LogEnd, ReplayVisitor, VisitError};
pub use shared::WalStats;
pub use submission::{Done, EntryClass};

use self::core::Core;
use super::Lsn;
use crate::io::Env;
use shared::WalShared;
use writer::Writer;

/// The write-ahead log. Dropping it without [`close`](Self::close) ends the writer task after what it is doing.
pub struct Wal {
    shared: Arc<WalShared>,
    env: Env,
    dir: PathBuf,
    found_end: Option<LogEnd>,
}

impl Wal {
    /// Opens the log in `dir`, creating it if there is none, and replays every entry that may still be needed, in order,
    /// streaming. The caller holds the lock of the data folder (the parent of `dir`) and has made that folder's own name
    /// durable.
    ///
    /// Nothing is written until [`recovered`](Self::recovered) is called, unless there was nothing to replay.
    pub async fn open(
        env: &Env,
        dir: &Path,
        config: WalConfig,
        known: KnownLsns,
        replay: &mut dyn ReplayVisitor,
    ) -> Result<Self, WalOpenError> {
        let config = config.checked();
        let recovered = recover::recover(env, dir, &config, known, replay).await?;
        let core = Core::new(config.clone(), recovered.start, recovered.slots);
        let shared = WalShared::new(env, core);
        Writer::start(env, dir, &config, shared.clone(), recovered.files, recovered.list);
        Ok(Self { shared, env: env.clone(), dir: dir.to_owned(), found_end: recovered.end })
    }

    /// Adds an entry. Never blocks; entries of one partition are written in the order of these calls, and `done` runs in
    /// the order of the log.
    pub fn submit(&self, entry: Entry, done: Done) {
        self.shared.submit(EntryClass::User, entry, done);
    }

    /// As [`submit`](Self::submit), for a partition of an internal topic: a part of each block is kept for these. One
    /// partition should always use the same of the two.
    pub fn submit_internal(&self, entry: Entry, done: Done) {
        self.shared.submit(EntryClass::Internal, entry, done);
    }

    /// All that was replayed is durable elsewhere: segments flushed, checkpoints written. Opens the log for writing.
    pub fn recovered(&self) {
        let start = self.shared.state().core.start_lsn();
        self.release(start);
    }

    /// Where the start found the end of the log; `None` if there was no log.
    pub fn found_end(&self) -> Option<&LogEnd> {
        self.found_end.as_ref()
    }

    /// Makes what was replayed durable where it is, in the log: for a start that cannot bring it elsewhere, and serves it
    /// all the same. Nothing new is written before [`recovered`](Self::recovered), or a release of as much, even so.
    pub async fn rewrite_and_sync(&self) -> Result<(), WalOpenError> {
        rewrite::rewrite_and_sync(&self.env, &self.dir).await
    }

    /// No block below `lsn` is needed any more. May be called with any value at any time; only a rise has an effect.
    /// After a start, releasing all that was replayed is the same as [`recovered`](Self::recovered).
    pub fn release(&self, lsn: Lsn) {
        self.shared.release(lsn);
    }

    /// Whether nothing is written until what was replayed has been released.
    pub fn is_gated(&self) -> bool {
        self.shared.state().core.is_gated()
    }

    /// The number that the next block will get. An entry that is submitted now is in it or in a later one, also after a
    /// failure.
    pub fn next_lsn(&self) -> Lsn {
        self.shared.state().core.next_lsn()
    }

    /// The last block that is flushed. In the mode `always` this is at least [`settled_lsn`](Self::settled_lsn).
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.shared.state().core.durable_below().0.saturating_sub(1))
    }

    /// The last block all of whose callbacks have run. After a start, the last block before the first new one.
    pub fn settled_lsn(&self) -> Lsn {
        self.shared.state().core.settled()
    }

    /// Bytes of blocks that are not released.
    pub fn live_bytes(&self) -> u64 {
        self.shared.state().core.live_bytes()
    }

    /// Asks for a release when live bytes come near `max_bytes`: the value is the number below which everything should
    /// be released (flush the partitions whose oldest unflushed entry is below it), or `Lsn(0)` when all is well.
    pub fn pressure(&self) -> watch::Receiver<Lsn> {
        self.shared.pressure()
    }

    /// Counts since the start.
    pub fn stats(&self) -> WalStats {
        self.shared.counters.snapshot()
    }

    /// Writes and flushes all that was submitted, then ends the writer task. Entries submitted later fail with
    /// [`WalFailed::Closed`]; so do those that wait if [`recovered`](Self::recovered) was never called.
    pub async fn close(&self) {
        self.shared.close().await;
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}
