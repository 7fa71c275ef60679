//! The sparse index of a segment, offset → position: the skip list in memory, the rule for when a batch gets an entry,
//! and the `.index` file's format. Pure.
//!
//! # Format (version 1), big endian
//! A header of 24 bytes {magic `KILOINDX`, version u16, reserved u16, base offset i64, CRC-32 of these}, then entries of
//! 12 bytes {offset − base offset u32, position u48, check u16}. The check is a CRC-32, folded to 16 bits, of base offset,
//! ordinal and entry, so that an entry of another file or place does not pass. Entry *n* belongs to entry *n* of the
//! `.timeindex` file.
//!
//! There is no entry for the segment's first batch: it is at position 0.
//!
//! # What a crash can leave
//! The file is written behind the segment and flushed rarely, so: **missing, short, or with a tail of zeros or torn
//! entries**. Only the entries before the first invalid one, and that point into the segment, are taken; the rest of the
//! segment is walked and the file extended. **Entries for a part of the segment that has been cut** cannot be there:
//! a cut makes the shorter index durable before anything new is appended. Nothing in the file is trusted for a read: the
//! frame that an entry leads to must have the entry's offset, or the whole index is rebuilt (KAFKA-2012).

use bytes::{Buf, BufMut};
use crossbeam_skiplist::SkipMap;

/// Bytes of the header of an index file.
pub(crate) const HEADER_BYTES: usize = 24;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 12;

const MAGIC: &[u8; 8] = b"KILOINDX";
const VERSION: u16 = 1;
/// Positions have 48 bits in the file; a batch further back than 256 TiB gets no entry.
const POSITION_MAX: u64 = (1 << 48) - 1;
/// However small the configured intervals are, entries are at least this far apart: what bounds the skip list.
const INTERVAL_BYTES_MIN: u64 = 4096;

/// When a batch gets an entry: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRule {
    /// `log.index.interval.messages`: records since the last entry; 0 switches this half off.
    pub messages: u32,
    /// `log.index.interval.bytes`: bytes since the last entry.
    pub bytes: u64,
}

impl Default for IndexRule {
    fn default() -> Self {
        Self { messages: 1000, bytes: 1 << 20 }
    }
}

/// How far the last entry is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spacing {
    messages: u64,
    bytes: u64,
}

impl Spacing {
    /// Whether the batch that comes next gets an entry.
    pub(crate) fn is_due(&self, rule: IndexRule) -> bool {
        let by_messages = rule.messages != 0 && self.messages >= u64::from(rule.messages);
        (by_messages || self.bytes >= rule.bytes) && self.bytes >= INTERVAL_BYTES_MIN
    }

    /// Counts a batch, after the entry for it, if it got one, has reset this.
    pub(crate) fn count(&mut self, messages: u32, bytes: u64) {
        self.messages += u64::from(messages);
        self.bytes += bytes;
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Base offset of the batch.
    pub(crate) offset: i64,
    /// Where its frame begins.
    pub(crate) position: u64,
}

impl IndexEntry {
    /// Whether the file's format can hold it.
    pub(crate) fn is_storable(&self, base_offset: i64) -> bool {
        u32::try_from(self.offset - base_offset).is_ok() && self.position <= POSITION_MAX
    }
}

/// The entries of one segment in memory. Readers take no lock; there is one writer.
#[derive(Debug, Default)]
pub(crate) struct OffsetIndex {
    entries: SkipMap<i64, u64>,
}

impl OffsetIndex {
    /// Adds an entry behind all others.
    pub(crate) fn push(&self, entry: IndexEntry) {
        self.entries.insert(entry.offset, entry.position);
    }

    /// The last entry at or before `offset`.
    pub(crate) fn floor(&self, offset: i64) -> Option<IndexEntry> {
        let entry = self.entries.upper_bound(std::ops::Bound::Included(&offset))?;
        Some(IndexEntry { offset: *entry.key(), position: *entry.value() })
    }

    /// The first entry behind `offset`.
    pub(crate) fn above(&self, offset: i64) -> Option<IndexEntry> {
        let entry = self.entries.lower_bound(std::ops::Bound::Excluded(&offset))?;
        Some(IndexEntry { offset: *entry.key(), position: *entry.value() })
    }

    /// Drops the entries at or behind `position`.
    pub(crate) fn cut(&self, position: u64) {
        while let Some(last) = self.entries.back().filter(|last| *last.value() >= position) {
            last.remove();
        }
    }

    /// Number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The header of an index file with this magic.
pub(crate) fn encode_header(magic: &[u8; 8], version: u16, base_offset: i64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mut rest = &mut header[..];
    rest.put_slice(magic);
    rest.put_u16(version);
    rest.put_u16(0);
    rest.put_i64(base_offset);
    let crc = crc32fast::hash(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_be_bytes());
    header
}

/// The entries' bytes, if the header is exactly the one due.
pub(crate) fn strip_header<'a>(bytes: &'a [u8], magic: &[u8; 8], version: u16, base_offset: i64) -> Option<&'a [u8]> {
    bytes.strip_prefix(&encode_header(magic, version, base_offset))
}

/// The header of the `.index` file.
pub(crate) fn file_header(base_offset: i64) -> [u8; HEADER_BYTES] {
    encode_header(MAGIC, VERSION, base_offset)
}

/// Appends entry number `ordinal` as it stands in the file.
pub(crate) fn encode_entry(base_offset: i64, ordinal: u32, entry: IndexEntry, out: &mut impl BufMut) {
    let relative = u32::try_from(entry.offset - base_offset).expect("only storable entries are made");
    out.put_u32(relative);
    out.put_uint(entry.position, 6);
    out.put_u16(check(base_offset, ordinal, relative, entry.position));
}

fn check(base_offset: i64, ordinal: u32, relative: u32, position: u64) -> u16 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&base_offset.to_be_bytes());
    hasher.update(&ordinal.to_be_bytes());
    hasher.update(&relative.to_be_bytes());
    hasher.update(&position.to_be_bytes());
    let crc = hasher.finalize();
    (crc >> 16) as u16 ^ crc as u16
}

/// The valid entries at the beginning of the file's bytes, as far as they point into a segment of `len` bytes whose
/// next offset is `next_offset`.
pub(crate) fn decode(bytes: &[u8], base_offset: i64, len: u64, next_offset: i64) -> Vec<IndexEntry> {
    let mut entries: Vec<IndexEntry> = Vec::new();
    let mut last = IndexEntry { offset: base_offset, position: 0 };
    let body = strip_header(bytes, MAGIC, VERSION, base_offset).unwrap_or_default();
    for (ordinal, mut bytes) in (0u32..).zip(body.chunks_exact(ENTRY_BYTES)) {
        let relative = bytes.get_u32();
        let position = bytes.get_uint(6);
        let Some(offset) = base_offset.checked_add(i64::from(relative)) else { break };
        let is_valid = bytes.get_u16() == check(base_offset, ordinal, relative, position);
        let is_behind = offset > last.offset && position > last.position;
        if !is_valid || !is_behind || position >= len || offset >= next_offset {
            break;
        }
        last = IndexEntry { offset, position };
        entries.push(last);
    }
    entries
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_entries() -> impl Strategy<Value = Vec<IndexEntry>> {
        prop::collection::vec((1i64..5000, 1u64..3_000_000_000), 0..60).prop_map(|steps| {
            let mut last = IndexEntry { offset: 100, position: 0 };
            let next = |(offset, position): (i64, u64)| {
                last = IndexEntry { offset: last.offset + offset, position: last.position + position };
                last
            };
            steps.into_iter().map(next).collect()
        })
    }

    fn encode(entries: &[IndexEntry]) -> Vec<u8> {
        let mut bytes = file_header(100).to_vec();
        for (ordinal, entry) in (0..).zip(entries) {
            encode_entry(100, ordinal, *entry, &mut bytes);
        }
        bytes
    }

    proptest! {
        #[test]
        fn floor_agrees_with_a_linear_search(entries in any_entries(), wanted in 0i64..400_000, cut in any::<u64>()) {
            let index = OffsetIndex::default();
            entries.iter().for_each(|entry| index.push(*entry));
            let model = |below: u64| entries.iter().rfind(|e| e.offset <= wanted && e.position < below).copied();
            prop_assert_eq!(index.floor(wanted), model(u64::MAX));
            let cut = cut % 200_000_000_000;
            index.cut(cut);
            prop_assert_eq!(index.floor(wanted), model(cut));
            prop_assert_eq!(index.len(), entries.iter().filter(|entry| entry.position < cut).count());
        }

        #[test]
        fn a_damaged_file_gives_a_prefix(
            entries in any_entries(),
            cut in any::<prop::sample::Index>(),
            flip in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = encode(&entries);
            prop_assert_eq!(decode(&bytes, 100, u64::MAX, i64::MAX), entries.clone());
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Some(flip) = flip.filter(|_| !bytes.is_empty()) {
                let bit = flip.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let found = decode(&bytes, 100, u64::MAX, i64::MAX);
            prop_assert!(entries.starts_with(&found));
        }

        #[test]
        fn entries_outside_the_segment_are_not_taken(entries in any_entries(), len in any::<u64>(), next in 0i64..300_000) {
            let len = len % 200_000_000_000;
            let expected: Vec<_> =
                entries.iter().copied().take_while(|e| e.position < len && e.offset < next).collect();
            prop_assert_eq!(decode(&encode(&entries), 100, len, next), expected);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), base in any::<i64>()) {
            decode(&bytes, base, u64::MAX, i64::MAX);
            let mut headed = file_header(base).to_vec();
            headed.extend(bytes);
            decode(&headed, base, u64::MAX, i64::MAX);
        }
    }

    #[test]
    fn a_file_of_zeros_or_of_another_segment_has_no_entries() {
        let entries = [IndexEntry { offset: 200, position: 5000 }];
        assert_eq!(decode(&encode(&entries), 99, u64::MAX, i64::MAX), []);
        let mut zeroed = encode(&entries);
        zeroed.extend([0; 48]);
        assert_eq!(decode(&zeroed, 100, u64::MAX, i64::MAX), entries);
        assert_eq!(decode(&[0; 100], 0, u64::MAX, i64::MAX), []);
    }
}
