//! How a rule is written: every kind of fault is a key of its own, exactly one of which is there. (An enum in serde's
//! own forms would not refuse unknown keys beside it.)

use serde::Deserialize;

use super::{
    ClientCrash, ClockDrift, ClockJump, Crash, DiskFault, DiskFull, DiskTrouble, FewDescriptors, Kind, Partition,
    Pause, Range, Resets, Rule, SlowNetwork, Stop, SyncFailure,
};
use crate::disk::DiskFaults;
use crate::valid::chance;

/// A rule as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default = "always", deserialize_with = "chance")]
    chance: f64,
    every_ms: Range<u32>,
    crash: Option<Crash>,
    sync_failure: Option<SyncFailure>,
    disk_full: Option<DiskFull>,
    resets: Option<Resets>,
    partition: Option<Partition>,
    disk_trouble: Option<DiskTrouble>,
    disk_fault: Option<DiskFault>,
    few_descriptors: Option<FewDescriptors>,
    slow_network: Option<SlowNetwork>,
    stop: Option<Stop>,
    pause: Option<Pause>,
    clock_jump: Option<ClockJump>,
    clock_drift: Option<ClockDrift>,
    client_crash: Option<ClientCrash>,
}

fn always() -> f64 {
    1.0
}

impl TryFrom<Written> for Rule {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let kinds = [
            written.crash.map(Kind::Crash),
            written.sync_failure.map(Kind::SyncFailure),
            written.disk_full.map(Kind::DiskFull),
            written.resets.map(Kind::Resets),
            written.partition.map(Kind::Partition),
            written.disk_trouble.map(Kind::DiskTrouble),
            written.disk_fault.map(Kind::DiskFault),
            written.few_descriptors.map(Kind::FewDescriptors),
            written.slow_network.map(Kind::SlowNetwork),
            written.stop.map(Kind::Stop),
            written.pause.map(Kind::Pause),
            written.clock_jump.map(Kind::ClockJump),
            written.clock_drift.map(Kind::ClockDrift),
            written.client_crash.map(Kind::ClientCrash),
        ];
        let mut kinds = kinds.into_iter().flatten();
        match (kinds.next(), kinds.next()) {
            (Some(Kind::DiskTrouble(trouble)), None) if trouble.rates == DiskFaults::default() => {
                Err("`disk_trouble` without `rates`, such as `rates = { write_error = 0.01 }`, does nothing")
            }
            (Some(kind), None) => Ok(Self { chance: written.chance, every_ms: written.every_ms, kind }),
            _ => Err("a rule has exactly one kind of fault, such as `crash = {}`"),
        }
    }
}
