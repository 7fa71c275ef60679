//! `cargo sim`: runs scenarios over seeds, replays one, shrinks a failing one, and checks that a seed always gives the
//! same trace.

mod commands;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use kilo_sim::seed_process;

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
    /// Runs scenarios over a range of seeds, each seed in a process of its own.
    Run(RunArgs),
    /// Runs one seed again and tells all about it.
    Replay(ReplayArgs),
    /// Finds a smaller run that fails with the same check, and saves it as a scenario.
    Shrink(ShrinkArgs),
    /// Tells after how many seeds planted faults are found, in a build that has them.
    Mutants(MutantsArgs),
    /// Runs each seed twice and compares the whole traces, byte for byte.
    CheckDeterminism {
        /// Names of scenarios (all if none is named).
        scenarios: Vec<String>,
        /// Seeds, `FROM..TO` without TO, or one.
        #[arg(long, default_value = "0..20", value_parser = seeds)]
        seeds: Range<u64>,
        /// Seeds at the same time, each of which runs twice.
        #[arg(long, default_value_t = 1, value_parser = jobs)]
        jobs: usize,
    },
}

/// What a campaign is.
#[derive(Args)]
struct RunArgs {
    /// Names of scenarios (`cargo sim list`), or paths of files; all scenarios if none is named.
    scenarios: Vec<String>,
    /// Seeds, `FROM..TO` without TO, or one.
    #[arg(long, default_value = "0..100", value_parser = seeds)]
    seeds: Range<u64>,
    /// Processes at the same time.
    #[arg(long, default_value_t = 2, value_parser = jobs)]
    jobs: usize,
    /// Stops at the first failure.
    #[arg(long)]
    fail_fast: bool,
    /// Prints neither probes nor what scenarios came to: failures and the sum alone.
    #[arg(long)]
    quiet: bool,
    /// Stops as soon as this check has failed.
    #[arg(long, value_name = "CHECK")]
    until: Option<String>,
    /// Writes what was seen to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Switches a planted fault on, to see whether it is found.
    #[arg(long, value_name = "NAME")]
    mutant: Vec<String>,
}

/// What to replay.
#[derive(Args)]
struct ReplayArgs {
    /// The scenario's name, or the path of a file.
    scenario: String,
    /// The seed; without it, the runs that are pinned in the file.
    #[arg(long)]
    seed: Option<u64>,
    /// Which of the runs that are pinned in the file, from 1; without it, all of them.
    #[arg(long, value_name = "NUMBER", conflicts_with = "seed")]
    pinned: Option<usize>,
    /// The scheduler's seed, if another.
    #[arg(long)]
    scheduler: Option<u64>,
    /// Prints the whole trace.
    #[arg(long)]
    trace: bool,
    /// Writes a timeline to a file: one HTML page, to be opened in a browser.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Prints the broker's log lines: a filter such as `kilo=debug` or `kilo::log=trace`.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Takes the fault plan from a TOML file instead of drawing it.
    #[arg(long, value_name = "FILE", requires = "seed")]
    plan: Option<PathBuf>,
    /// Writes the fault plan to a TOML file, to be edited.
    #[arg(long, value_name = "FILE")]
    save_plan: Option<PathBuf>,
    /// Switches a planted fault on.
    #[arg(long, value_name = "NAME")]
    mutant: Vec<String>,
}

/// What to shrink.
#[derive(Args)]
struct ShrinkArgs {
    /// The scenario's name, or the path of a file.
    scenario: String,
    /// The seed.
    #[arg(long)]
    seed: u64,
    /// The check that must fail; the first that does, if not given.
    #[arg(long)]
    check: Option<String>,
    /// Processes at the same time.
    #[arg(long, default_value_t = 2, value_parser = jobs)]
    jobs: usize,
    /// Scheduler seeds that each candidate is tried with.
    #[arg(long, default_value_t = 3)]
    tries: u64,
    /// Where the smaller run goes; `SCENARIO-SEED.toml` in the current folder, if not given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Switches a planted fault on.
    #[arg(long, value_name = "NAME")]
    mutant: Vec<String>,
}

/// Which planted faults to hunt.
#[derive(Args)]
struct MutantsArgs {
    /// The folder with the patches.
    folder: PathBuf,
    /// Names of planted faults (all if none is named).
    names: Vec<String>,
    /// Processes at the same time.
    #[arg(long, default_value_t = 2, value_parser = jobs)]
    jobs: usize,
    /// The one that is planted in this process.
    #[arg(long, hide = true)]
    only: Option<String>,
}

fn jobs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&jobs| jobs > 0).ok_or_else(|| format!("`{text}` is no number of processes, from 1 on"))
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("`{text}` is neither a range of seeds such as 0..100, without 100, nor one seed");
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => number(text)?..number(text)?.checked_add(1).ok_or_else(wrong)?,
    };
    if range.is_empty() { Err(wrong()) } else { Ok(range) }
}

fn main() -> ExitCode {
    seed_process::serve();
    let done = match Cli::parse().command {
        Command::List => commands::list(),
        Command::Run(args) => commands::plant(&args.mutant).and_then(|()| commands::run::campaign(&args)),
        Command::Replay(args) => commands::plant(&args.mutant).and_then(|()| commands::replay::replay(&args)),
        Command::Shrink(args) => commands::plant(&args.mutant).and_then(|()| commands::shrink::shrink(&args)),
        Command::Mutants(args) => commands::mutants::hunt(&args),
        Command::CheckDeterminism { scenarios, seeds, jobs } => commands::check_determinism(&scenarios, &seeds, jobs),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Whoever reads the output has had enough, as `head` has.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe) => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
