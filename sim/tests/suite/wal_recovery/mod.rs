//! One property: whatever is written, and however often and in whatever way the process or the machine goes down, the
//! write-ahead log gives back what it has acknowledged, in order, byte for byte, and nothing else.

mod host;
mod model;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::{End, Outcome, World};
use kilo::io::{BoxFuture, FailStop};
use kilo::storage::Lsn;
use kilo::storage::wal::{Entry, KnownLsns, ReplayVisitor, VisitError, Wal, WalConfig, WalFailed, WalSync};
use kilo_sim::disk::Keep;
use model::{Model, append};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// What a program does.
#[derive(Clone, Debug)]
enum Op {
    /// Submits an append of this size to a partition.
    Submit {
        partition: i32,
        bytes: usize,
    },
    /// Waits until all that was submitted is answered.
    Settle,
    /// Releases a part of what is settled, in percent.
    Release(u64),
    /// The disk is full, or not any more.
    Full(bool),
    /// The next write finds no space, or the next flush fails.
    RefuseWrite,
    FailSync,
    /// Time passes.
    Sleep(u64),
}

/// From one start to the next crash.
#[derive(Clone, Debug)]
struct Life {
    ops: Vec<Op>,
    /// Whether what was replayed is declared durable; otherwise the life ends in its recovery.
    recovers: bool,
    steps: usize,
    end: End,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..4, 61_usize..3000).prop_map(|(partition, bytes)| Op::Submit { partition, bytes }),
        6 => (0..4, 3000_usize..20_000).prop_map(|(partition, bytes)| Op::Submit { partition, bytes }),
        1 => (0..4, 20_000_usize..90_000).prop_map(|(partition, bytes)| Op::Submit { partition, bytes }),
        5 => Just(Op::Settle),
        3 => (1_u64..=100).prop_map(Op::Release),
        1 => any::<bool>().prop_map(Op::Full),
        1 => Just(Op::RefuseWrite),
        1 => Just(Op::FailSync),
        1 => (1_u64..50).prop_map(Op::Sleep),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        2 => any::<bool>().prop_map(|evict| End::Kill { evict }),
        1 => Just(End::Power(Keep::None)),
        1 => Just(End::Power(Keep::All)),
        4 => Just(End::Power(Keep::Some)),
    ]
}

fn life() -> impl Strategy<Value = Life> {
    let steps = prop_oneof![1 => 0_usize..30, 4 => 10_usize..400];
    let recovers = prop::bool::weighted(0.85);
    (prop::collection::vec(op(), 0..60), recovers, steps, end()).prop_map(|(ops, recovers, steps, end)| Life {
        ops,
        recovers,
        steps,
        end,
    })
}

fn config(sync: WalSync) -> WalConfig {
    WalConfig {
        file_bytes: 64 * 1024,
        first_file_bytes: 16 * 1024,
        max_bytes: 256 * 1024,
        group_bytes_max: 16 * 1024,
        group_bytes_internal: 2 * 1024,
        writes_in_flight_max: 3,
        overlap_bytes_min: 1,
        sync,
    }
}

/// Collects a replay.
#[derive(Default)]
struct Collected(Vec<(Lsn, Entry)>);

impl ReplayVisitor for Collected {
    fn entry(&mut self, lsn: Lsn, entry: Entry) -> BoxFuture<'_, Result<(), VisitError>> {
        self.0.push((lsn, entry));
        Box::pin(async { Ok(()) })
    }
}

type SharedModel = Arc<Mutex<Model>>;

fn with<T>(model: &SharedModel, act: impl FnOnce(&mut Model) -> T) -> T {
    act(&mut model.lock().expect("no holder panics"))
}

async fn program(world: World, model: SharedModel, life: Life, config: WalConfig) {
    let mut replayed = Collected::default();
    let known = with(&model, |model| KnownLsns { checkpointed: model.checkpointed });
    let wal = match Wal::open(&world.env(), Path::new("/data/wal"), config, known, &mut replayed).await {
        Ok(wal) => wal,
        Err(error) => return with(&model, |model| model.fail(format!("the log does not open: {error}"))),
    };
    with(&model, |model| model.replayed(&replayed.0, wal.next_lsn()));
    if life.recovers {
        with(&model, |model| model.recovered(&replayed.0, wal.next_lsn()));
        wal.recovered();
    }
    for op in life.ops {
        match op {
            Op::Submit { partition, bytes } => {
                let id = with(&model, |model| model.submitted(partition, bytes));
                let told = model.clone();
                let done = move |result| with(&told, |model| model.answered(id, result));
                wal.submit(append(id, partition, bytes), Box::new(done));
            }
            Op::Settle => {
                while with(&model, |model| model.is_waiting()) {
                    world.env().sleep(Duration::from_millis(1)).await;
                }
            }
            Op::Release(part) => {
                let floor = with(&model, |model| model.release(part, wal.settled_lsn()));
                wal.release(floor);
            }
            Op::Full(is_full) => world.set_full(is_full),
            Op::RefuseWrite => world.refuse_write(),
            Op::FailSync => world.fail_sync(),
            Op::Sleep(ms) => world.env().sleep(Duration::from_millis(ms)).await,
        }
        with(&model, |model| model.flushed(wal.durable_lsn()));
    }
    wal.close().await;
    with(&model, |model| model.flushed(wal.durable_lsn()));
}

fn check(seed: u64, sync: WalSync, lives: Vec<Life>) -> Result<(), TestCaseError> {
    let world = World::new(seed);
    let model: SharedModel = Arc::new(Mutex::new(Model::default()));
    // The last life only looks.
    let last = Life { ops: Vec::new(), recovers: true, steps: 10_000, end: End::Kill { evict: false } };
    for life in lives.into_iter().chain([last.clone(), last]) {
        world.set_full(false);
        let (steps, end) = (life.steps, life.end);
        let outcome = world.live(Box::pin(program(world.clone(), model.clone(), life, config(sync))), steps, end);
        with(&model, |model| {
            if let Outcome::Stopped(code) = outcome
                && !matches!(code, FailStop::FsyncFailed)
            {
                model.fail(format!("stopped with {code:?}"));
            }
            model.crashed(sync == WalSync::Always || matches!(end, End::Kill { evict: false }));
        });
        let failure = with(&model, |model| model.failure.take());
        prop_assert!(failure.is_none(), "{}", failure.unwrap_or_default());
    }
    Ok(())
}

fn strict() -> impl Strategy<Value = (u64, WalSync, Vec<Life>)> {
    (any::<u64>(), Just(WalSync::Always), prop::collection::vec(life(), 1..6))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_survives_any_crash((seed, sync, lives) in strict()) {
        check(seed, sync, lives)?;
    }

    #[test]
    fn weaker_modes_lose_no_more_than_they_say(
        seed in any::<u64>(),
        is_os in any::<bool>(),
        lives in prop::collection::vec(life(), 1..6),
    ) {
        let sync = if is_os { WalSync::Os } else { WalSync::Interval(Duration::from_millis(5)) };
        check(seed, sync, lives)?;
    }
}

fn deterministic() -> TestRunner {
    TestRunner::new_with_rng(ProptestConfig::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// How many cases a run tries: few, unless `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60)
}

/// Found by the property above: a process that is killed after it has made the directory, and before it has flushed its
/// name, leaves a directory that the next start finds and must not believe in.
#[test]
fn a_start_killed_at_any_step_leaves_nothing_half_made() {
    for steps in 0..40 {
        let life = |ops: Vec<Op>, steps, end| Life { ops, recovers: true, steps, end };
        let killed = life(Vec::new(), steps, End::Kill { evict: false });
        let writes = vec![Op::Submit { partition: 0, bytes: 100 }, Op::Settle];
        let lives = vec![killed, life(writes, 1000, End::Power(Keep::None))];
        for seed in 0..4 {
            check(seed, WalSync::Always, lives.clone()).unwrap_or_else(|error| panic!("{steps} steps: {error}"));
        }
    }
}

/// Found by the property above: a block fails for lack of space although all of it is written, and its number is given
/// again in another file, which the process does not live to flush. The next start goes by that file, so that the failed
/// entry is gone; a power cut that takes the file must not bring it back.
#[test]
fn what_failed_and_was_passed_over_by_a_start_stays_away() {
    let submit = |partition, bytes| Op::Submit { partition, bytes };
    // The second is in a file of full size, with room for what follows.
    let mut ops = vec![submit(0, 61), Op::Settle, submit(0, 14_008), Op::Settle];
    // Two blocks: the flush of the second takes the first along.
    ops.extend([Op::RefuseWrite, submit(1, 61), submit(1, 16_350), Op::Settle, submit(0, 61), Op::Settle]);
    for steps in 40..110 {
        let fails = Life { ops: ops.clone(), recovers: true, steps, end: End::Kill { evict: false } };
        let power = Life { ops: Vec::new(), recovers: true, steps: 200, end: End::Power(Keep::None) };
        for seed in 0..10 {
            let lives = vec![fails.clone(), power.clone()];
            check(seed, WalSync::Always, lives).unwrap_or_else(|error| panic!("seed {seed}, {steps} steps: {error}"));
        }
    }
}

/// Found by the property above: as before, in a mode that acknowledges before it flushes. The file that took the failed
/// block's number is lost, and what follows in the next file must not go on behind the failed block.
#[test]
fn what_failed_does_not_fill_the_gap_of_what_took_its_number() {
    let submit = |partition, bytes| Op::Submit { partition, bytes };
    let mut ops = vec![submit(0, 14_008), Op::Settle];
    ops.extend([Op::RefuseWrite, submit(1, 61), Op::Settle, submit(2, 61), submit(0, 61_352), Op::Settle]);
    ops.extend([submit(2, 61), Op::Settle]);
    for steps in 60..120 {
        for seed in 0..10 {
            let end = End::Power(Keep::Some);
            let lives = vec![Life { ops: ops.clone(), recovers: true, steps, end }];
            let sync = WalSync::Interval(Duration::from_secs(5));
            check(seed, sync, lives).unwrap_or_else(|error| panic!("seed {seed}, {steps} steps: {error}"));
        }
    }
}

/// A full disk fails what finds no file, in order, loses no number, and is over as soon as there is space again.
#[test]
fn a_full_disk_fails_what_does_not_fit_and_heals_by_itself() {
    let responses = Arc::new(Mutex::new(Vec::new()));
    let world = World::new(1);
    let (inner, told) = (world.clone(), responses.clone());
    let program = async move {
        let mut replayed = Collected::default();
        let (env, dir) = (inner.env(), Path::new("/data/wal"));
        let opened = Wal::open(&env, dir, config(WalSync::Always), KnownLsns::default(), &mut replayed);
        let wal = opened.await.expect("a new log");
        for id in 0..60 {
            if id == 20 {
                inner.set_full(true);
            }
            if id == 50 {
                inner.set_full(false);
            }
            let (sender, receiver) = tokio::sync::oneshot::channel();
            wal.submit(append(id, 0, 5000), Box::new(|result| _ = sender.send(result)));
            let response = receiver.await.expect("answered");
            told.lock().expect("no panic").push(response);
        }
        wal.close().await;
    };
    let outcome = world.live(Box::pin(program), 100_000, End::Kill { evict: false });
    assert!(matches!(outcome, Outcome::Finished));
    let responses = responses.lock().expect("no panic").clone();
    let failed: Vec<usize> = (0..60).filter(|id| responses[*id] == Err(WalFailed::NoSpace)).collect();
    assert!(failed.first().is_some_and(|first| *first >= 20) && failed.last() == Some(&49), "{failed:?}");
    assert_eq!(failed.len(), failed.last().unwrap_or(&0) - failed.first().unwrap_or(&0) + 1, "{failed:?}");
    let numbers: Vec<u64> = responses.iter().filter_map(|response| response.ok()).map(|lsn| lsn.0).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
}

/// The cases reach the situations that matter.
#[test]
fn rare_situations_are_met() {
    let mut runner = deterministic();
    for _ in 0..150 {
        let (seed, sync, lives) = strict().new_tree(&mut runner).expect("no filters").current();
        check(seed, sync, lives).unwrap_or_else(|error| panic!("{error}"));
    }
    let met = kilo::io::probe::snapshot();
    for probe in [
        "wal.entries_replayed",
        "wal.torn_tail",
        "wal.stale_block_rejected",
        "wal.overtaken_file",
        "wal.recycled",
        "wal.overlapped",
        "wal.no_space_file",
        "wal.no_space_write",
    ] {
        assert!(met.contains_key(probe), "{probe} was never met: {met:?}");
    }
}
