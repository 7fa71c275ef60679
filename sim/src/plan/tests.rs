//! Tests of drawing and keeping plans.

use super::*;
use crate::scenario::Scenario;

const RULES: &str = "
[phases]
faults_ms = 30000
[[faults]]
every_ms = [300, 900]
chance = 0.5
crash = { again = [0, 2], power = 0.5, clock = 0.5 }
[[faults]]
every_ms = 2000
sync_failure = { paths = [\"wal\"] }
[[faults]]
every_ms = 2000
pause = {}
[[faults]]
every_ms = 2000
stop = { cut = 0.5 }
[[faults]]
every_ms = 2000
disk_full = {}
[[faults]]
every_ms = 2000
disk_trouble = { rates = { slow = 0.1, slow_ms = 5 }, for_ms = 100 }
[[faults]]
every_ms = 2000
disk_fault = { op = \"read\", paths = [\"index\"], fault = \"eio\" }
[[faults]]
every_ms = 2000
few_descriptors = {}
[[faults]]
every_ms = 2000
resets = { some = 0.5 }
[[faults]]
every_ms = 2000
partition = { some = 0.5, reset = 0.5 }
[[faults]]
every_ms = 2000
slow_network = { some = 0.5 }
[[faults]]
every_ms = 2000
clock_jump = { client = 0.5 }
[[faults]]
every_ms = 2000
clock_drift = { client = 0.5 }
[[faults]]
every_ms = 2000
client_crash = { power = 0.5 }
";

fn plan(seed: u64) -> Plan {
    let scenario = Scenario::parse("s", RULES).unwrap_or_else(|error| panic!("{error}"));
    Plan::draw(&scenario, 4, &mut fastrand::Rng::with_seed(seed))
}

#[test]
fn the_same_seed_draws_the_same_plan_and_another_seed_another() {
    assert_eq!(plan(1), plan(1));
    assert_ne!(plan(1), plan(2));
}

#[test]
fn a_plan_of_any_fault_survives_being_written_and_read() {
    for seed in 0..20 {
        let plan = plan(seed);
        let text = toml::to_string(&plan).expect("a plan is plain data");
        assert_eq!(toml::from_str::<Plan>(&text).expect("its own text"), plan, "{text}");
    }
    let tracks = plan(0).actions.iter().map(|action| action.what.track()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(tracks.len(), Track::ALL.len(), "the rules above have a fault on every track");
}

#[test]
fn swarm_switches_rules_off_in_some_seeds() {
    let crashes = |seed| plan(seed).actions.iter().any(|action| matches!(action.what, FaultKind::Crashes(_)));
    let with = (0..100).filter(|&seed| crashes(seed)).count();
    assert!((20..80).contains(&with), "{with}");
}

#[test]
fn clients_named_are_clients_that_there_are() {
    let named = |what: &FaultKind| match what {
        FaultKind::Resets { clients, .. }
        | FaultKind::Partition { clients, .. }
        | FaultKind::SlowNetwork { clients, .. } => clients.0.clone(),
        FaultKind::ClientCrash { client, .. } => vec![*client],
        _ => Vec::new(),
    };
    let all: Vec<u32> = (0..20).flat_map(|seed| plan(seed).actions).flat_map(|action| named(&action.what)).collect();
    assert!(!all.is_empty() && all.iter().all(|&client| client < 4));
}
