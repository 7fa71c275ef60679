//! Segments on the real disk, against a list of batches as the model.

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::lock::lock;
use super::*;
use crate::io::Env;
use crate::io::real::{RealConfig, RealEnv, block_on_test};
use crate::storage::frame::{FrameError, OffsetRule};
use crate::storage::index::IndexRule;
use crate::storage::names::{FileKind, PartitionDir};
use crate::storage::{PartitionName, TopicId};
use crate::wire::batch::{BatchBuilder, RecordBatch, Stamp};
use crate::wire::codec::Codec;

const BASE: i64 = 1000;
/// Small enough that a handful of batches has several entries.
const OPTIONS: SegmentOptions =
    SegmentOptions { index: IndexRule { messages: 10, bytes: 8192 }, decompressed_bytes_max: 1 << 20 };

fn dir(path: &Path) -> PartitionDir {
    let dir = PartitionDir::new(path, PartitionName::new("t", TopicId([1; 16]), 0).expect("a legal name"));
    std::fs::create_dir_all(dir.path()).expect("a temporary directory takes another");
    dir
}

fn batch(base_offset: i64, codec: Codec, timestamps: &[i64], value_bytes: usize) -> RecordBatch {
    let mut builder = BatchBuilder::new(codec);
    for (at, timestamp) in timestamps.iter().enumerate() {
        // Not compressible to nothing, and different at each offset.
        let seed = (base_offset as usize).wrapping_mul(31).wrapping_add(at * 7);
        let value: Vec<u8> = (0..value_bytes).map(|n| (seed.wrapping_mul(n + 1) >> 3) as u8).collect();
        builder.push(*timestamp, None, Some(&value));
    }
    builder.build().expect("compressible").assign(base_offset, 0, Stamp::Keep)
}

/// What a segment should hold.
#[derive(Default)]
struct Model(Vec<RecordBatch>);

impl Model {
    fn next_offset(&self) -> i64 {
        self.0.last().map_or(BASE, |batch| batch.last_offset() + 1)
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|batch| batch.size() as u64 + 8).sum()
    }

    fn max_timestamp(&self) -> i64 {
        self.0.iter().map(RecordBatch::max_timestamp).max().unwrap_or(-1)
    }

    fn read(&self, from: i64, bytes_max: usize, end_offset: i64) -> Vec<Bytes> {
        let mut sum = 0;
        let wanted = self.0.iter().filter(|b| b.last_offset() >= from).take_while(|b| b.last_offset() < end_offset);
        let fits = wanted.enumerate().take_while(|(at, b)| {
            sum += b.size();
            *at == 0 || sum <= bytes_max
        });
        fits.map(|(_, batch)| batch.to_bytes()).collect()
    }

    fn find_time(&self, timestamp: i64, from: i64, end_offset: i64) -> Option<TimestampedOffset> {
        let records = self.0.iter().flat_map(|batch| batch.records(1 << 20).expect("a good batch"));
        let mut places = records.map(|record| {
            let record = record.expect("a good record");
            TimestampedOffset { timestamp: record.timestamp, offset: record.offset }
        });
        places.find(|r| r.timestamp >= timestamp && r.offset >= from && r.offset < end_offset)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(Vec<i64>, usize, bool)>),
    Sync,
    Read { from: i64, bytes_max: usize, end_back: i64 },
    Time { timestamp: i64, from: i64, end_back: i64 },
    Truncate { back: i64 },
    Reopen(Reopen),
}

#[derive(Clone, Copy, Debug)]
enum Reopen {
    Known,
    KnownWithGarbage,
    Scan,
    ScanWithGarbage,
    Sealed,
    SealedWithoutIndex,
    /// One byte of one index file is flipped.
    DamagedIndex {
        kind: FileKind,
        at: usize,
        bit: u8,
    },
    /// One index file is cut.
    ShortIndex {
        kind: FileKind,
        at: usize,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let batch = (prop::collection::vec(-1i64..200, 1..8), 0usize..1500, any::<bool>());
    let kind = prop_oneof![Just(FileKind::Index), Just(FileKind::TimeIndex)];
    let reopen = prop_oneof![
        Just(Reopen::Known),
        Just(Reopen::KnownWithGarbage),
        Just(Reopen::Scan),
        Just(Reopen::ScanWithGarbage),
        Just(Reopen::Sealed),
        Just(Reopen::SealedWithoutIndex),
        (kind.clone(), 0usize..200, 0u8..8).prop_map(|(kind, at, bit)| Reopen::DamagedIndex { kind, at, bit }),
        (kind, 0usize..200).prop_map(|(kind, at)| Reopen::ShortIndex { kind, at }),
    ];
    prop_oneof![
        5 => prop::collection::vec(batch, 1..12).prop_map(Step::Append),
        1 => Just(Step::Sync),
        4 => (-3i64..200, 0usize..30_000, 0i64..20)
            .prop_map(|(from, bytes_max, end_back)| Step::Read { from: BASE + from, bytes_max, end_back }),
        4 => (-2i64..210, -3i64..200, 0i64..20)
            .prop_map(|(timestamp, from, end_back)| Step::Time { timestamp, from: BASE + from, end_back }),
        1 => (0i64..60).prop_map(|back| Step::Truncate { back }),
        2 => reopen.prop_map(Step::Reopen),
    ]
}

struct World {
    context: SegmentContext,
    dir: PartitionDir,
    segment: Segment,
    model: Model,
}

impl World {
    async fn new(env: Env, path: &Path) -> Self {
        let context = SegmentContext::new(env, 2, 1);
        let dir = dir(path);
        let segment = Segment::create(&context, &dir, BASE, OPTIONS).await.expect("a new segment");
        Self { context, dir, segment, model: Model::default() }
    }

    async fn append(&mut self, specs: &[(Vec<i64>, usize, bool)]) {
        let mut batches = Vec::new();
        for (timestamps, value_bytes, compressed) in specs {
            let codec = if *compressed { Codec::Lz4 } else { Codec::None };
            let batch = batch(self.model.next_offset(), codec, timestamps, *value_bytes);
            batches.push(batch.clone());
            self.model.0.push(batch);
        }
        self.segment.append(&batches).await.expect("room on the disk");
    }

    async fn open(&self, how: OpenAs) -> (Segment, ScanReport) {
        Segment::open(&self.context, &self.dir, BASE, OPTIONS, how).await.expect("a good segment")
    }

    fn known(&self) -> OpenAs {
        OpenAs::Known { len: self.model.len(), next_offset: self.model.next_offset() }
    }

    fn garbage_behind(&self) {
        let path = self.dir.file(BASE, FileKind::Log);
        let mut bytes = std::fs::read(&path).expect("the file");
        // The first frame again: valid in itself, and not in this place.
        let again: Vec<u8> = bytes.iter().take(300).copied().collect();
        bytes.extend(again);
        bytes.extend([0; 50]);
        std::fs::write(&path, bytes).expect("the file takes bytes");
    }

    fn damage_index(&self, kind: FileKind, damage: impl FnOnce(&mut Vec<u8>)) {
        let path = self.dir.file(BASE, kind);
        if let Ok(mut bytes) = std::fs::read(&path)
            && !bytes.is_empty()
        {
            damage(&mut bytes);
            std::fs::write(&path, bytes).expect("the file takes bytes");
        }
    }

    async fn reopen(&mut self, how: Reopen) -> Result<(), TestCaseError> {
        self.segment.sync().await.expect("a good disk");
        let mut stopped_expected = false;
        let how = match how {
            Reopen::Known => self.known(),
            Reopen::KnownWithGarbage => {
                self.garbage_behind();
                self.known()
            }
            Reopen::Scan => OpenAs::Scan(OffsetRule::Dense),
            Reopen::ScanWithGarbage => {
                self.garbage_behind();
                stopped_expected = true;
                OpenAs::Scan(OffsetRule::Dense)
            }
            Reopen::Sealed => OpenAs::Sealed(self.segment.seal().await.expect("a good disk")),
            Reopen::SealedWithoutIndex => {
                let sealed = self.segment.seal().await.expect("a good disk");
                for kind in [FileKind::Index, FileKind::TimeIndex] {
                    let _ = std::fs::remove_file(self.dir.file(BASE, kind));
                }
                OpenAs::Sealed(sealed)
            }
            Reopen::DamagedIndex { kind, at, bit } => {
                self.damage_index(kind, |bytes| {
                    let at = at % bytes.len();
                    bytes[at] ^= 1 << bit;
                });
                self.known()
            }
            Reopen::ShortIndex { kind, at } => {
                self.damage_index(kind, |bytes| bytes.truncate(at % bytes.len()));
                OpenAs::Sealed(self.segment.seal().await.expect("a good disk"))
            }
        };
        let (segment, report) = self.open(how).await;
        self.segment = segment;
        prop_assert_eq!(report.stopped.is_some(), stopped_expected);
        if let OpenAs::Sealed(_) = how {
            // Look at it as it is, then make it active again, so that the steps can go on.
            self.check_all().await?;
            self.segment.truncate(self.model.next_offset()).await.expect("a good disk");
        }
        Ok(())
    }

    async fn check_all(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.segment.next_offset(), self.model.next_offset());
        prop_assert_eq!(self.segment.len(), self.model.len());
        prop_assert_eq!(self.segment.max_timestamp(), self.model.max_timestamp());
        let max = self.segment.max_timestamp_record().await.expect("readable");
        let expected = self.model.find_time(self.model.max_timestamp().max(0), BASE, i64::MAX);
        prop_assert_eq!(max, expected.filter(|_| self.model.max_timestamp() >= 0));
        let all = self.segment.read(BASE, 4 << 20, i64::MAX).await.expect("readable");
        prop_assert_eq!(all, self.model.read(BASE, 4 << 20, i64::MAX));
        Ok(())
    }

    async fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let next = self.model.next_offset();
        match step {
            Step::Append(specs) => self.append(&specs).await,
            Step::Sync => self.segment.sync().await.expect("a good disk"),
            Step::Read { from, bytes_max, end_back } => {
                let found = self.segment.read(from, bytes_max, next - end_back).await.expect("readable");
                prop_assert_eq!(&found, &self.model.read(from, bytes_max, next - end_back));
                let fitting = self.segment.read_fitting(from, bytes_max, next - end_back).await.expect("readable");
                let fits = found.first().is_none_or(|first| first.len() <= bytes_max);
                prop_assert_eq!(fitting, if fits { found } else { Vec::new() });
            }
            Step::Time { timestamp, from, end_back } => {
                let found = self.segment.find_time(timestamp, from, next - end_back).await.expect("readable");
                prop_assert_eq!(found, self.model.find_time(timestamp, from, next - end_back));
            }
            Step::Truncate { back } => {
                let end = next - back;
                self.model.0.retain(|batch| batch.last_offset() < end);
                let found = self.segment.truncate(end).await.expect("a good disk");
                prop_assert_eq!(found, self.model.next_offset());
            }
            Step::Reopen(how) => self.reopen(how).await?,
        }
        self.check_all().await
    }
}

#[test]
fn any_operations_agree_with_a_list_of_batches() {
    let real = RealEnv::new(RealConfig { network_threads: 2, io_threads: 2 }).expect("a test can start threads");
    let mut runner = TestRunner::new(Config { cases: 200, ..Config::default() });
    let steps = prop::collection::vec(any_step(), 1..25);
    let result = runner.run(&steps, |steps| {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        real.block_on(async {
            let mut world = World::new(real.env(), temporary.path()).await;
            for step in steps {
                world.step(step).await?;
            }
            Ok(())
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn in_a_world<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    block_on_test(|env| async {
        let mut world = World::new(env, temporary.path()).await;
        for n in 0..40 {
            world.append(&[(vec![n * 10, n * 10 + 5], 1000, false)]).await;
        }
        world.segment.sync().await.expect("a good disk");
        test(world).await;
    });
}

#[test]
fn the_answer_to_a_timestamp_is_a_record_and_not_a_batch() {
    in_a_world(|world| async move {
        // The second record of the third batch; the batch begins earlier in time and offset, and ends with it.
        let found = world.segment.find_time(21, BASE, i64::MAX).await.expect("readable");
        assert_eq!(found, Some(TimestampedOffset { timestamp: 25, offset: BASE + 5 }));
    });
}

#[test]
fn a_damaged_batch_is_an_error_and_its_neighbours_are_read() {
    in_a_world(|world| async move {
        let path = world.dir.file(BASE, FileKind::Log);
        let frame_len = world.model.0[0].size() + 8;
        let mut bytes = std::fs::read(&path).expect("the file");
        bytes[20 * frame_len + 200] ^= 1;
        std::fs::write(&path, bytes).expect("the file takes bytes");
        let sealed = OpenAs::Sealed(world.segment.seal().await.expect("a good disk"));
        let (segment, _) = world.open(sealed).await;
        // A run that meets it ends before it.
        let before = segment.read(BASE, 4 << 20, i64::MAX).await.expect("readable");
        assert_eq!(before.len(), 20);
        let error = segment.read(BASE + 40, 4 << 20, i64::MAX).await.expect_err("the batch is damaged");
        assert!(matches!(error, SegmentError::Damaged { why: FrameError::Crc { .. }, .. }), "{error}");
        assert_eq!(segment.read(BASE + 42, 4 << 20, i64::MAX).await.expect("readable").len(), 19);
    });
}

#[test]
fn damaged_offsets_and_lengths_are_never_believed() {
    for (at, bit) in [(8 + 7, 0), (8 + 6, 3), (8, 6), (16 + 3, 0), (16 + 1, 1), (16, 7)] {
        in_a_world(|world| async move {
            let path = world.dir.file(BASE, FileKind::Log);
            let frame_len = world.model.0[0].size() + 8;
            let mut bytes = std::fs::read(&path).expect("the file");
            bytes[20 * frame_len + at] ^= 1 << bit;
            std::fs::write(&path, bytes).expect("the file takes bytes");
            let sealed = OpenAs::Sealed(world.segment.seal().await.expect("a good disk"));
            let (segment, _) = world.open(sealed).await;
            for offset in BASE..world.model.next_offset() {
                if let Ok(batches) = segment.read(offset, 1, i64::MAX).await {
                    assert_eq!(batches, world.model.read(offset, 1, i64::MAX), "at offset {offset}");
                }
            }
            assert!(segment.read(BASE + 40, 1, i64::MAX).await.is_err(), "byte {at}, bit {bit}");
        });
    }
}

#[test]
fn an_index_that_leads_astray_is_rebuilt() {
    in_a_world(|world| async move {
        // A well-formed index whose entries belong to another segment's layout.
        let sealed = OpenAs::Sealed(world.segment.seal().await.expect("a good disk"));
        let mut places = super::super::index::file_header(BASE).to_vec();
        let mut maxima = super::super::time_index::file_header(BASE).to_vec();
        for n in 0..3u32 {
            let entry = super::super::index::IndexEntry {
                offset: BASE + 7 + i64::from(n) * 9,
                position: 5000 + u64::from(n) * 9000,
            };
            super::super::index::encode_entry(BASE, n, entry, &mut places);
            let time = super::super::time_index::TimeEntry {
                max_before: i64::from(n),
                offset: entry.offset,
                position: entry.position,
            };
            super::super::time_index::encode_entry(BASE, n, time, &mut maxima);
        }
        std::fs::write(world.dir.file(BASE, FileKind::Index), places).expect("the file takes bytes");
        std::fs::write(world.dir.file(BASE, FileKind::TimeIndex), maxima).expect("the file takes bytes");
        let (segment, _) = world.open(sealed).await;
        for offset in BASE..world.model.next_offset() {
            let found = segment.read(offset, 1, i64::MAX).await.expect("readable");
            assert_eq!(found, world.model.read(offset, 1, i64::MAX));
        }
        // And what is in the files now is right.
        let (segment, _) = world.open(sealed).await;
        let view = segment.view().await.expect("readable");
        let resident = segment.resident(&view).await.expect("readable");
        assert!(!lock(&resident.files).cut);
    });
}

#[test]
fn a_flushed_part_that_is_missing_is_refused() {
    in_a_world(|world| async move {
        let path = world.dir.file(BASE, FileKind::Log);
        let mut bytes = std::fs::read(&path).expect("the file");
        bytes.pop();
        std::fs::write(&path, bytes).expect("the file takes bytes");
        let opened = Segment::open(&world.context, &world.dir, BASE, OPTIONS, world.known()).await;
        assert!(matches!(opened.err(), Some(SegmentError::Short { .. })));
    });
}

#[test]
fn cold_segments_close_their_files_and_read_on() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    block_on_test(|env| async move {
        let context = SegmentContext::new(env, 2, 1);
        let dir = dir(temporary.path());
        let mut segments = Vec::new();
        for n in 0..4 {
            let segment = Segment::create(&context, &dir, n * 10, OPTIONS).await.expect("a new segment");
            segment.append(&[batch(n * 10, Codec::None, &[n; 10], 50)]).await.expect("room on the disk");
            segment.seal().await.expect("a good disk");
            segments.push(segment);
        }
        for _ in 0..3 {
            for segment in &segments {
                let batches = segment.read(segment.base_offset(), 1, i64::MAX).await.expect("readable");
                assert_eq!(batches.len(), 1);
            }
        }
        let open = segments.iter().filter(|segment| segment.state().file.is_some()).count();
        assert_eq!(open, 2);
    });
}

#[test]
fn one_entry_per_thousand_messages_or_mebibyte() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    block_on_test(|env| async move {
        let context = SegmentContext::new(env, 2, 1);
        let options = SegmentOptions::default();
        let segment = Segment::create(&context, &dir(temporary.path()), 0, options).await.expect("a new segment");
        let mut next = 0;
        let mut append = async |records: usize, value_bytes: usize, batches: usize| {
            for _ in 0..batches {
                let batch = batch(next, Codec::None, &vec![0; records], value_bytes);
                next += records as i64;
                segment.append(&[batch]).await.expect("room on the disk");
            }
            let resident = segment.state().resident.clone().expect("active");
            resident.offsets.len()
        };
        // 10 batches of 100 small records: the 11th gets the entry.
        assert_eq!(append(100, 50, 10).await, 0);
        assert_eq!(append(100, 50, 1).await, 1);
        // Then every 8th of 128 KiB: the bytes decide. The batch with the entry counts for the next one.
        assert_eq!(append(1, 128 << 10, 16).await, 2);
        assert_eq!(append(1, 128 << 10, 1).await, 3);
    });
}
