//! Scenario files, `scenarios/*.toml`: what runs, what goes wrong, how long, and what must have been met. Data only; a
//! seed turns it into a plan ([`crate::plan`]) and a workload ([`crate::workload`]).
//!
//! Every key has a default, so that a file says what is special about it. A wrong key is an error that names it and the
//! nearest right one. Ranges are `[low, high]`, both included; the seed draws from them.

mod faults;
mod library;
mod range;
mod rule;
mod suggest;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use kilo::server::config::{Config, Origin, Setting};
use serde::{Deserialize, Serialize};

use crate::disk::DiskSpeed;
use crate::plan::{DURATION_MS_MAX, Plan};
use crate::{oracle, probes};

pub use faults::*;
pub use library::{find, folder, names};
pub use range::Range;

/// Clients that a run takes.
const CLIENTS_MAX: u64 = 200;
/// Partitions that a run takes, of all topics together.
const PARTITIONS_MAX: u64 = 2_000;
/// Batches that a producer may have in flight in a run.
const IN_FLIGHT_MAX: u64 = 1_000;
/// Records of a batch in a run.
const BATCH_RECORDS_MAX: u64 = 100_000;
/// Bytes of a batch in a run.
const BATCH_BYTES_MAX: u64 = 64 << 20;

/// A scenario.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// What it is for, in a sentence.
    pub about: String,
    /// Whether the broker has the limits that it has outside of simulations, instead of small ones.
    pub real_limits: bool,
    /// Settings of the broker on top of its limits.
    pub broker: BTreeMap<String, String>,
    /// What is written to.
    pub topics: Topics,
    /// Who writes and reads.
    pub workload: Workload,
    /// How long.
    pub phases: Phases,
    /// What must hold of a run.
    pub checks: Checks,
    /// The machine without faults.
    pub disk: Disk,
    /// What goes wrong: each rule is switched on or off by the seed.
    pub faults: Vec<Rule>,
    /// Probes that a campaign must hit at least once.
    pub probes: Vec<String>,
    /// What `cargo test` runs.
    pub tests: Tests,
    /// Runs whose faults are written down, so that they stay what they are when the drawing of plans changes.
    pub pinned: Vec<Pinned>,
    /// The text of the file.
    #[serde(skip)]
    pub text: String,
}

/// A run that is written down.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    /// The seed of everything that the plan does not say.
    pub seed: u64,
    /// The seed of the scheduler, if another.
    #[serde(default)]
    pub scheduler: Option<u64>,
    /// A probe that it must reach.
    #[serde(default)]
    pub reaches: Option<String>,
    /// The check that it fails, if it is there to show a failure.
    #[serde(default)]
    pub fails: Option<String>,
    /// The faults.
    pub plan: Plan,
}

/// Topics of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Topics {
    /// How many.
    pub count: Range<u32>,
    /// Partitions of each.
    pub partitions: Range<u32>,
}

impl Default for Topics {
    fn default() -> Self {
        Self { count: Range(1, 2), partitions: Range(1, 3) }
    }
}

/// Clients of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Producers whose every attempt is a send of its own.
    pub plain: Range<u32>,
    /// Idempotent producers, which retry until they know.
    pub idempotent: Range<u32>,
    /// Consumers by assignment, reading all the time.
    pub readers: Range<u32>,
    /// Clients that create topics and list them all the time.
    pub admins: Range<u32>,
    /// Chance that a plain producer asks for `acks=all`; half of the others ask for no answer at all.
    #[serde(deserialize_with = "crate::valid::chance")]
    pub acks_all: f64,
    /// Batches that a producer has in flight.
    pub in_flight: Range<u32>,
    /// Records of a batch.
    pub records: Range<u32>,
    /// Bytes of a record's value.
    pub value_bytes: Range<u32>,
    /// Milliseconds from one batch of a producer to the next. Batches that could not be sent in time follow at once.
    pub pause_ms: Range<u32>,
    /// Milliseconds between the polls of a reader that has found something.
    pub poll_pause_ms: Range<u32>,
    /// Milliseconds between the topics that an admin creates.
    pub admin_pause_ms: Range<u32>,
    /// Codecs that a batch may have.
    #[serde(deserialize_with = "crate::valid::not_empty")]
    pub codecs: Vec<CodecName>,
    /// Milliseconds after which a request counts as lost.
    pub request_timeout_ms: Range<u32>,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            plain: Range(1, 2),
            idempotent: Range(1, 2),
            readers: Range(1, 3),
            admins: Range(0, 0),
            acks_all: 0.7,
            in_flight: Range(1, 5),
            records: Range(1, 6),
            value_bytes: Range(9, 900),
            pause_ms: Range(0, 25),
            poll_pause_ms: Range(0, 10),
            admin_pause_ms: Range(10, 1_000),
            codecs: vec![CodecName::None, CodecName::None, CodecName::Lz4, CodecName::Zstd, CodecName::Snappy],
            request_timeout_ms: Range(200, 2_000),
        }
    }
}

/// A codec's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum CodecName {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Durations of a run, in simulated milliseconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Phases {
    /// How long faults go on.
    pub faults_ms: Range<u32>,
    /// New traffic after healing.
    pub calm_ms: u32,
}

impl Default for Phases {
    fn default() -> Self {
        Self { faults_ms: Range(4_000, 12_000), calm_ms: 500 }
    }
}

/// Bounds that a run must keep to, and which properties of [`crate::oracle`] are judged: all, unless it says otherwise.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checks {
    /// `liveness`: from healing until everything must work, and from then until everything must have been read.
    pub live_within_ms: u32,
    /// `liveness`: a broker that is asked to stop must have ended after this time, with every other fault there may be.
    pub stop_within_ms: u32,
    /// `fail-stop`: a broker must have ended itself after this time since a flush failed.
    pub fail_stop_within_ms: u32,
    /// `load`: so many sends must have been acknowledged.
    pub acknowledged_min: u64,
    /// `load`: so many faults must have hit.
    pub hits_min: u64,
    /// Properties that are not judged, by name.
    pub without: Vec<String>,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            live_within_ms: 30_000,
            stop_within_ms: 60_000,
            fail_stop_within_ms: 500,
            acknowledged_min: 0,
            hits_min: 0,
            without: Vec::new(),
        }
    }
}

/// The disk of a run without faults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disk {
    /// Speeds, one of which the seed picks; empty for the usual one.
    pub speeds: Vec<DiskSpeed>,
}

/// What `cargo test` runs of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tests {
    /// Seeds that always run.
    pub seeds: Vec<u64>,
    /// How many fresh ones run on top.
    pub fresh: u32,
}

impl Default for Tests {
    fn default() -> Self {
        Self { seeds: vec![1, 2], fresh: 1 }
    }
}

/// Why a scenario cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// No file of that name.
    #[error("there is no scenario `{name}`{}", nearest.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        name: String,
        /// The nearest name.
        nearest: Option<String>,
    },
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file says something that cannot be understood.
    #[error("scenario `{name}`: {message}")]
    Parse {
        /// The scenario.
        name: String,
        /// Where and what, with the nearest right key for a wrong one.
        message: String,
    },
}

impl Scenario {
    /// Reads a scenario from a file's text.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut scenario: Self = toml::from_str(text).map_err(|error| ScenarioError::Parse {
            name: name.to_owned(),
            message: suggest::with_suggestion(&error.to_string()),
        })?;
        scenario.name = name.to_owned();
        scenario.text = text.to_owned();
        let wrong = scenario.check_names().and_then(|()| scenario.check_sizes());
        let wrong = wrong.and_then(|()| scenario.broker_config().map(drop));
        wrong.map_err(|message| ScenarioError::Parse { name: name.to_owned(), message })?;
        Ok(scenario)
    }

    /// The broker's settings in a run.
    pub fn broker_config(&self) -> Result<Config, String> {
        let small = Config::sim();
        let limits = if self.real_limits {
            Config { listeners: small.listeners, log_dirs: small.log_dirs, ..Config::default() }
        } else {
            small
        };
        let origin = |origin: &str| Origin::File(origin.to_owned());
        let setting = |(key, value, from)| Setting { key, value, origin: origin(from) };
        let limits = limits.entries().into_iter().map(|(key, value)| (key.name.to_owned(), value));
        let mut settings: BTreeMap<String, (String, &str)> =
            limits.map(|(key, value)| (key, (value, "the simulator"))).collect();
        settings.extend(self.broker.iter().map(|(key, value)| (key.clone(), (value.clone(), "[broker]"))));
        let settings = settings.into_iter().map(|(key, (value, from))| setting((key, value, from)));
        Config::resolve(settings).map_err(|error| error.to_string())
    }

    /// What one run can hold.
    fn check_sizes(&self) -> Result<(), String> {
        let Workload { plain, idempotent, readers, admins, in_flight, records, value_bytes, .. } = &self.workload;
        let clients = [plain, idempotent, readers, admins].iter().map(|range| u64::from(range.1)).sum::<u64>();
        let partitions = u64::from(self.topics.count.1) * u64::from(self.topics.partitions.1);
        let batch_bytes = u64::from(records.1) * u64::from(value_bytes.1);
        let phases_ms = u64::from(self.phases.faults_ms.1) + u64::from(self.phases.calm_ms);
        for (what, number, max) in [
            ("clients", clients, CLIENTS_MAX),
            ("partitions", partitions, PARTITIONS_MAX),
            ("batches in flight", in_flight.1.into(), IN_FLIGHT_MAX),
            ("bytes in a batch", batch_bytes, BATCH_BYTES_MAX),
            ("records in a batch", records.1.into(), BATCH_RECORDS_MAX),
            ("milliseconds of `phases`", phases_ms, DURATION_MS_MAX),
        ] {
            if number > max {
                return Err(format!("up to {number} {what}: a run takes {max} at most"));
            }
        }
        for (key, range) in [
            ("topics.count", self.topics.count),
            ("topics.partitions", self.topics.partitions),
            ("workload.in_flight", *in_flight),
            ("workload.records", *records),
        ] {
            if range.0 == 0 {
                return Err(format!("`{key}` is 0 at least: nothing would be done"));
            }
        }
        Ok(())
    }

    /// Checks and probes must be those that there are.
    fn check_names(&self) -> Result<(), String> {
        let checks: Vec<&str> = oracle::names().collect();
        let probes: Vec<&str> = probes::names().collect();
        suggest::all_known("checks.without", "check", self.checks.without.iter(), &checks)?;
        suggest::all_known("probes", "probe", self.probes.iter(), &probes)?;
        let reached = self.pinned.iter().filter_map(|pinned| pinned.reaches.as_ref());
        suggest::all_known("pinned.reaches", "probe", reached, &probes)
    }
}
