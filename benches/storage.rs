//! How fast any message of a large log is found (S-15), and what its indexes cost (S-14).
//!
//! `cargo bench --bench storage -- [GiB] [bytes per message] [messages per batch]`, by default 10 GiB of 1 KiB messages in
//! batches of 16. Writes the log to the target folder, looks messages up by offset and by time in segments that were just
//! opened and in hot ones, prints the figures, and removes the log.

#![expect(clippy::disallowed_macros, reason = "a benchmark prints its figures")]

use std::path::Path;

use kilo::io::Env;
use kilo::io::real::{RealConfig, RealEnv};
use kilo::storage::segment::OpenAs;
use kilo::storage::{FileKind, PartitionDir, PartitionName, Segment, SegmentContext, SegmentOptions, TopicId};
use kilo::wire::batch::{BatchBuilder, RecordBatch, Stamp};

const SEGMENT_BYTES: u64 = 1 << 30;
const LOOKUPS: usize = 2000;
const APPEND_BYTES: usize = 1 << 20;

struct Shape {
    log_bytes: u64,
    message_bytes: usize,
    batch_messages: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let number = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let shape = Shape {
        log_bytes: number(0, 10) << 30,
        message_bytes: usize::try_from(number(1, 1024))?,
        batch_messages: usize::try_from(number(2, 16))?,
    };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let real = RealEnv::new(RealConfig { network_threads: 2, io_threads: 4 })?;
    real.block_on(measure(real.env(), folder.path(), shape))
}

async fn measure(env: Env, folder: &Path, shape: Shape) -> Result<(), Box<dyn std::error::Error>> {
    let dir = PartitionDir::new(folder, PartitionName::new("bench", TopicId::default(), 0)?);
    env.disk().create_dir_all(dir.path()).await?;
    let segments = write(&env, &dir, &shape).await?;
    let mut sizes = [0u64; 3];
    for path in env.disk().list(dir.path()).await? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some((_, kind)) = dir.name().parse_file(name) {
            sizes[kind as usize] += env.disk().open(&path, kilo::io::OpenMode::Read).await?.len().await?;
        }
    }
    let per_100_gb = |bytes: u64| bytes as f64 * 100e9 / sizes[FileKind::Log as usize] as f64 / 1e6;
    println!("index      {:.2} MB per 100 GB of log", per_100_gb(sizes[FileKind::Index as usize]));
    println!("time index {:.2} MB per 100 GB of log", per_100_gb(sizes[FileKind::TimeIndex as usize]));

    let context = SegmentContext::new(env.clone(), segments.len(), segments.len());
    let mut opened = Vec::new();
    for segment in &segments {
        let sealed = OpenAs::Sealed(segment.sealed().ok_or("every segment is sealed")?);
        opened.push(Segment::open(&context, &dir, segment.base_offset(), SegmentOptions::default(), sealed).await?.0);
    }
    drop(segments);
    let end = opened.last().ok_or("an empty log")?.next_offset();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut first = Vec::new();
    for segment in &opened {
        let offset = rng.i64(segment.base_offset()..segment.next_offset());
        first.push(by_offset(&env, &opened, offset).await?);
    }
    print("first look-up in a segment just opened", first);
    let (mut offsets, mut times) = (Vec::new(), Vec::new());
    for _ in 0..LOOKUPS {
        offsets.push(by_offset(&env, &opened, rng.i64(0..end)).await?);
    }
    print("by offset", offsets);
    for _ in 0..LOOKUPS {
        times.push(by_time(&env, &opened, rng.i64(0..end)).await?);
    }
    print("by timestamp", times);
    Ok(())
}

/// Messages have their offset as their timestamp.
async fn write(env: &Env, dir: &PartitionDir, shape: &Shape) -> Result<Vec<Segment>, Box<dyn std::error::Error>> {
    let context = SegmentContext::new(env.clone(), 64, 64);
    let began = env.now();
    let mut segments = Vec::new();
    let (mut offset, mut left) = (0, shape.log_bytes);
    while left > 0 {
        let segment = Segment::create(&context, dir, offset, SegmentOptions::default()).await?;
        while segment.len() < SEGMENT_BYTES.min(left) {
            let (mut batches, mut bytes) = (Vec::new(), 0);
            while bytes < APPEND_BYTES {
                let mut builder = BatchBuilder::default();
                let value = vec![offset as u8; shape.message_bytes];
                (0..shape.batch_messages as i64).for_each(|n| builder.push(offset + n, None, Some(&value)));
                let batch = builder.build()?.assign(offset, 0, Stamp::Keep);
                bytes += batch.size();
                batches.push(batch);
                offset += shape.batch_messages as i64;
            }
            segment.append(&batches).await?;
        }
        left = left.saturating_sub(segment.len());
        segment.seal().await?;
        segments.push(segment);
    }
    let seconds = (env.now() - began).as_secs_f64();
    let mib = shape.log_bytes >> 20;
    println!("wrote {mib} MiB, {offset} messages, in {seconds:.1} s ({:.0} MiB/s)", mib as f64 / seconds);
    Ok(segments)
}

async fn by_offset(env: &Env, segments: &[Segment], offset: i64) -> Result<f64, Box<dyn std::error::Error>> {
    let began = env.now();
    let at = segments.partition_point(|segment| segment.base_offset() <= offset) - 1;
    let found = segments[at].read(offset, 1, i64::MAX).await?;
    let took = env.now() - began;
    let mut batch = found.into_iter().next().ok_or("nothing found")?;
    let batch = RecordBatch::take_first(&mut batch)?;
    assert!((batch.base_offset()..=batch.last_offset()).contains(&offset));
    Ok(took.as_secs_f64() * 1e3)
}

async fn by_time(env: &Env, segments: &[Segment], timestamp: i64) -> Result<f64, Box<dyn std::error::Error>> {
    let began = env.now();
    let segment = segments.iter().find(|segment| segment.max_timestamp() >= timestamp).ok_or("past the end")?;
    let found = segment.find_time(timestamp, 0, i64::MAX).await?.ok_or("nothing found")?;
    let took = env.now() - began;
    assert_eq!(found.offset, timestamp);
    Ok(took.as_secs_f64() * 1e3)
}

fn print(what: &str, mut took_ms: Vec<f64>) {
    took_ms.sort_by(f64::total_cmp);
    let at = |share: f64| took_ms[((took_ms.len() - 1) as f64 * share) as usize];
    println!("{what}: p50 {:.3} ms, p99 {:.3} ms, longest {:.3} ms of {}", at(0.5), at(0.99), at(1.0), took_ms.len());
}
