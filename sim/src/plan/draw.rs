//! Drawing a plan from a scenario's rules.

use super::{Action, Clients, Crash, FaultKind, Machine, Plan};
use crate::disk::{Injection, Keep};
use crate::scenario::{self, Kind, Range, Rule, Scenario};

/// Plans drawn until one has faults enough for the run to prove anything.
const DRAWS_MAX: u32 = 20;
/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 3_600_000;
/// Not every fault hits: so many are planned for each that must have.
const PLANNED_PER_HIT: u64 = 2;

impl Plan {
    /// Draws a plan for a run with so many clients.
    pub fn draw(scenario: &Scenario, clients: u32, rng: &mut fastrand::Rng) -> Self {
        let enough = scenario.checks.hits_min * PLANNED_PER_HIT;
        let mut plan = Self::draw_once(scenario, clients, rng);
        for _ in 1..DRAWS_MAX {
            if plan.faults() as u64 >= enough {
                break;
            }
            plan = Self::draw_once(scenario, clients, rng);
        }
        plan
    }

    fn draw_once(scenario: &Scenario, clients: u32, rng: &mut fastrand::Rng) -> Self {
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
                actions.push(Action { at_ms, what: draw(&rule.kind, clients, rng) });
                at_ms += rng.u64(every_ms / 2..=every_ms * 3 / 2).max(1);
            }
        }
        actions.sort_by_key(|action| action.at_ms);
        Self { faults_ms, without_clients: Vec::new(), actions }
    }
}

fn draw(kind: &Kind, clients: u32, rng: &mut fastrand::Rng) -> FaultKind {
    match kind {
        Kind::Crash(rule) => FaultKind::Crashes(crashes(rule, rng)),
        Kind::SyncFailure(rule) => sync_failure(rule, rng),
        Kind::Stop(rule) => {
            let down_ms = rule.down_ms.draw(rng).into();
            let cut_us = (rng.f64() < rule.cut).then(|| rule.cut_us.draw(rng).into());
            FaultKind::Stop { down_ms, cut_us }
        }
        Kind::Pause(rule) => FaultKind::Pause { for_ms: rule.for_ms.draw(rng).into() },
        Kind::DiskFull(rule) => {
            FaultKind::DiskFull { free_bytes: rule.free_bytes.draw(rng).into(), for_ms: rule.for_ms.draw(rng).into() }
        }
        Kind::DiskTrouble(rule) => {
            FaultKind::DiskTrouble { rates: rule.rates.clone(), for_ms: rule.for_ms.draw(rng).into() }
        }
        Kind::DiskFault(rule) => {
            let path = pick(&rule.paths, rng).cloned().unwrap_or_default();
            let injection = Injection { op: rule.op, path, nth: rule.nth.draw(rng).into(), fault: rule.fault };
            FaultKind::DiskFault { injection, for_ms: rule.for_ms.draw(rng).into() }
        }
        Kind::FewDescriptors(rule) => {
            FaultKind::FewDescriptors { max: rule.max.draw(rng), for_ms: rule.for_ms.draw(rng).into() }
        }
        Kind::Resets(rule) => FaultKind::Resets {
            clients: some_clients(clients, rule.some, rng),
            rate: f64::from(rule.per_million.draw(rng)) / 1e6,
            for_ms: rule.for_ms.draw(rng).into(),
        },
        Kind::Partition(rule) => {
            let one_way = rng.f64() < rule.one_way;
            let inward = !one_way || rng.bool();
            let outward = !one_way || !inward;
            let clients = some_clients(clients, rule.some, rng);
            let reset = rng.f64() < rule.reset;
            FaultKind::Partition { clients, inward, outward, for_ms: rule.for_ms.draw(rng).into(), reset }
        }
        Kind::SlowNetwork(rule) => FaultKind::SlowNetwork {
            clients: some_clients(clients, rule.some, rng),
            link: pick(&rule.links, rng).cloned().unwrap_or_default(),
            for_ms: rule.for_ms.draw(rng).into(),
        },
        Kind::ClockJump(rule) => {
            FaultKind::ClockJump { whom: whom(clients, rule.client, rng), by_ms: clock(rule.by_ms, rule.by_days, rng) }
        }
        Kind::ClockDrift(rule) => FaultKind::ClockDrift {
            whom: whom(clients, rule.client, rng),
            ppm: rule.ppm.draw(rng).into(),
            for_ms: rule.for_ms.draw(rng).into(),
        },
        Kind::ClientCrash(rule) => FaultKind::ClientCrash {
            client: rng.u32(..clients.max(1)),
            power_loss: rng.f64() < rule.power,
            down_ms: rule.down_ms.draw(rng).into(),
        },
    }
}

/// By how much a wall clock moves, in milliseconds.
fn clock(by_ms: Range<i32>, by_days: Range<i32>, rng: &mut fastrand::Rng) -> i64 {
    let ms = i64::from(by_ms.draw(rng));
    // Nothing is drawn where there is no choice, so that the seeds of other scenarios mean what they meant.
    let days = if by_days.0 == by_days.1 { by_days.0 } else { by_days.draw(rng) };
    ms + i64::from(days) * DAY_MS
}

fn crashes(rule: &scenario::Crash, rng: &mut fastrand::Rng) -> Vec<Crash> {
    let moved = |rng: &mut fastrand::Rng| {
        if rng.f64() < rule.clock { clock(rule.clock_by_ms, rule.clock_by_days, rng) } else { 0 }
    };
    let first = crash(0, rule.power, &rule.keep, rule.down_ms.draw(rng), rng);
    let mut crashes = vec![Crash { clock_by_ms: moved(rng), ..first }];
    for _ in 0..rule.again.draw(rng) {
        let after_us = rule.again_us.draw(rng);
        let next = crash(after_us, rule.again_power, &rule.keep, rule.down_ms.draw(rng), rng);
        crashes.push(Crash { clock_by_ms: moved(rng), ..next });
    }
    crashes
}

fn sync_failure(rule: &scenario::SyncFailure, rng: &mut fastrand::Rng) -> FaultKind {
    let path = pick(&rule.paths, rng).cloned().unwrap_or_default();
    let op = crate::disk::OpKind::Sync;
    let injection = Injection { op, path, nth: rule.nth.draw(rng).into(), fault: crate::disk::Fault::Eio };
    let down_ms = rule.down_ms.draw(rng).into();
    let then = (rng.f64() < rule.then_power_loss).then(|| {
        let after_us = rule.power_loss_ms.draw(rng) * 1000 + rng.u32(..1000);
        crash(after_us, 1.0, &rule.keep, rule.down_ms.draw(rng), rng)
    });
    FaultKind::SyncFailure { injection, down_ms, then }
}

fn crash(after_us: u32, power: f64, keep: &[Keep], down_ms: u32, rng: &mut fastrand::Rng) -> Crash {
    let lost = rng.f64() < power;
    let keep = pick(keep, rng).copied().unwrap_or(Keep::Some);
    Crash { after_us: after_us.into(), power_loss: lost.then_some(keep), down_ms: down_ms.into(), clock_by_ms: 0 }
}

fn pick<'a, T>(from: &'a [T], rng: &mut fastrand::Rng) -> Option<&'a T> {
    if from.is_empty() { None } else { Some(&from[rng.usize(..from.len())]) }
}

/// With the chance `some` a random non-empty part of the clients, otherwise all.
fn some_clients(clients: u32, some: f64, rng: &mut fastrand::Rng) -> Clients {
    if clients == 0 || rng.f64() >= some {
        return Clients::default();
    }
    let mut numbers: Vec<u32> = (0..clients).filter(|_| rng.bool()).collect();
    if numbers.is_empty() {
        numbers.push(rng.u32(..clients));
    }
    Clients(numbers)
}

fn whom(clients: u32, client: f64, rng: &mut fastrand::Rng) -> Machine {
    if clients > 0 && rng.f64() < client { Machine::Client(rng.u32(..clients)) } else { Machine::Broker }
}
