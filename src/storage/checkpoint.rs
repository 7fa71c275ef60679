//! The checkpoint of a partition: up to where its segments are flushed, and the state that goes with that point.
//! Recovery cuts the segments to it and applies exactly the write-ahead log's entries above its LSN.
//!
//! Two files, `checkpoint.a` and `checkpoint.b`, written in turn and never renamed: a slot is overwritten in place and
//! flushed while the other one stays whole.
//!
//! # Format of a slot (version 1), big endian
//! | bytes | |
//! |---|---|
//! | 8 | magic `KILOCHKP` |
//! | 2 | version |
//! | 8 | sequence: the slot with the larger one is newer |
//! | 8 | length of the body |
//! | 4 | CRC-32 of version, sequence, length and body |
//! | … | body: topic id, partition i32, LSN u64, segment base i64, position u64, next offset i64, log start i64, number of epochs u32, (leader epoch i32, start offset i64) each, length of the producer snapshot u64, snapshot |
//!
//! Bytes past the body are left from an earlier, longer checkpoint and mean nothing.
//!
//! # What a crash can leave
//! * **No slot, or empty slots**: the partition is new. `open` answers with no checkpoint: everything in the
//!   write-ahead log applies.
//! * **One torn slot** (any mixture of its old and new sectors): its checksum is wrong and the other slot, older and
//!   whole, counts. The write-ahead log is released only after `store` has answered, so it still has all that the older
//!   one needs. A slot that was whole and rots, or goes missing, looks the same, and the write-ahead log may have moved
//!   on: [`CheckpointStore::doubt`] tells the caller to look.
//! * **A whole slot that is only in the page cache** (`kill -9` between write and flush, or a flush that failed): a power
//!   cut later could take it back, after the next `store` has begun to overwrite the other one. So `open` writes the slot
//!   that it answers with once more, and flushes it and the directory before it answers. A flush alone would not do:
//!   after one that failed, the system takes the pages for clean.
//! * **Both slots damaged, one of them not empty**: not left by a crash. [`OpenError::Damaged`].

use std::io;
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::durable;
use super::{Lsn, PartitionKey, TopicId};
use crate::io::{Env, File, OpenMode, is_no_space};

/// The slots' file names within the partition's directory.
pub const FILE_NAMES: [&str; 2] = ["checkpoint.a", "checkpoint.b"];

const MAGIC: &[u8; 8] = b"KILOCHKP";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 8 + 2 + 8 + 8 + 4;
const CRC_AT: usize = HEADER_BYTES - 4;
const EPOCH_BYTES: usize = 4 + 8;
/// Larger than any checkpoint: bounds what a damaged length can make us read.
const SLOT_BYTES_MAX: u64 = 1 << 30;

/// A leader epoch and the first offset written in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The leader epoch.
    pub leader_epoch: i32,
    /// The offset of the first record that could be appended in it.
    pub start_offset: i64,
}

/// A point up to which a partition is durable outside the write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Every entry up to and including this LSN is in here.
    pub lsn: Lsn,
    /// Base offset of the segment that `position` is in.
    pub segment: i64,
    /// Flushed bytes of that segment.
    pub position: u64,
    /// The offset after the last record before `position`.
    pub next_offset: i64,
    /// The first offset that may be read.
    pub log_start: i64,
    /// The leader epochs, ascending.
    pub epochs: Vec<EpochStart>,
    /// The state of idempotent producers, in a format of the log's own.
    pub producers: Bytes,
}

/// Why bytes are not a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Nothing was ever written here.
    #[error("is empty")]
    Empty,
    /// Does not begin like one, or is shorter than it says.
    #[error("is not a whole checkpoint")]
    Torn,
    /// The checksum is wrong.
    #[error("has a wrong checksum")]
    Checksum,
    /// Written by a newer Kilo.
    #[error("has format version {0}; this Kilo reads version {VERSION}")]
    Version(u16),
    /// The checksum is right and the contents are impossible: a bug wrote it.
    #[error("has impossible contents")]
    Contents,
}

/// Why a partition's checkpoint cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No slot is whole and at least one was written: the state that goes with the segments is lost.
    #[error(
        "no checkpoint is whole: slot a {a}, slot b {b}. Restore them from a copy of the data folder; or, to go by the records \
         in the segment files alone, move checkpoint.a and checkpoint.b elsewhere and start again"
    )]
    Damaged {
        /// What is wrong with `checkpoint.a`.
        a: DecodeError,
        /// What is wrong with `checkpoint.b`.
        b: DecodeError,
    },
    /// It belongs to another partition.
    #[error("the checkpoint belongs to partition {0}")]
    Foreign(PartitionKey),
    /// Written by a newer Kilo: refuse to touch it.
    #[error("the checkpoint has format version {0}; this Kilo reads version {VERSION}")]
    NewerVersion(u16),
    /// The disk failed.
    #[error("reading the checkpoint: {0}")]
    Io(#[from] io::Error),
}

/// A slot's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    sequence: u64,
    partition: PartitionKey,
    checkpoint: Checkpoint,
}

/// The two slots of one partition.
pub struct CheckpointStore {
    env: Env,
    dir: PathBuf,
    partition: PartitionKey,
    /// Whether the slot's name is stable.
    named: [bool; 2],
    /// Which slot the next checkpoint goes to: never the one that holds the newest whole one.
    next_slot: usize,
    next_sequence: u64,
    /// What is wrong with the slot beside the newest whole one.
    other: Option<DecodeError>,
}

impl CheckpointStore {
    /// Opens the slots in `dir` and answers with the newest whole checkpoint, which is durable by then.
    pub async fn open(env: &Env, dir: &Path, partition: PartitionKey) -> Result<(Self, Option<Checkpoint>), OpenError> {
        let mut slots = [Err(DecodeError::Empty), Err(DecodeError::Empty)];
        let mut found = [false; 2];
        for ((slot, found), name) in slots.iter_mut().zip(&mut found).zip(FILE_NAMES) {
            let read = durable::read_file(env, &dir.join(name), SLOT_BYTES_MAX).await;
            *found = matches!(read, Ok(Some(_)));
            match read {
                Ok(bytes) => *slot = decode_slot(&bytes.unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => *slot = Err(DecodeError::Torn),
                Err(error) => return Err(error.into()),
            }
        }
        let newer = |error: &DecodeError| matches!(error, DecodeError::Version(_));
        if let Some(DecodeError::Version(version)) =
            slots.iter().filter_map(|slot| slot.as_ref().err()).find(|e| newer(e))
        {
            return Err(OpenError::NewerVersion(*version));
        }
        let whole = |at: usize| slots[at].as_ref().ok().map(|slot| (slot.sequence, at));
        let newest = whole(0).max(whole(1));
        let mut store = Self {
            env: env.clone(),
            dir: dir.to_owned(),
            partition,
            named: [false; 2],
            next_slot: newest.map_or(0, |(_, at)| 1 - at),
            next_sequence: newest.map_or(1, |(sequence, _)| sequence + 1),
            other: newest.and_then(|(_, at)| slots[1 - at].as_ref().err().cloned()),
        };
        let Some((_, at)) = newest else {
            return match slots {
                // A torn first checkpoint beside a slot never written: the partition's first `store` was under way.
                [Err(DecodeError::Empty), Err(_)] | [Err(_), Err(DecodeError::Empty)] => Ok((store, None)),
                [Err(a), Err(b)] => Err(OpenError::Damaged { a, b }),
                _ => unreachable!("a whole slot would be the newest"),
            };
        };
        crate::sometimes!(
            "checkpoint.torn_slot",
            matches!(slots[1 - at], Err(DecodeError::Checksum | DecodeError::Torn))
        );
        let [a, b] = slots;
        let newest = if at == 0 { a } else { b };
        let slot = newest.expect("the newest slot is whole");
        if slot.partition != partition {
            return Err(OpenError::Foreign(slot.partition));
        }
        let file = store.file(at).await?;
        match file.write_at(0, vec![encode_slot(slot.sequence, partition, &slot.checkpoint)]).await {
            // On file systems that never write in place even this can meet a full disk; reading must go on then.
            Err(error) if !is_no_space(&error) => return Err(error.into()),
            _ => {}
        }
        durable::sync_data(env, &file, &dir.join(FILE_NAMES[at])).await;
        durable::sync_dir(env, dir).await;
        store.named = found;
        Ok((store, Some(slot.checkpoint)))
    }

    /// Why a checkpoint that is newer than the one that [`Self::open`] answered with may be lost: the name of the other
    /// slot, and what is wrong with it. `None` if both are whole.
    pub fn doubt(&self) -> Option<(&'static str, &DecodeError)> {
        self.other.as_ref().map(|error| (FILE_NAMES[self.next_slot], error))
    }

    /// Whether the other slot may never have been written: the first checkpoint is the only one.
    pub fn is_first(&self) -> bool {
        self.next_sequence == 2 && self.other == Some(DecodeError::Empty)
    }

    /// Writes a checkpoint; durable when it answers. Everything that it says is flushed must be flushed already.
    ///
    /// After an error the previous checkpoint still counts. A failed flush ends the incarnation.
    pub async fn store(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        let at = self.next_slot;
        let file = self.file(at).await?;
        let bytes = encode_slot(self.next_sequence, self.partition, checkpoint);
        file.write_at(0, vec![bytes]).await?;
        durable::sync_data(&self.env, &file, &self.dir.join(FILE_NAMES[at])).await;
        if !std::mem::replace(&mut self.named[at], true) {
            durable::sync_dir(&self.env, &self.dir).await;
        }
        self.next_slot = 1 - at;
        self.next_sequence += 1;
        self.other = None;
        Ok(())
    }

    /// Opened for each checkpoint: they are rare, and descriptors are few.
    async fn file(&self, at: usize) -> io::Result<File> {
        self.env.disk().open(&self.dir.join(FILE_NAMES[at]), OpenMode::Create).await
    }
}

fn encode_slot(sequence: u64, partition: PartitionKey, checkpoint: &Checkpoint) -> Bytes {
    let epochs = checkpoint.epochs.len();
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + 80 + epochs * EPOCH_BYTES + checkpoint.producers.len());
    bytes.put_slice(MAGIC);
    bytes.put_u16(VERSION);
    bytes.put_u64(sequence);
    bytes.put_u64(0);
    bytes.put_u32(0);
    bytes.put_slice(&partition.topic.0);
    bytes.put_i32(partition.index);
    bytes.put_u64(checkpoint.lsn.0);
    bytes.put_i64(checkpoint.segment);
    bytes.put_u64(checkpoint.position);
    bytes.put_i64(checkpoint.next_offset);
    bytes.put_i64(checkpoint.log_start);
    bytes.put_u32(u32::try_from(epochs).expect("leader epochs are i32 and distinct, so fewer than 2^32"));
    for epoch in &checkpoint.epochs {
        bytes.put_i32(epoch.leader_epoch);
        bytes.put_i64(epoch.start_offset);
    }
    bytes.put_u64(checkpoint.producers.len() as u64);
    bytes.put_slice(&checkpoint.producers);
    let body = (bytes.len() - HEADER_BYTES) as u64;
    bytes[CRC_AT - 8..CRC_AT].copy_from_slice(&body.to_be_bytes());
    let crc = slot_crc(&bytes);
    bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
    bytes.freeze()
}

/// The checksum of a slot of exactly `bytes`: all but the magic and the checksum itself.
fn slot_crc(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[MAGIC.len()..CRC_AT]);
    hasher.update(&bytes[HEADER_BYTES..]);
    hasher.finalize()
}

fn decode_slot(bytes: &[u8]) -> Result<Slot, DecodeError> {
    // A slot whose sectors never reached the disk reads as empty or as zeros.
    if bytes.iter().take(HEADER_BYTES).all(|byte| *byte == 0) {
        return Err(DecodeError::Empty);
    }
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
        return Err(DecodeError::Torn);
    }
    let mut header = &bytes[MAGIC.len()..];
    let version = header.get_u16();
    let sequence = header.get_u64();
    let len = header.get_u64();
    let crc = header.get_u32();
    let whole =
        usize::try_from(len).ok().and_then(|len| len.checked_add(HEADER_BYTES)).and_then(|end| bytes.get(..end));
    let whole = whole.ok_or(DecodeError::Torn)?;
    // The checksum comes before the version, so that damage to the version is damage and not the future.
    if slot_crc(whole) != crc {
        return Err(DecodeError::Checksum);
    }
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    decode_body(&whole[HEADER_BYTES..], sequence).ok_or(DecodeError::Contents)
}

fn decode_body(mut body: &[u8], sequence: u64) -> Option<Slot> {
    let mut topic = [0; 16];
    body.try_copy_to_slice(&mut topic).ok()?;
    let partition = PartitionKey { topic: TopicId(topic), index: body.try_get_i32().ok()? };
    let lsn = Lsn(body.try_get_u64().ok()?);
    let segment = body.try_get_i64().ok()?;
    let position = body.try_get_u64().ok()?;
    let next_offset = body.try_get_i64().ok()?;
    let log_start = body.try_get_i64().ok()?;
    let count = body.try_get_u32().ok()? as usize;
    if body.len() < count.checked_mul(EPOCH_BYTES)? {
        return None;
    }
    let epochs: Vec<_> =
        (0..count).map(|_| EpochStart { leader_epoch: body.get_i32(), start_offset: body.get_i64() }).collect();
    let producers_len = usize::try_from(body.try_get_u64().ok()?).ok()?;
    if body.len() != producers_len {
        return None;
    }
    let producers = Bytes::copy_from_slice(body);
    let checkpoint = Checkpoint { lsn, segment, position, next_offset, log_start, epochs, producers };
    Some(Slot { sequence, partition, checkpoint })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTITION: PartitionKey = PartitionKey { topic: TopicId([9; 16]), index: 4 };

    fn any_checkpoint() -> impl Strategy<Value = Checkpoint> {
        let epoch = (any::<i32>(), any::<i64>())
            .prop_map(|(leader_epoch, start_offset)| EpochStart { leader_epoch, start_offset });
        let producers = prop::collection::vec(any::<u8>(), 0..500);
        (any::<[u64; 2]>(), any::<[i64; 3]>(), prop::collection::vec(epoch, 0..20), producers).prop_map(
            |([lsn, position], [segment, next_offset, log_start], epochs, producers)| Checkpoint {
                lsn: Lsn(lsn),
                segment,
                position,
                next_offset,
                log_start,
                epochs,
                producers: producers.into(),
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip_with_old_bytes_behind(
            checkpoint in any_checkpoint(),
            sequence in any::<u64>(),
            behind in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut bytes = encode_slot(sequence, PARTITION, &checkpoint).to_vec();
            bytes.extend(behind);
            let slot = Slot { sequence, partition: PARTITION, checkpoint };
            prop_assert_eq!(decode_slot(&bytes), Ok(slot));
        }

        #[test]
        fn no_truncation_passes(checkpoint in any_checkpoint(), cut in any::<prop::sample::Index>()) {
            let bytes = encode_slot(1, PARTITION, &checkpoint);
            prop_assert!(decode_slot(&bytes[..cut.index(bytes.len())]).is_err());
        }

        #[test]
        fn no_flipped_bit_passes_or_reads_as_the_future(
            checkpoint in any_checkpoint(),
            at in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encode_slot(1, PARTITION, &checkpoint).to_vec();
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = decode_slot(&bytes);
            prop_assert!(matches!(error, Err(DecodeError::Checksum | DecodeError::Torn)), "{:?}", error);
        }

        #[test]
        fn any_mixture_of_two_checkpoints_is_one_of_them_or_refused(
            old in any_checkpoint(),
            new in any_checkpoint(),
            survives in prop::collection::vec(any::<bool>(), 64),
        ) {
            // Sectors of 16 bytes, so that short checkpoints tear as well.
            let old_bytes = encode_slot(1, PARTITION, &old);
            let new_bytes = encode_slot(3, PARTITION, &new);
            let mut torn = old_bytes.to_vec();
            torn.resize(old_bytes.len().max(new_bytes.len()), 0);
            for (at, sector) in new_bytes.chunks(16).enumerate() {
                if survives[at % survives.len()] {
                    torn[at * 16..at * 16 + sector.len()].copy_from_slice(sector);
                }
            }
            if let Ok(slot) = decode_slot(&torn) {
                prop_assert!(slot.checkpoint == old || slot.checkpoint == new);
            }
        }

        #[test]
        fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode_slot(&bytes).is_err());
        }
    }

    fn numbered(n: u64, producers: usize) -> Checkpoint {
        Checkpoint {
            lsn: Lsn(n),
            segment: 0,
            position: n * 100,
            next_offset: n as i64 * 10,
            log_start: 0,
            epochs: vec![EpochStart { leader_epoch: 1, start_offset: 0 }],
            producers: vec![n as u8; producers].into(),
        }
    }

    async fn flip(env: &Env, path: &Path, at: u64) {
        let file = env.disk().open(path, OpenMode::ReadWrite).await.expect("the slot");
        let byte = file.read_at(at, 1).await.expect("readable")[0];
        file.write_at(at, vec![Bytes::from(vec![byte ^ 4])]).await.expect("writable");
    }

    #[test]
    fn slots_take_turns_and_a_torn_one_falls_back_to_the_other() {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        crate::io::real::block_on_test(|env| async move {
            let dir = temporary.path();
            let open = async || CheckpointStore::open(&env, dir, PARTITION).await;
            let (mut store, none) = open().await.expect("a new partition");
            assert_eq!(none, None);
            for n in 1..=5 {
                // Shorter each time: old bytes stay behind.
                store.store(&numbered(n, 2000 - n as usize * 300)).await.expect("room on the disk");
                let (_, found) = open().await.expect("whole");
                assert_eq!(found, Some(numbered(n, 2000 - n as usize * 300)));
            }
            // The fifth is in slot a.
            flip(&env, &dir.join(FILE_NAMES[0]), 60).await;
            let (mut store, found) = open().await.expect("one slot is whole");
            assert_eq!(found, Some(numbered(4, 800)));
            // The next one goes over the torn slot, not over the last whole one.
            store.store(&numbered(6, 0)).await.expect("room on the disk");
            flip(&env, &dir.join(FILE_NAMES[0]), 60).await;
            assert_eq!(open().await.expect("one slot is whole").1, Some(numbered(4, 800)));
            flip(&env, &dir.join(FILE_NAMES[1]), 60).await;
            assert!(matches!(open().await.err(), Some(OpenError::Damaged { .. })));
        });
    }

    #[test]
    fn another_partitions_checkpoint_is_not_taken() {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        crate::io::real::block_on_test(|env| async move {
            let dir = temporary.path();
            let other = PartitionKey { index: 5, ..PARTITION };
            let (mut store, _) = CheckpointStore::open(&env, dir, other).await.expect("a new partition");
            store.store(&numbered(1, 10)).await.expect("room on the disk");
            let opened = CheckpointStore::open(&env, dir, PARTITION).await;
            assert!(matches!(opened.err(), Some(OpenError::Foreign(found)) if found == other));
        });
    }
}
