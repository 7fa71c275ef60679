//! Runs candidates until one fails as the original does.

use std::io;

use crate::plan::Plan;
use crate::seed_process::{LOOK_EVERY, Request, Seed};

/// How hard candidates are tried.
#[derive(Clone, Copy, Debug)]
pub struct Tries {
    /// Processes at the same time.
    pub jobs: usize,
    /// Scheduler seeds for each candidate.
    pub schedulers: u64,
}

/// The smallest plan so far, and how more are tried.
pub struct Hunt {
    request: Request,
    check: String,
    tries: Tries,
    best: Plan,
    scheduler: u64,
    runs: u64,
}

impl Hunt {
    /// Begins with a plan that fails.
    pub fn new(request: Request, check: String, tries: Tries, plan: Plan) -> Self {
        let scheduler = request.scheduler.unwrap_or(request.seed);
        Self { request, check, tries, best: plan, scheduler, runs: 0 }
    }

    /// The smallest plan that has failed.
    pub fn best(&self) -> &Plan {
        &self.best
    }

    /// Runs so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// The smallest plan, the scheduler's seed with which it fails, and how many runs there were.
    pub fn finish(self) -> (Plan, u64, u64) {
        (self.best, self.scheduler, self.runs)
    }

    /// The first of these plans that fails as the original does, which is the best from then on. Each is tried with the
    /// scheduler seed that failed last, then all of them with others.
    pub fn first_that_fails(&mut self, candidates: &[Plan]) -> io::Result<Option<usize>> {
        let others = (0..).map(|offset| self.request.seed.wrapping_add(offset)).filter(|&seed| seed != self.scheduler);
        let schedulers: Vec<u64> =
            std::iter::once(self.scheduler).chain(others).take(self.tries.schedulers as usize).collect();
        let order: Vec<(usize, u64)> = schedulers
            .iter()
            .flat_map(|&scheduler| (0..candidates.len()).map(move |index| (index, scheduler)))
            .collect();
        let mut running: Vec<(usize, Seed)> = Vec::new();
        let mut next = 0;
        // The first in order, whichever ends first: so that shrinking a seed gives the same each time.
        let mut found: Option<usize> = None;
        loop {
            while found.is_none() && next < order.len() && running.len() < self.tries.jobs {
                let (index, scheduler) = order[next];
                let plan = Some(candidates[index].clone());
                let request = Request { scheduler: Some(scheduler), plan, ..self.request.clone() };
                running.push((next, Seed::start(&request)?));
                self.runs += 1;
                next += 1;
            }
            if running.is_empty() {
                break;
            }
            let mut at = 0;
            while at < running.len() {
                let place = running[at].0;
                if found.is_some_and(|found| place > found) {
                    running.swap_remove(at).1.stop();
                    continue;
                }
                match running[at].1.poll()? {
                    Some(report) => {
                        running.swap_remove(at);
                        if report.checks().contains_key(self.check.as_str()) {
                            found = Some(place);
                        }
                    }
                    None => at += 1,
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let Some(place) = found else { return Ok(None) };
        let (index, scheduler) = order[place];
        self.best = candidates[index].clone();
        self.scheduler = scheduler;
        Ok(Some(index))
    }
}
