//! Scenario files, `scenarios/*.toml`: what runs, what goes wrong, how long, and what must have been met. Data only; a
//! seed turns it into a plan ([`crate::plan`]) and a workload ([`crate::workload`]).
//!
//! Every key has a default, so that a file says what is special about it. A wrong key is an error that names it and the
//! nearest right one. Ranges are `[low, high]`, both included; the seed draws from them.

mod library;
mod range;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::disk::{DiskFaults, DiskSpeed, Keep};

pub use library::{find, folder, names};
pub use range::Range;

/// A scenario.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// What it is for, in a sentence.
    pub about: String,
    /// Settings of the broker on top of its small limits for simulation.
    pub broker: BTreeMap<String, String>,
    /// What is written to.
    pub topics: Topics,
    /// Who writes and reads.
    pub workload: Workload,
    /// How long.
    pub phases: Phases,
    /// The machine without faults.
    pub disk: Disk,
    /// What goes wrong: each rule is switched on or off by the seed.
    pub faults: Vec<Rule>,
    /// Probes that a campaign must hit at least once.
    pub probes: Vec<String>,
    /// What `cargo test` runs.
    pub tests: Tests,
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
    /// Chance that a plain producer asks for `acks=all`; half of the others ask for no answer at all.
    pub acks_all: f64,
    /// Batches that a producer has in flight.
    pub in_flight: Range<u32>,
    /// Records of a batch.
    pub records: Range<u32>,
    /// Bytes of a record's value.
    pub value_bytes: Range<u32>,
    /// Milliseconds between the batches of a producer.
    pub pause_ms: Range<u32>,
    /// Codecs that a batch may have.
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
            acks_all: 0.7,
            in_flight: Range(1, 5),
            records: Range(1, 6),
            value_bytes: Range(9, 900),
            pause_ms: Range(0, 25),
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
    /// From healing until everything must work and everything must have been read.
    pub bound_ms: u32,
}

impl Default for Phases {
    fn default() -> Self {
        Self { faults_ms: Range(4_000, 12_000), calm_ms: 500, bound_ms: 30_000 }
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

/// A rule by which faults happen. In a file: `chance`, `every_ms`, and one key that names the kind of fault.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "rule::Written")]
pub struct Rule {
    /// Chance that the seed switches the rule on.
    pub chance: f64,
    /// Milliseconds between two faults of the rule.
    pub every_ms: Range<u32>,
    /// What happens.
    pub kind: Kind,
}

/// Kinds of faults, with what the seed draws from.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The broker ends suddenly, perhaps again while it recovers.
    Crash(Crash),
    /// A flush fails; the broker must stop by itself.
    SyncFailure(SyncFailure),
    /// The disk has no space for a while.
    DiskFull(DiskFull),
    /// Connections are reset.
    Resets(Resets),
    /// Clients and broker cannot reach each other for a while.
    Partition(Partition),
    /// The disk is faulty or slow for a while.
    DiskTrouble(DiskTrouble),
    /// The broker's process stands still for a while.
    Pause(Pause),
    /// The broker's wall clock jumps.
    ClockJump(ClockJump),
}

/// See [`Kind::Crash`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Crash {
    /// Chance that power is lost; otherwise it is a `kill -9`.
    pub power: f64,
    /// What power loss keeps of what was not synced.
    pub keep: Vec<Keep>,
    /// Milliseconds until the start.
    pub down_ms: Range<u32>,
    /// How many further crashes follow, each soon after the start.
    pub again: Range<u32>,
    /// Chance that a further crash is a power loss.
    pub again_power: f64,
    /// Microseconds from the start to the further crash.
    pub again_us: Range<u32>,
}

impl Default for Crash {
    fn default() -> Self {
        Self {
            power: 1.0,
            keep: vec![Keep::Some, Keep::Some, Keep::None, Keep::All],
            down_ms: Range(1, 300),
            again: Range(0, 0),
            again_power: 1.0,
            again_us: Range(0, 30_000),
        }
    }
}

/// See [`Kind::SyncFailure`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SyncFailure {
    /// Parts of paths, one of which is drawn.
    pub paths: Vec<String>,
    /// Which of the matching flushes fails.
    pub nth: Range<u32>,
    /// Milliseconds until the start after the fail-stop.
    pub down_ms: Range<u32>,
    /// Chance that power is lost after the restart.
    pub then_power_loss: f64,
    /// Milliseconds from the restart to the power loss.
    pub power_loss_ms: Range<u32>,
    /// What power loss keeps of what was not synced.
    pub keep: Vec<Keep>,
}

impl Default for SyncFailure {
    fn default() -> Self {
        Self {
            paths: vec![String::new()],
            nth: Range(0, 30),
            down_ms: Range(1, 200),
            then_power_loss: 0.8,
            power_loss_ms: Range(0, 300),
            keep: vec![Keep::Some, Keep::None],
        }
    }
}

/// See [`Kind::DiskFull`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskFull {
    /// Bytes that are still free when it begins.
    pub free_bytes: Range<u32>,
    /// Milliseconds until there is space again.
    pub for_ms: Range<u32>,
}

impl Default for DiskFull {
    fn default() -> Self {
        Self { free_bytes: Range(0, 300_000), for_ms: Range(200, 3_000) }
    }
}

/// See [`Kind::Resets`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Resets {
    /// Chance per segment, in millionths.
    pub per_million: Range<u32>,
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
}

impl Default for Resets {
    fn default() -> Self {
        Self { per_million: Range(1_000, 80_000), for_ms: Range(100, 3_000) }
    }
}

/// See [`Kind::Partition`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partition {
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
    /// Chance that only one direction is cut.
    pub one_way: f64,
}

impl Default for Partition {
    fn default() -> Self {
        Self { for_ms: Range(50, 6_000), one_way: 0.4 }
    }
}

/// See [`Kind::DiskTrouble`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskTrouble {
    /// Rates.
    pub rates: DiskFaults,
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
}

/// See [`Kind::Pause`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pause {
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
}

impl Default for Pause {
    fn default() -> Self {
        Self { for_ms: Range(10, 5_000) }
    }
}

/// See [`Kind::ClockJump`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClockJump {
    /// Milliseconds; negative is back.
    pub by_ms: Range<i32>,
}

impl Default for ClockJump {
    fn default() -> Self {
        Self { by_ms: Range(-3_600_000, 3_600_000) }
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
            message: library::with_suggestion(&error.to_string()),
        })?;
        scenario.name = name.to_owned();
        Ok(scenario)
    }
}
