//! The partition logs against a model: any appends, any crash, any surviving part of what was not flushed, a full disk or
//! used-up descriptors now and then. After every crash everything acknowledged is there at its offset, nothing that was
//! ever served has changed, and nothing is there that nobody sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kilo::io::Env;
use kilo::log::{Isolation, LogConfig, LogManager, LogManagerConfig, PartitionLog, PartitionSpec, TailConfig};
use kilo::storage::wal::WalConfig;
use kilo::storage::{PartitionKey, TopicId};
use kilo::wire::batch::{BatchBuilder, BatchLimits, RecordBatch, Validation};
use kilo::wire::codec::Codec;
use kilo_sim::disk::Keep;
use kilo_sim::host::{Node, Sim, SimConfig, run};

const PARTITIONS: i32 = 3;
const ROUNDS: u32 = 8;
const DATA: &str = "/data";

/// What is known of one partition.
#[derive(Default)]
struct Model {
    /// Values by the offset at which they were acknowledged.
    acknowledged: BTreeMap<i64, String>,
    /// Values by the offset at which they were ever served.
    served: BTreeMap<i64, String>,
    sent: u64,
    /// The next sequence of the idempotent producer, and the batch that has no answer yet.
    next_sequence: i32,
    unanswered: Option<RecordBatch>,
}

type Models = Arc<Vec<Mutex<Model>>>;

fn key(index: i32) -> PartitionKey {
    PartitionKey { topic: TopicId([1; 16]), index }
}

async fn open(env: &Env, epoch: i32) -> Option<LogManager> {
    // The data folder is the broker's to make.
    env.disk().create_dir_all(DATA.as_ref()).await.ok()?;
    env.disk().sync_dir("/".as_ref()).await.ok()?;
    let mut config = LogManagerConfig::new(DATA.into(), WalConfig::sim());
    config.free_space_reserve = 64 * 1024;
    config.tail = TailConfig { unwritten_bytes: 256 * 1024, ring_bytes: 4 * 1024, write_at_once_bytes: 4 * 1024 };
    config.write_behind_delay = Duration::from_millis(20);
    config.checkpoint_bytes = 16 * 1024;
    config.checkpoint_delay = Duration::from_millis(300);
    let specs = (0..PARTITIONS).map(|index| PartitionSpec {
        key: key(index),
        topic: "orders".to_owned(),
        leader_epoch: epoch,
        config: LogConfig { segment_bytes: 8 * 1024, flush_interval_messages: 20, ..LogConfig::default() },
    });
    match LogManager::open(env, config, specs.collect()).await {
        Ok(manager) => Some(manager),
        // A recovery that meets a full disk may give up; it must not lose anything.
        Err(error) if error.to_string().contains("os error 28") => None,
        Err(error) => panic!("the log does not open: {error}"),
    }
}

/// Checks one partition from its start to its high watermark.
async fn check(log: &PartitionLog, model: &Mutex<Model>, context: &str) {
    let end = log.offsets().high_watermark;
    let mut next = 0;
    let mut found = BTreeMap::new();
    while next < end {
        let read = log.read(next, 2000, true, Isolation::HighWatermark).await.expect("readable");
        let bytes: Vec<u8> = read.batches.iter().flat_map(|piece| piece.to_vec()).collect();
        assert!(!bytes.is_empty(), "{context}: nothing at offset {next} below the high watermark {end}");
        for batch in RecordBatch::split(Bytes::from(bytes)).expect("whole batches") {
            assert!(batch.verify_crc(), "{context}: a damaged batch was served at {}", batch.base_offset());
            for record in batch.records(1 << 20).expect("readable").map(|record| record.expect("readable")) {
                if record.offset >= next {
                    assert_eq!(record.offset, next, "{context}: offsets are dense");
                    next += 1;
                    found.insert(record.offset, String::from_utf8_lossy(&record.value.expect("a value")).into_owned());
                }
            }
        }
    }
    let mut model = model.lock().expect("not poisoned");
    for (offset, value) in model.acknowledged.iter().chain(&model.served) {
        assert_eq!(found.get(offset), Some(value), "{context}: offset {offset}");
    }
    let mut idempotent: Vec<&String> = found.values().filter(|value| value.starts_with("once")).collect();
    let all = idempotent.len();
    idempotent.sort();
    idempotent.dedup();
    assert_eq!(idempotent.len(), all, "{context}: an idempotent record is there twice");
    model.served = found;
}

/// One append; remembers what was acknowledged. `false` when the log refuses.
async fn append(env: &Env, log: &Arc<PartitionLog>, model: &Mutex<Model>, rng: &mut fastrand::Rng) -> bool {
    let idempotent = log.key().index == 0;
    let batch = {
        let mut model = model.lock().expect("not poisoned");
        match model.unanswered.clone().filter(|_| idempotent) {
            Some(again) => again,
            None => {
                let records = rng.i32(1..6);
                let kind = if idempotent { "once" } else { "maybe" };
                let mut builder = BatchBuilder::new(Codec::None);
                if idempotent {
                    builder = builder.producer(9, 0, model.next_sequence);
                    model.next_sequence += records;
                }
                for _ in 0..records {
                    model.sent += 1;
                    let value = format!("{kind} {} {}", model.sent, "x".repeat(rng.usize(0..400)));
                    builder.push(env.wall().0, None, Some(value.as_bytes()));
                }
                let batch = builder.build().expect("no codec can fail");
                model.unanswered = Some(batch.clone());
                batch
            }
        }
    };
    let facts = batch.validate(Validation::Strict, &BatchLimits::default()).expect("a good batch");
    let Ok(permit) = log.reserve(&batch, env.sleep(Duration::from_secs(1))).await else {
        return false;
    };
    let Ok(pending) = log.append(batch.clone(), &facts, batch.size(), permit) else {
        return false;
    };
    let base_offset = pending.base_offset;
    if pending.durable().await.is_err() {
        return false;
    }
    let mut model = model.lock().expect("not poisoned");
    model.unanswered = None;
    for (offset, record) in (base_offset..).zip(batch.records(1 << 20).expect("readable")) {
        let value = record.expect("readable").value.expect("a value");
        model.acknowledged.insert(offset, String::from_utf8_lossy(&value).into_owned());
    }
    true
}

/// Appends to one partition until the incarnation ends.
async fn produce(env: Env, log: Arc<PartitionLog>, models: Models, mut rng: fastrand::Rng) {
    let model = &models[log.key().index as usize];
    loop {
        if append(&env, &log, model, &mut rng).await {
            env.sleep(Duration::from_micros(rng.u64(0..3000))).await;
        } else {
            env.sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn crash(sim: &Sim, node: &Node, rng: &mut fastrand::Rng) {
    if rng.bool() {
        node.kill();
        if rng.bool() {
            return;
        }
        sim.sleep(Duration::from_millis(1)).await;
    }
    node.power_loss([Keep::None, Keep::Some, Keep::Some, Keep::All][rng.usize(0..4)]);
}

async fn scenario(sim: Sim) {
    let mut rng = sim.rng("log-recovery");
    let node = sim.create_node("broker");
    let models: Models = Arc::new((0..PARTITIONS).map(|_| Mutex::default()).collect());
    for round in 0..ROUNDS {
        node.disk().set_capacity(None);
        // Recovery itself is cut short now and then.
        while rng.u8(0..3) == 0 {
            let env = node.enter();
            let opening = env.clone();
            env.spawn("open", async move {
                open(&opening, round as i32 + 1).await;
                std::future::pending().await
            });
            sim.sleep(Duration::from_micros(rng.u64(0..60_000))).await;
            crash(&sim, &node, &mut rng).await;
        }
        let env = node.enter();
        let manager = open(&env, round as i32 + 1).await.expect("there is space");
        for index in 0..PARTITIONS {
            let log = manager.partition(&key(index)).expect("the partition");
            check(&log, &models[index as usize], &format!("seed {} round {round} partition {index}", sim.seed())).await;
            // A batch without an answer may have been stored; a plain producer would not know.
            let purpose = format!("producer-{round}-{index}");
            let task = produce(env.clone(), log, models.clone(), sim.rng(&purpose));
            env.spawn("producer", task);
        }
        sim.sleep(Duration::from_micros(rng.u64(0..800_000))).await;
        if rng.u8(0..4) == 0 {
            node.disk().set_capacity(Some(node.disk().used() + rng.u64(0..200_000)));
            sim.sleep(Duration::from_micros(rng.u64(0..800_000))).await;
            if rng.bool() {
                node.disk().set_capacity(None);
                sim.sleep(Duration::from_micros(rng.u64(0..800_000))).await;
            }
        }
        if rng.u8(0..4) == 0 {
            node.limit_descriptors(rng.u32(0..24));
            sim.sleep(Duration::from_micros(rng.u64(0..800_000))).await;
            node.limit_descriptors(u32::MAX);
            sim.sleep(Duration::from_micros(rng.u64(0..800_000))).await;
            assert!(node.is_running(), "seed {}: a lack of descriptors is transient", sim.seed());
        }
        if rng.u8(0..5) == 0 {
            manager.close().await;
        }
        crash(&sim, &node, &mut rng).await;
    }
    assert!(sim.findings().is_empty(), "seed {}: {:?}", sim.seed(), sim.findings());
    let acknowledged: usize = models.iter().map(|model| model.lock().expect("not poisoned").acknowledged.len()).sum();
    assert!(acknowledged > 100, "seed {}: only {acknowledged} records were acknowledged", sim.seed());
}

#[test]
fn nothing_acknowledged_is_lost_whatever_crashes() {
    let seeds = std::env::var("KILO_LOG_SEEDS").unwrap_or_else(|_| "0..16".to_owned());
    let (from, to) = seeds.split_once("..").expect("A..B");
    let bound = |text: &str| text.parse::<u64>().expect("a number");
    for seed in bound(from)..bound(to) {
        run(SimConfig::new(seed), scenario);
    }
}
