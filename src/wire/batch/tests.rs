//! The batch view against what producers get wrong, against another implementation, and against any bytes.

use proptest::prelude::*;

use super::*;

const LIMITS: BatchLimits = BatchLimits { decompressed_bytes_max: 10_000_000 };

/// Timestamp, key, value, headers.
type Plain = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

fn build(codec: Codec, records: &[Plain]) -> RecordBatch {
    let mut builder = BatchBuilder::new(codec);
    for (timestamp, key, value, headers) in records {
        let headers: Vec<_> = headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
        builder.push_with_headers(*timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    builder.build().expect("in-memory compression")
}

fn three() -> Vec<Plain> {
    vec![
        (1000, Some(b"key".to_vec()), Some(b"value".to_vec()), vec![]),
        (3000, None, Some(vec![]), vec![(b"h".to_vec(), None), (b"h".to_vec(), Some(vec![])), (vec![], Some(vec![1]))]),
        (2000, Some(vec![]), None, vec![]),
    ]
}

fn plain(record: Record) -> Plain {
    let headers = record.headers.into_iter().map(|header| (header.key.to_vec(), header.value.map(Vec::from)));
    (record.timestamp, record.key.map(Vec::from), record.value.map(Vec::from), headers.collect())
}

fn read_back(batch: &RecordBatch) -> Vec<Plain> {
    batch.records(10_000_000).expect("decompresses").map(|record| plain(record.expect("well-formed"))).collect()
}

/// Changes bytes of the whole batch and sets the checksum right again.
fn patched(batch: &RecordBatch, change: impl FnOnce(&mut Vec<u8>)) -> Result<RecordBatch, BatchError> {
    let mut bytes = batch.to_bytes().to_vec();
    change(&mut bytes);
    let crc = crc32c::crc32c(&bytes[CRC_COVERS_FROM..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    Ok(RecordBatch::split(bytes.into())?.remove(0))
}

/// What validation says of the three records with some bytes changed and the checksum right.
fn fault(change: impl FnOnce(&mut Vec<u8>)) -> String {
    patched(&build(Codec::None, &three()), change)
        .and_then(|batch| batch.validate(Validation::Strict, &LIMITS))
        .map_or_else(|error| format!("{:?}: {error}", error.fault()), |facts| format!("{facts:?}"))
}

#[test]
fn null_and_empty_and_repeated_headers_survive_every_codec() {
    for codec in Codec::ALL {
        let batch = build(codec, &three());
        let facts = batch.validate(Validation::Strict, &LIMITS).expect("valid");
        assert_eq!(read_back(&batch), three(), "{codec:?}");
        assert_eq!((facts.records, facts.max_timestamp, facts.max_timestamp_delta), (3, 3000, 1));
        assert_eq!((facts.min_timestamp, facts.first_unkeyed, facts.walked), (Some(1000), Some(1), true));
        assert_eq!(batch.codec().expect("known"), codec);
        let relaxed = batch.validate(Validation::Relaxed, &LIMITS).expect("valid");
        assert_eq!(relaxed.walked, codec == Codec::None);
        assert_eq!(relaxed.max_timestamp, 3000);
    }
}

#[test]
fn what_producers_get_wrong_is_told_apart() {
    let set =
        |at: usize, value: &'static [u8]| move |bytes: &mut Vec<u8>| bytes[at..at + value.len()].copy_from_slice(value);
    let cases = [
        ("nothing wrong", fault(|_| {})),
        ("base offset", fault(set(7, &[1]))),
        ("magic", fault(set(16, &[1]))),
        ("codec 5", fault(set(22, &[5]))),
        ("append time", fault(set(22, &[8]))),
        ("transactional without producer", fault(set(22, &[0x10]))),
        ("control", fault(set(22, &[0x20]))),
        ("delete horizon", fault(set(22, &[0x40]))),
        ("last offset delta", fault(set(26, &[7]))),
        ("count 2", fault(set(60, &[2]))),
        ("count 2 and delta 1", fault(|bytes| (bytes[60], bytes[26]) = (2, 1))),
        ("count 4 and delta 3", fault(|bytes| (bytes[60], bytes[26]) = (4, 3))),
        ("count 0", fault(|bytes| bytes[57..61].fill(0))),
        ("count −1", fault(|bytes| bytes[57..61].fill(0xff))),
        ("producer without sequence", fault(|bytes| bytes[43..53].fill(0))),
        ("producer id −2", fault(|bytes| bytes[50] = 0xfe)),
        ("timestamp overflow", fault(set(27, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]))),
        ("record length", fault(set(61, &[0x7e]))),
        ("negative record length", fault(set(61, &[0x01]))),
        ("key length", fault(set(65, &[0x7e]))),
        ("length −2", fault(set(65, &[0x03]))),
        ("offset delta", fault(set(64, &[2]))),
        (
            "bytes left over",
            fault(|bytes| {
                bytes.push(0);
                bytes[11] += 1;
            }),
        ),
        ("length shorter", fault(|bytes| bytes[11] -= 1)),
        ("length longer", fault(|bytes| bytes[11] += 1)),
        ("length 1", fault(|bytes| bytes[8..12].copy_from_slice(&[0, 0, 0, 1]))),
        ("length −1", fault(|bytes| bytes[8..12].fill(0xff))),
    ];
    let listed: Vec<_> = cases.iter().map(|(name, result)| format!("{name}: {result}")).collect();
    insta::assert_snapshot!(listed.join("\n"));
}

#[test]
fn the_checksum_is_checked() {
    let mut bytes = build(Codec::None, &three()).to_bytes().to_vec();
    bytes[70] ^= 0x10;
    let batch = RecordBatch::split(bytes.into()).expect("lengths are right").remove(0);
    assert!(!batch.verify_crc());
    assert!(matches!(batch.validate(Validation::Relaxed, &LIMITS), Err(BatchError::Crc { .. })));
}

#[test]
fn compressed_records_cut_short_are_found() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = patched(&build(codec, &three()), |bytes| {
            let last = bytes.len() - 1;
            bytes.truncate(last);
            bytes[11] -= 1;
        });
        let batch = batch.expect("lengths are right");
        let error = batch.validate(Validation::Strict, &LIMITS).expect_err("cut short");
        assert_eq!(error.fault(), BatchFault::Invalid, "{codec:?}: {error}");
        // Where a gzip member or a raw snappy block ends, only decompressing tells.
        let framing_tells = matches!(codec, Codec::Lz4 | Codec::Zstd);
        assert_eq!(batch.validate(Validation::Relaxed, &LIMITS).is_err(), framing_tells, "{codec:?}");
    }
}

#[test]
fn records_larger_than_the_window_are_walked_and_bounded() {
    let value: Vec<u8> = (0..1_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let records = [(1, None, Some(value), vec![]), (2, None, Some(b"after".to_vec()), vec![])];
    for codec in Codec::ALL {
        let batch = build(codec, &records);
        let facts = batch.validate(Validation::Strict, &LIMITS).expect("valid");
        assert!(facts.decompressed_bytes > 1_000_000);
        if codec != Codec::None {
            let limits = BatchLimits { decompressed_bytes_max: 500_000 };
            let error = batch.validate(Validation::Strict, &limits).expect_err("too large");
            assert_eq!(error.fault(), BatchFault::TooLarge, "{codec:?}: {error}");
        }
    }
}

#[test]
fn assigning_patches_the_header_and_shares_the_records() {
    let batch = build(Codec::None, &three());
    let kept = batch.assign(1 << 40, 7, Stamp::Keep);
    assert_eq!((kept.base_offset(), kept.last_offset(), kept.leader_epoch()), (1 << 40, (1 << 40) + 2, 7));
    assert_eq!((kept.crc(), kept.verify_crc()), (batch.crc(), true));
    assert_eq!(kept.records_bytes().as_ptr(), batch.records_bytes().as_ptr());

    let appended = batch.assign(5, 0, Stamp::Append(9999));
    assert!(appended.verify_crc());
    assert_eq!((appended.timestamp_type(), appended.max_timestamp()), (TimestampType::Append, 9999));
    assert!(appended.records(1000).expect("plain").all(|record| record.expect("well-formed").timestamp == 9999));

    // Sarama leaves the maximum unset.
    let unset = patched(&batch, |bytes| bytes[35..43].fill(0xff)).expect("lengths are right");
    let facts = unset.validate(Validation::Strict, &LIMITS).expect("valid");
    assert_eq!(facts.create_stamp(&unset), Stamp::Max(3000));
    let filled = unset.assign(0, -1, facts.create_stamp(&unset));
    assert_eq!(filled, batch);
    assert_eq!(facts.create_stamp(&filled), Stamp::Keep);
}

#[test]
fn sequences_wrap_to_zero() {
    let mut builder = BatchBuilder::default().producer(4, 0, i32::MAX - 1);
    (0..4).for_each(|_| builder.push(0, None, None));
    assert_eq!(builder.build().expect("plain").last_sequence(), 1);
}

#[test]
fn a_run_of_batches_is_split_and_a_cut_one_is_left() {
    let batches = [build(Codec::None, &three()), build(Codec::Gzip, &three()[..1])];
    let run: Bytes = batches.iter().flat_map(|batch| batch.to_bytes().to_vec()).collect();
    assert_eq!(RecordBatch::split(run.clone()).expect("whole"), batches);
    let mut cut = run.slice(..run.len() - 1);
    assert_eq!(RecordBatch::take_first(&mut cut).expect("whole"), batches[0]);
    let left = cut.clone();
    assert!(matches!(RecordBatch::take_first(&mut cut), Err(BatchError::Truncated { .. })));
    assert_eq!(cut, left);
    assert_eq!(batches[1].clone().compact(), batches[1]);
}

/// Batches as clients sent them: `captured.hex` names them.
#[test]
fn batches_of_real_clients_are_valid() {
    let lines = include_str!("tests/captured.hex").lines();
    let mut seen = Vec::new();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let bytes = line.as_bytes().chunks(2).map(|digits| {
            let digits = std::str::from_utf8(digits).expect("ASCII");
            u8::from_str_radix(digits, 16).expect("hexadecimal")
        });
        let batch = RecordBatch::split(bytes.collect::<Vec<_>>().into()).expect("one batch").remove(0);
        let facts = batch.validate(Validation::Strict, &LIMITS).expect("valid");
        let values = batch.records(1 << 20).expect("decompresses").map(|record| record.expect("well-formed").value);
        let first = values.flatten().next().expect("a value");
        let first = String::from_utf8_lossy(&first).into_owned();
        let codec = batch.codec().expect("known").name();
        seen.push(format!("{codec}: {} records, {} bytes, {first:.20}", facts.records, facts.decompressed_bytes));
    }
    insta::assert_snapshot!(seen.join("\n"));
}

mod oracle {
    //! The same batches through the crate `kafka-protocol`.

    use bytes::BytesMut;
    use kafka_protocol::protocol::StrBytes;
    use kafka_protocol::records::{
        Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
    };

    use super::*;

    fn theirs(codec: Codec) -> Compression {
        match codec {
            Codec::None => Compression::None,
            Codec::Gzip => Compression::Gzip,
            Codec::Snappy => Compression::Snappy,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd,
        }
    }

    #[test]
    fn another_implementation_reads_what_we_build() {
        let records =
            [(1000, Some(b"k".to_vec()), None, vec![(b"h".to_vec(), Some(b"v".to_vec()))]), three()[0].clone()];
        for codec in Codec::ALL {
            let batch = build(codec, &records).assign(500, 3, Stamp::Keep);
            let decoded = RecordBatchDecoder::decode_all(&mut batch.to_bytes()).expect("they read it");
            let read = &decoded[0].records;
            assert_eq!(read.len(), 2);
            for (index, (record, ours)) in read.iter().zip(&records).enumerate() {
                assert_eq!((record.offset, record.timestamp), (500 + index as i64, ours.0), "{codec:?}");
                assert_eq!(record.key.as_deref(), ours.1.as_deref());
                assert_eq!(record.value.as_deref(), ours.2.as_deref());
                assert_eq!(record.partition_leader_epoch, 3);
                assert_eq!(record.headers.len(), ours.3.len());
            }
        }
    }

    #[test]
    fn what_another_implementation_builds_is_valid() {
        for codec in Codec::ALL {
            let records: Vec<_> = (0..50)
                .map(|i| Record {
                    transactional: false,
                    control: false,
                    delete_horizon: false,
                    partition_leader_epoch: -1,
                    producer_id: 77,
                    producer_epoch: 2,
                    timestamp_type: TimestampType::Creation,
                    offset: i,
                    sequence: 5 + i as i32,
                    timestamp: 10_000 + i,
                    key: (i % 2 == 0).then(|| Bytes::from(format!("key {i}"))),
                    value: Some(Bytes::from(vec![i as u8; 100])),
                    headers: [(StrBytes::from_static_str("h"), Some(Bytes::from_static(b"x")))].into_iter().collect(),
                })
                .collect();
            let mut out = BytesMut::new();
            let options = RecordEncodeOptions { version: 2, compression: theirs(codec) };
            RecordBatchEncoder::encode(&mut out, &records, &options).expect("they write it");
            let batch = RecordBatch::split(out.freeze()).expect("one batch").remove(0);
            let facts = batch.validate(Validation::Strict, &LIMITS).expect("valid");
            assert_eq!((facts.records, facts.max_timestamp, facts.first_unkeyed), (50, 10_049, Some(1)));
            assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (77, 2, 5));
            let read: Vec<_> =
                batch.records(1 << 20).expect("decompresses").map(|record| record.expect("fine")).collect();
            for (ours, theirs) in read.iter().zip(&records) {
                assert_eq!((ours.offset, ours.timestamp), (theirs.offset, theirs.timestamp));
                assert_eq!((&ours.key, &ours.value), (&theirs.key, &theirs.value));
            }
        }
    }
}

fn any_codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(&Codec::ALL[..])
}

fn any_records() -> impl Strategy<Value = Vec<Plain>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let headers = prop::collection::vec((bytes(), prop::option::of(bytes())), 0..4);
    let record = (-1..1_i64 << 50, prop::option::of(bytes()), prop::option::of(bytes()), headers);
    prop::collection::vec(record, 1..40)
}

proptest! {
    #[test]
    fn any_records_survive(codec in any_codec(), records in any_records()) {
        let batch = build(codec, &records);
        let again = RecordBatch::split(batch.to_bytes()).expect("whole").remove(0);
        let facts = again.validate(Validation::Strict, &LIMITS).expect("valid");
        prop_assert_eq!(facts.max_timestamp, records.iter().map(|record| record.0).max().expect("not empty"));
        let at = facts.max_timestamp_delta as usize;
        prop_assert_eq!(records[at].0, facts.max_timestamp);
        prop_assert_eq!(facts.create_stamp(&again), Stamp::Keep);
        prop_assert_eq!(read_back(&again), records);
    }

    /// Bytes after the checksum cannot change unseen; before it, only what the broker overwrites may.
    #[test]
    fn a_changed_byte_is_seen(codec in any_codec(), records in any_records(), at in any::<prop::sample::Index>(), bits in 1..=255_u8) {
        let batch = build(codec, &records);
        let mut bytes = batch.to_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        let accepted = RecordBatch::split(bytes.into()).and_then(|batches| {
            batches[0].validate(Validation::Strict, &LIMITS)?;
            Ok(batches)
        });
        match accepted {
            Err(_) => prop_assert!(!(12..16).contains(&at)),
            Ok(batches) => {
                prop_assert!((12..16).contains(&at), "byte {} changed unseen", at);
                prop_assert_eq!(batches[0].assign(0, -1, Stamp::Keep), batch);
            }
        }
    }

    /// With the checksum right, anything may be in the rest: no panic, and what passes can be read to the end.
    #[test]
    fn what_passes_can_be_read(codec in any_codec(), records in any_records(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let changed = patched(&build(codec, &records), |bytes| {
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        });
        if let Ok(batch) = changed
            && let Ok(facts) = batch.validate(Validation::Strict, &LIMITS)
        {
            let read: Result<Vec<_>, _> = batch.records(10_000_000).expect("decompresses").collect();
            prop_assert_eq!(read.expect("well-formed").len(), facts.records as usize);
        }
    }

    #[test]
    fn any_bytes_end_in_a_value_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..300), lie in any::<bool>()) {
        if lie && bytes.len() > HEADER_BYTES {
            let length = (bytes.len() - LENGTH_PREFIX_BYTES) as i32;
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            bytes[16] = 2;
            let crc = crc32c::crc32c(&bytes[CRC_COVERS_FROM..]);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        for batch in RecordBatch::split(bytes.into()).unwrap_or_default() {
            let _ = batch.validate(Validation::Strict, &LIMITS);
            if let Ok(records) = batch.records(100_000) {
                let _ = records.count();
            }
        }
    }
}
