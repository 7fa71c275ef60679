//! Makes a failing run small: delta debugging (Zeller and Hildebrandt, 2002) of its fault plan. First time, then faults,
//! then clients; every candidate is really run, with several scheduler seeds, and counts if the same check fails.
//!
//! The seed of everything that the plan does not say stays: the workload is drawn from it as before.

mod hunt;
mod pieces;

use std::io;

use serde::Serialize;

use self::hunt::Hunt;
pub use self::hunt::Tries;
use self::pieces::{Piece, assemble, pieces};
use crate::plan::Plan;
use crate::scenario::{Pinned, Scenario};
use crate::seed_process::{Request, Seed};

/// What is left of a run.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The check that fails.
    pub check: String,
    /// Faults that there were.
    pub before: usize,
    /// What is left of the plan.
    pub plan: Plan,
    /// The scheduler's seed with which it fails.
    pub scheduler: u64,
    /// How many runs it took.
    pub runs: u64,
}

/// The duration of the fault phase is found to this part of itself.
const TIME_PARTS: u64 = 20;
/// And to no less than this, in milliseconds.
const TIME_STEP_MS: u64 = 20;

/// Shrinks a run that fails with `check`, or with whatever fails first. `None` if it does not fail.
pub fn shrink(
    request: &Request,
    check: Option<&str>,
    tries: &Tries,
    progress: &mut dyn FnMut(String),
) -> io::Result<Option<Shrunk>> {
    let report = Seed::start(request)?.wait()?;
    let fails = |failure: &&crate::runner::Failure| check.is_none_or(|check| failure.check == check);
    let Some(failure) = report.failures.iter().find(fails) else { return Ok(None) };
    let (check, before) = (failure.check.clone(), report.plan.faults());
    progress(format!("fails with `{check}`, {before} faults in {} ms", report.plan.faults_ms));
    let mut hunt = Hunt::new(request.clone(), check.clone(), *tries, report.plan);
    shorten(&mut hunt)?;
    progress(format!("after {} runs: {} faults in {} ms", hunt.runs(), hunt.best().faults(), hunt.best().faults_ms));
    drop_faults(&mut hunt)?;
    progress(format!("after {} runs: {} faults", hunt.runs(), hunt.best().faults()));
    drop_clients(&mut hunt, request)?;
    let clients = hunt.best().without_clients.len();
    progress(format!("after {} runs: {clients} clients can be left out", hunt.runs()));
    shorten(&mut hunt)?;
    drop_faults(&mut hunt)?;
    let (plan, scheduler, runs) = hunt.finish();
    Ok(Some(Shrunk { check, before, plan, scheduler, runs: runs + 1 }))
}

/// Ends the fault phase as early as possible.
fn shorten(hunt: &mut Hunt) -> io::Result<()> {
    let (mut low, mut high) = (0, hunt.best().faults_ms);
    while high - low > TIME_STEP_MS.max(high / TIME_PARTS) {
        let cut = |quarter: u64| low + (high - low) * quarter / 4;
        let candidates = [1, 2, 3].map(|quarter| until(hunt.best(), cut(quarter)));
        match hunt.first_that_fails(&candidates)? {
            Some(index) => {
                (low, high) = (cut(index as u64), cut(index as u64 + 1));
            }
            None => low = cut(3),
        }
    }
    Ok(())
}

fn until(plan: &Plan, faults_ms: u64) -> Plan {
    let mut plan = plan.clone();
    plan.faults_ms = faults_ms;
    plan.actions.retain(|action| action.at_ms < faults_ms);
    plan
}

fn drop_faults(hunt: &mut Hunt) -> io::Result<()> {
    let all = pieces(hunt.best());
    let frame = hunt.best().clone();
    minimize(hunt, all, |left: &[Piece]| assemble(&frame, left))
}

/// Does without as many clients as possible. The last plan that fails says which are missing already.
fn drop_clients(hunt: &mut Hunt, request: &Request) -> io::Result<()> {
    let Ok(scenario) = crate::scenario::find(&request.scenario) else { return Ok(()) };
    let count = crate::runner::clients(&scenario, request.seed);
    let missing = hunt.best().without_clients.clone();
    let present: Vec<u32> = (0..count).filter(|client| !missing.contains(client)).collect();
    let frame = hunt.best().clone();
    minimize(hunt, present, |left: &[u32]| {
        let without_clients = (0..count).filter(|client| !left.contains(client)).collect();
        Plan { without_clients, ..frame.clone() }
    })
}

/// Delta debugging: leaves parts of the items out, large ones first, for as long as what is left still fails.
fn minimize<T: Clone>(hunt: &mut Hunt, mut items: Vec<T>, plan: impl Fn(&[T]) -> Plan) -> io::Result<()> {
    let mut parts = 2;
    while !items.is_empty() {
        let size = items.len().div_ceil(parts);
        let without = |from: usize| -> Vec<T> {
            let kept = items.iter().enumerate().filter(|(index, _)| !(from..from + size).contains(index));
            kept.map(|(_, item)| item.clone()).collect()
        };
        let candidates: Vec<Vec<T>> = (0..items.len()).step_by(size).map(without).collect();
        let plans: Vec<Plan> = candidates.iter().map(|left| plan(left)).collect();
        match hunt.first_that_fails(&plans)? {
            Some(index) => {
                items = candidates[index].clone();
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(items.len()),
        }
    }
    Ok(())
}

/// The text of a scenario with the shrunk run pinned in it.
pub fn scenario_text(scenario: &Scenario, seed: u64, shrunk: &Shrunk) -> Result<String, toml::ser::Error> {
    #[derive(Serialize)]
    struct Tail {
        pinned: [Pinned; 1],
    }
    let pinned = Pinned {
        seed,
        scheduler: Some(shrunk.scheduler),
        reaches: None,
        fails: Some(shrunk.check.clone()),
        plan: shrunk.plan.clone(),
    };
    let tail = toml::to_string(&Tail { pinned: [pinned] })?;
    Ok(format!("{}\n\n# What shrinking left of seed {seed}.\n{tail}", scenario.text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shrunk_run_is_a_scenario_that_reads() {
        let text = "about = \"x\"\n[[faults]]\nevery_ms = [300, 900]\ncrash = { again = [0, 2] }\n";
        let scenario = Scenario::parse("s", text).unwrap();
        let plan = Plan::draw(&scenario, 3, &mut fastrand::Rng::with_seed(1));
        let shrunk = Shrunk { check: "lost write".to_owned(), before: 9, plan, scheduler: 4, runs: 1 };
        let text = scenario_text(&scenario, 7, &shrunk).unwrap();
        let read = Scenario::parse("s", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read.pinned.len(), 1);
        let pinned = &read.pinned[0];
        assert_eq!((pinned.seed, pinned.scheduler, &pinned.plan), (7, Some(4), &shrunk.plan));
        assert_eq!(pinned.fails.as_deref(), Some("lost write"));
    }
}
