//! Putting partitions together at start: cut the segment files to the checkpoint, apply exactly the write-ahead log's
//! entries above it, and make all of it durable outside the write-ahead log before anything is served.
//!
//! A start that is refused changes nothing, for what it would cut may be all that is left: files and write-ahead log are
//! read to the end first ([`super::replay`]), and only when nothing refuses is anything cut, renamed, made or applied.
//!
//! # What a crash can leave, and what happens
//! | found | done |
//! |---|---|
//! | no directory, or one without manifest, checkpoint and records | the partition is empty; the write-ahead log has everything |
//! | manifest and checkpoint | segments past the checkpoint go, its segment is cut to its position |
//! | one checkpoint slot whole, the other torn, and all that the whole one lacks in the write-ahead log | as above |
//! | the same, and the write-ahead log has moved on | not left by a crash: nothing is cut. The whole batches behind the checkpoint count, with a warning; where they end at damage and the write-ahead log does not go on: refuse to start |
//! | manifest, no checkpoint | the first one was never completed: whole batches of the segments count, and say what their producers were at (the write-ahead log may have lost the newest of them) |
//! | the same, and the last segment ends at damage with whole batches behind it | as above if the write-ahead log goes on there; else not left by a crash: refuse to start |
//! | manifest damaged or missing beside records | not left by a crash: made anew from the segment files ([`super::rebuild`]), none of which changes |
//! | write-ahead log without its list | someone gave up what is missing of it: the whole batches behind the checkpoint count, and what there is of the log is applied to them |
//! | manifest of another topic id | the directory is set aside under another name |
//! | segment shorter than its checkpoint says | not left by a crash: refuse to start |
//! | a last segment that the manifest lists and that is not there | it was empty: made anew (the manifest's name can outlive the segment's) |
//! | write-ahead log entry below the partition's log end | skipped: already there |
//! | write-ahead log entry above the partition's log end | not left by a crash: refuse to start |
//! | directory or entry of a partition that the metadata does not know | not left by a crash, for a topic is durable in the metadata before its first record, and none is deleted: refuse to start |
//!
//! A second crash during recovery finds the same again: the checkpoint is written last, and the write-ahead log is
//! released only after it. What was read may have been in the page cache alone (after `kill -9`), so whatever was
//! applied is flushed even if nothing had to be written.
//!
//! # When the disk is full, or there are no descriptors
//! A partition whose records cannot be brought to its segment files keeps them in memory, as when that happens to a running
//! broker, and writing behind goes on with them. The write-ahead log then is made durable as it stands before anything is
//! served, and takes no new entries until every partition has caught up.

use std::collections::BTreeMap;

use super::config::LogManagerConfig;
use super::error::OpenError;
use super::open::{self, Found};
use super::partition::Recovered;
use super::replay::Replay;
use super::restore::Rebuild;
use super::spec::PartitionSpec;
use crate::io::Env;
use crate::storage::PartitionKey;
use crate::storage::segment::SegmentContext;
use crate::storage::wal::{KnownLsns, Wal};

/// What [`recover`] gives: the write-ahead log, and a state for every partition.
pub(super) struct RecoveredAll {
    pub(super) wal: Wal,
    pub(super) partitions: Vec<(PartitionSpec, Recovered)>,
}

/// Recovers all partitions.
pub(super) async fn recover(
    env: &Env,
    context: &SegmentContext,
    config: &LogManagerConfig,
    specs: Vec<PartitionSpec>,
) -> Result<RecoveredAll, OpenError> {
    let began = env.now();
    open::refuse_unknown(env, &config.data_dir, &specs).await?;
    let mut found = Vec::with_capacity(specs.len());
    for spec in specs {
        found.push(open::look(env, context, &config.data_dir, config.wal.sync, spec).await?);
    }
    let checkpointed = found.iter().map(Found::covered).max().unwrap_or_default();
    let wal_dir = config.data_dir.join("wal");
    let mut replay = Replay::new(env, wal_dir.clone(), found);
    let known = KnownLsns { checkpointed };
    let opened = Wal::open(env, &wal_dir, config.wal.clone(), known, &mut replay).await;
    if let Some(error) = replay.failed {
        return Err(error);
    }
    let wal = opened?;
    let partitions = match finish(replay.partitions, &wal).await {
        Ok(partitions) => partitions,
        Err(error) => {
            // It prepares its first file by now. Whoever tries again in this folder must not meet that half-made.
            wal.close().await;
            return Err(error);
        }
    };
    if replay.applied > 0 {
        let took = env.now() - began;
        let end = wal.found_end().map(|end| format!("byte {} of {} ({})", end.offset, end.path.display(), end.found));
        tracing::info!(
            "recovered after an unclean stop: {} entries of the write-ahead log applied, which ends at {}, in {took:?}",
            replay.applied,
            end.unwrap_or_default()
        );
    }
    Ok(RecoveredAll { wal, partitions })
}

/// Makes durable what was replayed: in the segment files, or where that cannot be done, in the write-ahead log.
async fn finish(
    rebuilds: BTreeMap<PartitionKey, Rebuild>,
    wal: &Wal,
) -> Result<Vec<(PartitionSpec, Recovered)>, OpenError> {
    let mut partitions = Vec::with_capacity(rebuilds.len());
    let mut waiting = 0;
    for mut rebuild in rebuilds.into_values() {
        rebuild.finish().await?;
        waiting += usize::from(!rebuild.uncovered.is_empty());
        partitions.push(rebuild.into_recovered());
    }
    if waiting > 0 {
        crate::sometimes!("log.recovery_kept_in_memory");
        wal.rewrite_and_sync().await?;
        tracing::warn!(
            "{waiting} partitions wait for space or descriptors: they are read from memory, and nothing can be produced until their files are written"
        );
    }
    Ok(partitions)
}
