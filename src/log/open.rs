//! Opening a partition's directory: which of its files count, and up to where. See [`super::recovery`] for the whole.

use std::io;
use std::path::Path;

use super::manager::PartitionSpec;
use super::recovery::OpenError;
use super::segments::{self, Files, Segments};
use crate::io::Env;
use crate::storage::frame::OffsetRule;
use crate::storage::manifest::{LoadError, SegmentMeta, Tier};
use crate::storage::segment::{OpenAs, Segment, SegmentContext, SegmentError};
use crate::storage::{Checkpoint, CheckpointStore, FileKind, Manifest, PartitionDir, checkpoint, durable};

/// Set-aside directories of one name that are looked past.
const ASIDE_MAX: u32 = 10_000;

/// What a directory holds.
pub(super) struct Opened {
    pub(super) segments: Segments,
    /// The checkpoint that the segments were cut to.
    pub(super) checkpoint: Option<Checkpoint>,
}

/// Opens the directory of a partition, if there is one.
pub(super) async fn open(
    env: &Env,
    context: &SegmentContext,
    data_dir: &Path,
    spec: &PartitionSpec,
) -> Result<Opened, OpenError> {
    let opening = Opening { env, context, dir: segments::partition_dir(data_dir, spec)?, spec };
    opening.open().await
}

struct Opening<'a> {
    env: &'a Env,
    context: &'a SegmentContext,
    dir: PartitionDir,
    spec: &'a PartitionSpec,
}

impl Opening<'_> {
    async fn open(self) -> Result<Opened, OpenError> {
        let exists = self.env.disk().exists(self.dir.path()).await;
        if !exists.map_err(|source| self.io("looking for the directory", source))? {
            return Ok(self.empty());
        }
        let manifest = match Manifest::load(self.env, self.dir.path(), self.spec.key).await {
            Ok(manifest) => Some(manifest),
            Err(LoadError::Missing) => None,
            Err(error @ LoadError::Damaged(_)) => {
                tracing::warn!(dir = %self.dir.path().display(), %error, "rebuilding it from the segment files");
                None
            }
            Err(LoadError::Foreign(other)) => {
                self.set_aside(&other.to_string()).await?;
                return Ok(self.empty());
            }
            Err(error) => return Err(OpenError::Manifest { dir: self.dir.path().to_owned(), error }),
        };
        let (checkpoints, checkpoint) = match CheckpointStore::open(self.env, self.dir.path(), self.spec.key).await {
            Ok(opened) => opened,
            Err(checkpoint::OpenError::Foreign(other)) => {
                self.set_aside(&other.to_string()).await?;
                return Ok(self.empty());
            }
            Err(error) => return Err(OpenError::Checkpoint { dir: self.dir.path().to_owned(), error }),
        };
        let manifest = match manifest {
            Some(manifest) => manifest,
            None => match self.rebuild_manifest().await? {
                Some(manifest) => manifest,
                // Creation was under way: nothing in here counts, and the files are taken over when they are needed.
                None if checkpoint.is_none() => return Ok(self.empty()),
                None => {
                    let source = io::Error::new(io::ErrorKind::NotFound, "a checkpoint without any segment file");
                    return Err(self.io("opening the segments", source));
                }
            },
        };
        match checkpoint {
            Some(checkpoint) => self.cut_to(manifest, checkpoints, checkpoint).await,
            None => self.scan(manifest, checkpoints).await,
        }
    }

    fn empty(&self) -> Opened {
        let segments = Segments::new(self.env, self.context, self.spec.key, self.dir.clone(), Vec::new(), None);
        Opened { segments, checkpoint: None }
    }

    /// Opens the segments up to the checkpoint; what lies past it goes.
    async fn cut_to(
        self,
        mut manifest: Manifest,
        checkpoints: CheckpointStore,
        checkpoint: Checkpoint,
    ) -> Result<Opened, OpenError> {
        let kept = manifest.segments.partition_point(|segment| segment.base_offset <= checkpoint.segment);
        let dropped = manifest.segments.split_off(kept);
        let Some(last) = manifest.segments.last_mut().filter(|last| last.base_offset == checkpoint.segment) else {
            let source = io::Error::new(io::ErrorKind::InvalidData, "the manifest lacks the checkpoint's segment");
            return Err(self.io("opening the segments", source));
        };
        if last.sealed.take().is_some() || !dropped.is_empty() {
            crate::sometimes!("log.recovery_dropped_segments");
            let stored = manifest.store(self.env, self.dir.path()).await;
            stored.map_err(|source| self.io("storing the manifest", source))?;
        }
        let mut list = Vec::with_capacity(manifest.segments.len());
        for meta in &manifest.segments {
            let known = OpenAs::Known { len: checkpoint.position, next_offset: checkpoint.next_offset };
            list.push(self.segment(meta, meta.sealed.map_or(known, OpenAs::Sealed)).await?);
        }
        let files = Files { manifest, checkpoints, active_since: None };
        let segments = Segments::new(self.env, self.context, self.spec.key, self.dir.clone(), list, Some(files));
        Ok(Opened { segments, checkpoint: Some(checkpoint) })
    }

    /// Opens the segments without a checkpoint: what is whole counts.
    async fn scan(self, manifest: Manifest, checkpoints: CheckpointStore) -> Result<Opened, OpenError> {
        let mut list = Vec::with_capacity(manifest.segments.len());
        for meta in &manifest.segments {
            if meta.sealed.is_none() && !self.is_there(meta).await? {
                // Nothing is written to a segment before its name is durable.
                crate::sometimes!("log.recovery_made_segment_anew");
                list.push(self.create(meta).await?);
                continue;
            }
            let how = meta.sealed.map_or(OpenAs::Scan(OffsetRule::Dense), OpenAs::Sealed);
            list.push(self.segment(meta, how).await?);
        }
        crate::sometimes!("log.recovery_without_checkpoint");
        let files = Files { manifest, checkpoints, active_since: None };
        let segments = Segments::new(self.env, self.context, self.spec.key, self.dir.clone(), list, Some(files));
        Ok(Opened { segments, checkpoint: None })
    }

    async fn is_there(&self, meta: &SegmentMeta) -> Result<bool, OpenError> {
        let there = self.env.disk().exists(&self.dir.file(meta.base_offset, FileKind::Log)).await;
        there.map_err(|source| self.io("looking for a segment", source))
    }

    async fn create(&self, meta: &SegmentMeta) -> Result<Segment, OpenError> {
        let options = segments::segment_options(&self.spec.config);
        let created = Segment::create(self.context, &self.dir, meta.base_offset, options).await;
        durable::sync_dir(self.env, self.dir.path()).await;
        created.map_err(|error| self.at(error))
    }

    async fn segment(&self, meta: &SegmentMeta, how: OpenAs) -> Result<Segment, OpenError> {
        let options = segments::segment_options(&self.spec.config);
        let opened = Segment::open(self.context, &self.dir, meta.base_offset, options, how).await;
        let (segment, report) = opened.map_err(|error| self.at(error))?;
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
            let segment = self.segment(&meta, OpenAs::Scan(OffsetRule::Dense)).await?;
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
        let stored = manifest.store(self.env, self.dir.path()).await;
        stored.map_err(|source| self.io("storing the manifest", source))?;
        Ok(Some(manifest))
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
            durable::sync_dir(self.env, parent).await;
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
