//! What came out of a run: for people, and as plain data from the process that ran a seed to the one that asked.

use std::collections::BTreeMap;
use std::fmt;

use kilo::io::Monotonic;
use serde::{Deserialize, Serialize};

use super::spec::Run;
use crate::history::{EventKind, History};
use crate::host::Sim;
use crate::plan::Plan;
use crate::planted::mutants;

/// Something that was not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which check says so.
    pub check: String,
    /// What it found.
    pub what: String,
    /// From when to when it went wrong, in nanoseconds since the run began, where that can be told.
    #[serde(default)]
    pub span_ns: Option<(u64, u64)>,
}

impl Failure {
    /// A failure of the run as a whole.
    pub fn new(check: impl Into<String>, what: impl Into<String>) -> Self {
        Self { check: check.into(), what: what.into(), span_ns: None }
    }

    /// A failure that has a time: from when something was due, or went wrong, until that was found.
    pub fn between(from: Monotonic, to: Monotonic, check: impl Into<String>, what: impl Into<String>) -> Self {
        Self { span_ns: Some((from.0, to.0)), ..Self::new(check, what) }
    }
}

/// What came out of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// The arguments of `replay` that run precisely this again.
    pub replay: String,
    /// Hash of the whole trace, in hexadecimal.
    pub trace_hash: String,
    /// Lines of the trace.
    pub trace_lines: u64,
    /// Simulated milliseconds.
    pub simulated_ms: u64,
    /// Milliseconds of processor time that it took.
    pub cpu_ms: u64,
    /// Sends begun.
    pub sends: u64,
    /// Sends acknowledged.
    pub acknowledged: u64,
    /// Reads answered.
    pub reads: u64,
    /// Records in them.
    pub records_read: u64,
    /// Operations judged.
    pub operations: u64,
    /// Incarnations of the broker.
    pub starts: u64,
    /// Those after the first that came to serve.
    pub recoveries: u64,
    /// Faults in the plan.
    pub faults: u64,
    /// Those that hit, as far as that can be told.
    pub hits: u64,
    /// Microseconds of processor time that judging took.
    pub judge_us: u64,
    /// What was not as it must be; empty if all is well.
    pub failures: Vec<Failure>,
    /// What was not, but is explained by faults that no broker can promise to survive.
    #[serde(default)]
    pub beyond: Vec<Failure>,
    /// Probes that were hit, with how often.
    pub probes: BTreeMap<String, u64>,
    /// The fault plan.
    pub plan: Plan,
    /// The trace or its end, if asked for.
    #[serde(skip)]
    pub trace: String,
    /// The timeline as a page, if asked for.
    #[serde(skip)]
    pub timeline: String,
}

impl Report {
    /// The report of a run that went through.
    pub(super) fn new(
        run: &Run,
        plan: Plan,
        failures: Vec<Failure>,
        beyond: Vec<Failure>,
        sim: &Sim,
        history: &History,
    ) -> Self {
        let starts = history.events.iter().filter(|event| matches!(event.kind, EventKind::BrokerStarts(_))).count();
        let serves = history.events.iter().filter(|event| matches!(event.kind, EventKind::BrokerServes(_))).count();
        let probes = kilo::io::probe::snapshot();
        Self {
            beyond,
            trace_hash: format!("{:016x}", sim.trace_hash()),
            trace_lines: sim.trace_lines(),
            simulated_ms: sim.now().0 / 1_000_000,
            sends: history.sends.len() as u64,
            acknowledged: history.acknowledged() as u64,
            reads: history.reads.len() as u64,
            records_read: history.seen.len() as u64,
            operations: history.operations() as u64,
            starts: starts as u64,
            recoveries: (serves as u64).saturating_sub(1),
            probes: probes.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            trace: sim.trace_text(),
            ..Self::broken(run, plan, failures)
        }
    }

    /// The report of a run that could not begin.
    pub(super) fn broken(run: &Run, plan: Plan, failures: Vec<Failure>) -> Self {
        Self {
            scenario: run.scenario.name.clone(),
            seed: run.seed,
            replay: run.replay.clone(),
            trace_hash: String::new(),
            trace_lines: 0,
            simulated_ms: 0,
            cpu_ms: 0,
            sends: 0,
            acknowledged: 0,
            reads: 0,
            records_read: 0,
            operations: 0,
            starts: 0,
            recoveries: 0,
            faults: plan.faults() as u64,
            hits: 0,
            judge_us: 0,
            failures,
            beyond: Vec::new(),
            probes: BTreeMap::new(),
            plan,
            trace: String::new(),
            timeline: String::new(),
        }
    }

    /// The report of a run whose process came to no result.
    pub fn lost(scenario: &str, seed: u64, replay: &str, failure: Failure) -> Self {
        let scenario = crate::scenario::Scenario { name: scenario.to_owned(), ..Default::default() };
        let (replay, trace) = (replay.to_owned(), crate::trace::TraceMode::Hash);
        let run = Run { scenario, seed, scheduler: None, plan: None, replay, trace, timeline: false };
        Self::broken(&run, Plan::default(), vec![failure])
    }

    /// Whether all is as it must be.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty()
    }

    /// The one command that runs precisely this again.
    pub fn replay_command(&self) -> String {
        let mut command = format!("cargo sim replay {}", self.replay);
        for mutant in mutants() {
            command.push_str(" --mutant ");
            command.push_str(&mutant);
        }
        command
    }

    /// The names of the checks that failed, each once, with how often.
    pub fn checks(&self) -> BTreeMap<&str, usize> {
        let mut checks = BTreeMap::new();
        for failure in &self.failures {
            *checks.entry(failure.check.as_str()).or_default() += 1;
        }
        checks
    }
}

/// Failures shown of each check.
const SHOWN_PER_CHECK: usize = 3;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.is_good(), self.beyond.is_empty()) {
            (true, true) => "ok",
            (true, false) => "ok (damage beyond promise)",
            (false, _) => "FAILED",
        };
        writeln!(
            f,
            "{} seed {}: {verdict}, {} of {} sends acknowledged, {} reads with {} records, {} starts, {} of {} faults hit, {}.{:03} \
             simulated seconds, trace {} ({} lines)",
            self.scenario,
            self.seed,
            self.acknowledged,
            self.sends,
            self.reads,
            self.records_read,
            self.starts,
            self.hits,
            self.faults,
            self.simulated_ms / 1000,
            self.simulated_ms % 1000,
            self.trace_hash,
            self.trace_lines
        )?;
        let mut by_check: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for failure in &self.failures {
            by_check.entry(&failure.check).or_default().push(&failure.what);
        }
        for (check, found) in by_check {
            writeln!(f, "  {check}: {} found", found.len())?;
            for what in found.iter().take(SHOWN_PER_CHECK) {
                writeln!(f, "  - {what}")?;
            }
        }
        for excused in self.beyond.iter().take(SHOWN_PER_CHECK) {
            writeln!(f, "  beyond promise: {}: {}", excused.check, excused.what)?;
        }
        if !self.is_good() {
            writeln!(f, "  replay: {}", self.replay_command())?;
        }
        Ok(())
    }
}
