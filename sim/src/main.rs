//! `cargo sim`: runs scenarios over seeds, replays one, shrinks a failing one, and checks that a seed always gives the
//! same trace.

mod args;
mod commands;

use std::io;
use std::ops::Range;
use std::process::ExitCode;

use args::{MutantsArgs, ReplayArgs, RunArgs, ShrinkArgs, jobs, seeds};
use clap::{Parser, Subcommand};
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
