//! The frame: 8 bytes of magic, then a Kafka record batch v2 exactly as the producer sent it (with the broker's base
//! offset and leader epoch). Pure: reads headers, verifies, walks runs of frames.
//!
//! | bytes of the frame | |
//! |---|---|
//! | 0–7 | magic `0x000000004B494C4F` |
//! | 8–15 | base offset |
//! | 16–19 | length of what follows |
//! | 20… | the rest of the batch, covered by its CRC-32C from its attributes on |
//!
//! Kafka's CRC leaves out base offset, length and leader epoch. They are verified by their neighbours: offsets are
//! dense (ascending in a compacted log) and leader epochs never fall.
//!
//! # What a crash can leave
//! A run of whole frames, then anything: a torn frame, zeros, frames of an earlier life of the file. A walk stops at the
//! first frame that is not valid *in its place* and says why.

use bytes::Buf;

/// The first 8 bytes of a frame ("KILO" as a u64, big endian).
pub const MAGIC: u64 = 0x0000_0000_4B49_4C4F;
/// [`MAGIC`] as it stands in the file.
pub const MAGIC_BYTES: [u8; 8] = MAGIC.to_be_bytes();
/// Bytes of the magic.
pub const MAGIC_LEN: usize = 8;
/// Bytes of a batch before its records.
pub const BATCH_HEADER_LEN: usize = 61;
/// Bytes of a frame before its records.
pub const FRAME_HEADER_LEN: usize = MAGIC_LEN + BATCH_HEADER_LEN;

/// Bytes of a batch before the part that its length field counts.
const LENGTH_PREFIX_LEN: usize = 12;
/// Where in a batch the part begins that the CRC covers.
const CRC_FROM: usize = 21;
/// The one batch format that is stored.
const BATCH_MAGIC: i8 = 2;
/// Attribute bit: the batch's timestamps are the broker's.
const LOG_APPEND_TIME: i16 = 0x08;

/// Why a run of frames ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer bytes left than a frame needs.
    #[error("the frame is cut off")]
    Truncated,
    /// Does not begin with the magic.
    #[error("there is no frame (found {0:#018x} for its magic)")]
    Magic(u64),
    /// The length is impossible or above the bound.
    #[error("the frame has an impossible length of {0} bytes")]
    Length(i32),
    /// Not a record batch v2.
    #[error("the record batch has format {0}")]
    BatchMagic(i8),
    /// Offset, count or time fields that no valid batch has.
    #[error("the record batch has impossible offsets")]
    Offsets,
    /// The CRC-32C is wrong.
    #[error("the record batch has CRC-32C {found:#010x} and contents with {computed:#010x}")]
    Crc {
        /// What the batch says.
        found: u32,
        /// What its contents say.
        computed: u32,
    },
    /// The batch does not follow the one before it.
    #[error("the record batch begins at offset {found} where {expected} was due")]
    Gap {
        /// The offset that would follow.
        expected: i64,
        /// The offset found.
        found: i64,
    },
    /// The leader epoch is lower than the one before.
    #[error("the leader epoch falls from {before} to {found}")]
    EpochFell {
        /// The epoch of the batch before.
        before: i32,
        /// The epoch found.
        found: i32,
    },
}

/// What a frame's fixed part says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The first record's offset.
    pub base_offset: i64,
    /// The last record's offset.
    pub last_offset: i64,
    /// The leader epoch in which it was appended.
    pub leader_epoch: i32,
    /// The CRC-32C that the batch carries.
    pub crc: u32,
    /// The largest timestamp of its records in milliseconds, -1 for none.
    pub max_timestamp: i64,
    /// Number of records. Not below 0; 0 in a batch that compaction emptied.
    pub records: u32,
    /// Whether all its records have the batch's maximum timestamp, set by the broker.
    pub is_log_append_time: bool,
    /// Whether it is a transaction marker.
    pub is_control: bool,
    /// Bytes of the batch, without the magic.
    pub batch_len: usize,
}

impl FrameHeader {
    /// Reads the fixed part. `batch_bytes_max` bounds the batch; the body need not be there.
    pub fn parse(bytes: &[u8], batch_bytes_max: usize) -> Result<Self, FrameError> {
        let mut rest = bytes.get(..FRAME_HEADER_LEN).ok_or_else(|| match bytes.first_chunk::<MAGIC_LEN>() {
            Some(magic) if *magic != MAGIC_BYTES => FrameError::Magic(u64::from_be_bytes(*magic)),
            _ => FrameError::Truncated,
        })?;
        let magic = rest.get_u64();
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let base_offset = rest.get_i64();
        let length = rest.get_i32();
        let batch_len = usize::try_from(length).ok().and_then(|length| length.checked_add(LENGTH_PREFIX_LEN));
        let batch_len = batch_len.filter(|len| (BATCH_HEADER_LEN..=batch_bytes_max).contains(len));
        let batch_len = batch_len.ok_or(FrameError::Length(length))?;
        let leader_epoch = rest.get_i32();
        let batch_magic = rest.get_i8();
        if batch_magic != BATCH_MAGIC {
            return Err(FrameError::BatchMagic(batch_magic));
        }
        let crc = rest.get_u32();
        let attributes = rest.get_i16();
        let last_offset_delta = rest.get_i32();
        let _base_timestamp = rest.get_i64();
        let max_timestamp = rest.get_i64();
        rest.advance(8 + 2 + 4);
        let records = rest.get_i32();
        let last_offset = base_offset.checked_add(i64::from(last_offset_delta));
        // The largest offset is left out, so that "the offset after" always exists.
        let last_offset = last_offset.filter(|last| *last < i64::MAX && base_offset >= 0 && last_offset_delta >= 0);
        let (Some(last_offset), Ok(records)) = (last_offset, u32::try_from(records)) else {
            return Err(FrameError::Offsets);
        };
        Ok(Self {
            base_offset,
            last_offset,
            leader_epoch,
            crc,
            max_timestamp,
            records,
            is_log_append_time: attributes & LOG_APPEND_TIME != 0,
            is_control: attributes & 0x20 != 0,
            batch_len,
        })
    }

    /// Bytes of the frame.
    pub fn frame_len(&self) -> usize {
        MAGIC_LEN + self.batch_len
    }

    /// Verifies the CRC-32C of a whole frame.
    pub fn verify_crc(&self, frame: &[u8]) -> Result<(), FrameError> {
        let covered = frame.get(MAGIC_LEN + CRC_FROM..self.frame_len()).ok_or(FrameError::Truncated)?;
        let computed = crc32c::crc32c(covered);
        if computed == self.crc { Ok(()) } else { Err(FrameError::Crc { found: self.crc, computed }) }
    }
}

/// How the offsets of one batch follow those of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetRule {
    /// Each begins where the last one ended.
    Dense,
    /// Compaction may have left gaps.
    Ascending,
}

/// Judges frames in their sequence: what the CRC leaves out.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    rule: OffsetRule,
    next_offset: i64,
    leader_epoch: i32,
}

impl Sequence {
    /// A run in which `next_offset` is due next and no epoch below `leader_epoch` may come (-1: any).
    pub fn new(rule: OffsetRule, next_offset: i64, leader_epoch: i32) -> Self {
        Self { rule, next_offset, leader_epoch }
    }

    /// The offset due next.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// The last leader epoch met.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// Takes the next frame, if it may come next.
    pub fn accept(&mut self, header: &FrameHeader) -> Result<(), FrameError> {
        let follows = match self.rule {
            OffsetRule::Dense => header.base_offset == self.next_offset,
            OffsetRule::Ascending => header.base_offset >= self.next_offset,
        };
        if !follows {
            return Err(FrameError::Gap { expected: self.next_offset, found: header.base_offset });
        }
        if header.leader_epoch < self.leader_epoch {
            return Err(FrameError::EpochFell { before: self.leader_epoch, found: header.leader_epoch });
        }
        self.next_offset = header.last_offset + 1;
        self.leader_epoch = header.leader_epoch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::batch::{BatchBuilder, Stamp};

    fn frame(base_offset: i64, leader_epoch: i32, values: &[Vec<u8>]) -> Vec<u8> {
        let mut builder = BatchBuilder::default();
        for value in values {
            builder.push(5, None, Some(value));
        }
        let batch = builder.build().expect("nothing to compress").assign(base_offset, leader_epoch, Stamp::Keep);
        [&MAGIC_BYTES[..], &batch.to_bytes()].concat()
    }

    /// What any reader does with a frame: header, CRC, place.
    fn check(bytes: &[u8], sequence: &mut Sequence) -> Result<FrameHeader, FrameError> {
        let header = FrameHeader::parse(bytes, 1 << 20)?;
        header.verify_crc(bytes)?;
        sequence.accept(&header)?;
        Ok(header)
    }

    fn dense(next_offset: i64) -> Sequence {
        Sequence::new(OffsetRule::Dense, next_offset, 3)
    }

    #[test]
    fn the_magic_spells_the_name() {
        assert_eq!(&MAGIC_BYTES[4..], b"KILO");
    }

    #[test]
    fn a_frame_must_be_the_one_due() {
        let bytes = frame(40, 3, &[vec![1], vec![2]]);
        let mut sequence = dense(40);
        let header = check(&bytes, &mut sequence).expect("a good frame");
        assert_eq!((header.base_offset, header.last_offset, header.frame_len()), (40, 41, bytes.len()));
        assert_eq!(sequence.next_offset(), 42);
        assert_eq!(check(&bytes, &mut dense(39)), Err(FrameError::Gap { expected: 39, found: 40 }));
        assert_eq!(check(&bytes, &mut dense(41)), Err(FrameError::Gap { expected: 41, found: 40 }));
        assert!(check(&bytes, &mut Sequence::new(OffsetRule::Ascending, 39, 3)).is_ok());
        assert!(check(&bytes, &mut Sequence::new(OffsetRule::Ascending, 41, 3)).is_err());
        let mut later = Sequence::new(OffsetRule::Dense, 40, 4);
        assert_eq!(check(&bytes, &mut later), Err(FrameError::EpochFell { before: 4, found: 3 }));
    }

    proptest! {
        #[test]
        fn no_flipped_bit_passes(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..5),
            at in any::<prop::sample::Index>(),
        ) {
            let good = frame(40, 3, &values);
            let mut bytes = good.clone();
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // A higher leader epoch alone cannot be told from a new leader: its successor gives it away.
            let is_epoch = (20..24).contains(&(bit / 8));
            let result = check(&bytes, &mut dense(40));
            prop_assert!(result.is_err() || is_epoch, "byte {}: {:?}", bit / 8, result);
            if is_epoch && let Ok(header) = result {
                let mut sequence = Sequence::new(OffsetRule::Dense, 40, header.leader_epoch);
                prop_assert!(check(&good, &mut sequence).is_err());
            }
        }

        #[test]
        fn no_truncation_passes(value in prop::collection::vec(any::<u8>(), 0..50), cut in any::<prop::sample::Index>()) {
            let bytes = frame(40, 3, &[value]);
            let cut = cut.index(bytes.len());
            prop_assert_eq!(check(&bytes[..cut], &mut dense(40)), Err(FrameError::Truncated));
        }

        #[test]
        fn any_bytes_are_refused_without_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            headed in any::<bool>(),
        ) {
            if headed && bytes.len() > 24 {
                bytes[..MAGIC_LEN].copy_from_slice(&MAGIC_BYTES);
                bytes[16..20].copy_from_slice(&100u32.to_be_bytes());
                bytes[24] = 2;
            }
            prop_assert!(check(&bytes, &mut Sequence::new(OffsetRule::Ascending, 0, -1)).is_err());
        }
    }
}
