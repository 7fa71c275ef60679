//! The write-ahead log against a bare loop of `pwrite` and `fdatasync` in the same run: latency of one entry at a time,
//! throughput with many in flight, CPU time per gigabyte.
//!
//! `cargo bench --bench wal [-- DIRECTORY]`; the directory (default: `target`) decides which disk is measured. Rounds of
//! both sides alternate, so that a disk that others use is shared fairly.

#![expect(clippy::disallowed_macros, reason = "a benchmark prints its figures")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a measurement reads the real clock and disk")]
#![allow(clippy::unwrap_used, reason = "a measurement that fails may panic")]

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kilo::io::real::{RealConfig, RealEnv};
use kilo::io::{BoxFuture, Env};
use kilo::storage::wal::{Entry, KnownLsns, ReplayVisitor, VisitError, Wal, WalConfig};
use kilo::storage::{Lsn, PartitionKey, TopicId};
use kilo::wire::batch::RecordBatch;
use rustix::fs::FallocateFlags;
use tokio::sync::oneshot;

const ROUNDS: usize = 5;
const FILE_BYTES: u64 = 64 << 20;

struct Nothing;

impl ReplayVisitor for Nothing {
    fn entry(&mut self, _: Lsn, _: Entry) -> BoxFuture<'_, Result<(), VisitError>> {
        Box::pin(async { Ok(()) })
    }
}

/// What one round measured.
#[derive(Clone, Copy, Default)]
struct Round {
    bytes: u64,
    time: Duration,
    cpu: Duration,
}

impl Round {
    fn mb_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.time.as_secs_f64()
    }

    fn cpu_per_gb(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes as f64 / 1e9)
    }
}

/// User and system time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn measure(run: impl FnOnce() -> u64) -> Round {
    let (start, before) = (Instant::now(), cpu());
    let bytes = run();
    Round { bytes, time: start.elapsed(), cpu: cpu().saturating_sub(before) }
}

fn percentile(latencies: &mut [Duration], part: f64) -> f64 {
    latencies.sort();
    latencies[((latencies.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3
}

/// Writes and flushes in a file whose blocks are all written already, as a recycled one is.
struct Raw {
    file: File,
    position: u64,
    data: Vec<u8>,
}

impl Raw {
    fn new(dir: &Path) -> Self {
        let path = dir.join("raw");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES).unwrap();
        let data: Vec<u8> = (0..4 << 20).map(|i| (i * 31 % 251) as u8).collect();
        let mut raw = Self { file, position: 0, data };
        (0..16).for_each(|_| raw.write(4 << 20));
        raw
    }

    fn write(&mut self, bytes: usize) {
        if self.position + bytes as u64 > FILE_BYTES {
            self.position = 0;
        }
        let mut left = &self.data[..bytes];
        while !left.is_empty() {
            let written = rustix::io::pwrite(&self.file, left, self.position).unwrap();
            self.position += written as u64;
            left = &left[written..];
        }
        rustix::fs::fdatasync(&self.file).unwrap();
    }
}

fn entry(bytes: usize) -> Entry {
    let mut whole = vec![0x5A_u8; bytes];
    whole[8..12].copy_from_slice(&u32::try_from(bytes - 12).unwrap().to_be_bytes());
    whole[16] = 2;
    let partition = PartitionKey { topic: TopicId([1; 16]), index: 0 };
    Entry::Append { partition, batches: RecordBatch::split(Bytes::from(whole)).unwrap() }
}

fn submit(wal: &Wal, entry: &Entry) -> oneshot::Receiver<Lsn> {
    let (sender, receiver) = oneshot::channel();
    wal.submit(entry.clone(), Box::new(|result| _ = sender.send(result.unwrap())));
    receiver
}

async fn pump(wal: &Wal, entry: &Entry, count: usize, in_flight: usize) {
    let mut waiting = VecDeque::new();
    for number in 0..count + in_flight {
        if number < count {
            waiting.push_back(submit(wal, entry));
        }
        if number >= in_flight || waiting.len() >= in_flight {
            let Some(receiver) = waiting.pop_front() else { break };
            let lsn = receiver.await.unwrap();
            wal.release(lsn);
        }
    }
}

async fn open(env: &Env, dir: &Path) -> Wal {
    Wal::open(env, dir, WalConfig::default(), KnownLsns::default(), &mut Nothing).await.unwrap()
}

fn latency(real: &RealEnv, wal: &Wal, raw: &mut Raw) {
    let one = entry(1024);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..200 {
            let start = Instant::now();
            raw.write(4096);
            bare.push(start.elapsed());
        }
        real.block_on(async {
            for _ in 0..200 {
                let start = Instant::now();
                let lsn = submit(wal, &one).await.unwrap();
                ours.push(start.elapsed());
                wal.release(lsn);
            }
        });
    }
    println!("one 1 KiB entry at a time (ms)      p50    p99   p999");
    for (name, latencies) in [("pwrite + fdatasync, 4 KiB", &mut bare), ("write-ahead log", &mut ours)] {
        let at = [0.5, 0.99, 0.999].map(|part| percentile(latencies, part));
        println!("  {name:30} {:6.3} {:6.3} {:6.3}", at[0], at[1], at[2]);
    }
}

fn throughput(real: &RealEnv, wal: &Wal, raw: &mut Raw, entry_bytes: usize, in_flight: usize, raw_bytes: usize) {
    let total: usize = 256 << 20;
    let one = entry(entry_bytes);
    let (mut ours, mut bare) = (Round::default(), Round::default());
    let add = |sum: &mut Round, round: Round| {
        sum.bytes += round.bytes;
        sum.time += round.time;
        sum.cpu += round.cpu;
    };
    let before = wal.stats();
    for _ in 0..ROUNDS {
        let round = measure(|| {
            (0..total / raw_bytes).for_each(|_| raw.write(raw_bytes));
            total as u64
        });
        add(&mut bare, round);
        let round = measure(|| {
            real.block_on(pump(wal, &one, total / entry_bytes, in_flight));
            total as u64
        });
        add(&mut ours, round);
    }
    let stats = wal.stats();
    let entries_per_flush = (stats.entries - before.entries) as f64 / (stats.flushes - before.flushes) as f64;
    println!("{} KiB entries, {in_flight} in flight            MB/s  CPU s/GB", entry_bytes / 1024);
    let name = format!("pwrite + fdatasync, {} KiB", raw_bytes / 1024);
    println!("  {name:30} {:7.0} {:9.3}", bare.mb_per_second(), bare.cpu_per_gb());
    println!(
        "  {:30} {:7.0} {:9.3}   ratio {:.2}, {entries_per_flush:.1} entries per flush",
        "write-ahead log",
        ours.mb_per_second(),
        ours.cpu_per_gb(),
        ours.mb_per_second() / bare.mb_per_second()
    );
}

/// How long opening takes with `total` bytes to replay (applied nowhere), and with nothing.
fn replay(real: &RealEnv, dir: &Path, entry_bytes: usize) {
    let total: usize = 192 << 20;
    let dir = dir.join(format!("replay-{entry_bytes}"));
    let env = real.env();
    let one = entry(entry_bytes);
    real.block_on(async {
        let wal = open(&env, &dir).await;
        let waiting: Vec<_> = (0..total / entry_bytes).map(|_| submit(&wal, &one)).collect();
        for receiver in waiting {
            receiver.await.unwrap();
        }
        wal.close().await;
        let start = Instant::now();
        let wal = open(&env, &dir).await;
        let full = start.elapsed();
        wal.recovered();
        submit(&wal, &one).await.unwrap();
        wal.close().await;
        let start = Instant::now();
        open(&env, &dir).await;
        let empty = start.elapsed();
        println!(
            "opening with {} MiB of {} KiB entries: {full:?}; with one: {empty:?}",
            total >> 20,
            entry_bytes / 1024
        );
    });
}

fn main() {
    let under =
        std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map_or("target".into(), PathBuf::from);
    let dir = tempfile::tempdir_in(under).unwrap();
    let real = RealEnv::new(RealConfig::default()).unwrap();
    let env = real.env();
    let wal = real.block_on(open(&env, &dir.path().join("wal")));
    let mut raw = Raw::new(dir.path());
    latency(&real, &wal, &mut raw);
    throughput(&real, &wal, &mut raw, 1 << 20, 32, 1 << 20);
    throughput(&real, &wal, &mut raw, 1 << 20, 32, 4 << 20);
    throughput(&real, &wal, &mut raw, 4 << 10, 4096, 1 << 20);
    println!("{:?}", wal.stats());
    real.block_on(wal.close());
    replay(&real, dir.path(), 1 << 20);
    replay(&real, dir.path(), 4 << 10);
}
