//! The fault plan of a run, as data: what happens to whom, and when. A seed draws it from a scenario's rules, swarm
//! style: a random subset of the rules, each with a rate of its own. A plan can be printed, edited and replayed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::disk::{DiskFaults, Injection, Keep, OpKind};
use crate::scenario::{Kind, Rule, Scenario};

/// All faults of a run, in the order of their times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// How long faults go on, in milliseconds since the workload began.
    pub faults_ms: u64,
    /// The faults.
    #[serde(default)]
    pub actions: Vec<Action>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Milliseconds since the workload began; later if what came before is still going on.
    pub at_ms: u64,
    /// What happens.
    pub what: What,
}

/// What happens. The whom is the broker and its links to all clients: there is one broker so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// Crashes one after the other.
    Crashes(Vec<Crash>),
    /// A flush fails and the broker stops by itself; perhaps power is lost after the restart.
    SyncFailure {
        /// Which flush.
        injection: Injection,
        /// Milliseconds until the restart.
        down_ms: u64,
        /// The power loss that follows, counted from the restart.
        then: Option<Crash>,
    },
    /// No more space than this.
    DiskFull {
        /// Bytes still free.
        free_bytes: u64,
        /// Milliseconds until the limit is lifted.
        for_ms: u64,
    },
    /// Segments are answered with a reset, at a rate.
    Resets {
        /// Chance per segment.
        rate: f64,
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// Nothing passes.
    Partition {
        /// From the clients to the broker.
        inward: bool,
        /// From the broker to the clients.
        outward: bool,
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// The disk is faulty or slow.
    DiskTrouble {
        /// Rates.
        rates: DiskFaults,
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// The broker's process stands still.
    Pause {
        /// Milliseconds that it lasts.
        for_ms: u64,
    },
    /// The broker's wall clock jumps.
    ClockJump {
        /// Milliseconds.
        by_ms: i64,
    },
}

/// A sudden end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    /// Microseconds since the start (for the first of several: since the action began).
    pub after_us: u64,
    /// What power loss keeps of what was not synced; absent for a `kill -9`.
    pub power_loss: Option<Keep>,
    /// Milliseconds until the next start.
    pub down_ms: u64,
}

impl Plan {
    /// Draws a plan.
    pub fn draw(scenario: &Scenario, rng: &mut fastrand::Rng) -> Self {
        let faults_ms = u64::from(scenario.phases.faults_ms.draw(rng));
        let mut on: Vec<&Rule> = scenario.faults.iter().filter(|rule| rng.f64() < rule.chance).collect();
        if on.is_empty() && !scenario.faults.is_empty() {
            on.push(&scenario.faults[rng.usize(..scenario.faults.len())]);
        }
        let mut actions = Vec::new();
        for rule in on {
            // A rate for the whole run, and gaps that scatter around it.
            let every_ms = u64::from(rule.every_ms.draw(rng)).max(1);
            let mut at_ms = rng.u64(0..=every_ms);
            while at_ms < faults_ms {
                actions.push(Action { at_ms, what: draw(&rule.kind, rng) });
                at_ms += rng.u64(every_ms / 2..=every_ms * 3 / 2).max(1);
            }
        }
        actions.sort_by_key(|action| action.at_ms);
        Self { faults_ms, actions }
    }

    /// How many single faults there are.
    pub fn faults(&self) -> usize {
        let count = |action: &Action| match &action.what {
            What::Crashes(crashes) => crashes.len(),
            What::SyncFailure { then: Some(_), .. } => 2,
            _ => 1,
        };
        self.actions.iter().map(count).sum()
    }
}

fn draw(kind: &Kind, rng: &mut fastrand::Rng) -> What {
    match kind {
        Kind::Crash(rule) => {
            let mut crashes = vec![crash(0, rule.power, &rule.keep, rule.down_ms.draw(rng), rng)];
            for _ in 0..rule.again.draw(rng) {
                let after_us = rule.again_us.draw(rng);
                crashes.push(crash(after_us, rule.again_power, &rule.keep, rule.down_ms.draw(rng), rng));
            }
            What::Crashes(crashes)
        }
        Kind::SyncFailure(rule) => {
            let path =
                if rule.paths.is_empty() { String::new() } else { rule.paths[rng.usize(..rule.paths.len())].clone() };
            let op = OpKind::Sync;
            let injection = Injection { op, path, nth: rule.nth.draw(rng).into(), fault: crate::disk::Fault::Eio };
            let down_ms = rule.down_ms.draw(rng).into();
            let then = (rng.f64() < rule.then_power_loss).then(|| {
                let after_us = rule.power_loss_ms.draw(rng) * 1000 + rng.u32(..1000);
                crash(after_us, 1.0, &rule.keep, rule.down_ms.draw(rng), rng)
            });
            What::SyncFailure { injection, down_ms, then }
        }
        Kind::DiskFull(rule) => {
            What::DiskFull { free_bytes: rule.free_bytes.draw(rng).into(), for_ms: rule.for_ms.draw(rng).into() }
        }
        Kind::Resets(rule) => {
            What::Resets { rate: f64::from(rule.per_million.draw(rng)) / 1e6, for_ms: rule.for_ms.draw(rng).into() }
        }
        Kind::Partition(rule) => {
            let one_way = rng.f64() < rule.one_way;
            let inward = !one_way || rng.bool();
            What::Partition { inward, outward: !one_way || !inward, for_ms: rule.for_ms.draw(rng).into() }
        }
        Kind::DiskTrouble(rule) => {
            What::DiskTrouble { rates: rule.rates.clone(), for_ms: rule.for_ms.draw(rng).into() }
        }
        Kind::Pause(rule) => What::Pause { for_ms: rule.for_ms.draw(rng).into() },
        Kind::ClockJump(rule) => What::ClockJump { by_ms: rule.by_ms.draw(rng).into() },
    }
}

fn crash(after_us: u32, power: f64, keep: &[Keep], down_ms: u32, rng: &mut fastrand::Rng) -> Crash {
    let lost = rng.f64() < power;
    let keep = if keep.is_empty() { Keep::Some } else { keep[rng.usize(..keep.len())] };
    Crash { after_us: after_us.into(), power_loss: lost.then_some(keep), down_ms: down_ms.into() }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults for {} ms", self.faults_ms)?;
        for action in &self.actions {
            writeln!(f, "  at {:>6} ms: {}", action.at_ms, action.what)?;
        }
        Ok(())
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crashes(crashes) => {
                for (index, crash) in crashes.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{crash}")?;
                }
                Ok(())
            }
            Self::SyncFailure { injection, down_ms, then } => {
                write!(f, "flush {} of `{}` fails, down {down_ms} ms", injection.nth, injection.path)?;
                then.as_ref().map_or(Ok(()), |crash| write!(f, ", {crash}"))
            }
            Self::DiskFull { free_bytes, for_ms } => write!(f, "{free_bytes} bytes left on the disk for {for_ms} ms"),
            Self::Resets { rate, for_ms } => write!(f, "resets at a rate of {rate} for {for_ms} ms"),
            Self::Partition { inward, outward, for_ms } => {
                write!(f, "partition (inward {inward}, outward {outward}) for {for_ms} ms")
            }
            Self::DiskTrouble { rates, for_ms } => write!(f, "disk trouble for {for_ms} ms: {rates:?}"),
            Self::Pause { for_ms } => write!(f, "pause for {for_ms} ms"),
            Self::ClockJump { by_ms } => write!(f, "wall clock jumps by {by_ms} ms"),
        }
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.after_us > 0 {
            write!(f, "{} us after the start ", self.after_us)?;
        }
        match self.power_loss {
            Some(keep) => write!(f, "power loss keeping {keep:?}")?,
            None => write!(f, "kill")?,
        }
        write!(f, ", down {} ms", self.down_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Plan {
        let text = "[[faults]]\nevery_ms = [300, 900]\nchance = 0.5\ncrash = { again = [0, 2], power = 0.5 }\n\
                    [[faults]]\nevery_ms = 2000\nsync_failure = { paths = [\"wal\"] }\n\
                    [[faults]]\nevery_ms = 2000\npartition = {}\n";
        Plan::draw(&Scenario::parse("s", text).expect("a good file"), &mut fastrand::Rng::with_seed(seed))
    }

    #[test]
    fn the_same_seed_draws_the_same_plan_and_another_seed_another() {
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn a_plan_survives_being_written_and_read() {
        for seed in 0..20 {
            let plan = plan(seed);
            let text = toml::to_string(&plan).expect("a plan is plain data");
            assert_eq!(toml::from_str::<Plan>(&text).expect("its own text"), plan, "{text}");
        }
    }

    #[test]
    fn swarm_switches_rules_off_in_some_seeds() {
        let crashes = |seed| plan(seed).actions.iter().any(|action| matches!(action.what, What::Crashes(_)));
        let with = (0..100).filter(|&seed| crashes(seed)).count();
        assert!((20..80).contains(&with), "{with}");
    }
}
