//! The write-ahead log applied to the partitions. It is read twice: first to find out whether anything refuses the start,
//! with nothing changed, and then to apply it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::OpenError;
use super::open::Found;
use super::reach::{Append, Reach};
use super::restore::Rebuild;
use crate::io::{BoxFuture, Env};
use crate::storage::wal::{Entry, ReplayVisitor, VisitError};
use crate::storage::{Lsn, PartitionKey};

/// Applies replayed entries to the partitions.
pub(super) struct Replay {
    env: Env,
    wal_dir: PathBuf,
    /// Partitions whose files have not been opened yet.
    found: Vec<Found>,
    pub(super) partitions: BTreeMap<PartitionKey, Rebuild>,
    /// How far each partition reaches in the first reading.
    reaches: BTreeMap<PartitionKey, Reach>,
    /// Entries that no checkpoint covered.
    pub(super) applied: u64,
    pub(super) failed: Option<OpenError>,
}

impl Replay {
    pub(super) fn new(env: &Env, wal_dir: PathBuf, found: Vec<Found>) -> Self {
        let (partitions, reaches) = (BTreeMap::new(), BTreeMap::new());
        Self { env: env.clone(), wal_dir, found, partitions, reaches, applied: 0, failed: None }
    }

    /// Keeps the error, and gives the write-ahead log one to stop with.
    fn fail(&mut self, error: OpenError) -> VisitError {
        let message = error.to_string();
        self.failed = Some(error);
        message.into()
    }

    async fn open(&mut self, from: Option<Lsn>) -> Result<(), OpenError> {
        for found in std::mem::take(&mut self.found) {
            let rebuild = Rebuild::load(&self.env, found, from).await?;
            self.reaches.insert(rebuild.spec.key, rebuild.reach.clone());
            self.partitions.insert(rebuild.spec.key, rebuild);
        }
        Ok(())
    }

    /// Looks at an entry and refuses what cannot be applied.
    fn refuse(&mut self, lsn: Lsn, entry: &Entry) -> Result<(), OpenError> {
        let Some(partition) = entry.partition() else {
            return Ok(());
        };
        let (Some(reach), Some(rebuild)) = (self.reaches.get_mut(&partition), self.partitions.get_mut(&partition))
        else {
            return Err(OpenError::UnknownPartition { partition, wal: self.wal_dir.clone() });
        };
        if lsn <= reach.covered {
            return Ok(());
        }
        match entry {
            Entry::Append { batches, .. } => {
                for batch in batches {
                    let log_end = reach.log_end;
                    match reach.append(batch.base_offset(), batch.last_offset()) {
                        Append::Held => {}
                        Append::Next { .. } => rebuild.doubt = None,
                        Append::Gap => return Err(rebuild.gap(log_end, batch.base_offset())),
                    }
                }
            }
            Entry::Truncate { end_offset, .. } if reach.cuts(*end_offset) => reach.log_end = *end_offset,
            _ => {}
        }
        Ok(())
    }

    /// Nothing in the write-ahead log refuses the start: what is left to refuse does, and then the files are changed.
    async fn settle(&mut self) -> Result<(), OpenError> {
        if let Some(doubt) = self.partitions.values_mut().find_map(|rebuild| rebuild.doubt.take()) {
            return Err(doubt);
        }
        for rebuild in self.partitions.values_mut() {
            rebuild.settle().await?;
        }
        Ok(())
    }
}

impl ReplayVisitor for Replay {
    fn begins(&mut self, from: Option<Lsn>) -> BoxFuture<'_, Result<(), VisitError>> {
        Box::pin(async move { self.open(from).await.map_err(|error| self.fail(error)) })
    }

    fn check(&mut self, lsn: Lsn, entry: &Entry) -> Result<(), VisitError> {
        self.refuse(lsn, entry).map_err(|error| self.fail(error))
    }

    fn decided(&mut self) -> BoxFuture<'_, Result<(), VisitError>> {
        Box::pin(async move { self.settle().await.map_err(|error| self.fail(error)) })
    }

    fn entry(&mut self, lsn: Lsn, entry: Entry) -> BoxFuture<'_, Result<(), VisitError>> {
        Box::pin(async move {
            let partition = entry.partition().and_then(|partition| self.partitions.get_mut(&partition));
            // The first reading has refused what is of no partition.
            let Some(rebuild) = partition else {
                return Ok(());
            };
            self.applied += u64::from(lsn > rebuild.reach.covered);
            rebuild.apply(lsn, entry).await.map_err(|error| self.fail(error))
        })
    }
}
