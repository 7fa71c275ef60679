//! Every scenario, as `cargo test` runs it: its pinned seeds and a few fresh ones, each a test named after scenario and
//! seed, each in a process of its own (this program, executed again).
//!
//! Fresh seeds differ from run to run; a failure prints the command that runs its seed again. `KILO_SIM_FRESH` sets how
//! many fresh seeds a scenario gets.

use std::time::{SystemTime, UNIX_EPOCH};

use kilo_sim::scenario::{self, Pinned, Scenario};
use kilo_sim::seed_process::{self, Request, Seed};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    seed_process::serve();
    let arguments = Arguments::from_args();
    let scenarios: Result<Vec<Scenario>, _> =
        scenario::names().and_then(|names| names.iter().map(|name| scenario::find(name)).collect());
    let scenarios = match scenarios {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    };
    let fresh = std::env::var("KILO_SIM_FRESH").ok().and_then(|count| count.parse().ok());
    let start = fresh_start();
    let mut trials = Vec::new();
    for scenario in &scenarios {
        let fresh = fresh.unwrap_or(scenario.tests.fresh);
        let fresh = (0..u64::from(fresh)).map(|index| ("fresh", start + index));
        let pinned = scenario.tests.seeds.iter().map(|&seed| ("pinned", seed));
        for (kind, seed) in pinned.chain(fresh) {
            let name = scenario.name.clone();
            let title = format!("{name}::seed_{seed}");
            trials.push(Trial::test(title, move || run(&name, seed)).with_kind(kind));
        }
    }
    for scenario in scenarios {
        for pinned in scenario.pinned {
            let title = format!("{}::pinned_{}", scenario.name, pinned.seed);
            let name = scenario.name.clone();
            trials.push(Trial::test(title, move || run_pinned(&name, pinned)).with_kind("pinned"));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Where fresh seeds begin: another place each second, with few enough digits to be typed.
fn fresh_start() -> u64 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    1_000_000 + seconds % 1_000_000 * 10
}

fn run(name: &str, seed: u64) -> Result<(), Failed> {
    let report = Seed::start(&Request::new(name, seed)).and_then(Seed::wait)?;
    if report.is_good() { Ok(()) } else { Err(report.to_string().into()) }
}

/// A run that is written down passes, and still reaches what it was written down for.
fn run_pinned(name: &str, pinned: Pinned) -> Result<(), Failed> {
    let request = Request { scheduler: pinned.scheduler, plan: Some(pinned.plan), ..Request::new(name, pinned.seed) };
    let report = Seed::start(&request).and_then(Seed::wait)?;
    if !report.is_good() {
        return Err(report.to_string().into());
    }
    match pinned.reaches {
        Some(probe) if !report.probes.contains_key(&probe) => {
            Err(format!("the pinned run does not reach `{probe}` any more: {:?}", report.probes).into())
        }
        _ => Ok(()),
    }
}
