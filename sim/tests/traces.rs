//! The meta-test: a seed run twice, in two processes, gives the same trace, byte for byte. Without it no other result of
//! the simulator is worth anything.

use kilo_sim::{child, scenario};
use libtest_mimic::{Arguments, Failed, Trial};

/// Seeds of each scenario that are run twice.
const SEEDS: std::ops::Range<u64> = 100..102;

fn main() {
    child::serve();
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
    libtest_mimic::run(&arguments, trials).exit();
}

fn twice(name: &str, seed: u64) -> Result<(), Failed> {
    match child::compare(name, seed)? {
        Ok(_) => Ok(()),
        Err(difference) => {
            Err(format!("cargo sim check-determinism {name} --seeds {seed}..{}\n{difference}", seed + 1).into())
        }
    }
}
