//! The segment files of one partition: the list that readers share, and the one writer that appends, rolls, flushes
//! and checkpoints. Opening them at start is in [`super::open`].
//!
//! A new segment is in the manifest before anything is written to it, and the manifest is switched only once the
//! segment before it has been flushed: so the listed segments always hold an unbroken run of offsets.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use super::config::LogConfig;
use super::error::OpenError;
use super::spec::PartitionSpec;
use crate::io::{Env, Monotonic};
use crate::storage::segment::{Segment, SegmentContext, SegmentError, SegmentOptions};
use crate::storage::{
    Checkpoint, CheckpointStore, IndexRule, Manifest, PartitionDir, PartitionKey, PartitionName, SegmentMeta, Tier,
    checkpoint, durable, frame,
};
use crate::wire::batch::RecordBatch;

/// Segments in the order of their offsets; the last is the active one.
pub(super) type List = Arc<Vec<Segment>>;

/// A partition's segment files.
pub(super) struct Segments {
    dir: PartitionDir,
    list: RwLock<List>,
    writer: tokio::sync::Mutex<Writer>,
}

/// What only the writer needs.
pub(super) struct Writer {
    pub(super) env: Env,
    pub(super) context: SegmentContext,
    key: PartitionKey,
    /// What is on disk; `None` until the directory has been made.
    pub(super) files: Option<Files>,
    pub(super) messages_since_flush: u64,
    pub(super) bytes_since_checkpoint: u64,
}

/// A partition directory's bookkeeping.
pub(super) struct Files {
    pub(super) manifest: Manifest,
    pub(super) checkpoints: CheckpointStore,
    /// When the active segment got its first record of this incarnation, for `segment.ms`.
    pub(super) active_since: Option<Monotonic>,
}

impl Segments {
    /// A partition that has no directory yet.
    pub(super) fn empty(
        env: &Env,
        context: &SegmentContext,
        data_dir: &Path,
        spec: &PartitionSpec,
    ) -> Result<Self, OpenError> {
        let dir = partition_dir(data_dir, spec)?;
        Ok(Self::new(env, context, spec.key, dir, Vec::new(), None))
    }

    /// What was found at start.
    pub(super) fn new(
        env: &Env,
        context: &SegmentContext,
        key: PartitionKey,
        dir: PartitionDir,
        segments: Vec<Segment>,
        files: Option<Files>,
    ) -> Self {
        Self {
            dir,
            list: RwLock::new(Arc::new(segments)),
            writer: tokio::sync::Mutex::new(Writer {
                env: env.clone(),
                context: context.clone(),
                key,
                files,
                messages_since_flush: 0,
                bytes_since_checkpoint: 0,
            }),
        }
    }

    /// The partition's directory.
    pub(super) fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// The same with how its files are called.
    pub(super) fn partition_dir(&self) -> &PartitionDir {
        &self.dir
    }

    /// The segments of this moment.
    pub(super) fn list(&self) -> List {
        Arc::clone(&self.list.read().expect("no holder of the lock panics"))
    }

    /// Becomes the one writer.
    pub(super) async fn write(&self) -> SegmentsWriter<'_> {
        SegmentsWriter { segments: self, writer: self.writer.lock().await }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<Segment>)) {
        let mut list = self.list.write().expect("no holder of the lock panics");
        let mut changed = Vec::clone(&list);
        change(&mut changed);
        *list = Arc::new(changed);
    }
}

/// The one writer of a partition's segments, for as long as it is held.
pub(super) struct SegmentsWriter<'a> {
    pub(super) segments: &'a Segments,
    pub(super) writer: tokio::sync::MutexGuard<'a, Writer>,
}

impl SegmentsWriter<'_> {
    /// Appends the first of `batches`, which are not none, and as many more as go into the same segment; rolls first
    /// where `config` asks for it. Returns how many were appended. After an error none was.
    pub(super) async fn append(&mut self, config: &LogConfig, batches: &[RecordBatch]) -> Result<usize, SegmentError> {
        let first = batches.first().expect("there is something to append");
        let mut active = self.active(config, first.base_offset()).await?;
        let mut count = fitting(&active, config, batches);
        if count == 0 && !active.is_empty() {
            active = self.roll(config).await?;
            count = fitting(&active, config, batches);
        }
        // A batch larger than a segment gets one to itself.
        let batches = &batches[..count.max(1)];
        active.append(batches).await?;
        let now = self.writer.env.now();
        if let Some(files) = &mut self.writer.files {
            files.active_since.get_or_insert(now);
        }
        self.writer.messages_since_flush += batches.iter().map(|batch| batch.records_count() as u64).sum::<u64>();
        self.writer.bytes_since_checkpoint += batches.iter().map(|batch| batch.size() as u64).sum::<u64>();
        Ok(batches.len())
    }

    /// Flushes what was appended. A failed flush ends the incarnation.
    pub(super) async fn flush(&mut self) -> Result<(), SegmentError> {
        if let Some(active) = self.segments.list().last() {
            active.sync().await?;
        }
        self.writer.messages_since_flush = 0;
        Ok(())
    }

    /// Stores a checkpoint at the end of the active segment, which has been flushed. `fill` gets segment, position and
    /// next offset.
    pub(super) async fn checkpoint(
        &mut self,
        fill: impl FnOnce(i64, u64, i64) -> Checkpoint,
    ) -> Result<(), SegmentError> {
        let Some(active) = self.segments.list().last().cloned() else {
            return Ok(());
        };
        let Some(files) = &mut self.writer.files else {
            return Ok(());
        };
        let checkpoint = fill(active.base_offset(), active.len(), active.next_offset());
        files.checkpoints.store(&checkpoint).await.map_err(|error| self.segments.io(error))?;
        self.writer.bytes_since_checkpoint = 0;
        Ok(())
    }

    /// Makes the partition's directory, if there is none yet, with an empty segment that begins at `start_offset`.
    pub(super) async fn create_directory(&mut self, config: &LogConfig, start_offset: i64) -> Result<(), SegmentError> {
        if self.writer.files.is_some() {
            return Ok(());
        }
        let at = |error| self.segments.io(error);
        let dir = &self.segments.dir;
        let Writer { env, context, key, .. } = &*self.writer;
        env.disk().create_dir_all(dir.path()).await.map_err(at)?;
        if let Some(parent) = dir.path().parent() {
            durable::sync_dir(env, parent).await;
        }
        let segment = Segment::create(context, dir, start_offset, segment_options(config)).await?;
        let manifest = Manifest::new(*key, start_offset);
        manifest.store(env, dir.path()).await.map_err(at)?;
        let (checkpoints, _) = CheckpointStore::open(env, dir.path(), *key).await.map_err(|error| match error {
            // As it is: a full disk or a lack of descriptors passes.
            checkpoint::OpenError::Io(error) => at(error),
            other => at(io::Error::other(other)),
        })?;
        self.writer.files = Some(Files { manifest, checkpoints, active_since: None });
        self.segments.change(|list| list.push(segment));
        Ok(())
    }

    /// Takes away everything from `end_offset` on, which no checkpoint covers yet.
    pub(super) async fn truncate(&mut self, end_offset: i64) -> Result<(), SegmentError> {
        while self.segments.list().len() > 1
            && self.segments.list().last().is_some_and(|active| active.base_offset() >= end_offset)
        {
            self.drop_active().await?;
        }
        // One that is closed with nothing to cut stays so, and may be damaged.
        let list = self.segments.list();
        let active = list.last().filter(|active| active.sealed().is_none() || end_offset < active.next_offset());
        if let Some(active) = active {
            active.truncate(end_offset).await?;
        }
        Ok(())
    }

    /// Takes the active segment out and makes the one before it active again.
    async fn drop_active(&mut self) -> Result<(), SegmentError> {
        let Writer { env, files, .. } = &mut *self.writer;
        let files = files.as_mut().expect("a listed segment has a directory");
        let mut manifest = files.manifest.clone();
        manifest.segments.pop();
        if let Some(last) = manifest.segments.last_mut() {
            last.sealed = None;
        }
        manifest.store(env, self.segments.dir.path()).await.map_err(|error| self.segments.io(error))?;
        files.manifest = manifest;
        files.active_since = None;
        let dropped = self.segments.list().last().cloned();
        self.segments.change(|list| {
            list.pop();
        });
        if let Some(dropped) = dropped {
            dropped.remove().await?;
        }
        Ok(())
    }

    /// The segment to append `offset` to: made, with its directory, if this is the partition's first write; rolled if
    /// it has grown old.
    async fn active(&mut self, config: &LogConfig, offset: i64) -> Result<Segment, SegmentError> {
        self.create_directory(config, offset).await?;
        let active = self.segments.list().last().cloned().expect("a directory has an active segment");
        let since = self.writer.files.as_ref().and_then(|files| files.active_since);
        // A segment that is sealed already is one whose roll met a full disk half-way.
        if active.sealed().is_some()
            || since.is_some_and(|since| self.writer.env.now().as_millis() - since.as_millis() > config.roll_ms)
        {
            return self.roll(config).await;
        }
        Ok(active)
    }

    /// Closes the active segment and begins the next.
    async fn roll(&mut self, config: &LogConfig) -> Result<Segment, SegmentError> {
        let active = self.segments.list().last().cloned().expect("only a directory with an active segment rolls");
        let sealed = active.seal().await?;
        self.writer.messages_since_flush = 0;
        let Writer { env, context, files, .. } = &mut *self.writer;
        let dir = &self.segments.dir;
        let files = files.as_mut().expect("only a directory with files rolls");
        let segment = Segment::create(context, dir, sealed.next_offset, segment_options(config)).await?;
        let mut manifest = files.manifest.clone();
        if let Some(last) = manifest.segments.last_mut() {
            last.sealed = Some(sealed);
        }
        manifest.segments.push(SegmentMeta { base_offset: sealed.next_offset, tier: Tier::Hot, sealed: None });
        manifest.store(env, dir.path()).await.map_err(|error| self.segments.io(error))?;
        files.manifest = manifest;
        files.active_since = None;
        self.segments.change(|list| list.push(segment.clone()));
        crate::sometimes!("log.rolled");
        Ok(segment)
    }
}

impl Segments {
    fn io(&self, error: io::Error) -> SegmentError {
        SegmentError::Io { path: self.dir(), error }
    }
}

/// How many of the first batches go into the segment before it has grown to its full size.
fn fitting(active: &Segment, config: &LogConfig, batches: &[RecordBatch]) -> usize {
    let mut room = config.segment_bytes.saturating_sub(active.len());
    let fits = |batch: &&RecordBatch| {
        let left = room.checked_sub((frame::MAGIC_LEN + batch.size()) as u64);
        room = left.unwrap_or_default();
        left.is_some()
    };
    batches.iter().take_while(fits).count()
}

/// The index settings within a topic's.
pub(super) fn segment_options(config: &LogConfig) -> SegmentOptions {
    SegmentOptions {
        index: IndexRule { messages: config.index_interval_messages, bytes: config.index_interval_bytes.into() },
        ..SegmentOptions::default()
    }
}

/// Where a partition's files are.
pub(super) fn partition_dir(data_dir: &Path, spec: &PartitionSpec) -> Result<PartitionDir, OpenError> {
    let name = PartitionName::new(&spec.topic, spec.key.topic, spec.key.index)
        .map_err(|error| OpenError::Name { topic: spec.topic.clone(), error })?;
    Ok(PartitionDir::new(data_dir, name))
}
