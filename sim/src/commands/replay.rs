//! One seed again, with all that there is to tell about it.

use std::fs;
use std::io::{Write as _, stdout};
use std::path::Path;

use kilo_sim::plan::Plan;
use kilo_sim::runner::{self, Report};
use kilo_sim::scenario;
use kilo_sim::seed_process::{Request, Seed, check_log_filter, shell_word};

use super::tally::write_probes;
use super::{Done, can_write, unreached_mutants};
use crate::args::ReplayArgs;

/// Replays a seed, or what is pinned in the file.
pub fn replay(args: &ReplayArgs) -> Done {
    let scenario = scenario::find(&args.scenario)?;
    args.log.as_deref().map_or(Ok(()), check_log_filter)?;
    can_write(args.html.as_deref())?;
    can_write(args.save_plan.as_deref())?;
    let request = |seed, choice: &str| Request {
        log: args.log.clone(),
        timeline_file: args.html.clone(),
        replay: replay_arguments(args, choice),
        ..Request::new(&args.scenario, seed)
    };
    // Each with the check that it is said to fail, if any.
    let mut requests = Vec::new();
    if let Some(seed) = args.seed {
        if args.plan.is_none() && scenario.pinned.iter().any(|pinned| pinned.seed == seed) {
            eprintln!(
                "the faults of seed {seed} are drawn anew; without --seed the run that is pinned in the file is replayed"
            );
        }
        let plan = args.plan.as_deref().map(read_plan).transpose()?;
        requests.push((Request { scheduler: args.scheduler, plan, ..request(seed, &format!("--seed {seed}")) }, None));
    } else {
        let count = scenario.pinned.len();
        for (number, one) in (1..).zip(&scenario.pinned) {
            if args.pinned.is_some_and(|wanted| wanted != number) {
                continue;
            }
            let (scheduler, plan) = (args.scheduler.or(one.scheduler), Some(one.plan.clone()));
            let choice = if count > 1 { format!("--pinned {number}") } else { String::new() };
            requests.push((Request { scheduler, plan, ..request(one.seed, &choice) }, one.fails.clone()));
        }
        if let Some(number) = args.pinned.filter(|_| requests.is_empty()) {
            return Err(format!("`{}` has no pinned run {number}: there are {count}", args.scenario).into());
        }
    }
    if requests.is_empty() {
        return Err(format!("`{}` has no pinned run: say which seed, with --seed N", args.scenario).into());
    }
    if let (2.., Some(_)) = (requests.len(), args.html.as_ref().or(args.save_plan.as_ref())) {
        let count = requests.len();
        return Err(
            format!("`{}` has {count} pinned runs, a file takes one: choose with --pinned N", args.scenario).into()
        );
    }
    for (request, _) in &requests {
        let clients = runner::clients(&scenario, request.seed);
        let file = args.plan.as_ref().map_or_else(|| args.scenario.clone(), |path| path.display().to_string());
        let checked = request.plan.as_ref().map_or(Ok(()), |plan| plan.check(clients));
        checked.map_err(|error| format!("{file}: {error}"))?;
    }
    let mut is_good = true;
    for (request, fails) in requests {
        is_good &= one(args, request, fails.as_deref())?;
    }
    Ok(is_good)
}

/// What to give `replay` to have this run again, and no other.
fn replay_arguments(args: &ReplayArgs, choice: &str) -> String {
    let mut words = vec![shell_word(&args.scenario)];
    words.extend((!choice.is_empty()).then(|| choice.to_owned()));
    words.extend(args.plan.as_ref().map(|path| format!("--plan {}", shell_word(&path.display().to_string()))));
    words.extend(args.scheduler.map(|seed| format!("--scheduler {seed}")));
    words.join(" ")
}

fn read_plan(path: &Path) -> Result<Plan, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// In a process of its own, as in a campaign, so that the trace is the same.
fn one(args: &ReplayArgs, mut request: Request, fails: Option<&str>) -> Done {
    let seed = request.seed;
    let trace = args.trace.then(|| kilo_sim::seed_process::trace_path("replay", seed, 0));
    request.trace_file = trace.clone();
    let (report, log): (Report, String) = Seed::start(&request)?.wait_with_errors()?;
    eprint!("{log}");
    if let Some(path) = trace {
        let text = fs::read(&path).unwrap_or_default();
        // Absent if the run broke off, which the report tells.
        let _ = fs::remove_file(&path);
        stdout().write_all(&text)?;
    }
    if let Some(path) = &args.save_plan {
        let text = toml::to_string(&report.plan)?;
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    write!(stdout(), "{}{report}", report.plan)?;
    if let Some(check) = fails.filter(|check| !report.checks().contains_key(check)) {
        writeln!(stdout(), "it was pinned because it failed `{check}`, and does not fail that any more")?;
    }
    let mut probes = String::new();
    write_probes(&mut probes, &report.probes)?;
    write!(stdout(), "{probes}")?;
    if let Some(path) = &args.html {
        writeln!(stdout(), "timeline: {}", path.display())?;
    }
    unreached_mutants(|name| report.probes.contains_key(name))?;
    Ok(report.is_good())
}
