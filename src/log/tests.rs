//! The partition log on the real file system: appending, reading back, and coming back after a stop and after a crash.

mod advice;
mod damage;
#[expect(clippy::disallowed_types, reason = "the end of a process is seen from another one")]
mod panic_tests;
mod repair;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::io::Env;
use crate::io::real::block_on_test;
use crate::storage::segment::TimestampedOffset;
use crate::storage::wal::WalConfig;
use crate::storage::{PartitionKey, TopicId};
use crate::wire::batch::{BatchBuilder, BatchLimits, RecordBatch, Validation};
use crate::wire::codec::Codec;

const KEY: PartitionKey = PartitionKey { topic: TopicId([7; 16]), index: 0 };

fn spec(leader_epoch: i32, segment_bytes: u64) -> PartitionSpec {
    let config = LogConfig {
        segment_bytes,
        flush_interval_messages: 10,
        index_interval_messages: 5,
        timestamp_after_max_ms: i64::MAX,
        ..LogConfig::default()
    };
    PartitionSpec { key: KEY, topic: "orders".to_owned(), leader_epoch, config }
}

async fn open_with(env: &Env, dir: &Path, spec: PartitionSpec) -> LogManager {
    open_all(env, dir, vec![spec]).await.expect("the log opens")
}

async fn open_all(env: &Env, dir: &Path, specs: Vec<PartitionSpec>) -> Result<LogManager, OpenError> {
    let mut config = LogManagerConfig::new(dir.to_owned(), WalConfig::sim());
    config.free_space_reserve = 0;
    config.tail = TailConfig { unwritten_bytes: 1 << 20, ring_bytes: 2048, write_at_once_bytes: 1024 };
    config.write_behind_delay = Duration::from_millis(5);
    LogManager::open(env, config, specs).await
}

fn batch(from: i64, records: i64, producer: Option<i32>) -> RecordBatch {
    let mut builder = BatchBuilder::new(Codec::None);
    if let Some(sequence) = producer {
        builder = builder.producer(42, 0, sequence);
    }
    for number in from..from + records {
        builder.push(number * 10, None, Some(format!("value {number} {}", "x".repeat(50)).as_bytes()));
    }
    builder.build().expect("no codec can fail")
}

async fn append(env: &Env, log: &Arc<PartitionLog>, batch: RecordBatch) -> Result<i64, AppendError> {
    let facts = batch.validate(Validation::Strict, &BatchLimits::default()).expect("a good batch");
    let size = batch.size();
    let permit = log.reserve(&batch, env.sleep(Duration::from_secs(10))).await.expect("room");
    let pending = log.append(batch, &facts, size, permit)?;
    let base_offset = pending.base_offset;
    pending.durable().await.map(|()| base_offset)
}

/// All values from `from` on.
async fn values(log: &PartitionLog, from: i64) -> Vec<String> {
    let mut values = Vec::new();
    let mut next = from;
    while next < log.offsets().high_watermark {
        let read = log.read(next, 500, true, Isolation::HighWatermark).await.expect("readable");
        let bytes: Vec<u8> = read.batches.iter().flat_map(|piece| piece.to_vec()).collect();
        for batch in RecordBatch::split(Bytes::from(bytes)).expect("whole batches") {
            assert!(batch.verify_crc());
            for record in batch.records(1 << 20).expect("readable") {
                let record = record.expect("readable");
                if record.offset >= next {
                    assert_eq!(record.offset, next);
                    next += 1;
                    let value = record.value.expect("a value");
                    values.push(String::from_utf8_lossy(&value).split(" x").next().unwrap_or_default().to_owned());
                }
            }
        }
    }
    values
}

fn expected(from: i64, to: i64) -> Vec<String> {
    (from..to).map(|number| format!("value {number}")).collect()
}

async fn fill(env: &Env, log: &Arc<PartitionLog>, from: i64, to: i64) {
    for number in from..to {
        assert_eq!(append(env, log, batch(number, 1, None)).await, Ok(number));
    }
}

#[test]
fn records_are_read_back_from_ring_and_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    block_on_test(|env| async move {
        let manager = open_with(&env, dir, spec(1, 1 << 20)).await;
        let log = manager.partition(&KEY).expect("the partition");
        fill(&env, &log, 0, 100).await;
        assert_eq!(log.offsets(), Offsets { log_start: 0, high_watermark: 100, log_end: 100 });
        assert_eq!(values(&log, 0).await, expected(0, 100));
        assert_eq!(values(&log, 97).await, expected(97, 100));
        manager.close().await;
    });
}

#[test]
fn everything_is_back_after_a_clean_stop_and_numbering_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    block_on_test(|env| async move {
        for round in 0..4 {
            let manager = open_with(&env, dir, spec(round + 1, 2000)).await;
            let log = manager.partition(&KEY).expect("the partition");
            let done = i64::from(round) * 50;
            assert_eq!(values(&log, 0).await, expected(0, done), "round {round}");
            fill(&env, &log, done, done + 50).await;
            assert_eq!(log.epoch_at(done), Some(round + 1));
            assert_eq!(log.epoch_at(0), Some(1));
            manager.close().await;
        }
    });
}

#[test]
fn everything_acknowledged_is_back_after_a_crash() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    for round in 0..6 {
        let path = dir.to_owned();
        // Each round has a world of its own, which ends in the middle of whatever the background tasks do.
        block_on_test(|env| async move {
            let manager = open_with(&env, &path, spec(round + 1, 3000)).await;
            let log = manager.partition(&KEY).expect("the partition");
            let done = i64::from(round) * 40;
            assert_eq!(log.offsets().log_end, done);
            assert_eq!(values(&log, 0).await, expected(0, done), "round {round}");
            fill(&env, &log, done, done + 40).await;
        });
    }
}

#[test]
fn a_retry_after_a_restart_is_answered_with_its_first_offset() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let path = dir.to_owned();
    block_on_test(|env| async move {
        let manager = open_with(&env, &path, spec(1, 1 << 20)).await;
        let log = manager.partition(&KEY).expect("the partition");
        assert_eq!(append(&env, &log, batch(0, 3, Some(0))).await, Ok(0));
        assert_eq!(append(&env, &log, batch(3, 2, Some(3))).await, Ok(3));
        assert_eq!(append(&env, &log, batch(0, 3, Some(0))).await, Ok(0));
        manager.close().await;
    });
    block_on_test(|env| async move {
        let manager = open_with(&env, dir, spec(2, 1 << 20)).await;
        let log = manager.partition(&KEY).expect("the partition");
        assert_eq!(append(&env, &log, batch(3, 2, Some(3))).await, Ok(3));
        assert!(matches!(
            append(&env, &log, batch(9, 1, Some(9))).await,
            Err(AppendError::OutOfOrderSequence { expected: 5, .. })
        ));
        assert_eq!(append(&env, &log, batch(5, 1, Some(5))).await, Ok(5));
        assert_eq!(log.offsets().log_end, 6);
        manager.close().await;
    });
}

#[test]
fn look_ups_by_time_find_the_record_in_files_and_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    block_on_test(|env| async move {
        let manager = open_with(&env, dir, spec(1, 2000)).await;
        let log = manager.partition(&KEY).expect("the partition");
        for from in (0..90).step_by(3) {
            append(&env, &log, batch(from, 3, None)).await.expect("appended");
        }
        for number in 0..90 {
            let found =
                log.offset_for_time(number * 10 - 9).await.expect("readable").map(|it| (it.offset, it.timestamp));
            assert_eq!(found, Some((number, number * 10)));
        }
        assert_eq!(log.offset_for_time(891).await.expect("readable"), None);
        assert_eq!(log.max_timestamp().await.expect("readable").map(|it| it.offset), Some(89));
        manager.close().await;
    });
}

#[test]
fn look_ups_in_memory_decompress_off_the_reactor() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    block_on_test(|env| async move {
        let mut config = LogManagerConfig::new(dir.to_owned(), WalConfig::sim());
        config.free_space_reserve = 0;
        config.write_behind_delay = Duration::from_secs(3600);
        let manager = LogManager::open(&env, config, vec![spec(1, 1 << 20)]).await.expect("the log opens");
        let log = manager.partition(&KEY).expect("the partition");
        append(&env, &log, batch(1, 1, None)).await.expect("appended");
        let mut builder = BatchBuilder::new(Codec::Gzip);
        builder.push(20, None, Some(b"compressed"));
        append(&env, &log, builder.build().expect("in memory")).await.expect("appended");

        // The one thread that computes is kept busy.
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let blocked = env.compute(move || gate.recv().is_ok());
        let offset = |found: Option<TimestampedOffset>| found.map(|it| it.offset);
        assert_eq!(offset(log.offset_for_time(5).await.expect("readable")), Some(0), "looks where it is");
        let mut compressed = Box::pin(log.offset_for_time(15));
        tokio::select! {
            biased;
            found = &mut compressed => panic!("{found:?} was found on the reactor"),
            () = env.sleep(Duration::from_millis(20)) => {}
        }
        release.send(()).expect("the computation waits");
        assert_eq!(blocked.await, Some(true));
        assert_eq!(offset(compressed.await.expect("readable")), Some(1));
        manager.close().await;
    });
}

#[test]
fn reads_outside_the_log_are_refused_and_at_its_end_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    block_on_test(|env| async move {
        let manager = open_with(&env, dir, spec(1, 1 << 20)).await;
        let log = manager.partition(&KEY).expect("the partition");
        fill(&env, &log, 0, 2).await;
        let at = |offset| log.read(offset, 100, true, Isolation::HighWatermark);
        assert!(at(2).await.is_ok_and(|read| read.batches.is_empty() && read.high_watermark == 2));
        for offset in [-1, 3] {
            assert!(matches!(at(offset).await, Err(ReadError::OutOfRange { log_start: 0, log_end: 2, .. })));
        }
        let small = log.read(0, 10, false, Isolation::HighWatermark).await.expect("readable");
        assert!(small.batches.is_empty(), "without min_one nothing may be larger than asked for");
        manager.close().await;
    });
}

#[test]
fn the_brokers_time_and_timestamps_out_of_range() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    block_on_test(|env| async move {
        let mut strange = spec(1, 1 << 20);
        strange.config.timestamp_after_max_ms = 1000;
        let manager = open_with(&env, dir, strange.clone()).await;
        let log = manager.partition(&KEY).expect("the partition");
        let future = batch(env.wall().0, 1, None);
        assert!(matches!(append(&env, &log, future.clone()).await, Err(AppendError::InvalidTimestamp { .. })));
        strange.config.timestamp_type = TimestampType::LogAppendTime;
        log.set_config(strange.config);
        assert_eq!(append(&env, &log, future).await, Ok(0));
        let found = log.max_timestamp().await.expect("readable").expect("a record");
        assert!((found.timestamp - env.wall().0).abs() < 60_000);
        manager.close().await;
    });
}

/// Files of the partition whose names end so.
async fn files(env: &Env, dir: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let paths = env.disk().list(&dir.join("orders-0")).await.expect("the partition has a directory");
    paths.into_iter().filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

/// Appends with an idempotent producer until the segment file has it, then crashes without a checkpoint.
fn crash_without_a_checkpoint(dir: &Path) {
    block_on_test(|env| async move {
        let manager = open_with(&env, dir, spec(1, 1 << 20)).await;
        let log = manager.partition(&KEY).expect("the partition");
        assert_eq!(append(&env, &log, batch(0, 3, Some(0))).await, Ok(0));
        assert_eq!(append(&env, &log, batch(3, 2, Some(3))).await, Ok(3));
        while log.unwritten_bytes() > 0 {
            env.sleep(Duration::from_millis(1)).await;
        }
        assert!(files(&env, dir, "checkpoint.a").await.is_empty(), "the first checkpoint is due after seconds");
    });
}

#[test]
fn without_a_checkpoint_the_segment_files_tell_producers_and_epochs() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    crash_without_a_checkpoint(dir);
    block_on_test(|env| async move {
        let manager = open_with(&env, dir, spec(2, 1 << 20)).await;
        let log = manager.partition(&KEY).expect("the partition");
        assert_eq!(log.epoch_at(4), Some(1));
        assert_eq!(append(&env, &log, batch(0, 3, Some(0))).await, Ok(0), "a retry of what the files hold");
        assert_eq!(append(&env, &log, batch(5, 1, Some(5))).await, Ok(5));
        assert_eq!(values(&log, 0).await, expected(0, 6));
        manager.close().await;
    });
}

#[test]
fn a_listed_segment_whose_name_was_lost_is_made_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    crash_without_a_checkpoint(dir);
    block_on_test(|env| async move {
        for ending in [".log", "index"] {
            for file in files(&env, dir, ending).await {
                env.disk().remove_file(&file).await.expect("it was listed");
            }
        }
        let manager = open_with(&env, dir, spec(2, 1 << 20)).await;
        let log = manager.partition(&KEY).expect("the partition");
        assert_eq!(values(&log, 0).await, expected(0, 5));
        assert_eq!(append(&env, &log, batch(3, 2, Some(3))).await, Ok(3), "the write-ahead log knows the producer");
        manager.close().await;
    });
}
