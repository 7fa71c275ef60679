//! Segments, indexes, manifest and checkpoint under power cuts: any operations, a crash at any time, any surviving
//! subset of the sectors and names that were not synced.
//!
//! A small log without a write-ahead log does what the partition log does with these files. What it must give back
//! after each crash is exactly what was in it at its last checkpoint (or at one whose storing was under way), byte for
//! byte, by offset and by timestamp. Its indexes may be lost, torn or damaged; that must never be seen.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use kilo::io::Env;
use kilo::storage::frame::OffsetRule;
use kilo::storage::manifest::LoadError;
use kilo::storage::segment::{OpenAs, TimestampedOffset};
use kilo::storage::{
    Checkpoint, CheckpointStore, EpochStart, FileKind, IndexRule, Lsn, Manifest, PartitionDir, PartitionKey,
    PartitionName, Segment, SegmentContext, SegmentMeta, SegmentOptions, Tier, TopicId,
};
use kilo::wire::batch::{BatchBuilder, RecordBatch, Stamp};
use kilo_sim::disk::{DiskFaults, Keep};
use kilo_sim::host::{Exit, Node, SimConfig, run};

const SEEDS: u64 = 30;
const LIVES: usize = 16;
const PARTITION: PartitionKey = PartitionKey { topic: TopicId([3; 16]), index: 0 };
const OPTIONS: SegmentOptions =
    SegmentOptions { index: IndexRule { messages: 20, bytes: 6000 }, decompressed_bytes_max: 1 << 20 };

/// What the log should be.
#[derive(Default)]
struct Model {
    /// What the present life has appended on top of what it found.
    log: Vec<RecordBatch>,
    /// Next offset at the last checkpoint that was stored.
    stored: i64,
    /// Next offsets at checkpoints whose storing began later and has not been confirmed.
    under_way: Vec<i64>,
    recoveries: usize,
    checkpoints: usize,
    rolls: usize,
    cuts: usize,
    damaged_index_files: usize,
}

impl Model {
    fn next_offset(&self) -> i64 {
        self.log.last().map_or(0, |batch| batch.last_offset() + 1)
    }

    fn cut(&mut self, end_offset: i64) {
        self.log.retain(|batch| batch.last_offset() < end_offset);
    }

    fn find_time(&self, timestamp: i64) -> Option<TimestampedOffset> {
        let batches = self.log.iter().filter(|batch| batch.max_timestamp() >= timestamp);
        let records = batches.flat_map(|batch| batch.records(1 << 20).expect("a good batch"));
        let mut places = records.map(|record| record.expect("a good record"));
        let found = places.find(|record| record.timestamp >= timestamp)?;
        Some(TimestampedOffset { timestamp: found.timestamp, offset: found.offset })
    }
}

type SharedModel = Arc<Mutex<Model>>;

fn lock(model: &SharedModel) -> MutexGuard<'_, Model> {
    model.lock().expect("a life that panics fails the test before")
}

/// The files of one life.
struct Log {
    env: Env,
    model: SharedModel,
    rng: fastrand::Rng,
    context: SegmentContext,
    dir: PartitionDir,
    manifest: Manifest,
    checkpoints: CheckpointStore,
    segments: Vec<Segment>,
    lsn: u64,
}

impl Log {
    fn active(&self) -> &Segment {
        self.segments.last().expect("there is an active segment")
    }

    /// Recovers what there is. Errors of the disk end the life.
    async fn open(env: Env, model: SharedModel) -> Result<Self, Box<dyn std::error::Error>> {
        let mut rng = env.rng("segment_recovery");
        let data = Path::new("/data");
        let name = PartitionName::new("t", PARTITION.topic, PARTITION.index)?;
        let dir = PartitionDir::new(data, name);
        env.disk().create_dir_all(dir.path()).await?;
        env.disk().sync_dir(data).await?;
        env.disk().sync_dir(Path::new("/")).await?;
        let context = SegmentContext::new(env.clone(), rng.usize(1..4), rng.usize(1..4));
        let mut manifest = match Manifest::load(&env, dir.path(), PARTITION).await {
            Ok(manifest) => manifest,
            Err(LoadError::Missing) => {
                assert_eq!(lock(&model).stored, 0, "the manifest is gone");
                Segment::create(&context, &dir, 0, OPTIONS).await?;
                let manifest = Manifest::new(PARTITION, 0);
                manifest.store(&env, dir.path()).await?;
                manifest
            }
            Err(LoadError::Io(error)) => return Err(error.into()),
            Err(error) => panic!("{error}"),
        };
        let (checkpoints, checkpoint) = match CheckpointStore::open(&env, dir.path(), PARTITION).await {
            Ok(opened) => opened,
            Err(kilo::storage::checkpoint::OpenError::Io(error)) => return Err(error.into()),
            Err(error) => panic!("{error}"),
        };
        let (segment, position, next_offset, lsn) =
            checkpoint.as_ref().map_or((0, 0, 0, 0), |c| (c.segment, c.position, c.next_offset, c.lsn.0));
        let kept = manifest.segments.partition_point(|meta| meta.base_offset <= segment);
        let dropped = manifest.segments.split_off(kept);
        let last = manifest.segments.last_mut().expect("the checkpoint's segment is listed");
        assert_eq!(last.base_offset, segment, "the checkpoint's segment is not listed");
        if last.sealed.take().is_some() || !dropped.is_empty() {
            manifest.store(&env, dir.path()).await?;
        }
        let mut segments = Vec::new();
        for meta in &manifest.segments {
            let scans = meta.sealed.is_none() && rng.bool();
            let known = OpenAs::Known { len: position, next_offset };
            let how = match meta.sealed {
                Some(sealed) => OpenAs::Sealed(sealed),
                None if scans => OpenAs::Scan(OffsetRule::Dense),
                None => known,
            };
            let (segment, _) = Segment::open(&context, &dir, meta.base_offset, OPTIONS, how).await?;
            if scans {
                // A scan may find more, never less.
                assert!(segment.next_offset() >= next_offset && segment.len() >= position, "a scan found too little");
                assert_eq!(segment.truncate(next_offset).await?, next_offset);
                assert_eq!(segment.len(), position);
            }
            segments.push(segment);
        }
        let log = Self { env, model, rng, context, dir, manifest, checkpoints, segments, lsn };
        log.check_recovered(next_offset, checkpoint.as_ref()).await?;
        log.remove_garbage().await?;
        Ok(log)
    }

    async fn check_recovered(
        &self,
        next_offset: i64,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        {
            let mut model = lock(&self.model);
            let candidates = [&[model.stored], &model.under_way[..]].concat();
            assert!(candidates.contains(&next_offset), "recovered to {next_offset}, which is none of {candidates:?}");
            model.stored = next_offset;
            model.under_way.clear();
            model.cut(next_offset);
            assert_eq!(model.next_offset(), next_offset);
            model.recoveries += 1;
        }
        if let Some(checkpoint) = checkpoint {
            assert_eq!(*checkpoint, self.checkpoint_at(checkpoint.lsn.0));
        }
        self.check_all().await
    }

    fn checkpoint_at(&self, lsn: u64) -> Checkpoint {
        let active = self.active();
        let next_offset = active.next_offset();
        Checkpoint {
            lsn: Lsn(lsn),
            segment: active.base_offset(),
            position: active.len(),
            next_offset,
            log_start: 0,
            epochs: vec![EpochStart { leader_epoch: 1, start_offset: next_offset / 2 }],
            producers: vec![lsn as u8; (lsn * 97 % 5000) as usize].into(),
        }
    }

    /// Everything is there, by every way to it.
    async fn check_all(&self) -> Result<(), Box<dyn std::error::Error>> {
        let expected: Vec<Bytes> = lock(&self.model).log.iter().map(RecordBatch::to_bytes).collect();
        let mut found = Vec::new();
        for segment in &self.segments {
            let mut offset = segment.base_offset();
            while offset < segment.next_offset() {
                let batches = segment.read(offset, 20_000, i64::MAX).await?;
                let mut last = batches.last().expect("there is something at an offset below the next one").clone();
                offset = RecordBatch::take_first(&mut last)?.last_offset() + 1;
                found.extend(batches);
            }
        }
        assert!(found == expected, "other batches than those at the checkpoint");
        Ok(())
    }

    async fn check_some(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let next_offset = lock(&self.model).next_offset();
        if next_offset == 0 {
            return Ok(());
        }
        let offset = self.rng.i64(0..next_offset);
        let at = self.segments.partition_point(|segment| segment.base_offset() <= offset) - 1;
        let found = self.segments[at].read(offset, 1, i64::MAX).await?;
        {
            let model = lock(&self.model);
            let expected = model.log.iter().find(|batch| batch.last_offset() >= offset).map(RecordBatch::to_bytes);
            assert_eq!(found.first(), expected.as_ref(), "at offset {offset}");
        }
        let timestamp = self.rng.i64(0..1100);
        let mut by_time = None;
        for segment in &self.segments {
            by_time = segment.find_time(timestamp, 0, i64::MAX).await?;
            if by_time.is_some() {
                break;
            }
        }
        assert_eq!(by_time, lock(&self.model).find_time(timestamp), "at timestamp {timestamp}");
        Ok(())
    }

    async fn append(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let mut next_offset = lock(&self.model).next_offset();
        let mut batches = Vec::new();
        for _ in 0..self.rng.usize(1..8) {
            let mut builder = BatchBuilder::default();
            let value_bytes = if self.rng.u8(0..10) == 0 { 6000 } else { self.rng.usize(0..400) };
            for _ in 0..self.rng.usize(1..12) {
                let value = vec![self.rng.u8(..); value_bytes];
                builder.push(self.rng.i64(0..1000), None, Some(&value));
            }
            let batch = builder.build()?.assign(next_offset, 1, Stamp::Keep);
            next_offset = batch.last_offset() + 1;
            batches.push(batch);
        }
        self.active().append(&batches).await?;
        lock(&self.model).log.extend(batches);
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        self.active().sync().await?;
        self.lsn += 1;
        let checkpoint = self.checkpoint_at(self.lsn);
        self.store(checkpoint).await
    }

    async fn store(&mut self, checkpoint: Checkpoint) -> Result<(), Box<dyn std::error::Error>> {
        lock(&self.model).under_way.push(checkpoint.next_offset);
        self.checkpoints.store(&checkpoint).await?;
        let mut model = lock(&self.model);
        model.stored = checkpoint.next_offset;
        model.under_way.clear();
        model.checkpoints += 1;
        Ok(())
    }

    async fn roll(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        if self.active().is_empty() {
            return Ok(());
        }
        let sealed = self.active().seal().await?;
        let segment = Segment::create(&self.context, &self.dir, sealed.next_offset, OPTIONS).await?;
        let mut manifest = self.manifest.clone();
        manifest.segments.last_mut().expect("the active one is listed").sealed = Some(sealed);
        manifest.segments.push(SegmentMeta { base_offset: sealed.next_offset, tier: Tier::Hot, sealed: None });
        manifest.store(&self.env, self.dir.path()).await?;
        self.manifest = manifest;
        self.segments.push(segment);
        lock(&self.model).rolls += 1;
        Ok(())
    }

    /// Cuts the active segment somewhere. What recovery cuts to must not lie behind it: first the checkpoint.
    async fn truncate(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let active = self.active().clone();
        if active.is_empty() {
            return Ok(());
        }
        let wanted = self.rng.i64(active.base_offset()..active.next_offset());
        let (position, next_offset) = {
            let model = lock(&self.model);
            let kept = model.log.iter().filter(|b| b.base_offset() >= active.base_offset());
            let kept = kept.take_while(|batch| batch.last_offset() < wanted);
            kept.fold((0, active.base_offset()), |(len, _), batch| {
                (len + batch.size() as u64 + 8, batch.last_offset() + 1)
            })
        };
        active.sync().await?;
        self.lsn += 1;
        let checkpoint = Checkpoint { position, next_offset, ..self.checkpoint_at(self.lsn) };
        let epochs = vec![EpochStart { leader_epoch: 1, start_offset: next_offset / 2 }];
        self.store(Checkpoint { epochs, ..checkpoint }).await?;
        assert_eq!(active.truncate(wanted).await?, next_offset);
        assert_eq!(active.len(), position);
        let mut model = lock(&self.model);
        model.cut(next_offset);
        model.cuts += 1;
        Ok(())
    }

    async fn remove_garbage(&self) -> Result<(), Box<dyn std::error::Error>> {
        for path in self.env.disk().list(self.dir.path()).await? {
            let name = path.file_name().and_then(|name| name.to_str()).expect("our names are ASCII");
            if let Some((base_offset, _)) = self.dir.name().parse_file(name)
                && !self.manifest.segments.iter().any(|meta| meta.base_offset == base_offset)
            {
                self.env.disk().remove_file(&path).await?;
            }
        }
        Ok(())
    }
}

async fn life(env: Env, model: SharedModel) -> Result<(), Box<dyn std::error::Error>> {
    let mut log = Log::open(env, model).await?;
    loop {
        match log.rng.u8(0..20) {
            0..10 => log.append().await?,
            10 => log.active().sync().await?,
            11..14 => log.checkpoint().await?,
            14 => log.roll().await?,
            15 => log.truncate().await?,
            16..19 => log.check_some().await?,
            _ => log.check_all().await?,
        }
    }
}

/// Damages one index file at rest, which must not be noticed.
fn damage_an_index(node: &Node, model: &SharedModel, rng: &mut fastrand::Rng) {
    let is_index = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        [FileKind::Index, FileKind::TimeIndex].iter().any(|kind| kind.suffix().strip_prefix('.') == Some(extension))
    };
    let files: Vec<_> = node.disk().files().into_iter().filter(|(path, len)| *len > 0 && is_index(path)).collect();
    if !files.is_empty() {
        let (path, len) = &files[rng.usize(..files.len())];
        node.disk().flip_bit(path, rng.u64(..*len), rng.u8(0..8)).expect("the file is there");
        lock(model).damaged_index_files += 1;
    }
}

fn check(seed: u64) -> Model {
    let model = SharedModel::default();
    let shared = model.clone();
    run(SimConfig::new(seed), |sim| async move {
        let mut rng = sim.rng("segment_recovery");
        let node = sim.create_node("broker");
        let faults = DiskFaults {
            write_error: if rng.bool() { 0.003 } else { 0.0 },
            sync_error: if rng.u8(0..3) == 0 { 0.005 } else { 0.0 },
            ..DiskFaults::default()
        };
        let of_lives = model.clone();
        node.disk().set_faults(faults);
        node.start(move |env| {
            let model = of_lives.clone();
            async move {
                // An error of the disk ends a life, as a crash does.
                let _ = life(env, model).await;
            }
        });
        for _ in 0..LIVES {
            let longest_ms = if rng.u8(0..3) == 0 { 8 } else { 50 };
            sim.sleep(Duration::from_micros(rng.u64(0..longest_ms * 1000))).await;
            if let Some(exit) = node.exit() {
                assert!(!matches!(exit, Exit::Panicked(_)), "seed {seed}: {exit:?}");
            }
            let killed_first = rng.bool();
            if killed_first {
                node.kill();
            }
            if !killed_first || rng.bool() {
                node.power_loss([Keep::None, Keep::All, Keep::Some, Keep::Some, Keep::Some][rng.usize(..5)]);
            }
            if rng.u8(0..3) == 0 {
                damage_an_index(&node, &model, &mut rng);
            }
            node.restart();
        }
        // A last life without faults, so that what is there at the end is looked at.
        node.disk().set_faults(DiskFaults::default());
        node.kill();
        let before = lock(&model).recoveries;
        node.restart();
        sim.sleep(Duration::from_secs(5)).await;
        assert!(!matches!(node.exit(), Some(Exit::Panicked(_))), "seed {seed}: {:?}", node.exit());
        assert!(lock(&model).recoveries > before, "seed {seed}: the last life did not recover");
        assert_eq!(sim.findings(), []);
    });
    Arc::into_inner(shared).expect("the run is over").into_inner().expect("no life panicked")
}

#[test]
fn any_operations_any_crash_any_surviving_sectors() {
    let mut sum = Model::default();
    for seed in 0..SEEDS {
        let model = check(seed);
        sum.recoveries += model.recoveries;
        sum.checkpoints += model.checkpoints;
        sum.rolls += model.rolls;
        sum.cuts += model.cuts;
        sum.damaged_index_files += model.damaged_index_files;
    }
    // The test is worth something only if all this came up, and often.
    let met = [sum.recoveries, sum.checkpoints, sum.rolls, sum.cuts, sum.damaged_index_files];
    assert!(met.iter().all(|met| *met > SEEDS as usize), "{met:?}");
    let probes = kilo::io::probe::snapshot();
    for probe in ["segment.torn_tail", "segment.cut_to_checkpoint", "checkpoint.torn_slot"] {
        assert!(probes.contains_key(probe), "never met: {probe}");
    }
}
