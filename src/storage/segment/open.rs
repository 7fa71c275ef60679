//! Creating, opening and removing.

use std::io;
use std::sync::Arc;

use super::error::SegmentError;
use super::open_as::{OpenAs, ScanReport};
use super::state::{Segment, SegmentContext, SegmentOptions, State};
use crate::io::{Env, OpenMode};
use crate::storage::durable;
use crate::storage::frame::OffsetRule;
use crate::storage::names::{FileKind, PartitionDir};

impl Segment {
    /// Creates an empty active segment. It counts once a manifest lists it, whose switch also makes its name stable.
    pub async fn create(
        context: &SegmentContext,
        dir: &PartitionDir,
        base_offset: i64,
        options: SegmentOptions,
    ) -> Result<Self, SegmentError> {
        let path = dir.file(base_offset, FileKind::Log);
        let disk = context.env.disk();
        let at = |error| SegmentError::Io { path: path.clone(), error };
        let file = disk.open(&path, OpenMode::Create).await.map_err(at)?;
        if file.len().await.map_err(at)? > 0 {
            // Left by a creation that never counted, or by a segment that was removed.
            file.set_len(0).await.map_err(at)?;
            durable::sync_data(&context.env, &file, &path).await;
        }
        for kind in [FileKind::Index, FileKind::TimeIndex] {
            remove_if_there(&context.env, dir, base_offset, kind).await?;
        }
        let state = State::new(0, base_offset, -1, OffsetRule::Dense, false);
        let state = State { file: Some(file), resident: Some(Arc::default()), ..state };
        let segment = Self::with(context, dir, base_offset, options, state);
        segment.touch(false);
        Ok(segment)
    }

    /// Opens a segment, by what is known about it.
    pub async fn open(
        context: &SegmentContext,
        dir: &PartitionDir,
        base_offset: i64,
        options: SegmentOptions,
        how: OpenAs,
    ) -> Result<(Self, ScanReport), SegmentError> {
        match how {
            OpenAs::Sealed(sealed) => {
                let state = State::new(sealed.len, sealed.next_offset, sealed.max_timestamp, sealed.offsets, true);
                Ok((Self::with(context, dir, base_offset, options, state), ScanReport::default()))
            }
            OpenAs::Known { len, next_offset } => {
                let state = State::new(len, next_offset, -1, OffsetRule::Dense, false);
                let segment = Self::with(context, dir, base_offset, options, state);
                segment.open_known().await?;
                Ok((segment, ScanReport::default()))
            }
            OpenAs::Past { len, next_offset } => {
                let state = State::new(len, next_offset, -1, OffsetRule::Dense, false);
                let segment = Self::with(context, dir, base_offset, options, state);
                let report = segment.open_past().await?;
                Ok((segment, report))
            }
            OpenAs::Scan(rule) => {
                let state = State::new(0, base_offset, -1, rule, false);
                let segment = Self::with(context, dir, base_offset, options, state);
                let report = segment.open_scanning().await?;
                Ok((segment, report))
            }
        }
    }

    /// Removes its files. Readers that are under way finish; the names are gone for good after a directory flush. For
    /// segments that no manifest lists any more.
    pub async fn remove(self) -> Result<(), SegmentError> {
        for kind in FileKind::ALL {
            remove_if_there(&self.0.env, &self.0.dir, self.0.base_offset, kind).await?;
        }
        Ok(())
    }
}

async fn remove_if_there(env: &Env, dir: &PartitionDir, base_offset: i64, kind: FileKind) -> Result<(), SegmentError> {
    let path = dir.file(base_offset, kind);
    match env.disk().remove_file(&path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SegmentError::Io { path, error }),
        _ => Ok(()),
    }
}
