//! What the commands do. `Ok(false)` is a failure that was found, `Err` one to do what was asked.

pub mod mutants;
pub mod replay;
pub mod run;
pub mod shrink;
mod tally;

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{Write as _, stdout};
use std::ops::Range;
use std::path::Path;

use kilo_sim::planted;
use kilo_sim::scenario::{self, Scenario};
use kilo_sim::seed_process::{self, Comparison};
use kilo_sim::{oracle, probes, runner};

/// Whether all is well.
pub type Done = Result<bool, Box<dyn Error>>;

/// Planted faults reach the processes of the seeds through the environment.
pub fn plant(mutants: &[String]) -> Result<(), Box<dyn Error>> {
    if let Some(wrong) = mutants.iter().find(|name| !probes::mutants().any(|known| known == **name)) {
        return Err(no_mutant(wrong).into());
    }
    let names = mutants.join(",");
    if !mutants.is_empty() && std::env::var(planted::MUTANTS).as_deref() != Ok(&names) {
        // Setting a variable of a running process is unsafe: start over with it.
        let mut again = std::process::Command::new(std::env::current_exe()?);
        let status = again.args(std::env::args().skip(1)).env(planted::MUTANTS, names).status()?;
        std::process::exit(status.code().unwrap_or(2));
    }
    Ok(())
}

/// What to say of a planted fault that this build does not have.
fn no_mutant(name: &str) -> String {
    let count = probes::mutants().count();
    format!(
        "this build has no planted fault `{name}`, and {count} in all: ci/mutants makes one that has those of sim/mutants"
    )
}

/// A check that somebody named must be one that there is.
fn known_check(name: Option<&str>) -> Result<(), String> {
    let all: Vec<&str> = oracle::names().chain(runner::CHECKS.iter().copied()).collect();
    match name.filter(|name| !all.contains(name)) {
        Some(wrong) => Err(format!("there is no check `{wrong}`; there are {}", all.join(", "))),
        None => Ok(()),
    }
}

/// The error for planted faults that no run came by, if there are any.
fn unreached_mutants(is_reached: impl Fn(&str) -> bool) -> Result<(), Box<dyn Error>> {
    let unreached: Vec<String> = planted::mutants().into_iter().filter(|name| !is_reached(name)).collect();
    if unreached.is_empty() {
        return Ok(());
    }
    let names = unreached.join(", ");
    Err(format!("no run came by the planted fault {names}: is the name right, and is this build one that has it?")
        .into())
}

/// Whether a file can be written: asked before a run, which may take long.
fn can_write(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// Prints every scenario with what it is about.
pub fn list() -> Done {
    for name in scenario::names()? {
        writeln!(stdout(), "{name:24} {}", scenario::find(&name)?.about)?;
    }
    Ok(true)
}

fn find_all(names: &[String]) -> Result<Vec<(String, Scenario)>, Box<dyn Error>> {
    let all = if names.is_empty() { scenario::names()? } else { names.to_vec() };
    let found = all.into_iter().map(|name| scenario::find(&name).map(|scenario| (name, scenario)));
    Ok(found.collect::<Result<_, _>>()?)
}

/// Runs every seed twice; prints those whose traces differ, and how many were equal.
pub fn check_determinism(names: &[String], seeds: &Range<u64>, jobs: usize) -> Done {
    let scenarios = find_all(names)?;
    let mut work = seeds.clone().flat_map(|seed| scenarios.iter().map(move |(name, _)| (name, seed)));
    let (mut equal, mut different, mut lines) = (0_u64, 0_u64, 0);
    let mut running: Vec<Comparison> = Vec::new();
    loop {
        while running.len() < jobs {
            let Some((name, seed)) = work.next() else { break };
            running.push(Comparison::start(name, seed)?);
        }
        if running.is_empty() {
            break;
        }
        let mut index = 0;
        while index < running.len() {
            if !running[index].is_done()? {
                index += 1;
                continue;
            }
            let compared = running.swap_remove(index);
            let (name, seed) = (compared.scenario().to_owned(), compared.seed());
            match compared.result()? {
                Ok(report) => {
                    equal += 1;
                    lines += report.trace_lines;
                }
                Err(difference) => {
                    different += 1;
                    writeln!(stdout(), "{name} seed {seed}: DIFFERENT, {difference}")?;
                }
            }
        }
        std::thread::sleep(seed_process::LOOK_EVERY);
    }
    writeln!(stdout(), "{equal} seeds gave equal traces ({lines} lines), {different} differ")?;
    Ok(different == 0)
}
