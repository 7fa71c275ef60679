//! The meta-test: a seed run twice, in two processes, gives the same trace, byte for byte. Without it no other result of
//! the simulator is worth anything.

use kilo_sim::scenario;
use kilo_sim::seed_process::{self, Comparison, Request, Seed};
use libtest_mimic::{Arguments, Failed, Trial};

/// Seeds of each scenario that are run twice.
const SEEDS: std::ops::Range<u64> = 100..102;

fn main() {
    seed_process::serve();
    let arguments = Arguments::from_args();
    let names = match scenario::names() {
        Ok(names) => names,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    };
    let mut trials = Vec::new();
    for name in &names {
        for seed in SEEDS {
            let name = name.clone();
            trials.push(Trial::test(format!("{name}::seed_{seed}_twice"), move || twice(&name, seed)));
        }
    }
    trials.push(Trial::test("log_lines_do_not_change_the_trace", logged));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whoever asks for the broker's log lines gets the same run.
fn logged() -> Result<(), Failed> {
    let silent = Request::new("power_loss", SEEDS.start);
    let loud = Request { log: Some("kilo=debug".to_owned()), ..silent.clone() };
    let (silent, _) = Seed::start(&silent)?.wait_with_errors()?;
    let (loud, lines) = Seed::start(&loud)?.wait_with_errors()?;
    if lines.is_empty() {
        return Err("no log line was printed".into());
    }
    if silent.trace_hash != loud.trace_hash {
        return Err(format!("traces {} and {}", silent.trace_hash, loud.trace_hash).into());
    }
    Ok(())
}

fn twice(name: &str, seed: u64) -> Result<(), Failed> {
    match Comparison::start(name, seed)?.result()? {
        Ok(_) => Ok(()),
        Err(difference) => {
            Err(format!("cargo sim check-determinism {name} --seeds {seed}..{}\n{difference}", seed + 1).into())
        }
    }
}
