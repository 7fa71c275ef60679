//! A campaign: scenarios over seeds.

use std::error::Error;
use std::fs;
use std::io::{self, Write as _, stdout};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use kilo_sim::runner::Report;
use kilo_sim::seed_process::{self, Request, Seed};
use serde::Serialize;

use super::tally::{Tally, write_list};
use super::{Done, can_write, find_all, known_check, unreached_mutants};
use crate::args::RunArgs;

/// How often a campaign that has no terminal for its progress bar says how far it is.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// What a campaign came to, for other programs.
#[derive(Serialize)]
struct Summary<'a> {
    wall_ms: u64,
    cpu_ms: u64,
    simulated_ms: u64,
    /// Simulated hours per hour of one core.
    simulated_hours_per_core_hour: f64,
    operations_per_core_second: f64,
    recoveries_per_core_second: f64,
    /// Operations that the oracle judges per second of its own processor time.
    operations_judged_per_second: f64,
    scenarios: &'a [Tally],
    failures: &'a [Failed],
}

/// A seed that failed.
#[derive(Serialize)]
struct Failed {
    scenario: String,
    seed: u64,
    checks: Vec<String>,
    /// How much happened in it.
    trace_lines: u64,
    replay: String,
}

struct Campaign<'a> {
    args: &'a RunArgs,
    tallies: Vec<Tally>,
    failures: Vec<Failed>,
    progress: ProgressBar,
    /// When the next line is due, where there is no progress bar.
    line_at: Instant,
    is_over: bool,
}

/// Runs a campaign; false if a check failed or a required probe was not hit.
pub fn campaign(args: &RunArgs) -> Done {
    let scenarios = find_all(&args.scenarios)?;
    can_write(args.json.as_deref())?;
    known_check(args.until.as_deref())?;
    let began = Instant::now();
    let total = (args.seeds.end - args.seeds.start).saturating_mul(scenarios.len() as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} seeds, {msg}{elapsed}, {eta} left")?;
    let mut campaign = Campaign {
        args,
        tallies: scenarios.iter().map(|(_, scenario)| Tally::new(scenario)).collect(),
        failures: Vec::new(),
        progress: ProgressBar::new(total).with_style(style),
        line_at: began + LINE_EVERY,
        is_over: false,
    };
    let mut work = args.seeds.clone().flat_map(|seed| (0..scenarios.len()).map(move |at| (at, seed)));
    let mut running: Vec<(usize, Seed)> = Vec::new();
    loop {
        while running.len() < args.jobs && !campaign.is_over {
            let Some((at, seed)) = work.next() else { break };
            running.push((at, Seed::start(&Request::new(&scenarios[at].0, seed))?));
        }
        if running.is_empty() {
            break;
        }
        let mut index = 0;
        while index < running.len() {
            match running[index].1.poll()? {
                Some(report) => campaign.take(running.swap_remove(index).0, &report)?,
                None => index += 1,
            }
        }
        std::thread::sleep(seed_process::LOOK_EVERY);
    }
    campaign.finish(began)
}

impl Campaign<'_> {
    fn take(&mut self, scenario: usize, report: &Report) -> io::Result<()> {
        self.tallies[scenario].add(report);
        self.progress.inc(1);
        self.say_how_far();
        if report.is_good() {
            return Ok(());
        }
        self.progress.suspend(|| write!(stdout(), "{report}"))?;
        let checks: Vec<String> = report.checks().into_keys().map(str::to_owned).collect();
        self.is_over |= self.args.fail_fast || self.args.until.as_ref().is_some_and(|check| checks.contains(check));
        let (scenario, replay) = (report.scenario.clone(), report.replay_command());
        self.failures.push(Failed { scenario, seed: report.seed, checks, trace_lines: report.trace_lines, replay });
        self.progress.set_message(format!("{} failed, ", self.failures.len()));
        Ok(())
    }

    /// A line now and then, where a progress bar cannot be seen: into a file or a pipe.
    fn say_how_far(&mut self) {
        let now = Instant::now();
        if self.progress.is_hidden() && now >= self.line_at {
            self.line_at = now + LINE_EVERY;
            let (done, all) = (self.progress.position(), self.progress.length().unwrap_or_default());
            let (failed, left) = (self.failures.len(), self.progress.eta());
            eprintln!("{done} of {all} seeds, {failed} failed, about {} s left", left.as_secs());
        }
    }

    /// The probes that no run came by, which tells what a campaign did not test.
    fn write_never_hit(&self) -> Result<(), Box<dyn Error>> {
        let is_hit = |name: &str| self.tallies.iter().any(|tally| tally.probes.contains_key(name));
        let mut never = kilo_sim::probes::names().filter(|name| !is_hit(name)).map(str::to_owned).peekable();
        if never.peek().is_some() {
            let mut lines = String::new();
            write_list(&mut lines, "probes that no run came by:", never)?;
            write!(stdout(), "{lines}")?;
        }
        Ok(())
    }

    fn finish(mut self, began: Instant) -> Done {
        self.progress.finish_and_clear();
        self.failures.sort_by(|a, b| (&a.scenario, a.seed).cmp(&(&b.scenario, b.seed)));
        for tally in self.tallies.iter().filter(|_| !self.args.quiet) {
            write!(stdout(), "{tally}")?;
        }
        let sum = |part: fn(&Tally) -> u64| self.tallies.iter().map(part).sum::<u64>();
        let (simulated_ms, cpu_ms) = (sum(|tally| tally.simulated_ms), sum(|tally| tally.cpu_ms));
        let per_cpu_ms = |amount: u64| amount as f64 / cpu_ms.max(1) as f64;
        let summary = Summary {
            wall_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            cpu_ms,
            simulated_ms,
            simulated_hours_per_core_hour: per_cpu_ms(simulated_ms),
            operations_per_core_second: per_cpu_ms(sum(|tally| tally.operations)) * 1000.0,
            recoveries_per_core_second: per_cpu_ms(sum(|tally| tally.recoveries)) * 1000.0,
            operations_judged_per_second: sum(|tally| tally.operations) as f64 * 1e6
                / sum(|tally| tally.judge_us).max(1) as f64,
            scenarios: &self.tallies,
            failures: &self.failures,
        };
        writeln!(
            stdout(),
            "{} simulated s in {:.1} s: {:.0} simulated hours per core hour, {:.0} operations judged and {:.1} recoveries \
             per core second; the oracle judges {:.0} operations in a second of its own",
            simulated_ms / 1000,
            summary.wall_ms as f64 / 1000.0,
            summary.simulated_hours_per_core_hour,
            summary.operations_per_core_second,
            summary.recoveries_per_core_second,
            summary.operations_judged_per_second
        )?;
        if !self.args.quiet {
            self.write_never_hit()?;
        }
        for failed in &self.failures {
            writeln!(stdout(), "failed: {}", failed.replay)?;
        }
        match self.failures.iter().min_by_key(|failed| failed.trace_lines) {
            Some(least) => writeln!(stdout(), "begin with the one in which least happened: {}", least.replay)?,
            None => writeln!(stdout(), "no check failed")?,
        }
        if let Some(path) = &self.args.json {
            let text = serde_json::to_string_pretty(&summary)?;
            fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        unreached_mutants(|name| self.tallies.iter().any(|tally| tally.probes.contains_key(name)))?;
        Ok(self.failures.is_empty() && !self.tallies.iter().any(Tally::lacks_probes))
    }
}
