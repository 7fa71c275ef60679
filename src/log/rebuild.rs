//! A manifest made anew from the segment files that are there, when it is damaged or was moved away. Reading them changes
//! none of them: what is decided here is stored with everything else, once nothing refuses the start.
//!
//! | found | listed |
//! |---|---|
//! | a file with a successor | as closed, up to the successor's first offset, whatever is unreadable in it |
//! | the last file | as the one that is written to: the checkpoint says up to where it counts, or its whole batches do |
//! | the checkpoint's file, empty or not | in any case, and what begins behind it |
//! | offsets between two files that neither has | as a closed segment that is missing, so that the others are served |
//! | a file without a byte | not: it was made and nothing was written to it. It stays |
//! | a file that begins within the one before it | not: its records are there. It stays, and a log line names it |
//!
//! No crash damages a manifest or takes it away, and a segment that has a successor was flushed before the successor got
//! its name. So nothing in a closed one is a torn end.

use super::error::OpenError;
use super::open::Found;
use crate::storage::frame::OffsetRule;
use crate::storage::manifest::{LEN_UNKNOWN, MAX_TIMESTAMP_UNKNOWN};
use crate::storage::segment::{Inspected, inspect};
use crate::storage::{Checkpoint, FileKind, Manifest, Sealed, SegmentMeta, Tier};

/// What a manifest was made of.
#[derive(Debug, PartialEq, Eq)]
struct Listing {
    segments: Vec<SegmentMeta>,
    /// Base offsets of files with records that are not listed.
    left_out: Vec<i64>,
}

impl Found {
    /// Lists the segment files there are. `None` if none of them holds a byte, and no checkpoint says that one should.
    pub(super) async fn rebuild_manifest(
        &self,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Option<Manifest>, OpenError> {
        let mut files = Vec::new();
        for base_offset in self.segment_files().await? {
            let found = inspect(self.context(), self.dir(), base_offset).await.map_err(|error| self.at(error))?;
            if let Some((position, why)) = &found.damage {
                let path = self.dir().file(base_offset, FileKind::Log);
                tracing::warn!(segment = %path.display(), position, %why, "the segment has a place that cannot be read");
            }
            files.push((base_offset, found));
        }
        let Listing { segments, left_out } = listing(&files, checkpoint);
        for base_offset in left_out {
            let path = self.dir().file(base_offset, FileKind::Log);
            tracing::error!("{} begins within the segment before it: it is left alone, and not read", path.display());
        }
        if let Some(checkpoint) = checkpoint.filter(|it| segments.iter().all(|meta| meta.base_offset != it.segment)) {
            return Err(OpenError::Gone(self.dir().file(checkpoint.segment, FileKind::Log)));
        }
        Ok((!segments.is_empty()).then_some(Manifest { partition: self.spec.key, segments }))
    }

    /// Whether a file is there in the place of a segment that an earlier start listed as missing.
    pub(super) async fn is_restored(&self, manifest: &Manifest) -> Result<bool, OpenError> {
        let lacks = |base: i64| {
            let metas =
                manifest.segments.iter().filter_map(|meta| meta.sealed.map(|sealed| (meta.base_offset, sealed)));
            metas.into_iter().any(|(from, it)| it.len == LEN_UNKNOWN && (from..it.next_offset).contains(&base))
        };
        if manifest.segments.iter().all(|meta| meta.sealed.is_none_or(|it| it.len != LEN_UNKNOWN)) {
            return Ok(false);
        }
        Ok(self.segment_files().await?.into_iter().any(lacks))
    }

    /// Base offsets of the segment files in the directory, ascending.
    async fn segment_files(&self) -> Result<Vec<i64>, OpenError> {
        let listed = self.env().disk().list(self.dir().path()).await;
        let files = listed.map_err(|source| self.io("listing the directory", source))?;
        let names = files.iter().filter_map(|path| path.file_name()?.to_str());
        let logs = names.filter_map(|name| self.dir().name().parse_file(name));
        let mut bases: Vec<i64> = logs.filter(|&(_, kind)| kind == FileKind::Log).map(|(base, _)| base).collect();
        bases.sort_unstable();
        Ok(bases)
    }
}

/// Decides what is listed, of files by ascending base offset.
fn listing(files: &[(i64, Inspected)], checkpoint: Option<&Checkpoint>) -> Listing {
    let active = checkpoint.map(|checkpoint| checkpoint.segment);
    let mut listing = Listing { segments: Vec::new(), left_out: Vec::new() };
    // Where the next file must begin; unknown behind one whose end cannot be read.
    let mut due = checkpoint.map(|checkpoint| checkpoint.log_start);
    for &(base_offset, ref found) in files {
        let is_active = active == Some(base_offset);
        if found.len == 0 && !is_active {
            continue;
        }
        if !listing.segments.is_empty() && !is_active && due.is_some_and(|due| base_offset < due) {
            listing.left_out.push(base_offset);
            continue;
        }
        close_last(&mut listing.segments, base_offset);
        if let Some(due) = due.filter(|&due| due < base_offset) {
            // The one before ends where it should, and what follows it is elsewhere.
            close_last(&mut listing.segments, due);
            let max_timestamp = MAX_TIMESTAMP_UNKNOWN;
            let gone = Sealed { len: LEN_UNKNOWN, next_offset: base_offset, max_timestamp, offsets: OffsetRule::Dense };
            listing.segments.push(SegmentMeta { base_offset: due, tier: Tier::Hot, sealed: Some(gone) });
        }
        let max_timestamp = if found.damage.is_some() { MAX_TIMESTAMP_UNKNOWN } else { found.max_timestamp };
        let next_offset = found.next_offset;
        let sealed = Sealed { len: found.len, next_offset, max_timestamp, offsets: OffsetRule::Dense };
        listing.segments.push(SegmentMeta { base_offset, tier: Tier::Hot, sealed: Some(sealed) });
        due = (found.end == found.len).then_some(found.next_offset);
    }
    if let Some(last) = listing.segments.last_mut() {
        last.sealed = None;
    }
    listing
}

/// Lets the last segment end at `next_offset`.
fn close_last(segments: &mut [SegmentMeta], next_offset: i64) {
    if let Some(sealed) = segments.last_mut().and_then(|last| last.sealed.as_mut()) {
        sealed.next_offset = next_offset;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::storage::Lsn;
    use crate::storage::frame::FrameError;

    fn whole(base: i64, next: i64) -> (i64, Inspected) {
        let len = (next - base).unsigned_abs() * 100;
        (base, Inspected { len, end: len, next_offset: next, max_timestamp: next, damage: None })
    }

    fn damaged(base: i64, next: i64, end: u64) -> (i64, Inspected) {
        let damage = Some((100, FrameError::Truncated));
        (base, Inspected { len: 1000, end, next_offset: next, max_timestamp: next, damage })
    }

    fn checkpoint(segment: i64, log_start: i64) -> Checkpoint {
        let (position, next_offset) = (0, segment);
        Checkpoint {
            lsn: Lsn(1),
            segment,
            position,
            next_offset,
            log_start,
            epochs: Vec::new(),
            producers: Bytes::new(),
        }
    }

    /// Base offset, next offset, length if known. The last one's end is not listed.
    type Listed = (i64, i64, Option<u64>);

    fn listed(files: &[(i64, Inspected)], checkpoint: Option<Checkpoint>) -> (Vec<Listed>, Vec<i64>) {
        let Listing { segments, left_out } = listing(files, checkpoint.as_ref());
        let (last, closed) = segments.split_last().expect("something is listed");
        assert_eq!(last.sealed, None);
        let mut all: Vec<_> = closed
            .iter()
            .map(|meta| {
                let sealed = meta.sealed.expect("closed");
                (meta.base_offset, sealed.next_offset, Some(sealed.len).filter(|&len| len != LEN_UNKNOWN))
            })
            .collect();
        all.push((last.base_offset, -1, None));
        (all, left_out)
    }

    #[test]
    fn a_closed_segment_reaches_to_the_next_one_whatever_can_be_read_of_it() {
        for (next, end) in [(0, 0), (5, 500), (10, 1000)] {
            let files = [damaged(0, next, end), whole(10, 20), whole(20, 25)];
            let (all, left_out) = listed(&files, Some(checkpoint(20, 0)));
            assert_eq!(all, [(0, 10, Some(1000)), (10, 20, Some(1000)), (20, -1, None)]);
            assert!(left_out.is_empty());
            let segments = listing(&files, None).segments;
            let times: Vec<_> = segments.iter().filter_map(|it| it.sealed).map(|it| it.max_timestamp).collect();
            assert_eq!(times, [MAX_TIMESTAMP_UNKNOWN, 20], "what cannot be read may be later than all that can");
        }
    }

    #[test]
    fn offsets_that_no_file_has_are_listed_as_missing() {
        let (all, _) = listed(&[whole(5, 10), whole(20, 30)], Some(checkpoint(20, 0)));
        assert_eq!(all, [(0, 5, None), (5, 10, Some(500)), (10, 20, None), (20, -1, None)]);
        // An emptied file is as good as none.
        let (all, _) = listed(&[whole(0, 10), whole(10, 10), whole(20, 30)], None);
        assert_eq!(all, [(0, 10, Some(1000)), (10, 20, None), (20, -1, None)]);
    }

    #[test]
    fn what_the_checkpoint_names_is_listed_and_what_follows_it_too() {
        let (all, _) = listed(&[whole(0, 10), whole(10, 10)], Some(checkpoint(10, 0)));
        assert_eq!(all, [(0, 10, Some(1000)), (10, -1, None)]);
        let (all, _) = listed(&[whole(0, 10), whole(10, 20), whole(20, 20)], Some(checkpoint(0, 0)));
        assert_eq!(all, [(0, 10, Some(1000)), (10, -1, None)]);
    }

    #[test]
    fn a_file_within_another_is_left_out_unless_the_checkpoint_names_it() {
        let files = [whole(0, 10), whole(5, 8), whole(10, 12)];
        assert_eq!(listed(&files, Some(checkpoint(10, 0))).1, [5]);
        let (all, left_out) = listed(&files, Some(checkpoint(5, 0)));
        assert_eq!((all[0], left_out), ((0, 5, Some(1000)), Vec::new()));
    }

    #[test]
    fn nothing_is_listed_where_nothing_is() {
        let files = [whole(0, 0)];
        assert!(listing(&files, None).segments.is_empty() && listing(&[], None).segments.is_empty());
    }
}
