//! What a campaign has seen, added up.

use std::collections::BTreeMap;
use std::fmt;

use kilo_sim::runner::Report;
use kilo_sim::scenario::Scenario;
use serde::Serialize;

/// Seeds from which on a required probe that was never hit fails the campaign.
pub const PROBES_DUE_AFTER: u64 = 50;
/// Width of the probe table's lines.
const LINE_CHARS: usize = 118;

/// What a campaign has seen of one scenario.
#[derive(Default, Serialize)]
pub struct Tally {
    /// The scenario.
    pub name: String,
    /// Seeds run.
    pub seeds: u64,
    /// Simulated milliseconds.
    pub simulated_ms: u64,
    /// Milliseconds of processor time.
    pub cpu_ms: u64,
    /// Sends acknowledged.
    pub acknowledged: u64,
    /// Operations judged.
    pub operations: u64,
    /// Starts of the broker after the first of each seed that came to serve.
    pub recoveries: u64,
    /// Faults planned.
    pub faults: u64,
    /// Those that hit, as far as that can be told.
    pub hits: u64,
    /// Microseconds of processor time that judging took.
    pub judge_us: u64,
    /// Seeds with damage that is beyond any promise.
    pub beyond_promise: u64,
    /// Probes with how often they were hit.
    pub probes: BTreeMap<String, u64>,
    /// Required probes that were never hit.
    pub never_hit: Vec<String>,
    /// Checks that failed.
    pub checks: BTreeMap<String, FailedCheck>,
}

/// In how many seeds a check failed, and the first of them.
#[derive(Serialize)]
pub struct FailedCheck {
    /// How many.
    pub seeds: u64,
    /// The smallest.
    pub first_seed: u64,
}

impl Tally {
    /// Nothing seen yet.
    pub fn new(scenario: &Scenario) -> Self {
        Self { name: scenario.name.clone(), never_hit: scenario.probes.clone(), ..Self::default() }
    }

    /// Adds a run.
    pub fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.simulated_ms += report.simulated_ms;
        self.cpu_ms += report.cpu_ms;
        self.acknowledged += report.acknowledged;
        self.operations += report.operations;
        self.recoveries += report.recoveries;
        self.faults += report.faults;
        self.hits += report.hits;
        self.judge_us += report.judge_us;
        self.beyond_promise += u64::from(!report.beyond.is_empty());
        for (probe, count) in &report.probes {
            *self.probes.entry(probe.clone()).or_default() += count;
        }
        self.never_hit.retain(|probe| !report.probes.contains_key(probe));
        for check in report.checks().into_keys() {
            let failed =
                self.checks.entry(check.to_owned()).or_insert(FailedCheck { seeds: 0, first_seed: report.seed });
            failed.seeds += 1;
            failed.first_seed = failed.first_seed.min(report.seed);
        }
    }

    /// Whether a required probe is overdue.
    pub fn lacks_probes(&self) -> bool {
        !self.never_hit.is_empty() && self.seeds >= PROBES_DUE_AFTER
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} seeds, {} simulated s, {} sends acknowledged, {} operations judged, {} recoveries, {} of {} faults hit",
            self.name,
            self.seeds,
            self.simulated_ms / 1000,
            self.acknowledged,
            self.operations,
            self.recoveries,
            self.hits,
            self.faults
        )?;
        if self.beyond_promise > 0 {
            writeln!(f, "  {} seeds with damage that no broker can promise to survive", self.beyond_promise)?;
        }
        for (check, failed) in &self.checks {
            writeln!(f, "  check failed: {check} in {} seeds, first in {}", failed.seeds, failed.first_seed)?;
        }
        write_probes(f, &self.probes)?;
        for probe in &self.never_hit {
            if self.lacks_probes() {
                writeln!(f, "  required probe never hit: {probe}")?;
            } else {
                writeln!(f, "  not yet hit (due within {PROBES_DUE_AFTER} seeds): {probe}")?;
            }
        }
        Ok(())
    }
}

/// The probes with their counts.
pub fn write_probes(f: &mut impl fmt::Write, probes: &BTreeMap<String, u64>) -> fmt::Result {
    write_list(f, "  probes:", probes.iter().map(|(name, count)| format!("{name} {count}")))
}

/// A list in lines of bounded length.
pub fn write_list(f: &mut impl fmt::Write, head: &str, items: impl Iterator<Item = String>) -> fmt::Result {
    let mut line = head.to_owned();
    for item in items {
        if line.len() + item.len() + 2 > LINE_CHARS {
            writeln!(f, "{line}")?;
            line = String::from("   ");
        }
        line.push(' ');
        line.push_str(&item);
        line.push(',');
    }
    writeln!(f, "{}", line.trim_end_matches(','))
}
