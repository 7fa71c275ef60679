//! What kills, power cuts, pauses and faults do to a node and its disk.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use kilo::io::{Env, FailStop, File, OpenMode};
use kilo_sim::disk::{DiskFaults, Fault, Injection, Keep, OpKind};
use kilo_sim::host::{Exit, Sim, SimConfig, run};

const DIR: &str = "/data";
const FILE: &str = "/data/file";

fn on_seeds<F: Future>(seeds: u64, test: impl Fn(Sim) -> F) -> Vec<F::Output> {
    (0..seeds).map(|seed| run(SimConfig::new(seed), &test)).collect()
}

fn page(byte: u8) -> Vec<Bytes> {
    vec![Bytes::from(vec![byte; 4096])]
}

/// Creates the file with one stable page.
async fn prepared(env: &Env) -> File {
    let disk = env.disk();
    disk.create_dir_all(Path::new(DIR)).await.expect("creates");
    disk.sync_dir(Path::new("/")).await.expect("syncs");
    let file = disk.open(Path::new(FILE), OpenMode::Create).await.expect("opens");
    file.write_at_and_sync(0, page(1)).await.expect("writes");
    disk.sync_dir(Path::new(DIR)).await.expect("syncs");
    file
}

async fn contents(env: &Env) -> Bytes {
    let file = env.disk().open(Path::new(FILE), OpenMode::Read).await.expect("opens");
    file.read_at(0, 1 << 20).await.expect("reads")
}

#[test]
fn a_kill_keeps_the_page_cache_and_a_power_cut_does_not() {
    on_seeds(5, |sim| async move {
        let node = sim.create_node("node");
        let env = node.enter();
        prepared(&env).await.write_at(4096, page(2)).await.expect("writes");
        node.kill();
        let env = node.enter();
        assert_eq!(contents(&env).await.len(), 8192);
        let report = node.power_loss(Keep::None);
        assert_eq!((report.sectors_pending, report.sectors_lost), (8, 8));
        assert_eq!(contents(&node.enter()).await, page(1)[0]);
    });
}

#[test]
fn a_power_cut_tears_what_is_pending_by_sectors() {
    let found = on_seeds(60, |sim| async move {
        let node = sim.create_node("node");
        prepared(&node.enter()).await.write_at(0, page(2)).await.expect("writes");
        node.power_loss(Keep::Some);
        let bytes = contents(&node.enter()).await;
        assert_eq!(bytes.len(), 4096);
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]) && (1..=2).contains(&sector[0]));
        }
        bytes.iter().filter(|byte| **byte == 2).count() / 512
    });
    assert!(found.contains(&0) && found.contains(&8), "{found:?}");
    assert!(found.iter().any(|count| (1..8).contains(count)), "{found:?}");
}

#[test]
fn names_are_stable_only_once_their_directory_is() {
    on_seeds(5, |sim| async move {
        let node = sim.create_node("node");
        let env = node.enter();
        prepared(&env).await;
        let other = env.disk().open(Path::new("/data/other"), OpenMode::Create).await.expect("opens");
        other.write_at_and_sync(0, page(3)).await.expect("writes");
        env.disk().rename(Path::new(FILE), Path::new("/data/new")).await.expect("renames");
        node.power_loss(Keep::None);
        let env = node.enter();
        assert_eq!(env.disk().list(Path::new(DIR)).await.expect("lists"), [Path::new(FILE)]);
        env.disk().rename(Path::new(FILE), Path::new("/data/new")).await.expect("renames");
        env.disk().sync_dir(Path::new(DIR)).await.expect("syncs");
        node.power_loss(Keep::None);
        let env = node.enter();
        assert_eq!(env.disk().list(Path::new(DIR)).await.expect("lists"), [Path::new("/data/new")]);
    });
}

#[test]
fn a_failed_flush_loses_what_it_covered_though_reads_see_it() {
    let lost = on_seeds(20, |sim| async move {
        let node = sim.create_node("node");
        let env = node.enter();
        let file = prepared(&env).await;
        node.disk().inject(Injection { op: OpKind::Sync, path: "file".into(), nth: 0, fault: Fault::Eio });
        let error = file.write_at_and_sync(0, page(2)).await.expect_err("is injected");
        assert_eq!(error.raw_os_error(), Some(5));
        assert_eq!(contents(&env).await, page(2)[0]);
        file.sync_data().await.expect("has nothing left to do");
        assert_eq!(node.disk().hits().into_iter().collect::<Vec<_>>(), [("sync Eio".to_owned(), 1)]);
        node.power_loss(Keep::All);
        contents(&node.enter()).await != page(2)[0]
    });
    assert!(lost.contains(&true), "{lost:?}");
}

#[test]
fn a_lying_flush_is_found_out_by_a_power_cut() {
    on_seeds(3, |sim| async move {
        let node = sim.create_node("node");
        let env = node.enter();
        let file = prepared(&env).await;
        node.disk().set_faults(DiskFaults { sync_lie: 1.0, ..DiskFaults::default() });
        file.write_at_and_sync(0, page(2)).await.expect("lies");
        node.power_loss(Keep::None);
        assert_eq!(contents(&node.enter()).await, page(1)[0]);
    });
}

#[test]
fn faults_are_drawn_at_their_rates_and_injected_where_told() {
    on_seeds(3, |sim| async move {
        let node = sim.create_node("node");
        let env = node.enter();
        let file = prepared(&env).await;
        node.disk().set_faults(DiskFaults { read_error: 0.3, read_flip: 0.3, ..DiskFaults::default() });
        let (mut errors, mut flips) = (0, 0);
        for _ in 0..200 {
            match file.read_at(0, 4096).await {
                Ok(bytes) => flips += i32::from(bytes != page(1)[0]),
                Err(_) => errors += 1,
            }
        }
        assert!((30..90).contains(&errors) && (15..80).contains(&flips), "{errors} {flips}");
        node.disk().set_faults(DiskFaults::default());
        let inject = |op, nth, fault| node.disk().inject(Injection { op, path: "/data".into(), nth, fault });
        inject(OpKind::Write, 1, Fault::NoSpace);
        inject(OpKind::Open, 0, Fault::TooManyFiles);
        inject(OpKind::Len, 0, Fault::Slow(5000));
        file.write_at(0, page(2)).await.expect("is the one before");
        let full = file.write_at(0, page(2)).await.expect_err("is the one");
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        let many = env.disk().open(Path::new(FILE), OpenMode::Read).await.err().expect("is injected");
        assert_eq!(many.raw_os_error(), Some(24));
        let before = env.now();
        file.len().await.expect("is slow");
        assert!(env.now() - before >= Duration::from_secs(5));
        node.disk().flip_bit(Path::new(FILE), 7, 0).expect("exists");
        assert_eq!(file.read_at(7, 1).await.expect("reads")[0], 3);
    });
}

#[test]
fn incarnations_end_in_four_ways() {
    on_seeds(3, |sim| async move {
        let node = sim.create_node("node");
        node.start(|env| async move { env.sleep(Duration::from_secs(1)).await });
        assert!(node.is_running());
        assert_eq!(node.exited().await, Exit::Returned);
        node.start(|env| async move { env.fail_stop(FailStop::FsyncFailed, "on purpose").await });
        assert_eq!(node.exited().await, Exit::FailStop(FailStop::FsyncFailed, "on purpose".into()));
        node.start(|env| async move {
            let core = env.spawn_core("core", async { panic!("broken invariant") });
            core.join().await;
            unreachable!("the incarnation has ended");
        });
        let exit = node.exited().await;
        assert!(matches!(&exit, Exit::FailStop(FailStop::Bug, why) if why.contains("broken invariant")), "{exit:?}");
        node.start(|_| std::future::pending());
        sim.sleep(Duration::from_secs(1)).await;
        node.kill();
        assert_eq!((node.exited().await, node.is_running()), (Exit::Killed, false));
        assert_eq!(sim.findings(), []);
    });
}

#[test]
fn a_dead_incarnation_does_nothing_and_its_attempts_are_findings() {
    struct Flushes(Env);
    impl Drop for Flushes {
        fn drop(&mut self) {
            drop(self.0.disk().open(Path::new("/data/from-a-destructor"), OpenMode::Create));
        }
    }
    on_seeds(3, |sim| async move {
        let node = sim.create_node("node");
        node.start(|env| async move {
            let _flushes = Flushes(env.clone());
            prepared(&env).await;
            let _lock = env.disk().lock_dir(Path::new(DIR)).await.expect("locks");
            std::future::pending::<()>().await;
        });
        sim.sleep(Duration::from_secs(1)).await;
        node.kill();
        sim.sleep(Duration::from_secs(1)).await;
        let findings = sim.findings();
        assert!(findings.len() == 1 && findings[0].what.contains("from-a-destructor"), "{findings:?}");
        let env = node.enter();
        assert!(!env.disk().exists(Path::new("/data/from-a-destructor")).await.expect("looks"));
        env.disk().lock_dir(Path::new(DIR)).await.expect("is free again");
        node.kill();
        assert!(env.disk().list(Path::new(DIR)).await.is_err());
        assert!(env.net().listen((node.ip(), 1).into()).await.is_err());
        env.spawn("late", async { unreachable!("it never runs") }).join().await;
        assert_eq!(env.compute(|| 1).await, None);
    });
}

#[test]
fn what_is_in_flight_at_a_kill_happens_or_not() {
    let found = on_seeds(40, |sim| async move {
        let node = sim.create_node("node");
        let file = prepared(&node.enter()).await;
        drop(file.write_at(0, page(2)));
        node.kill();
        contents(&node.enter()).await[0]
    });
    assert!(found.contains(&1) && found.contains(&2), "{found:?}");
}

#[test]
fn a_paused_node_does_nothing_until_it_is_resumed() {
    on_seeds(3, |sim| async move {
        let node = sim.create_node("node");
        node.start(|env| async move {
            for _ in 0..100 {
                env.sleep(Duration::from_millis(100)).await;
            }
        });
        sim.sleep(Duration::from_secs(5)).await;
        node.pause();
        sim.sleep(Duration::from_secs(100)).await;
        assert!(node.is_running());
        node.resume();
        let before = sim.now();
        node.exited().await;
        assert!((sim.now() - before).as_secs_f64() > 4.0);
        node.restart();
        node.pause();
        sim.sleep(Duration::from_secs(1)).await;
        node.kill();
        assert_eq!(node.exited().await, Exit::Killed);
    });
}

#[test]
fn wall_clocks_jump_and_drift_and_the_monotonic_one_does_not() {
    on_seeds(3, |sim| async move {
        let node = sim.create_node("node");
        sim.sleep(Duration::from_secs(100)).await;
        let env = node.enter();
        assert!(env.now().0 < 1_000_000);
        let wall = env.wall().0;
        node.jump_wall_clock(-3_600_000);
        assert_eq!(env.wall().0, wall - 3_600_000);
        node.jump_wall_clock(3_600_000);
        node.drift_wall_clock(100_000);
        assert!((env.wall().0 - wall).abs() <= 1);
        let before = env.now();
        env.sleep(Duration::from_secs(10)).await;
        assert!((10_999..=11_001).contains(&(env.wall().0 - wall)), "{}", env.wall().0 - wall);
        assert!((env.now() - before).as_millis() <= 10_001);
    });
}
