//! A failing seed, made small.

use std::fs;
use std::io::{Write as _, stdout};
use std::path::PathBuf;

use kilo_sim::scenario;
use kilo_sim::seed_process::{Request, shell_word};
use kilo_sim::shrink::{self, Shrunk, Tries};

use super::{Done, known_check};
use crate::args::ShrinkArgs;

/// Shrinks a seed and saves what is left as a scenario. False if the seed does not fail.
pub fn shrink(args: &ShrinkArgs) -> Done {
    let scenario = scenario::find(&args.scenario)?;
    known_check(args.check.as_deref())?;
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}-{}.toml", scenario.name, args.seed)));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        return Err(format!("{}: there is no folder {}", path.display(), folder.display()).into());
    }
    let tries = Tries { jobs: args.jobs, schedulers: args.tries.max(1) };
    let request = Request::new(&args.scenario, args.seed);
    let mut progress = |line: String| eprintln!("{line}");
    let Some(shrunk) = shrink::shrink(&request, args.check.as_deref(), &tries, &mut progress)? else {
        let with = args.check.as_ref().map(|check| format!(" with `{check}`")).unwrap_or_default();
        writeln!(stdout(), "{} seed {} does not fail{with}: there is nothing to shrink", args.scenario, args.seed)?;
        return Ok(false);
    };
    let Shrunk { check, before, plan, scheduler, runs, .. } = &shrunk;
    let text = shrink::scenario_text(&scenario, args.seed, &shrunk)?;
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    write!(stdout(), "{plan}")?;
    writeln!(
        stdout(),
        "fails with `{check}`: {} faults of {before} are left, after {runs} runs (scheduler {scheduler})",
        plan.faults()
    )?;
    let mutants: String = args.mutant.iter().map(|name| format!(" --mutant {name}")).collect();
    writeln!(stdout(), "replay: cargo sim replay {}{mutants}", shell_word(&path.display().to_string()))?;
    Ok(true)
}
