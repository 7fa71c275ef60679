//! The manifest of a partition: which segments it consists of. Replaced in one step when the set of segments changes,
//! and only then, so that roll, compaction, tier moves and deletion are one switch each.
//!
//! # Format (version 1), big endian
//! | bytes | |
//! |---|---|
//! | 8 | magic `KILOMANI` |
//! | 2 | version |
//! | 16 | topic id |
//! | 4 | partition |
//! | 4 | number of segments |
//! | 34 each | base offset i64, tier u8, flags u8 (1 sealed, 2 compacted), length u64, next offset i64, maximum timestamp i64 |
//! | 4 | CRC-32 of all before |
//!
//! # What a crash can leave
//! * **Nothing, or a temporary file beside nothing**: the partition was being created. [`LoadError::Missing`]: the
//!   caller creates it anew; entries for it cannot have been acknowledged before its manifest was durable.
//! * **The old manifest and a temporary file, whole or torn**: the switch did not happen. The temporary file is
//!   garbage, and so is every segment file that the manifest does not list.
//! * **The new manifest, its name not yet stable** (the process died between rename and directory flush): `load`
//!   flushes the directory before it answers, so that nothing is removed on the word of a manifest that a power cut
//!   could take back.
//! * **A damaged manifest** is not left by a crash (the file is flushed before it gets its name) but by a bad disk:
//!   [`LoadError::Damaged`]; the caller rebuilds it by reading the segments, none of which it changes.

use std::io;
use std::path::Path;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::durable;
use super::frame::OffsetRule;
use super::{PartitionKey, TopicId};
use crate::io::Env;

/// The manifest's file name within the partition's directory.
pub const FILE_NAME: &str = "manifest";

const MAGIC: &[u8; 8] = b"KILOMANI";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 8 + 2 + 16 + 4 + 4;
const SEGMENT_BYTES: usize = 8 + 1 + 1 + 8 + 8 + 8;
const CRC_BYTES: usize = 4;
const SEALED: u8 = 1;
const COMPACTED: u8 = 2;
const SEALED_AND_COMPACTED: u8 = SEALED | COMPACTED;
/// More segments than a partition ever has: bounds what a damaged length can make us read.
const SEGMENTS_MAX: usize = 1 << 20;

/// The length of a closed segment whose file was missing when the manifest was made anew: it is not known.
pub const LEN_UNKNOWN: u64 = u64::MAX;
/// The largest timestamp of a closed segment that could not be read as a whole when the manifest was made anew: later than
/// any, so that no look-up passes it by.
pub const MAX_TIMESTAMP_UNKNOWN: i64 = i64::MAX;

/// Which directory a segment's files are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The partition's own directory.
    #[default]
    Hot,
    /// The directory for old segments.
    Cold,
}

/// What is fixed about a segment once it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Length of the `.log` file in bytes, or [`LEN_UNKNOWN`].
    pub len: u64,
    /// The offset after its last record.
    pub next_offset: i64,
    /// The largest timestamp of its records in milliseconds, or [`MAX_TIMESTAMP_UNKNOWN`]; -1 if it has none.
    pub max_timestamp: i64,
    /// Whether compaction has left gaps between its offsets.
    pub offsets: OffsetRule,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentMeta {
    /// The offset in its files' names.
    pub base_offset: i64,
    /// Where its files are.
    pub tier: Tier,
    /// `None` for the active segment.
    pub sealed: Option<Sealed>,
}

/// The set of segments of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Whose segments these are. A directory of the same name may have been left by an earlier topic.
    pub partition: PartitionKey,
    /// By base offset, ascending; only the last may be unsealed.
    pub segments: Vec<SegmentMeta>,
}

/// Why bytes are not a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter or longer than what it says of itself.
    #[error("has {0} bytes, which is not the length of a manifest")]
    Length(usize),
    /// Not a manifest at all.
    #[error("does not begin with the magic of a manifest")]
    Magic,
    /// Written by a newer Kilo.
    #[error("has format version {0}; this Kilo reads version {VERSION}")]
    Version(u16),
    /// The checksum is wrong.
    #[error("has a wrong checksum")]
    Checksum,
    /// The checksum is right and the contents are impossible: a bug wrote it.
    #[error("lists impossible segments")]
    Segments,
}

/// Why there is no manifest to go by.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is none: the partition was never completely created.
    #[error("there is no manifest")]
    Missing,
    /// It cannot be read for what it is: rebuild it by scanning.
    #[error("the manifest {0}")]
    Damaged(DecodeError),
    /// It belongs to another partition: set the directory aside.
    #[error("the manifest belongs to partition {0}")]
    Foreign(PartitionKey),
    /// Written by a newer Kilo: refuse to touch it.
    #[error("the manifest has format version {0}; this Kilo reads version {VERSION}")]
    NewerVersion(u16),
    /// The disk failed.
    #[error("reading the manifest: {0}")]
    Io(#[from] io::Error),
}

impl Manifest {
    /// The manifest of a new partition: one empty active segment.
    pub fn new(partition: PartitionKey, base_offset: i64) -> Self {
        Self { partition, segments: vec![SegmentMeta { base_offset, tier: Tier::Hot, sealed: None }] }
    }

    /// The file's contents.
    pub fn encode(&self) -> Bytes {
        debug_assert!(self.is_possible(), "impossible segments: {self:?}");
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + self.segments.len() * SEGMENT_BYTES + CRC_BYTES);
        bytes.put_slice(MAGIC);
        bytes.put_u16(VERSION);
        bytes.put_slice(&self.partition.topic.0);
        bytes.put_i32(self.partition.index);
        bytes.put_u32(u32::try_from(self.segments.len()).expect("fewer segments than SEGMENTS_MAX"));
        for segment in &self.segments {
            bytes.put_i64(segment.base_offset);
            bytes.put_u8(match segment.tier {
                Tier::Hot => 0,
                Tier::Cold => 1,
            });
            let flags = segment.sealed.map_or(0, |sealed| match sealed.offsets {
                OffsetRule::Dense => SEALED,
                OffsetRule::Ascending => SEALED | COMPACTED,
            });
            bytes.put_u8(flags);
            let unsealed = Sealed { len: 0, next_offset: 0, max_timestamp: 0, offsets: OffsetRule::Dense };
            let sealed = segment.sealed.unwrap_or(unsealed);
            bytes.put_u64(sealed.len);
            bytes.put_i64(sealed.next_offset);
            bytes.put_i64(sealed.max_timestamp);
        }
        let crc = crc32fast::hash(&bytes);
        bytes.put_u32(crc);
        bytes.freeze()
    }

    /// Reads [`Self::encode`]'s result back. Any bytes are fine as input.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() < MAGIC.len() + 2 {
            return Err(DecodeError::Length(bytes.len()));
        }
        if !bytes.starts_with(MAGIC) {
            return Err(DecodeError::Magic);
        }
        let version = (&bytes[MAGIC.len()..]).get_u16();
        if bytes.len() < HEADER_BYTES + CRC_BYTES {
            return Err(DecodeError::Length(bytes.len()));
        }
        let (body, mut crc) = bytes.split_at(bytes.len() - CRC_BYTES);
        // The checksum comes before the version, so that a flipped bit in the version is damage and not the future.
        if crc.get_u32() != crc32fast::hash(body) {
            return Err(DecodeError::Checksum);
        }
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let mut rest = &body[MAGIC.len() + 2..];
        let mut topic = [0; 16];
        rest.copy_to_slice(&mut topic);
        let index = rest.get_i32();
        let count = rest.get_u32() as usize;
        if rest.len() != count.saturating_mul(SEGMENT_BYTES) {
            return Err(DecodeError::Length(bytes.len()));
        }
        let segments = (0..count).map(|_| decode_segment(&mut rest)).collect::<Option<Vec<_>>>();
        let manifest =
            Self { partition: PartitionKey { topic: TopicId(topic), index }, segments: segments.unwrap_or_default() };
        if manifest.segments.len() != count || !manifest.is_possible() {
            return Err(DecodeError::Segments);
        }
        Ok(manifest)
    }

    /// Reads the manifest of `partition` in `dir`; when it answers `Ok`, the manifest is durable under its name.
    pub async fn load(env: &Env, dir: &Path, partition: PartitionKey) -> Result<Self, LoadError> {
        let bytes_max = HEADER_BYTES + SEGMENTS_MAX * SEGMENT_BYTES + CRC_BYTES;
        let bytes = durable::read_file(env, &dir.join(FILE_NAME), bytes_max as u64).await;
        let bytes = match bytes {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(LoadError::Damaged(DecodeError::Length(usize::MAX)));
            }
            other => other?.ok_or(LoadError::Missing)?,
        };
        let manifest = Self::decode(&bytes).map_err(|error| match error {
            DecodeError::Version(version) => LoadError::NewerVersion(version),
            other => LoadError::Damaged(other),
        })?;
        if manifest.partition != partition {
            return Err(LoadError::Foreign(manifest.partition));
        }
        durable::sync_dir(env, dir).await;
        Ok(manifest)
    }

    /// Switches to this set of segments. Files that are newly listed must exist, flushed; their names become stable
    /// with the switch. After an error the old set stands. A failed flush ends the incarnation.
    pub async fn store(&self, env: &Env, dir: &Path) -> io::Result<()> {
        durable::replace(env, dir, FILE_NAME, self.encode()).await
    }

    fn is_possible(&self) -> bool {
        let ordered = self.segments.windows(2).all(|pair| {
            pair[0].sealed.is_some_and(|sealed| sealed.next_offset <= pair[1].base_offset)
                && pair[0].base_offset < pair[1].base_offset
        });
        let each = |segment: &SegmentMeta| {
            segment.base_offset >= 0 && segment.sealed.is_none_or(|sealed| sealed.next_offset >= segment.base_offset)
        };
        ordered && self.segments.iter().all(each) && self.segments.len() <= SEGMENTS_MAX
    }
}

fn decode_segment(rest: &mut &[u8]) -> Option<SegmentMeta> {
    let base_offset = rest.get_i64();
    let tier = match rest.get_u8() {
        0 => Some(Tier::Hot),
        1 => Some(Tier::Cold),
        _ => None,
    };
    let flags = rest.get_u8();
    let (len, next_offset, max_timestamp) = (rest.get_u64(), rest.get_i64(), rest.get_i64());
    let offsets = if flags & COMPACTED == 0 { OffsetRule::Dense } else { OffsetRule::Ascending };
    let sealed = match flags {
        0 => None,
        SEALED | SEALED_AND_COMPACTED => Some(Sealed { len, next_offset, max_timestamp, offsets }),
        _ => return None,
    };
    Some(SegmentMeta { base_offset, tier: tier?, sealed })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_manifest() -> impl Strategy<Value = Manifest> {
        let gaps = prop::collection::vec((1i64..1000, any::<u64>(), any::<i64>(), any::<bool>()), 0..20);
        (any::<[u8; 16]>(), any::<i32>(), gaps, 0i64..1000, any::<bool>()).prop_map(
            |(topic, index, gaps, first, last_active)| {
                let mut base_offset = first;
                let mut segments = Vec::new();
                for (gap, len, max_timestamp, cold) in gaps {
                    let next_offset = base_offset + gap;
                    let tier = if cold { Tier::Cold } else { Tier::Hot };
                    let offsets = if len % 2 == 0 { OffsetRule::Dense } else { OffsetRule::Ascending };
                    let sealed = Some(Sealed { len, next_offset, max_timestamp, offsets });
                    segments.push(SegmentMeta { base_offset, tier, sealed });
                    base_offset = next_offset;
                }
                if let Some(last) = segments.last_mut().filter(|_| last_active) {
                    last.sealed = None;
                }
                Manifest { partition: PartitionKey { topic: TopicId(topic), index }, segments }
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip(manifest in any_manifest()) {
            prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }

        #[test]
        fn no_truncation_passes(manifest in any_manifest(), cut in any::<prop::sample::Index>()) {
            let bytes = manifest.encode();
            let cut = cut.index(bytes.len());
            prop_assert!(Manifest::decode(&bytes[..cut]).is_err());
        }

        #[test]
        fn no_flipped_bit_passes_or_reads_as_the_future(manifest in any_manifest(), at in any::<prop::sample::Index>()) {
            let mut bytes = manifest.encode().to_vec();
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = Manifest::decode(&bytes);
            prop_assert!(matches!(error, Err(DecodeError::Checksum | DecodeError::Magic)), "{:?}", error);
        }

        #[test]
        fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Manifest::decode(&bytes).is_err());
        }
    }

    #[test]
    fn unordered_segments_are_refused() {
        let partition = PartitionKey { topic: TopicId([7; 16]), index: 0 };
        let sealed = Some(Sealed { len: 1, next_offset: 10, max_timestamp: -1, offsets: OffsetRule::Dense });
        let good = Manifest {
            partition,
            segments: vec![
                SegmentMeta { base_offset: 0, tier: Tier::Hot, sealed },
                SegmentMeta { base_offset: 10, tier: Tier::Hot, sealed: None },
            ],
        };
        let mut bytes = good.encode().to_vec();
        // The second segment now begins before the first one ends.
        bytes[HEADER_BYTES + SEGMENT_BYTES + 7] = 9;
        let body = bytes.len() - CRC_BYTES;
        let crc = crc32fast::hash(&bytes[..body]);
        bytes[body..].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(Manifest::decode(&bytes), Err(DecodeError::Segments));
    }

    #[test]
    fn the_last_switch_counts() {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        crate::io::real::block_on_test(|env| async move {
            let dir = temporary.path();
            let partition = PartitionKey { topic: TopicId([7; 16]), index: 0 };
            assert!(matches!(Manifest::load(&env, dir, partition).await, Err(LoadError::Missing)));
            let mut manifest = Manifest::new(partition, 5);
            manifest.store(&env, dir).await.expect("room on the disk");
            manifest.segments[0].sealed =
                Some(Sealed { len: 100, next_offset: 10, max_timestamp: 3, offsets: OffsetRule::Dense });
            manifest.segments.push(SegmentMeta { base_offset: 10, tier: Tier::Hot, sealed: None });
            manifest.store(&env, dir).await.expect("room on the disk");
            assert_eq!(Manifest::load(&env, dir, partition).await.expect("whole"), manifest);
            // A temporary file, as a crash leaves it, changes nothing.
            let temporary = dir.join("manifest.tmp");
            let file = env.disk().open(&temporary, crate::io::OpenMode::Create).await.expect("a new file");
            file.write_at(0, vec![Bytes::from_static(b"KILO")]).await.expect("room on the disk");
            assert_eq!(Manifest::load(&env, dir, partition).await.expect("whole"), manifest);
            let other = PartitionKey { topic: TopicId([8; 16]), index: 0 };
            assert!(
                matches!(Manifest::load(&env, dir, other).await, Err(LoadError::Foreign(found)) if found == partition)
            );
        });
    }
}
