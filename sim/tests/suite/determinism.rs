//! One seed, one trace: a small workload runs in two processes, and every byte of the two traces is compared.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use kilo::io::{Env, OpenMode};
use kilo_sim::disk::{DiskFaults, Keep};
use kilo_sim::host::{Sim, SimConfig, run};
use kilo_sim::trace::TraceMode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Tells the test that it is the child that runs this seed.
const SEED: &str = "KILO_TEST_TRACE_SEED";
const BEGIN: &str = "--- trace\n";

/// Stores what it receives and echoes it.
async fn serve(env: Env, ip: std::net::IpAddr) {
    let listener = env.net().listen((ip, 1).into()).await.expect("listens");
    let file = env.disk().open(Path::new("/log"), OpenMode::Create).await.expect("opens");
    while let Ok(mut stream) = listener.accept().await {
        let (file, inner) = (file.clone(), env.clone());
        env.spawn("connection", async move {
            let mut rng = inner.rng("pause");
            let mut buf = [0; 512];
            while stream.read.read_exact(&mut buf).await.is_ok() {
                let at = file.len().await.unwrap_or(0);
                let _ = file.write_at_and_sync(at, vec![Bytes::copy_from_slice(&buf)]).await;
                inner.sleep(Duration::from_micros(rng.u64(0..500))).await;
                if stream.write.write_all(&buf).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn talk(env: Env, ip: std::net::IpAddr) {
    // The order of a map with random keys would show in the trace.
    let words: std::collections::HashMap<u32, u8> = (0..20).map(|key| (key, key as u8)).collect();
    for _ in 0..400 {
        let Ok(mut stream) = env.net().connect((ip, 1).into()).await else {
            env.sleep(Duration::from_millis(50)).await;
            continue;
        };
        #[expect(clippy::iter_over_hash_type, reason = "that it is the same in both processes is what is tested")]
        for byte in words.values() {
            let mut buf = [*byte; 512];
            if stream.write.write_all(&buf).await.is_err() || stream.read.read_exact(&mut buf).await.is_err() {
                break;
            }
        }
    }
}

async fn scenario(sim: Sim) -> String {
    let (server, client) = (sim.create_node("server"), sim.create_node("client"));
    let ip = server.ip();
    server.disk().set_faults(DiskFaults { sync_error: 0.01, slow: 0.02, slow_ms: 20, ..DiskFaults::default() });
    server.start(move |env| serve(env, ip));
    client.start(move |env| talk(env, ip));
    let mut rng = sim.rng("faults");
    for _ in 0..6 {
        sim.sleep(Duration::from_millis(rng.u64(20..400))).await;
        match rng.u8(0..4) {
            0 => drop(server.power_loss(Keep::Some)),
            1 => server.kill(),
            2 => drop(sim.net().reset_node(&server)),
            _ => {
                sim.net().partition(&[&server], &[&client]);
                sim.sleep(Duration::from_millis(700)).await;
                sim.net().heal();
            }
        }
        if !server.is_running() {
            sim.sleep(Duration::from_millis(rng.u64(1..100))).await;
            server.restart();
        }
    }
    sim.sleep(Duration::from_secs(1)).await;
    sim.trace_text()
}

fn trace_of(seed: u64) -> String {
    let output = Command::new(std::env::current_exe().expect("a test knows its binary"))
        .args(["determinism::equal_seeds_give_equal_traces", "--exact", "--nocapture"])
        .env(SEED, seed.to_string())
        .output()
        .expect("starts");
    let text = String::from_utf8(output.stdout).expect("traces are text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (_, trace) = text.split_once(BEGIN).expect("the child prints its trace");
    let (trace, _) = trace.split_once(BEGIN).expect("the child prints all of it");
    trace.to_owned()
}

#[test]
fn equal_seeds_give_equal_traces() {
    if let Ok(seed) = std::env::var(SEED) {
        let config = SimConfig { trace: TraceMode::Keep, ..SimConfig::new(seed.parse().expect("a number")) };
        let trace = run(config, scenario);
        print!("{BEGIN}{trace}{BEGIN}");
        return;
    }
    let mut last = String::new();
    for seed in 0..5 {
        let (first, second) = (trace_of(seed), trace_of(seed));
        if let Some((line, (a, b))) = first.lines().zip(second.lines()).enumerate().find(|(_, (a, b))| a != b) {
            panic!("seed {seed}, line {line}:\n{a}\n{b}");
        }
        assert!(first == second, "seed {seed}: one trace is longer");
        assert!(first.lines().count() > 300, "seed {seed}: {} lines", first.lines().count());
        assert_ne!(first, last, "seed {seed} and the one before");
        last = first;
    }
}
