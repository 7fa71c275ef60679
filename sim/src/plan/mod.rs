//! The fault plan of a run, as data: what happens to whom, and when. A seed draws it from a scenario's rules, swarm
//! style: a random subset of the rules, each with a rate of its own. A plan can be printed, edited, replayed and shrunk
//! ([`crate::shrink`]).

mod check;
mod draw;
mod print;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use check::DURATION_MS_MAX;

use crate::disk::{DiskFaults, Injection, Keep};
use crate::net::LinkConfig;

/// All faults of a run, in the order of their times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// How long faults go on, in milliseconds since the workload began.
    pub faults_ms: u64,
    /// Clients (by number) that the run does without. A drawn plan has none; a shrunk one may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_clients: Vec<u32>,
    /// The faults.
    #[serde(default)]
    pub actions: Vec<Action>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Milliseconds since the workload began; later if what came before on the same [`Track`] is still going on,
    /// and not at all if the phase is over by then.
    pub at_ms: u64,
    /// What happens.
    pub what: FaultKind,
}

/// Which clients a fault concerns, by number; none named means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Clients(pub Vec<u32>);

impl Clients {
    /// Whether this client is concerned.
    pub fn includes(&self, client: u32) -> bool {
        self.0.is_empty() || self.0.contains(&client)
    }

    fn is_all(&self) -> bool {
        self.0.is_empty()
    }
}

/// A machine of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Machine {
    /// The broker.
    #[default]
    Broker,
    /// The client of this number.
    Client(u32),
}

/// What happens. What does not name clients happens to the broker: there is one so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultKind {
    /// Crashes one after the other.
    Crashes(Vec<Crash>),
    /// A flush fails and the broker stops by itself; perhaps power is lost after the restart.
    SyncFailure {
        /// Which flush.
        injection: Injection,
        /// Milliseconds until the restart.
        down_ms: u64,
        /// The power loss that follows, counted from the restart.
        #[serde(default)]
        then: Option<Crash>,
    },
    /// The broker is asked to stop (SIGTERM), stops by itself, and starts again.
    Stop {
        /// Milliseconds until the next start.
        down_ms: u64,
        /// Power is lost so many microseconds after the asking, if it has not stopped by then.
        #[serde(default)]
        cut_us: Option<u64>,
    },
    /// The broker's process stands still.
    Pause {
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// No more space than this.
    DiskFull {
        /// Bytes still free.
        free_bytes: u64,
        /// Milliseconds until the limit is lifted.
        for_ms: u64,
    },
    /// The disk is faulty or slow.
    DiskTrouble {
        /// Rates.
        rates: DiskFaults,
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// One chosen operation of the disk goes wrong.
    DiskFault {
        /// Which, and how.
        injection: Injection,
        /// Milliseconds after which it is given up, if the operation has not come.
        for_ms: u64,
    },
    /// No more files and sockets may be open than this.
    FewDescriptors {
        /// How many.
        max: u32,
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// Segments are answered with a reset, at a rate.
    Resets {
        /// On whose links.
        #[serde(default, skip_serializing_if = "Clients::is_all")]
        clients: Clients,
        /// Chance per segment.
        rate: f64,
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// Nothing passes.
    Partition {
        /// Who is cut off.
        #[serde(default, skip_serializing_if = "Clients::is_all")]
        clients: Clients,
        /// From the clients to the broker.
        inward: bool,
        /// From the broker to the clients.
        outward: bool,
        /// Milliseconds that it lasts.
        for_ms: u64,
        /// Whether the connections that stalled are reset at its end; otherwise they go on.
        #[serde(default)]
        reset: bool,
    },
    /// Links are slow, narrow or lossy.
    SlowNetwork {
        /// Whose.
        #[serde(default, skip_serializing_if = "Clients::is_all")]
        clients: Clients,
        /// How the links behave.
        link: LinkConfig,
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// A wall clock jumps.
    ClockJump {
        /// Whose.
        #[serde(default)]
        whom: Machine,
        /// Milliseconds.
        by_ms: i64,
    },
    /// A wall clock runs too fast or too slow.
    ClockDrift {
        /// Whose.
        #[serde(default)]
        whom: Machine,
        /// Parts per million.
        ppm: i64,
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// A client ends suddenly and starts anew, with nothing remembered.
    ClientCrash {
        /// Its number.
        client: u32,
        /// Whether its machine loses power: the broker hears nothing then, and holds a half-open connection.
        power_loss: bool,
        /// Milliseconds until the next start.
        down_ms: u64,
    },
}

/// A sudden end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    /// Microseconds since the start (for the first of several: since the action began).
    #[serde(default)]
    pub after_us: u64,
    /// What power loss keeps of what was not synced; absent for a `kill -9`.
    #[serde(default)]
    pub power_loss: Option<Keep>,
    /// Milliseconds until the next start.
    pub down_ms: u64,
    /// Milliseconds by which the wall clock has moved when the broker starts again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_by_ms: i64,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Faults that exclude each other because they act on the same thing. Those of one track follow one another; different
/// tracks overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// Whether the broker runs.
    Process,
    /// The space on its disk.
    Space,
    /// Its disk.
    Disk,
    /// Its limit of descriptors.
    Descriptors,
    /// The links.
    Network,
    /// The clocks.
    Clocks,
    /// Whether clients run.
    Clients,
}

impl Track {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Process, Self::Space, Self::Disk, Self::Descriptors, Self::Network, Self::Clocks, Self::Clients];
}

impl FaultKind {
    /// The track that this stands on.
    pub fn track(&self) -> Track {
        match self {
            Self::Crashes(_) | Self::SyncFailure { .. } | Self::Stop { .. } | Self::Pause { .. } => Track::Process,
            Self::DiskFull { .. } => Track::Space,
            Self::DiskTrouble { .. } | Self::DiskFault { .. } => Track::Disk,
            Self::FewDescriptors { .. } => Track::Descriptors,
            Self::Resets { .. } | Self::Partition { .. } | Self::SlowNetwork { .. } => Track::Network,
            Self::ClockJump { .. } | Self::ClockDrift { .. } => Track::Clocks,
            Self::ClientCrash { .. } => Track::Clients,
        }
    }
}

impl Plan {
    /// How many single faults there are.
    pub fn faults(&self) -> usize {
        let count = |action: &Action| match &action.what {
            FaultKind::Crashes(crashes) => crashes.len(),
            FaultKind::SyncFailure { then: Some(_), .. } => 2,
            _ => 1,
        };
        self.actions.iter().map(count).sum()
    }
}
