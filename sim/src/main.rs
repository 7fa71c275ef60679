//! `cargo sim`: runs scenarios over seeds, replays one, and checks that a seed always gives the same trace.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use kilo_sim::child::{self, Request, Seed};
use kilo_sim::plan::Plan;
use kilo_sim::runner::{self, Report, Run};
use kilo_sim::scenario::{self, Scenario};
use kilo_sim::trace::TraceMode;

/// The deterministic simulator of Kilo.
#[derive(Parser)]
#[command(name = "cargo sim", bin_name = "cargo sim")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the scenarios.
    List,
    /// Runs scenarios (all if none is named) over a range of seeds, each seed in a process of its own.
    Run {
        /// Names of scenarios, or paths of files.
        scenarios: Vec<String>,
        /// Seeds, `A..B` without B.
        #[arg(long, default_value = "0..100", value_parser = seeds)]
        seeds: Range<u64>,
        /// Processes at the same time.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Stops at the first failure.
        #[arg(long)]
        fail_fast: bool,
        /// Switches planted faults on, to see whether they are found.
        #[arg(long)]
        mutant: Vec<String>,
    },
    /// Runs one seed again and tells all about it.
    Replay {
        /// The scenario's name, or the path of a file.
        scenario: String,
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// Prints the whole trace.
        #[arg(long)]
        trace: bool,
        /// Prints the broker's log lines: a filter such as `debug` or `kilo::log=trace`.
        #[arg(long)]
        log: Option<String>,
        /// Takes the fault plan from a file instead of drawing it.
        #[arg(long)]
        plan: Option<PathBuf>,
        /// Writes the fault plan to a file, to be edited.
        #[arg(long)]
        save_plan: Option<PathBuf>,
        /// Switches planted faults on.
        #[arg(long)]
        mutant: Vec<String>,
    },
    /// Runs each seed twice and compares the whole traces, byte for byte.
    CheckDeterminism {
        /// Names of scenarios (all if none is named).
        scenarios: Vec<String>,
        /// Seeds, `A..B` without B.
        #[arg(long, default_value = "0..20", value_parser = seeds)]
        seeds: Range<u64>,
    },
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("`{text}` is not a range of seeds such as 0..100");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let range = from.parse().map_err(|_| wrong())?..to.parse().map_err(|_| wrong())?;
    if range.is_empty() { Err(wrong()) } else { Ok(range) }
}

fn main() -> ExitCode {
    child::serve();
    let done = match Cli::parse().command {
        Command::List => list(),
        Command::Run { scenarios, seeds, jobs, fail_fast, mutant } => {
            plant(&mutant).and_then(|()| campaign(&scenarios, seeds, jobs.max(1), fail_fast))
        }
        Command::Replay { scenario, seed, trace, log, plan, save_plan, mutant } => {
            plant(&mutant).and_then(|()| replay(&scenario, seed, trace, log, plan, save_plan))
        }
        Command::CheckDeterminism { scenarios, seeds } => check_determinism(&scenarios, seeds),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

type Done = Result<bool, Box<dyn Error>>;

/// Planted faults reach the processes of the seeds through the environment.
fn plant(mutants: &[String]) -> Result<(), Box<dyn Error>> {
    if !mutants.is_empty() {
        let names = mutants.join(",");
        if std::env::var(child::MUTANTS).as_deref() != Ok(&names) {
            // Setting a variable of a running process is unsafe: start over with it.
            let mut again = std::process::Command::new(std::env::current_exe()?);
            let status = again.args(std::env::args().skip(1)).env(child::MUTANTS, names).status()?;
            std::process::exit(status.code().unwrap_or(2));
        }
    }
    child::plant_mutants();
    Ok(())
}

fn list() -> Done {
    for name in scenario::names()? {
        println!("{name:24} {}", scenario::find(&name)?.about);
    }
    Ok(true)
}

fn find_all(names: &[String]) -> Result<Vec<Scenario>, Box<dyn Error>> {
    let all = if names.is_empty() { scenario::names()? } else { names.to_vec() };
    let scenarios: Result<_, _> = all.iter().map(|name| scenario::find(name)).collect();
    Ok(scenarios?)
}

/// What a campaign has seen of one scenario.
#[derive(Default)]
struct Tally {
    seeds: u64,
    simulated_ms: u64,
    acknowledged: u64,
    operations: u64,
    starts: u64,
    faults: u64,
    probes: BTreeMap<String, u64>,
    /// In how many seeds each check failed, and the first such seed.
    checks: BTreeMap<String, (u64, u64)>,
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.simulated_ms += report.simulated_ms;
        self.acknowledged += report.acknowledged;
        self.operations += report.sends + report.reads;
        self.starts += report.starts;
        self.faults += report.faults;
        for (probe, count) in &report.probes {
            *self.probes.entry(probe.clone()).or_default() += count;
        }
        let checks: std::collections::BTreeSet<&String> = report.failures.iter().map(|one| &one.check).collect();
        for check in checks {
            let (count, first) = self.checks.entry(check.clone()).or_insert((0, report.seed));
            *count += 1;
            *first = report.seed.min(*first);
        }
    }
}

/// Seeds from which on a required probe that was never hit fails the campaign.
const PROBES_DUE_AFTER: u64 = 50;

fn campaign(names: &[String], seeds: Range<u64>, jobs: usize, fail_fast: bool) -> Done {
    let scenarios = find_all(names)?;
    let began = Instant::now();
    let mut work = seeds.flat_map(|seed| (0..scenarios.len()).map(move |at| (at, seed)));
    let mut running: Vec<(usize, Seed)> = Vec::new();
    let mut tallies: Vec<Tally> = scenarios.iter().map(|_| Tally::default()).collect();
    let mut failed = Vec::new();
    let mut done = 0;
    loop {
        while running.len() < jobs && (failed.is_empty() || !fail_fast) {
            let Some((at, seed)) = work.next() else { break };
            let name = names.get(at).map_or(scenarios[at].name.as_str(), String::as_str);
            running.push((at, Seed::start(&Request::new(name, seed))?));
        }
        if running.is_empty() {
            break;
        }
        let mut index = 0;
        while index < running.len() {
            let Some(report) = running[index].1.poll()? else {
                index += 1;
                continue;
            };
            let (at, _) = running.swap_remove(index);
            tallies[at].add(&report);
            done += 1;
            if !report.is_good() {
                clear_line();
                print!("{report}");
                failed.push(report.replay_command());
            }
            progress(done, failed.len(), began);
        }
        std::thread::sleep(child::LOOK_EVERY);
    }
    clear_line();
    let probes_hit = summarize(&scenarios, &tallies, began);
    for command in &failed {
        println!("failed: {command}");
    }
    Ok(failed.is_empty() && probes_hit)
}

fn progress(done: u64, failed: usize, began: Instant) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{done} seeds, {failed} failed, {} s ", began.elapsed().as_secs());
        // A progress line that cannot be shown is no reason to stop.
        let _ = std::io::stderr().flush();
    }
}

fn clear_line() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// Prints what was seen; says whether every required probe was hit.
fn summarize(scenarios: &[Scenario], tallies: &[Tally], began: Instant) -> bool {
    let mut all_hit = true;
    for (scenario, tally) in scenarios.iter().zip(tallies) {
        println!(
            "{}: {} seeds, {} simulated s, {} sends acknowledged, {} operations judged, {} starts, {} faults",
            scenario.name,
            tally.seeds,
            tally.simulated_ms / 1000,
            tally.acknowledged,
            tally.operations,
            tally.starts,
            tally.faults
        );
        for (check, (count, first)) in &tally.checks {
            println!("  check failed: {check} in {count} seeds, first in {first}");
        }
        let probes: Vec<String> = tally.probes.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("  probes: {}", probes.join(", "));
        for probe in scenario.probes.iter().filter(|&probe| !tally.probes.contains_key(probe)) {
            println!("  required probe never hit: {probe}");
            all_hit &= tally.seeds < PROBES_DUE_AFTER;
        }
    }
    let simulated: u64 = tallies.iter().map(|tally| tally.simulated_ms).sum();
    let seconds = began.elapsed().as_secs_f64();
    println!("{} simulated seconds in {seconds:.1} s", simulated / 1000);
    all_hit
}

fn replay(
    name: &str,
    seed: u64,
    trace: bool,
    log: Option<String>,
    plan: Option<PathBuf>,
    save_plan: Option<PathBuf>,
) -> Done {
    if let Some(filter) = log {
        let filter = tracing_subscriber::EnvFilter::try_new(filter)?;
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_writer(std::io::stderr).init();
    }
    let plan = match plan {
        Some(path) => Some(toml::from_str::<Plan>(&fs::read_to_string(path)?)?),
        None => None,
    };
    let trace_mode = if trace { TraceMode::Keep } else { TraceMode::Hash };
    let report = runner::run(&Run { scenario: scenario::find(name)?, seed, scheduler: None, plan, trace: trace_mode });
    if let Some(path) = save_plan {
        fs::write(path, toml::to_string(&report.plan)?)?;
    }
    if trace {
        std::io::stdout().write_all(report.trace.as_bytes())?;
    }
    print!("{}{report}", report.plan);
    println!("probes: {:?}", report.probes);
    Ok(report.is_good())
}

fn check_determinism(names: &[String], seeds: Range<u64>) -> Done {
    let mut different = 0;
    for scenario in find_all(names)? {
        for seed in seeds.clone() {
            match child::compare(&scenario.name, seed)? {
                Ok(report) => println!("{} seed {seed}: equal, {} lines", scenario.name, report.trace_lines),
                Err(difference) => {
                    different += 1;
                    println!("{} seed {seed}: DIFFERENT, {difference}", scenario.name);
                }
            }
        }
    }
    println!("{different} seeds differ");
    Ok(different == 0)
}
