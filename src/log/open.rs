//! Opening a partition's directory: which of its files count, and up to where. See [`super::recovery`] for the whole.
//!
//! In three steps, of which only the last changes a file's contents or name. [`look`] reads manifest and checkpoint, and
//! makes the manifest anew in memory if there is none ([`super::rebuild`]). [`Found::open`] opens the segments and decides
//! up to where they count, once it is known from where on the write-ahead log still has everything. [`Steps::take`] does
//! it to the files, once nothing refuses the start any more.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::error::OpenError;
use super::segments::{self, Files, Segments};
use super::settle::{SetAside, Steps};
use super::spec::PartitionSpec;
use crate::io::Env;
use crate::storage::frame::OffsetRule;
use crate::storage::manifest::{LoadError, SegmentMeta};
use crate::storage::segment::{OpenAs, ScanReport, Segment, SegmentContext, SegmentError};
use crate::storage::wal::WalSync;
use crate::storage::{
    Checkpoint, CheckpointStore, FileKind, Lsn, Manifest, PartitionDir, PartitionKey, PartitionName, checkpoint,
    manifest,
};

/// What a directory holds.
pub(super) struct Opened {
    pub(super) segments: Segments,
    /// The checkpoint that the segments were opened by.
    pub(super) checkpoint: Option<Checkpoint>,
    /// What was found behind that checkpoint and not cut off.
    pub(super) past: Option<Past>,
    /// Why the records that were found may not be all: an error, unless the write-ahead log goes on where they end.
    pub(super) doubt: Option<OpenError>,
    /// What has been decided about the files.
    pub(super) steps: Steps,
}

impl Opened {
    fn new(segments: Segments, steps: Steps) -> Self {
        Self { segments, checkpoint: None, past: None, doubt: None, steps }
    }
}

/// What follows a checkpoint that may not be the last one.
pub(super) struct Past {
    /// The last entry that the write-ahead log does not have any more.
    pub(super) covered: Lsn,
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
    sync: WalSync,
    dir: PartitionDir,
    files: Option<FoundFiles>,
    /// There is a directory, and nothing in it.
    is_empty: bool,
    /// The other topic that the directory belongs to.
    foreign: Option<PartitionKey>,
}

/// A directory whose files count.
struct FoundFiles {
    manifest: Manifest,
    checkpoints: CheckpointStore,
    checkpoint: Option<Checkpoint>,
    /// The manifest is not the one on the disk.
    is_rebuilt: bool,
}

/// Looks at the directory of a partition, if there is one.
pub(super) async fn look(
    env: &Env,
    context: &SegmentContext,
    data_dir: &Path,
    sync: WalSync,
    spec: PartitionSpec,
) -> Result<Found, OpenError> {
    let dir = segments::partition_dir(data_dir, &spec)?;
    let (env, context) = (env.clone(), context.clone());
    let mut found = Found { spec, env, context, sync, dir, files: None, is_empty: false, foreign: None };
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

    async fn look(&mut self) -> Result<Option<FoundFiles>, OpenError> {
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
                self.foreign = Some(other);
                return Ok(None);
            }
            Err(error) => return Err(OpenError::Manifest { dir: self.dir.path().to_owned(), error }),
        };
        let (checkpoints, checkpoint) = match CheckpointStore::open(&self.env, self.dir.path(), self.spec.key).await {
            Ok(opened) => opened,
            Err(checkpoint::OpenError::Foreign(other)) => {
                self.foreign = Some(other);
                return Ok(None);
            }
            Err(error) => return Err(OpenError::Checkpoint { dir: self.dir.path().to_owned(), error }),
        };
        let manifest = match manifest {
            Some(manifest) if self.is_restored(&manifest).await? => None,
            found => found,
        };
        let (is_rebuilt, manifest) = match manifest {
            Some(manifest) => (false, manifest),
            None => match self.rebuild_manifest(checkpoint.as_ref()).await? {
                Some(manifest) => (true, manifest),
                // Creation was under way: nothing in here counts, and the files are taken over when they are needed.
                None => return Ok(None),
            },
        };
        Ok(Some(FoundFiles { manifest, checkpoints, checkpoint, is_rebuilt }))
    }

    /// Names the closed segments that are gone: their records cannot be read, and the others can.
    async fn report_missing(&self, manifest: &Manifest) -> Result<(), OpenError> {
        for meta in &manifest.segments {
            let Some(sealed) = meta.sealed else { continue };
            if self.is_there(meta).await? {
                continue;
            }
            let path = self.dir.file(meta.base_offset, FileKind::Log);
            let (from, to) = (meta.base_offset, sealed.next_offset);
            tracing::error!(
                "{} is missing: records {from}..{to} cannot be read. Restore it from a copy of the data folder",
                path.display()
            );
        }
        Ok(())
    }

    /// Refuses if the segment that is written to is gone.
    async fn refuse_without_active(&self, manifest: &Manifest) -> Result<(), OpenError> {
        let active = manifest.segments.iter().find(|meta| meta.sealed.is_none());
        match active {
            Some(meta) if !self.is_there(meta).await? => {
                Err(OpenError::Gone(self.dir.file(meta.base_offset, FileKind::Log)))
            }
            _ => Ok(()),
        }
    }

    /// Opens the segments, and changes nothing. The write-ahead log has every entry from block `from` on; none at all if
    /// that is `None`.
    pub(super) async fn open(mut self, from: Option<Lsn>) -> Result<Opened, OpenError> {
        let Some(FoundFiles { manifest, checkpoints, checkpoint, is_rebuilt }) = self.files.take() else {
            return Ok(self.nothing());
        };
        let Some(checkpoint) = checkpoint else {
            return self.scan(manifest, checkpoints, is_rebuilt).await;
        };
        // A crash leaves a slot torn only while the write-ahead log has all that the other one lacks.
        let is_last = checkpoints.doubt().is_none();
        if from.is_some_and(|from| is_last || from <= checkpoint.lsn.next()) {
            return self.cut_to(manifest, checkpoints, checkpoint, is_rebuilt).await;
        }
        self.keep_unverified_tail(manifest, checkpoints, checkpoint, is_rebuilt, from).await
    }

    /// A partition that has no files yet.
    fn nothing(self) -> Opened {
        let aside = self.foreign.map(|owner| SetAside { name: self.dir.name().clone(), owner });
        let segments = Segments::new(&self.env, &self.context, self.spec.key, self.dir, Vec::new(), None);
        Opened::new(segments, Steps { aside, ..Steps::default() })
    }

    /// Opens the segments up to the checkpoint; what lies past it goes.
    async fn cut_to(
        self,
        mut manifest: Manifest,
        checkpoints: CheckpointStore,
        checkpoint: Checkpoint,
        is_rebuilt: bool,
    ) -> Result<Opened, OpenError> {
        let number = self.checkpointed_segment(&manifest, &checkpoint)?;
        let dropped = manifest.segments.split_off(number + 1);
        let is_shortened = manifest.segments[number].sealed.take().is_some() || !dropped.is_empty();
        crate::sometimes!("log.recovery_dropped_segments", is_shortened);
        self.report_missing(&manifest).await?;
        self.refuse_without_active(&manifest).await?;
        let mut list = Vec::with_capacity(manifest.segments.len());
        let mut steps = Steps { store: is_rebuilt || is_shortened, ..Steps::default() };
        for meta in &manifest.segments {
            let known = OpenAs::Known { len: checkpoint.position, next_offset: checkpoint.next_offset };
            list.push(self.segment(meta, meta.sealed.map_or(known, OpenAs::Sealed), &mut steps).await?.0);
        }
        Ok(Opened { checkpoint: Some(checkpoint), ..self.opened(manifest, checkpoints, list, steps) })
    }

    /// Opens the segments by a checkpoint that may not be the last one: what is whole past it counts, and nothing is cut.
    async fn keep_unverified_tail(
        self,
        manifest: Manifest,
        checkpoints: CheckpointStore,
        checkpoint: Checkpoint,
        is_rebuilt: bool,
        from: Option<Lsn>,
    ) -> Result<Opened, OpenError> {
        let number = self.checkpointed_segment(&manifest, &checkpoint)?;
        // A partition that was idle after its first checkpoint has one slot, and the write-ahead log has all that came later.
        let lost = checkpoints.doubt().filter(|_| !checkpoints.is_first());
        let slot = lost.map(|(slot, why)| format!("{slot} {why}"));
        if slot.is_some() {
            self.refuse_without_active(&manifest).await?;
        }
        self.report_missing(&manifest).await?;
        let mut list = Vec::with_capacity(manifest.segments.len());
        let mut steps = Steps { store: is_rebuilt, ..Steps::default() };
        let mut stopped = None;
        for (at, meta) in manifest.segments.iter().enumerate() {
            if at > number && slot.is_none() && meta.sealed.is_none() && !self.is_there(meta).await? {
                // As in `scan`.
                steps.create = Some(meta.base_offset);
                continue;
            }
            let (len, next_offset) =
                if at == number { (checkpoint.position, checkpoint.next_offset) } else { (0, meta.base_offset) };
            let how = meta.sealed.map_or(OpenAs::Past { len, next_offset }, OpenAs::Sealed);
            let (segment, report) = self.segment(meta, how, &mut steps).await?;
            list.push(segment);
            stopped = report.stopped.map(|(position, why)| (meta.base_offset, position, why));
        }
        let dir = self.dir.path().display();
        let end = steps.create.or(list.last().map(Segment::next_offset)).unwrap_or(checkpoint.next_offset);
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
        let past = Some(Past { covered });
        Ok(Opened { checkpoint: Some(checkpoint), past, doubt, ..self.opened(manifest, checkpoints, list, steps) })
    }

    /// The number in the manifest of the segment that the checkpoint lies in.
    fn checkpointed_segment(&self, manifest: &Manifest, checkpoint: &Checkpoint) -> Result<usize, OpenError> {
        let number = manifest.segments.iter().position(|segment| segment.base_offset == checkpoint.segment);
        number.ok_or_else(|| OpenError::Unlisted { dir: self.dir.path().to_owned(), segment: checkpoint.segment })
    }

    fn opened(self, manifest: Manifest, checkpoints: CheckpointStore, list: Vec<Segment>, steps: Steps) -> Opened {
        let files = Files { manifest, checkpoints, active_since: None };
        let segments = Segments::new(&self.env, &self.context, self.spec.key, self.dir, list, Some(files));
        Opened::new(segments, steps)
    }

    /// Opens the segments without a checkpoint: what is whole counts. What cannot be read behind that is a torn end, if no
    /// whole frame follows it or the write-ahead log goes on there.
    async fn scan(
        self,
        manifest: Manifest,
        checkpoints: CheckpointStore,
        is_rebuilt: bool,
    ) -> Result<Opened, OpenError> {
        self.report_missing(&manifest).await?;
        let mut list = Vec::with_capacity(manifest.segments.len());
        let mut steps = Steps { store: is_rebuilt, ..Steps::default() };
        let mut doubt = None;
        for meta in &manifest.segments {
            if meta.sealed.is_none() && !self.is_there(meta).await? {
                // Nothing is written to a segment before its name is durable.
                steps.create = Some(meta.base_offset);
                continue;
            }
            let how = meta.sealed.map_or(OpenAs::Scan(OffsetRule::Dense), OpenAs::Sealed);
            let (segment, report) = self.segment(meta, how, &mut steps).await?;
            if let Some((position, why)) = report.stopped {
                let path = self.dir.file(meta.base_offset, FileKind::Log);
                tracing::warn!(segment = %path.display(), position, %why, "the records of a segment end before its file does");
                let (slot, end) = ("there is none".to_owned(), segment.next_offset());
                // In the weaker modes a power cut may take a page from the middle, and the write-ahead log that has it too.
                let is_no_crash = report.goes_on && self.sync == WalSync::Always;
                doubt = is_no_crash.then_some(OpenError::Unproven { path, position, why, slot, end });
            }
            list.push(segment);
        }
        crate::sometimes!("log.recovery_without_checkpoint");
        Ok(Opened { doubt, ..self.opened(manifest, checkpoints, list, steps) })
    }

    async fn is_there(&self, meta: &SegmentMeta) -> Result<bool, OpenError> {
        let there = self.env.disk().exists(&self.dir.file(meta.base_offset, FileKind::Log)).await;
        there.map_err(|source| self.io("looking for a segment", source))
    }

    async fn segment(
        &self,
        meta: &SegmentMeta,
        how: OpenAs,
        steps: &mut Steps,
    ) -> Result<(Segment, ScanReport), OpenError> {
        let options = segments::segment_options(&self.spec.config);
        let opened = Segment::look(&self.context, &self.dir, meta.base_offset, options, how).await;
        let (segment, report, unsettled) = opened.map_err(|error| self.at(error))?;
        steps.unsettled.push((segment.clone(), unsettled));
        Ok((segment, report))
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }

    pub(super) fn context(&self) -> &SegmentContext {
        &self.context
    }

    pub(super) fn dir(&self) -> &PartitionDir {
        &self.dir
    }

    pub(super) fn at(&self, error: SegmentError) -> OpenError {
        OpenError::Segment { dir: self.dir.path().to_owned(), error }
    }

    pub(super) fn io(&self, action: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { action, partition: self.spec.key, source }
    }
}
