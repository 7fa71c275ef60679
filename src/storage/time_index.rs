//! The time index of a segment: which part of it can hold the first record at or after a timestamp. Parallel to the
//! offset index: entry *n* stands at the batch of entry *n* there and says what the largest timestamp *before* that batch
//! is. Pure.
//!
//! So every batch before the last entry whose maximum is below the wanted timestamp can be skipped, and the answer lies
//! no more than one index interval behind it. What the answer is, the records say, with their own timestamps: never the
//! end of a batch (KAFKA-16310).
//!
//! # Format (version 1), big endian
//! A header of 24 bytes as in the `.index` file with magic `KILOTIDX`, then entries of 12 bytes {maximum timestamp i64, or
//! −1, CRC-32 u32 of base offset, ordinal, the offset and position that the `.index` file has, and timestamp}.
//!
//! # What a crash can leave
//! The same as with the `.index` file, and the two files of different lengths: the shorter one counts for both. **Entries
//! of the same number from before and after a cut**, where sectors of one file made it to the disk and those of the other
//! did not: the CRC binds an entry to its counterpart, so they do not pass as a pair.

use bytes::{Buf, BufMut};

use super::index::{ENTRY_BYTES, HEADER_BYTES, IndexEntry, encode_header, strip_header};

const MAGIC: &[u8; 8] = b"KILOTIDX";
const VERSION: u16 = 1;

/// One entry of the time index, with the place that the offset index has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    /// The largest timestamp of all batches before this place, -1 if they have none.
    pub(crate) max_before: i64,
    /// Base offset of the batch at this place.
    pub(crate) offset: i64,
    /// Where its frame begins.
    pub(crate) position: u64,
}

/// The entries of one segment in memory, by place; their maxima never fall.
#[derive(Debug, Default)]
pub(crate) struct TimeIndex {
    entries: Vec<TimeEntry>,
}

impl TimeIndex {
    /// Adds an entry behind all others.
    pub(crate) fn push(&mut self, entry: TimeEntry) {
        debug_assert!(self.entries.last().is_none_or(|last| last.max_before <= entry.max_before));
        self.entries.push(entry);
    }

    /// The last place before which every timestamp is below `timestamp`: a search begins there. `None`: at the
    /// segment's beginning.
    pub(crate) fn search_from(&self, timestamp: i64) -> Option<TimeEntry> {
        let below = self.entries.partition_point(|entry| entry.max_before < timestamp);
        Some(self.entries[below.checked_sub(1)?])
    }

    /// Drops the entries at or behind `position`.
    pub(crate) fn cut(&mut self, position: u64) {
        self.entries.truncate(self.entries.partition_point(|entry| entry.position < position));
    }

    /// The entries from number `ordinal` on.
    pub(crate) fn tail(&self, ordinal: u32) -> &[TimeEntry] {
        self.entries.get(ordinal as usize..).unwrap_or_default()
    }

    /// The last entry before `position`.
    pub(crate) fn last_before(&self, position: u64) -> Option<TimeEntry> {
        let before = self.entries.partition_point(|entry| entry.position < position);
        Some(self.entries[before.checked_sub(1)?])
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("entries are INTERVAL_BYTES_MIN apart in a file below 2^44 bytes")
    }
}

/// The header of the `.timeindex` file.
pub(crate) fn file_header(base_offset: i64) -> [u8; HEADER_BYTES] {
    encode_header(MAGIC, VERSION, base_offset)
}

/// Appends entry number `ordinal` as it stands in the file.
pub(crate) fn encode_entry(base_offset: i64, ordinal: u32, entry: TimeEntry, out: &mut impl BufMut) {
    out.put_i64(entry.max_before);
    out.put_u32(check(base_offset, ordinal, entry));
}

fn check(base_offset: i64, ordinal: u32, entry: TimeEntry) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&base_offset.to_be_bytes());
    hasher.update(&ordinal.to_be_bytes());
    hasher.update(&entry.offset.to_be_bytes());
    hasher.update(&entry.position.to_be_bytes());
    hasher.update(&entry.max_before.to_be_bytes());
    hasher.finalize()
}

/// The valid entries at the beginning of the file's bytes, for the places that the `.index` file has.
pub(crate) fn decode(bytes: &[u8], base_offset: i64, places: &[IndexEntry]) -> Vec<TimeEntry> {
    let mut entries: Vec<TimeEntry> = Vec::new();
    let body = strip_header(bytes, MAGIC, VERSION, base_offset).unwrap_or_default();
    for ((ordinal, place), mut bytes) in (0u32..).zip(places).zip(body.chunks_exact(ENTRY_BYTES)) {
        let entry = TimeEntry { max_before: bytes.get_i64(), offset: place.offset, position: place.position };
        let is_valid = bytes.get_u32() == check(base_offset, ordinal, entry);
        let falls = entries.last().is_some_and(|last| last.max_before > entry.max_before);
        if !is_valid || entry.max_before < -1 || falls {
            break;
        }
        entries.push(entry);
    }
    entries
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_search_begins_before_the_answer_and_within_one_interval(
            timestamps in prop::collection::vec(-1i64..100, 1..200),
            every in 1usize..20,
            wanted in -2i64..110,
        ) {
            let mut index = TimeIndex::default();
            let mut max = -1;
            for (at, timestamp) in timestamps.iter().enumerate() {
                if at > 0 && at % every == 0 {
                    index.push(TimeEntry { max_before: max, offset: at as i64, position: at as u64 });
                }
                max = max.max(*timestamp);
            }
            let begin = index.search_from(wanted).map_or(0, |entry| entry.offset as usize);
            match timestamps.iter().position(|timestamp| *timestamp >= wanted) {
                Some(answer) => prop_assert!(begin <= answer && answer < begin + every + usize::from(begin == 0)),
                None => prop_assert!(timestamps.len() - begin <= every),
            }
        }

        #[test]
        fn a_damaged_file_gives_a_prefix(
            mut maxima in prop::collection::vec(-1i64.., 0..50),
            cut in any::<prop::sample::Index>(),
            flip in prop::option::of(any::<prop::sample::Index>()),
            moved in any::<prop::sample::Index>(),
        ) {
            maxima.sort_unstable();
            let place = |at: usize| IndexEntry { offset: 7 + at as i64 * 3, position: at as u64 * 5000 };
            let mut places: Vec<_> = (1..=maxima.len()).map(place).collect();
            let entry = |(max_before, place): (i64, &IndexEntry)| TimeEntry {
                max_before,
                offset: place.offset,
                position: place.position,
            };
            let entries: Vec<_> = maxima.into_iter().zip(&places).map(entry).collect();
            let mut bytes = file_header(7).to_vec();
            for (ordinal, entry) in (0..).zip(&entries) {
                encode_entry(7, ordinal, *entry, &mut bytes);
            }
            prop_assert_eq!(decode(&bytes, 7, &places), entries.clone());
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Some(flip) = flip.filter(|_| !bytes.is_empty()) {
                let bit = flip.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            prop_assert!(entries.starts_with(&decode(&bytes, 7, &places)));
            // A counterpart from before a cut ends what is valid.
            if !places.is_empty() {
                let moved = moved.index(places.len());
                places[moved].position += 100;
                prop_assert!(decode(&bytes, 7, &places).len() <= moved);
            }
        }
    }
}
