//! Rules by which faults happen: what a seed draws a plan from.

use serde::Deserialize;

use super::Range;
use super::rule;
use crate::disk::{DiskFaults, Fault, Keep, OpKind};
use crate::net::LinkConfig;
use crate::valid::{chance, not_empty};

/// How far wall clocks jump unless told otherwise, in milliseconds: an hour each way.
const CLOCK_JUMP_MS: Range<i32> = Range(-3_600_000, 3_600_000);

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
    /// The broker is asked to stop, and starts again.
    Stop(Stop),
    /// The broker's process stands still for a while.
    Pause(Pause),
    /// The disk has no space for a while.
    DiskFull(DiskFull),
    /// The disk is faulty or slow for a while.
    DiskTrouble(DiskTrouble),
    /// One chosen operation of the disk goes wrong.
    DiskFault(DiskFault),
    /// The broker may open few files and sockets for a while.
    FewDescriptors(FewDescriptors),
    /// Connections are reset.
    Resets(Resets),
    /// Clients and broker cannot reach each other for a while.
    Partition(Partition),
    /// The network is slow for a while.
    SlowNetwork(SlowNetwork),
    /// A wall clock jumps.
    ClockJump(ClockJump),
    /// A wall clock drifts for a while.
    ClockDrift(ClockDrift),
    /// A client ends suddenly and starts anew.
    ClientCrash(ClientCrash),
}

/// See [`Kind::Crash`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Crash {
    /// Chance that power is lost; otherwise it is a `kill -9`.
    #[serde(deserialize_with = "chance")]
    pub power: f64,
    /// What power loss keeps of what was not synced.
    #[serde(deserialize_with = "not_empty")]
    pub keep: Vec<Keep>,
    /// Milliseconds until the start.
    pub down_ms: Range<u32>,
    /// How many further crashes follow, each soon after the start.
    pub again: Range<u32>,
    /// Chance that a further crash is a power loss.
    #[serde(deserialize_with = "chance")]
    pub again_power: f64,
    /// Microseconds from the start to the further crash.
    pub again_us: Range<u32>,
    /// Chance that the wall clock has moved when the broker starts again.
    #[serde(deserialize_with = "chance")]
    pub clock: f64,
    /// Milliseconds by which it has; negative is back.
    pub clock_by_ms: Range<i32>,
    /// Days on top of them.
    pub clock_by_days: Range<i32>,
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
            clock: 0.0,
            clock_by_ms: CLOCK_JUMP_MS,
            clock_by_days: Range(0, 0),
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
    #[serde(deserialize_with = "chance")]
    pub then_power_loss: f64,
    /// Milliseconds from the restart to the power loss.
    pub power_loss_ms: Range<u32>,
    /// What power loss keeps of what was not synced.
    #[serde(deserialize_with = "not_empty")]
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
    /// Chance that it concerns only some of the clients.
    #[serde(deserialize_with = "chance")]
    pub some: f64,
    /// Chance per segment, in millionths.
    pub per_million: Range<u32>,
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
}

impl Default for Resets {
    fn default() -> Self {
        Self { some: 0.3, per_million: Range(1_000, 80_000), for_ms: Range(100, 3_000) }
    }
}

/// See [`Kind::Partition`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partition {
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
    /// Chance that only one direction is cut.
    #[serde(deserialize_with = "chance")]
    pub one_way: f64,
    /// Chance that only some of the clients are cut off.
    #[serde(deserialize_with = "chance")]
    pub some: f64,
    /// Chance that the connections that stalled are reset at its end.
    #[serde(deserialize_with = "chance")]
    pub reset: f64,
}

impl Default for Partition {
    fn default() -> Self {
        Self { for_ms: Range(50, 6_000), one_way: 0.4, some: 0.4, reset: 0.3 }
    }
}

/// See [`Kind::DiskTrouble`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskTrouble {
    /// Rates, some of which must be given.
    pub rates: DiskFaults,
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
}

impl Default for DiskTrouble {
    fn default() -> Self {
        Self { rates: DiskFaults::default(), for_ms: Range(200, 3_000) }
    }
}

/// See [`Kind::Stop`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    /// Milliseconds until the next start.
    pub down_ms: Range<u32>,
    /// Chance that power is lost while it stops.
    #[serde(deserialize_with = "chance")]
    pub cut: f64,
    /// Microseconds from the asking to that.
    pub cut_us: Range<u32>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { down_ms: Range(1, 300), cut: 0.3, cut_us: Range(0, 60_000) }
    }
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
    /// Chance that it is the clock of a client; otherwise it is the broker's.
    #[serde(deserialize_with = "chance")]
    pub client: f64,
    /// Milliseconds; negative is back.
    pub by_ms: Range<i32>,
    /// Days on top of them.
    pub by_days: Range<i32>,
}

impl Default for ClockJump {
    fn default() -> Self {
        Self { client: 0.3, by_ms: CLOCK_JUMP_MS, by_days: Range(0, 0) }
    }
}

/// See [`Kind::DiskFault`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskFault {
    /// The kind of operation.
    pub op: OpKind,
    /// Parts of paths, one of which is drawn.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Which of the matching operations.
    #[serde(default = "nth")]
    pub nth: Range<u32>,
    /// What happens to it.
    pub fault: Fault,
    /// Milliseconds after which it is given up, if the operation has not come.
    #[serde(default = "patience_ms")]
    pub for_ms: Range<u32>,
}

fn nth() -> Range<u32> {
    Range(0, 20)
}

fn patience_ms() -> Range<u32> {
    Range(500, 3_000)
}

/// See [`Kind::FewDescriptors`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FewDescriptors {
    /// How many files and sockets may be open.
    pub max: Range<u32>,
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
}

impl Default for FewDescriptors {
    fn default() -> Self {
        Self { max: Range(8, 40), for_ms: Range(100, 3_000) }
    }
}

/// See [`Kind::SlowNetwork`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlowNetwork {
    /// Chance that it concerns only some of the clients.
    #[serde(deserialize_with = "chance")]
    pub some: f64,
    /// How links may be, one of which is drawn.
    #[serde(deserialize_with = "not_empty")]
    pub links: Vec<LinkConfig>,
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
}

impl Default for SlowNetwork {
    fn default() -> Self {
        let usual = LinkConfig::default();
        let links = vec![
            LinkConfig { latency_us: 20_000, jitter_us: 30_000, ..usual.clone() },
            LinkConfig { bytes_per_s: 100_000, ..usual.clone() },
            LinkConfig { loss: 0.1, ..usual.clone() },
            // Narrow too: what is cut so small would otherwise make most of a run's events.
            LinkConfig { segment_bytes_max: 23, bytes_per_s: 20_000, ..usual },
        ];
        Self { some: 0.4, links, for_ms: Range(200, 5_000) }
    }
}

/// See [`Kind::ClockDrift`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClockDrift {
    /// Chance that it is the clock of a client; otherwise it is the broker's.
    #[serde(deserialize_with = "chance")]
    pub client: f64,
    /// Parts per million by which it is too fast; negative is too slow.
    pub ppm: Range<i32>,
    /// Milliseconds that it lasts.
    pub for_ms: Range<u32>,
}

impl Default for ClockDrift {
    fn default() -> Self {
        Self { client: 0.3, ppm: Range(-200_000, 200_000), for_ms: Range(500, 10_000) }
    }
}

/// See [`Kind::ClientCrash`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientCrash {
    /// Chance that its machine loses power; otherwise its system closes its connections.
    #[serde(deserialize_with = "chance")]
    pub power: f64,
    /// Milliseconds until it starts again.
    pub down_ms: Range<u32>,
}

impl Default for ClientCrash {
    fn default() -> Self {
        Self { power: 0.5, down_ms: Range(1, 3_000) }
    }
}
