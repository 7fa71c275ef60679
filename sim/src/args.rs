//! The arguments of the commands.

use std::ops::Range;
use std::path::PathBuf;

use clap::Args;

/// What a campaign is.
#[derive(Args)]
pub struct RunArgs {
    /// Names of scenarios (`cargo sim list`), or paths of files; all scenarios if none is named.
    pub scenarios: Vec<String>,
    /// Seeds, `FROM..TO` without TO, or one.
    #[arg(long, default_value = "0..100", value_parser = seeds)]
    pub seeds: Range<u64>,
    /// Processes at the same time.
    #[arg(long, default_value_t = 2, value_parser = jobs)]
    pub jobs: usize,
    /// Stops at the first failure.
    #[arg(long)]
    pub fail_fast: bool,
    /// Prints neither probes nor what scenarios came to: failures and the sum alone.
    #[arg(long)]
    pub quiet: bool,
    /// Stops as soon as this check has failed.
    #[arg(long, value_name = "CHECK")]
    pub until: Option<String>,
    /// Writes what was seen to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Switches a planted fault on, to see whether it is found.
    #[arg(long, value_name = "NAME")]
    pub mutant: Vec<String>,
}

/// What to replay.
#[derive(Args)]
pub struct ReplayArgs {
    /// The scenario's name, or the path of a file.
    pub scenario: String,
    /// The seed; without it, the runs that are pinned in the file.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Which of the runs that are pinned in the file, from 1; without it, all of them.
    #[arg(long, value_name = "NUMBER", conflicts_with = "seed")]
    pub pinned: Option<usize>,
    /// The scheduler's seed, if another.
    #[arg(long)]
    pub scheduler: Option<u64>,
    /// Prints the whole trace.
    #[arg(long)]
    pub trace: bool,
    /// Writes a timeline to a file: one HTML page, to be opened in a browser.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Prints the broker's log lines: a filter such as `kilo=debug` or `kilo::log=trace`.
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
    /// Takes the fault plan from a TOML file instead of drawing it.
    #[arg(long, value_name = "FILE", requires = "seed")]
    pub plan: Option<PathBuf>,
    /// Writes the fault plan to a TOML file, to be edited.
    #[arg(long, value_name = "FILE")]
    pub save_plan: Option<PathBuf>,
    /// Switches a planted fault on.
    #[arg(long, value_name = "NAME")]
    pub mutant: Vec<String>,
}

/// What to shrink.
#[derive(Args)]
pub struct ShrinkArgs {
    /// The scenario's name, or the path of a file.
    pub scenario: String,
    /// The seed.
    #[arg(long)]
    pub seed: u64,
    /// The check that must fail; the first that does, if not given.
    #[arg(long)]
    pub check: Option<String>,
    /// Processes at the same time.
    #[arg(long, default_value_t = 2, value_parser = jobs)]
    pub jobs: usize,
    /// Scheduler seeds that each candidate is tried with.
    #[arg(long, default_value_t = 3)]
    pub tries: u64,
    /// Where the smaller run goes; `SCENARIO-SEED.toml` in the current folder, if not given.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Switches a planted fault on.
    #[arg(long, value_name = "NAME")]
    pub mutant: Vec<String>,
}

/// Which planted faults to hunt.
#[derive(Args)]
pub struct MutantsArgs {
    /// The folder with the patches.
    pub folder: PathBuf,
    /// Names of planted faults (all if none is named).
    pub names: Vec<String>,
    /// Processes at the same time.
    #[arg(long, default_value_t = 2, value_parser = jobs)]
    pub jobs: usize,
    /// The one that is planted in this process.
    #[arg(long, hide = true)]
    pub only: Option<String>,
}

/// How many processes.
pub fn jobs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&jobs| jobs > 0).ok_or_else(|| format!("`{text}` is no number of processes, from 1 on"))
}

/// A range of seeds.
pub fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("`{text}` is neither a range of seeds such as 0..100, without 100, nor one seed");
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => number(text)?..number(text)?.checked_add(1).ok_or_else(wrong)?,
    };
    if range.is_empty() { Err(wrong()) } else { Ok(range) }
}
