//! The conformance suite of the seam on the simulated world, each case in a few worlds.

use std::path::PathBuf;

use kilo::io::Env;
use kilo::io::conformance::{World, disk, net, time};
use kilo_sim::host::{Node, Sim, SimConfig, run};

const SEEDS: u64 = 10;

/// Runs `case` on a node, and expects findings only where the case provokes one.
fn check<F>(name: &str, prepare: impl Fn(&Node), case: fn(World) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let prepare = &prepare;
    for seed in 0..SEEDS {
        run(SimConfig::new(seed), |sim: Sim| async move {
            let node = sim.create_node("node");
            prepare(&node);
            let ip = node.ip();
            node.start(move |env: Env| async move {
                let dir = PathBuf::from("/data/case");
                env.disk().create_dir_all(&dir).await.expect("a fresh disk takes a directory");
                case(World { env, dir, ip }).await;
            });
            let exit = node.exited().await;
            assert_eq!(format!("{exit:?}"), "Returned", "seed {seed}: {}", sim.trace_text());
            let findings = sim.findings();
            let provoked = matches!(name, "a_panic_ends_one_task" | "computes");
            assert_eq!(!findings.is_empty(), provoked, "seed {seed}: {findings:?}");
        });
    }
}

macro_rules! cases {
    ($($module:ident::$case:ident,)*) => {$(
        #[test]
        fn $case() {
            check(stringify!($case), |_| {}, $module::$case);
        }
    )*};
}

kilo::io::conformance_cases!(cases);

#[test]
fn a_full_disk_refuses_and_recovers() {
    check("full", |node| node.disk().set_capacity(Some(2 << 20)), disk::a_full_disk_refuses_and_recovers);
}

#[test]
fn descriptors_run_out_and_come_back() {
    check("descriptors", |node| node.limit_descriptors(100), disk::descriptors_run_out_and_come_back);
}
