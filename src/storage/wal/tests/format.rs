//! The format: the bytes themselves, and that no bytes at all make decoding panic or accept what was not written.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::support::{append, partition};
use crate::storage::wal::block::{self, BLOCK_ALIGN, BlockHeader, BlockIdentity, HEADER_BYTES, HeaderError};
use crate::storage::wal::{Entry, entry};
use crate::storage::{Lsn, TopicId};

fn identity() -> BlockIdentity {
    BlockIdentity {
        writer: 0x0123_4567_89AB_CDEF,
        file_sequence: 5,
        lsn: Lsn(0x1122),
        durable_below: Lsn(0x1120),
        floor: Lsn(0x1000),
    }
}

fn flat(identity: &BlockIdentity, entries: &[Entry]) -> Vec<u8> {
    let buffers = block::build(identity, entries.iter());
    let mut whole = BytesMut::new();
    buffers.iter().for_each(|buffer| whole.extend_from_slice(buffer));
    whole.to_vec()
}

/// What replay does with a block, for any bytes.
fn read(bytes: &[u8]) -> Option<(BlockHeader, Vec<Entry>)> {
    let header = BlockHeader::decode(bytes).ok()?;
    let payload = bytes.get(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize)?;
    if !header.payload_matches(payload) {
        return None;
    }
    Some((header, entry::decode(Bytes::copy_from_slice(payload), header.entries).ok()?))
}

fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_bytes_of_a_block() {
    let entries = [
        Entry::EpochStart { partition: partition(1), leader_epoch: 2, start_offset: 3 },
        Entry::Truncate { partition: partition(-1), end_offset: 4 },
        Entry::LogStart { partition: partition(0), offset: 5 },
        Entry::Drop { topic: TopicId([9; 16]) },
        append(6, 7, 61),
    ];
    let bytes = flat(&identity(), &entries);
    assert_eq!(bytes.len() as u64, BLOCK_ALIGN);
    let payload = entries.iter().map(Entry::encoded_bytes).sum::<usize>();
    assert!(bytes[HEADER_BYTES + payload..].iter().all(|byte| *byte == 0));
    insta::assert_snapshot!(hex(&bytes[..HEADER_BYTES + payload]));
}

#[test]
fn large_pieces_are_not_copied_and_small_ones_are_gathered() {
    let large = append(0, 0, 100_000);
    let Entry::Append { batches, .. } = &large else { unreachable!("an append") };
    let records = batches[0].records_bytes().clone();
    let entries = [append(1, 0, 500), large, append(1, 1, 500), append(1, 2, 500)];
    let buffers = block::build(&identity(), entries.iter());
    assert_eq!(buffers.len(), 3);
    assert_eq!(buffers[1].as_ptr(), records.as_ptr());
    let bytes: usize = buffers.iter().map(Bytes::len).sum();
    assert_eq!(bytes as u64 % BLOCK_ALIGN, 0);
}

#[test]
fn another_version_is_told_from_damage() {
    let mut bytes = flat(&identity(), &[append(0, 0, 100)]);
    bytes[7] = 2;
    assert_eq!(BlockHeader::decode(&bytes), Err(HeaderError::Version(2)));
    assert_eq!(BlockHeader::decode(&bytes[..63]), Err(HeaderError::Short));
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = prop_oneof![
        (0..4, any::<i64>(), 61_usize..9000).prop_map(|(index, offset, bytes)| append(index, offset, bytes)),
        (any::<i32>(), any::<i64>())
            .prop_map(|(index, end_offset)| Entry::Truncate { partition: partition(index), end_offset }),
        (any::<i32>(), any::<i64>())
            .prop_map(|(index, offset)| Entry::LogStart { partition: partition(index), offset }),
        (any::<i32>(), any::<i32>(), any::<i64>()).prop_map(|(index, leader_epoch, start_offset)| {
            Entry::EpochStart { partition: partition(index), leader_epoch, start_offset }
        }),
        any::<[u8; 16]>().prop_map(|topic| Entry::Drop { topic: TopicId(topic) }),
    ];
    prop::collection::vec(one, 0..6)
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in entries()) {
        let bytes = flat(&identity(), &entries);
        let (header, read) = read(&bytes).expect("whole");
        prop_assert_eq!(read, entries);
        prop_assert_eq!(header.block_bytes(), bytes.len() as u64);
        prop_assert_eq!(
            BlockIdentity { writer: header.writer, file_sequence: header.file_sequence, lsn: header.lsn,
                durable_below: header.durable_below, floor: header.floor },
            identity()
        );
    }

    #[test]
    fn any_change_within_header_or_payload_is_noticed(
        entries in entries(),
        at in any::<prop::sample::Index>(),
        mask in 1_u8..,
    ) {
        let mut bytes = flat(&identity(), &entries);
        let used = HEADER_BYTES + entries.iter().map(Entry::encoded_bytes).sum::<usize>();
        bytes[at.index(used)] ^= mask;
        prop_assert_eq!(read(&bytes), None);
    }

    #[test]
    fn a_block_of_another_life_of_the_file_does_not_pass_by_checksum(
        entries in entries(),
        sequence in 6_u64..,
    ) {
        let bytes = flat(&identity(), &entries);
        let header = BlockHeader::decode(&bytes).expect("whole");
        let payload = &bytes[HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize];
        let claimed = BlockHeader { file_sequence: sequence, ..header };
        prop_assert!(!claimed.payload_matches(payload));
    }

    #[test]
    fn no_bytes_make_decoding_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0_u32..4) {
        let _ = read(&bytes);
        let _ = entry::decode(Bytes::copy_from_slice(&bytes), count);
        // The same behind plausible beginnings.
        for kind in 0..7 {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if bytes.len() > 4 {
                let length = u32::try_from(bytes.len() - 5).expect("small");
                bytes[1..5].copy_from_slice(&length.to_be_bytes());
            }
            let _ = entry::decode(Bytes::copy_from_slice(&bytes), 1);
        }
    }
}
