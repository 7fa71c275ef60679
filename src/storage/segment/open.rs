//! Creating, opening and removing.

use std::io;
use std::sync::Arc;

use super::error::SegmentError;
use super::open_as::{OpenAs, ScanReport, Unsettled};
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

    /// Opens a segment, by what is known about it, and settles it.
    pub async fn open(
        context: &SegmentContext,
        dir: &PartitionDir,
        base_offset: i64,
        options: SegmentOptions,
        how: OpenAs,
    ) -> Result<(Self, ScanReport), SegmentError> {
        let (segment, report, unsettled) = Self::look(context, dir, base_offset, options, how).await?;
        segment.settle(unsettled).await?;
        Ok((segment, report))
    }

    /// Opens a segment, by what is known about it, and changes nothing. It can be read; [`settle`](Self::settle) comes
    /// before anything is written to it.
    pub async fn look(
        context: &SegmentContext,
        dir: &PartitionDir,
        base_offset: i64,
        options: SegmentOptions,
        how: OpenAs,
    ) -> Result<(Self, ScanReport, Unsettled), SegmentError> {
        let state = match how {
            OpenAs::Sealed(sealed) => {
                State::new(sealed.len, sealed.next_offset, sealed.max_timestamp, sealed.offsets, true)
            }
            OpenAs::Known { len, next_offset } | OpenAs::Past { len, next_offset } => {
                State::new(len, next_offset, -1, OffsetRule::Dense, false)
            }
            OpenAs::Scan(rule) => State::new(0, base_offset, -1, rule, false),
        };
        let segment = Self::with(context, dir, base_offset, options, state);
        let (report, unsettled) = match how {
            OpenAs::Sealed(_) => Default::default(),
            OpenAs::Known { .. } => (ScanReport::default(), segment.open_known().await?),
            OpenAs::Past { .. } => segment.open_past().await?,
            OpenAs::Scan(_) => segment.open_scanning().await?,
        };
        Ok((segment, report, unsettled))
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
