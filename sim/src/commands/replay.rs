//! One seed again, with all that there is to tell about it.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use kilo_sim::child::{Request, Seed};
use kilo_sim::plan::Plan;
use kilo_sim::runner::Report;
use kilo_sim::scenario;

use super::tally::write_probes;
use super::{Done, unreached_mutants};
use crate::ReplayArgs;

/// Replays a seed, or what is pinned in the file.
pub fn replay(args: &ReplayArgs) -> Done {
    let scenario = scenario::find(&args.scenario)?;
    let request = |seed| Request {
        log: args.log.clone(),
        timeline_file: args.html.clone(),
        ..Request::new(&args.scenario, seed)
    };
    // Each with the check that it is said to fail, if any.
    let mut requests = Vec::new();
    if let Some(seed) = args.seed {
        let plan = args.plan.as_deref().map(read_plan).transpose()?;
        requests.push((Request { scheduler: args.scheduler, plan, ..request(seed) }, None));
    } else {
        let pinned = |one: &scenario::Pinned| {
            let (scheduler, plan) = (args.scheduler.or(one.scheduler), Some(one.plan.clone()));
            (Request { scheduler, plan, ..request(one.seed) }, one.fails.clone())
        };
        requests.extend(scenario.pinned.iter().map(pinned));
    }
    if requests.is_empty() {
        return Err(format!("`{}` has no pinned run: say which seed, with --seed N", args.scenario).into());
    }
    let mut is_good = true;
    for (request, fails) in requests {
        is_good &= one(args, request, fails.as_deref())?;
    }
    Ok(is_good)
}

fn read_plan(path: &Path) -> Result<Plan, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// In a process of its own, as in a campaign, so that the trace is the same.
fn one(args: &ReplayArgs, mut request: Request, fails: Option<&str>) -> Done {
    let seed = request.seed;
    let trace = args.trace.then(|| kilo_sim::child::trace_path("replay", seed, 0));
    request.trace_file = trace.clone();
    let (report, log): (Report, String) = Seed::start(&request)?.wait_with_errors()?;
    eprint!("{log}");
    if let Some(path) = trace {
        let text = fs::read(&path).unwrap_or_default();
        // Absent if the run broke off, which the report tells.
        let _ = fs::remove_file(&path);
        std::io::stdout().write_all(&text)?;
    }
    if let Some(path) = &args.save_plan {
        let text = toml::to_string(&report.plan)?;
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    print!("{}{report}", report.plan);
    if let Some(check) = fails.filter(|check| !report.checks().contains_key(check)) {
        println!("it was pinned because it failed `{check}`, and does not fail that any more");
    }
    let mut probes = String::new();
    write_probes(&mut probes, &report.probes)?;
    print!("{probes}");
    if let Some(path) = &args.html {
        println!("timeline: {}", path.display());
    }
    unreached_mutants(|name| report.probes.contains_key(name))?;
    Ok(report.is_good())
}
