//! Opening a partition's directory: which of its files count, and up to where. See [`super::recovery`] for the whole.
//!
//! In two steps. [`look`] reads manifest and checkpoint and changes nothing that counts. [`Found::open`] opens the segments,
//! and cuts them to the checkpoint, once it is known from where on the write-ahead log still has everything.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::error::OpenError;
use super::segments::{self, Files, Segments};
use super::spec::PartitionSpec;
use crate::io::{Env, is_no_space, is_too_many_open_files};
use crate::storage::frame::OffsetRule;
use crate::storage::manifest::{LoadError, SegmentMeta, Tier};
use crate::storage::segment::{OpenAs, ScanReport, Segment, SegmentContext, SegmentError};
use crate::storage::{
    Checkpoint, CheckpointStore, FileKind, Lsn, Manifest, PartitionDir, PartitionName, checkpoint, durable, manifest,
};

/// Set-aside directories of one name that are looked past.
const ASIDE_MAX: u32 = 10_000;

/// What a directory holds.
pub(super) struct Opened {
    pub(super) segments: Segments,
    /// The checkpoint that the segments were opened by.
    pub(super) checkpoint: Option<Checkpoint>,
    /// What was found behind that checkpoint and not cut off.
    pub(super) past: Option<Past>,
}

/// What follows a checkpoint that may not be the last one.
pub(super) struct Past {
    /// The last entry that the write-ahead log does not have any more.
    pub(super) covered: Lsn,
    /// Why the records that were found may not be all: an error, unless the write-ahead log goes on where they end.
    pub(super) doubt: Option<OpenError>,
}

/// Refuses a folder with a partition's directory that none of the `specs` explains.
pub(super) async fn refuse_unknown(env: &Env, data_dir: &Path, specs: &[PartitionSpec]) -> Result<(), OpenError> {
    let known = specs.iter().map(|spec| segments::partition_dir(data_dir, spec));
    let known: BTreeSet<PathBuf> =
        known.map(|dir| dir.map(|dir| dir.path().to_owned())).collect::<Result<_, OpenError>>()?;
    let at = |source| OpenError::Folder { dir: data_dir.to_owned(), source };
    let names = match env.disk().list(data_dir).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(at)?,
    };
    for path in names {
        let is_partitions = PartitionName::is_dir(path.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        if is_partitions
            && !known.contains(&path)
            && env.disk().exists(&path.join(manifest::FILE_NAME)).await.map_err(at)?
        {
            return Err(OpenError::UnknownDirectory(path));
        }
    }
    Ok(())
}

/// A partition's directory, looked at.
pub(super) struct Found {
    pub(super) spec: PartitionSpec,
    env: Env,
    context: SegmentContext,
    dir: PartitionDir,
    files: Option<FoundFiles>,
    /// There is a directory, and nothing in it.
    is_empty: bool,
}

/// A directory whose files count.
struct FoundFiles {
    manifest: Manifest,
    checkpoints: CheckpointStore,
    checkpoint: Option<Checkpoint>,
}

/// Looks at the directory of a partition, if there is one.
pub(super) async fn look(
    env: &Env,
    context: &SegmentContext,
    data_dir: &Path,
    spec: PartitionSpec,
) -> Result<Found, OpenError> {
    let dir = segments::partition_dir(data_dir, &spec)?;
    let mut found = Found { spec, env: env.clone(), context: context.clone(), dir, files: None, is_empty: false };
    found.files = found.look().await?;
    found.is_empty = found.files.is_none() && found.has_empty_directory().await?;
    Ok(found)
}

impl Found {
    /// Whether someone put an empty directory in the place of the partition's. A crash leaves one only while the write-ahead
    /// log has all records.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Up to where the checkpoint has everything.
    pub(super) fn covered(&self) -> Lsn {
        let checkpoint = self.files.as_ref().and_then(|files| files.checkpoint.as_ref());
        checkpoint.map(|checkpoint| checkpoint.lsn).unwrap_or_default()
    }

    async fn has_empty_directory(&self) -> Result<bool, OpenError> {
        match self.env.disk().list(self.dir.path()).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            listed => Ok(listed.map_err(|source| self.io("listing the directory", source))?.is_empty()),
        }
    }

    async fn look(&self) -> Result<Option<FoundFiles>, OpenError> {
        let exists = self.env.disk().exists(self.dir.path()).await;
        if !exists.map_err(|source| self.io("looking for the directory", source))? {
            return Ok(None);
        }
        let manifest = match Manifest::load(&self.env, self.dir.path(), self.spec.key).await {
            Ok(manifest) => Some(manifest),
            Err(LoadError::Missing) => None,
            Err(error @ LoadError::Damaged(_)) => {
                tracing::warn!(dir = %self.dir.path().display(), %error, "rebuilding it from the segment files");
                None
            }
            Err(LoadError::Foreign(other)) => {
                self.set_aside(&other.to_string()).await?;
                return Ok(None);
            }
            Err(error) => return Err(OpenError::Manifest { dir: self.dir.path().to_owned(), error }),
        };
        let (checkpoints, checkpoint) = match CheckpointStore::open(&self.env, self.dir.path(), self.spec.key).await {
            Ok(opened) => opened,
            Err(checkpoint::OpenError::Foreign(other)) => {
                self.set_aside(&other.to_string()).await?;
                return Ok(None);
            }
            Err(error) => return Err(OpenError::Checkpoint { dir: self.dir.path().to_owned(), error }),
        };
        let manifest = match manifest {
            Some(manifest) => manifest,
            None => match self.rebuild_manifest().await? {
                Some(manifest) => manifest,
                // Creation was under way: nothing in here counts, and the files are taken over when they are needed.
                None if checkpoint.is_none() => return Ok(None),
                None => {
                    let source = io::Error::new(io::ErrorKind::NotFound, "a checkpoint without any segment file");
                    return Err(self.io("opening the segments", source));
                }
            },
        };
        Ok(Some(FoundFiles { manifest, checkpoints, checkpoint }))
    }

    /// Names the closed segments that are gone: their records cannot be read, and the others can. Refuses if the active one
    /// is gone.
    async fn report_missing(&self, manifest: &Manifest) -> Result<(), OpenError> {
        for meta in &manifest.segments {
            if self.is_there(meta).await? {
                continue;
            }
            let path = self.dir.file(meta.base_offset, FileKind::Log);
            let Some(sealed) = meta.sealed else {
                return Err(OpenError::Gone(path));
            };
            let (from, to) = (meta.base_offset, sealed.next_offset);
            tracing::error!(
                "{} is missing: records {from}..{to} cannot be read. Restore it from a copy of the data folder",
                path.display()
            );
        }
        Ok(())
    }

    /// Opens the segments. The write-ahead log has every entry from block `from` on; none at all if that is `None`.
    pub(super) async fn open(mut self, from: Option<Lsn>) -> Result<Opened, OpenError> {
        let Some(FoundFiles { manifest, checkpoints, checkpoint }) = self.files.take() else {
            return Ok(self.nothing());
        };
        let Some(checkpoint) = checkpoint else {
            return self.scan(manifest, checkpoints).await;
        };
        // A crash leaves a slot torn only while the write-ahead log has all that the other one lacks.
        let is_last = checkpoints.doubt().is_none();
        if from.is_some_and(|from| is_last || from <= checkpoint.lsn.next()) {
            return self.cut_to(manifest, checkpoints, checkpoint).await;
        }
        self.keep_unverified_tail(manifest, checkpoints, checkpoint, from).await
    }

    /// A partition that has no files yet.
    fn nothing(self) -> Opened {
        let segments = Segments::new(&self.env, &self.context, self.spec.key, self.dir, Vec::new(), None);
        Opened { segments, checkpoint: None, past: None }
    }

    /// Opens the segments up to the checkpoint; what lies past it goes.
    async fn cut_to(
        self,
        mut manifest: Manifest,
        checkpoints: CheckpointStore,
        checkpoint: Checkpoint,
    ) -> Result<Opened, OpenError> {
        let number = self.checkpointed_segment(&manifest, &checkpoint)?;
        let dropped = manifest.segments.split_off(number + 1);
        if manifest.segments[number].sealed.take().is_some() || !dropped.is_empty() {
            crate::sometimes!("log.recovery_dropped_segments");
            self.store(&manifest).await?;
        }
        self.report_missing(&manifest).await?;
        let mut list = Vec::with_capacity(manifest.segments.len());
        for meta in &manifest.segments {
            let known = OpenAs::Known { len: checkpoint.position, next_offset: checkpoint.next_offset };
            list.push(self.segment(meta, meta.sealed.map_or(known, OpenAs::Sealed)).await?.0);
        }
        Ok(self.opened(manifest, checkpoints, list, Some(checkpoint), None))
    }

    /// Opens the segments by a checkpoint that may not be the last one: what is whole past it counts, and nothing is cut.
    async fn keep_unverified_tail(
        self,
        manifest: Manifest,
        checkpoints: CheckpointStore,
        checkpoint: Checkpoint,
        from: Option<Lsn>,
    ) -> Result<Opened, OpenError> {
        let number = self.checkpointed_segment(&manifest, &checkpoint)?;
        // A partition that was idle after its first checkpoint has one slot, and the write-ahead log has all that came later.
        let lost = checkpoints.doubt().filter(|_| !checkpoints.is_first());
        let slot = lost.map(|(slot, why)| format!("{slot} {why}"));
        if slot.is_some() {
            self.report_missing(&manifest).await?;
        }
        let mut list = Vec::with_capacity(manifest.segments.len());
        let mut stopped = None;
        for (at, meta) in manifest.segments.iter().enumerate() {
            if at > number && slot.is_none() && meta.sealed.is_none() && !self.is_there(meta).await? {
                // As in `scan`.
                list.push(self.create(meta).await?);
                continue;
            }
            let (len, next_offset) =
                if at == number { (checkpoint.position, checkpoint.next_offset) } else { (0, meta.base_offset) };
            let how = meta.sealed.map_or(OpenAs::Past { len, next_offset }, OpenAs::Sealed);
            let (segment, report) = self.segment(meta, how).await?;
            list.push(segment);
            stopped = report.stopped.map(|(position, why)| (meta.base_offset, position, why));
        }
        let dir = self.dir.path().display();
        let end = list.last().map_or(checkpoint.next_offset, Segment::next_offset);
        let is_usual = slot.is_none() && from.is_some();
        if stopped.is_some() || (end > checkpoint.next_offset && !is_usual) {
            crate::sometimes!("log.recovery_past_checkpoint");
            let why = slot.as_deref().unwrap_or("no newer checkpoint, and nothing to replay before what follows");
            let kept = checkpoint.next_offset..end;
            tracing::warn!(%dir, why, ?kept, "kept the records that the segment files hold behind an older checkpoint");
        }
        let doubt = stopped.zip(slot).filter(|_| from.is_some()).map(|((base_offset, position, why), slot)| {
            let path = self.dir.file(base_offset, FileKind::Log);
            OpenError::Unproven { path, position, why, slot, end }
        });
        let covered = from.map_or(checkpoint.lsn, |from| checkpoint.lsn.max(Lsn(from.0.saturating_sub(1))));
        let past = Past { covered, doubt };
        Ok(self.opened(manifest, checkpoints, list, Some(checkpoint), Some(past)))
    }

    /// The number in the manifest of the segment that the checkpoint lies in.
    fn checkpointed_segment(&self, manifest: &Manifest, checkpoint: &Checkpoint) -> Result<usize, OpenError> {
        let number = manifest.segments.iter().position(|segment| segment.base_offset == checkpoint.segment);
        number.ok_or_else(|| OpenError::Unlisted { dir: self.dir.path().to_owned(), segment: checkpoint.segment })
    }

    fn opened(
        self,
        manifest: Manifest,
        checkpoints: CheckpointStore,
        list: Vec<Segment>,
        checkpoint: Option<Checkpoint>,
        past: Option<Past>,
    ) -> Opened {
        let files = Files { manifest, checkpoints, active_since: None };
        let segments = Segments::new(&self.env, &self.context, self.spec.key, self.dir, list, Some(files));
        Opened { segments, checkpoint, past }
    }

    /// Opens the segments without a checkpoint: what is whole counts.
    async fn scan(self, manifest: Manifest, checkpoints: CheckpointStore) -> Result<Opened, OpenError> {
        let mut list = Vec::with_capacity(manifest.segments.len());
        for meta in &manifest.segments {
            if meta.sealed.is_none() && !self.is_there(meta).await? {
                // Nothing is written to a segment before its name is durable.
                crate::sometimes!("log.recovery_made_segment_anew");
                match self.create(meta).await {
                    // The partition is as good as new, and gets its files when it is written.
                    Err(OpenError::Segment { error, .. })
                        if error.is_transient() && list.is_empty() && meta.base_offset == 0 =>
                    {
                        return Ok(self.nothing());
                    }
                    created => list.push(created?),
                }
                continue;
            }
            let how = meta.sealed.map_or(OpenAs::Scan(OffsetRule::Dense), OpenAs::Sealed);
            list.push(self.cutting(meta, how).await?);
        }
        crate::sometimes!("log.recovery_without_checkpoint");
        Ok(self.opened(manifest, checkpoints, list, None, None))
    }

    async fn is_there(&self, meta: &SegmentMeta) -> Result<bool, OpenError> {
        let there = self.env.disk().exists(&self.dir.file(meta.base_offset, FileKind::Log)).await;
        there.map_err(|source| self.io("looking for a segment", source))
    }

    async fn create(&self, meta: &SegmentMeta) -> Result<Segment, OpenError> {
        let options = segments::segment_options(&self.spec.config);
        let created = Segment::create(&self.context, &self.dir, meta.base_offset, options).await;
        durable::sync_dir(&self.env, self.dir.path()).await;
        created.map_err(|error| self.at(error))
    }

    async fn segment(&self, meta: &SegmentMeta, how: OpenAs) -> Result<(Segment, ScanReport), OpenError> {
        let options = segments::segment_options(&self.spec.config);
        let opened = Segment::open(&self.context, &self.dir, meta.base_offset, options, how).await;
        opened.map_err(|error| self.at(error))
    }

    /// Opens a segment that a scan may cut.
    async fn cutting(&self, meta: &SegmentMeta, how: OpenAs) -> Result<Segment, OpenError> {
        let (segment, report) = self.segment(meta, how).await?;
        if let Some((position, why)) = report.stopped {
            let dir = self.dir.path().display();
            tracing::warn!(%dir, segment = meta.base_offset, position, %why, "a segment was cut where its records end");
        }
        Ok(segment)
    }

    /// Lists the segment files there are, each scanned. `None` if none of them holds a record.
    async fn rebuild_manifest(&self) -> Result<Option<Manifest>, OpenError> {
        let listed = self.env.disk().list(self.dir.path()).await;
        let files = listed.map_err(|source| self.io("listing the directory", source))?;
        let names = files.iter().filter_map(|path| path.file_name()?.to_str());
        let logs = names.filter_map(|name| self.dir.name().parse_file(name));
        let mut bases: Vec<i64> = logs.filter(|&(_, kind)| kind == FileKind::Log).map(|(base, _)| base).collect();
        bases.sort_unstable();
        let mut manifest = Manifest { partition: self.spec.key, segments: Vec::new() };
        for (number, &base_offset) in bases.iter().enumerate() {
            let meta = SegmentMeta { base_offset, tier: Tier::Hot, sealed: None };
            let segment = self.cutting(&meta, OpenAs::Scan(OffsetRule::Dense)).await?;
            let follows =
                manifest.segments.last().and_then(|last| last.sealed).is_none_or(|s| s.next_offset == base_offset);
            if !follows || (segment.is_empty() && number > 0) {
                break;
            }
            let sealed = segment.seal().await.map_err(|error| self.at(error))?;
            manifest.segments.push(SegmentMeta { sealed: Some(sealed), ..meta });
        }
        let Some(last) = manifest.segments.last_mut() else {
            return Ok(None);
        };
        if last.sealed.take().is_none_or(|sealed| sealed.len == 0) && manifest.segments.len() == 1 {
            return Ok(None);
        }
        self.store(&manifest).await?;
        Ok(Some(manifest))
    }

    /// Stores what the next start would find out again: on a full disk that is left to it, or to the next roll.
    async fn store(&self, manifest: &Manifest) -> Result<(), OpenError> {
        match manifest.store(&self.env, self.dir.path()).await {
            Err(error) if is_no_space(&error) || is_too_many_open_files(&error) => {
                crate::sometimes!("log.recovery_manifest_waits");
                Ok(())
            }
            stored => stored.map_err(|source| self.io("storing the manifest", source)),
        }
    }

    /// Renames the directory, which belongs to another topic of the same name.
    async fn set_aside(&self, owner: &str) -> Result<(), OpenError> {
        let path = self.dir.path();
        let parent = path.parent().unwrap_or(path);
        for number in 0..ASIDE_MAX {
            let aside = parent.join(self.dir.name().aside_dir(number));
            let taken = self.env.disk().exists(&aside).await;
            if taken.map_err(|source| self.io("setting the directory aside", source))? {
                continue;
            }
            tracing::warn!(dir = %path.display(), aside = %aside.display(), owner, "the directory is another topic's");
            let renamed = self.env.disk().rename(path, &aside).await;
            renamed.map_err(|source| self.io("setting the directory aside", source))?;
            durable::sync_dir(&self.env, parent).await;
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "too many directories were set aside");
        Err(self.io("setting the directory aside", source))
    }

    fn at(&self, error: SegmentError) -> OpenError {
        OpenError::Segment { dir: self.dir.path().to_owned(), error }
    }

    fn io(&self, action: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { action, partition: self.spec.key, source }
    }
}
