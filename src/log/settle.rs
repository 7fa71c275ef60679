//! The last step of opening a partition: what was decided is done to its files. Nothing refuses the start any more.
//!
//! Each step can be taken again. The manifest comes before the cuts, as when a segment is dropped; a crash in between
//! leaves what the next start decides in the same way.

use std::io;

use super::config::LogConfig;
use super::error::OpenError;
use super::segments::{self, Segments, SegmentsWriter};
use crate::io::{Env, is_no_space, is_too_many_open_files};
use crate::storage::segment::{Segment, SegmentError, Unsettled};
use crate::storage::{PartitionKey, PartitionName, durable};

/// Set-aside directories of one name that are looked past.
const ASIDE_MAX: u32 = 10_000;

/// What is to be done to a partition's files.
#[derive(Default)]
pub(super) struct Steps {
    /// The directory is another topic's.
    pub(super) aside: Option<SetAside>,
    /// The manifest in memory is not the one on the disk.
    pub(super) store: bool,
    /// The last listed segment is not there, and was empty.
    pub(super) create: Option<i64>,
    /// Segments, and what opening them has decided.
    pub(super) unsettled: Vec<(Segment, Unsettled)>,
}

/// A directory that belongs to another topic of the same name.
pub(super) struct SetAside {
    pub(super) name: PartitionName,
    pub(super) owner: PartitionKey,
}

impl Steps {
    /// Takes them.
    pub(super) async fn take(
        self,
        env: &Env,
        key: PartitionKey,
        config: &LogConfig,
        segments: &Segments,
    ) -> Result<(), OpenError> {
        let dir = segments.dir();
        let at = |error| OpenError::Segment { dir: dir.clone(), error };
        let failed = |action| move |source| OpenError::Io { action, partition: key, source };
        if let Some(aside) = self.aside {
            aside.rename(env, segments).await.map_err(failed("setting the directory aside"))?;
        }
        let mut writer = segments.write().await;
        if let Some(base_offset) = self.create
            && !writer.make_lost(config, base_offset).await.map_err(at)?
        {
            return Ok(());
        }
        if self.store {
            writer.store_manifest().await.map_err(failed("storing the manifest"))?;
        }
        for (segment, unsettled) in self.unsettled {
            if unsettled.cuts() {
                tracing::warn!(dir = %dir.display(), segment = segment.base_offset(), end = segment.next_offset(),
                    "a segment is cut where its records end");
            }
            segment.settle(unsettled).await.map_err(at)?;
        }
        Ok(())
    }
}

impl SetAside {
    async fn rename(&self, env: &Env, segments: &Segments) -> io::Result<()> {
        let path = segments.dir();
        let parent = path.parent().unwrap_or(&path);
        for number in 0..ASIDE_MAX {
            let aside = parent.join(self.name.aside_dir(number));
            if env.disk().exists(&aside).await? {
                continue;
            }
            let owner = self.owner;
            tracing::warn!(dir = %path.display(), aside = %aside.display(), %owner, "the directory is another topic's");
            env.disk().rename(&path, &aside).await?;
            durable::sync_dir(env, parent).await;
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many directories were set aside"))
    }
}

impl SegmentsWriter<'_> {
    /// Makes the last listed segment anew, whose name was lost with nothing in it. Says whether the partition has files:
    /// without space or descriptors a new one goes without, and gets them when it is written.
    async fn make_lost(&mut self, config: &LogConfig, base_offset: i64) -> Result<bool, SegmentError> {
        crate::sometimes!("log.recovery_made_segment_anew");
        let (env, dir) = (self.writer.env.clone(), self.segments.partition_dir());
        let options = segments::segment_options(config);
        let created = Segment::create(&self.writer.context, dir, base_offset, options).await;
        durable::sync_dir(&env, dir.path()).await;
        match created {
            Err(error) if error.is_transient() && self.segments.list().is_empty() && base_offset == 0 => {
                self.writer.files = None;
                Ok(false)
            }
            created => {
                let created = created?;
                self.segments.change(|list| list.push(created));
                Ok(true)
            }
        }
    }

    /// Stores what the next start would find out again: on a full disk that is left to it, or to the next roll.
    async fn store_manifest(&self) -> io::Result<()> {
        let Some(files) = &self.writer.files else {
            return Ok(());
        };
        match files.manifest.store(&self.writer.env, self.segments.partition_dir().path()).await {
            Err(error) if is_no_space(&error) || is_too_many_open_files(&error) => {
                crate::sometimes!("log.recovery_manifest_waits");
                Ok(())
            }
            stored => stored,
        }
    }
}
