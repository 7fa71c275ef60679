//! The timeline of a run: one page that a browser opens without a network. All that happened is in it as data; the
//! page's own script draws it.
//!
//! | lane | what it shows |
//! |---|---|
//! | the broker | its incarnations: starting, serving, stopping; what failed |
//! | one for each kind of fault | the faults of the plan as bands, with a mark where one hits |
//! | one for each client that did anything | its sends and reads as bars, arrows to the broker and back |
//! | positions | log end and durable end of a partition over time |

mod lanes;
mod ops;

use std::collections::BTreeMap;

use serde::Serialize;

use self::lanes::{Lane, Lanes};
use self::ops::{Op, us};
use crate::history::{EventKind, History};
use crate::oracle::{Violation, Witness};
use crate::plan::Track;
use crate::runner::report::Report;
use crate::trace::PositionAt;
use crate::workload::Clients;
use crate::workload::world::World;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// What is drawn, then what the reader does with it.
const SCRIPTS: [&str; 2] = [include_str!("draw.js"), include_str!("script.js")];

/// Everything that the script gets. Times are in microseconds since the run began, names short because there are many.
#[derive(Serialize)]
struct Data<'a> {
    title: String,
    good: bool,
    replay: String,
    summary: String,
    end: u64,
    partitions: &'a [String],
    lanes: Vec<Lane>,
    events: Vec<Event<'a>>,
    faults: Vec<Fault<'a>>,
    hits: Vec<Hit>,
    lives: Vec<Life>,
    ops: Vec<Op>,
    positions: BTreeMap<String, Vec<Step>>,
    failures: Vec<Failure>,
}

#[derive(Serialize)]
struct Event<'a> {
    t: u64,
    kind: &'static str,
    what: &'a str,
    /// The number of the client that it is about.
    client: Option<u32>,
}

#[derive(Serialize)]
struct Fault<'a> {
    number: u32,
    t: u64,
    e: u64,
    what: &'a str,
    track: &'static str,
}

/// A moment at which a fault was felt.
#[derive(Serialize)]
struct Hit {
    t: u64,
    /// The fault's number.
    fault: u32,
    what: String,
}

/// An incarnation of the broker.
#[derive(Serialize)]
struct Life {
    number: u32,
    t: u64,
    serves: Option<u64>,
    stops: Option<u64>,
    e: u64,
    end: String,
}

/// From this time on, log end and durable end.
#[derive(Clone, Copy, Serialize)]
struct Step {
    t: u64,
    end: i64,
    durable: i64,
}

#[derive(Serialize)]
struct Failure {
    check: String,
    what: String,
    beyond: bool,
    partition: Option<u32>,
    offset: i64,
    /// Kinds and indices of the operations that prove it.
    proof: Vec<(char, u32)>,
    /// From when to when it went wrong, if it is known.
    t: Option<u64>,
    e: Option<u64>,
}

/// The page of a run. `violations` are the first of the report's failures of their checks, with their proofs.
pub fn page(report: &Report, world: &World, clients: &Clients, violations: &[Violation]) -> String {
    let history = world.history();
    let mut lanes = Lanes::new(clients);
    let mut ops = ops::ops(&history, &lanes);
    let places = lanes.leave_out_empty(ops.iter().map(|op| op.l));
    for op in &mut ops {
        op.l = places[op.l];
    }
    let end = report.simulated_ms * 1000;
    let data = Data {
        title: format!("{} seed {}", report.scenario, report.seed),
        good: report.is_good(),
        replay: report.replay_command(),
        summary: report.to_string().lines().next().unwrap_or_default().to_owned(),
        end,
        partitions: &history.partitions,
        events: events(&history),
        faults: faults(&history, end),
        hits: hits(world),
        lives: lives(&history, end),
        ops,
        positions: positions(world, &world.sim.positions()),
        failures: failures(report, violations),
        lanes: lanes.list,
    };
    // Nothing in the data may end the script element that it stands in.
    let json = serde_json::to_string(&data).unwrap_or_else(|error| format!("{{\"title\":\"{error}\"}}"));
    PAGE.replace("/*STYLE*/", STYLE)
        .replace("/*DATA*/", &json.replace('<', "\\u003c"))
        .replace("/*SCRIPT*/", &SCRIPTS.concat())
}

fn events<'a>(history: &'a History) -> Vec<Event<'a>> {
    let kind = |kind: EventKind| match kind {
        EventKind::Phase => "phase",
        EventKind::BrokerStarts(_) | EventKind::BrokerServes(_) => "broker",
        EventKind::BrokerStops | EventKind::BrokerEnds => "end",
        EventKind::ClientStarts(_) => "client",
        EventKind::ClientEnds(_) => "client-end",
        EventKind::FaultBegins { .. } | EventKind::FaultEnds(_) | EventKind::Failure => "fault",
    };
    let client = |kind: EventKind| match kind {
        EventKind::ClientStarts(number) | EventKind::ClientEnds(number) => Some(number),
        _ => None,
    };
    // Faults and failures stand in lists of their own, with more than this.
    let is_elsewhere =
        |kind: EventKind| matches!(kind, EventKind::FaultBegins { .. } | EventKind::FaultEnds(_) | EventKind::Failure);
    let events = history.events.iter().filter(|event| !is_elsewhere(event.kind));
    let event = |one: &'a crate::history::Event| Event {
        t: us(one.at),
        kind: kind(one.kind),
        what: &one.what,
        client: client(one.kind),
    };
    events.map(event).collect()
}

fn faults(history: &History, end: u64) -> Vec<Fault<'_>> {
    let mut faults: BTreeMap<u32, Fault<'_>> = BTreeMap::new();
    for event in &history.events {
        match event.kind {
            EventKind::FaultBegins { number, track } => {
                let track = track_name(track);
                faults.insert(number, Fault { number, t: us(event.at), e: end, what: &event.what, track });
            }
            EventKind::FaultEnds(number) => {
                faults.entry(number).and_modify(|fault| fault.e = us(event.at));
            }
            _ => {}
        }
    }
    faults.into_values().collect()
}

fn hits(world: &World) -> Vec<Hit> {
    let hits = world.sim.hits().into_iter();
    hits.map(|hit| Hit { t: hit.at_ns / 1000, fault: hit.fault, what: hit.what }).collect()
}

fn track_name(track: Track) -> &'static str {
    match track {
        Track::Process => "process",
        Track::Space => "disk space",
        Track::Disk => "disk",
        Track::Descriptors => "descriptor",
        Track::Network => "network",
        Track::Clocks => "clock",
        Track::Clients => "client",
    }
}

fn lives(history: &History, end: u64) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    for event in &history.events {
        let t = us(event.at);
        match (event.kind, lives.last_mut()) {
            (EventKind::BrokerStarts(number), last) => {
                if let Some(last) = last {
                    last.e = last.e.min(t);
                }
                lives.push(Life { number, t, serves: None, stops: None, e: end, end: String::new() });
            }
            (EventKind::BrokerServes(_), Some(life)) => life.serves = Some(t),
            (EventKind::BrokerStops, Some(life)) => life.stops = Some(t),
            (EventKind::BrokerEnds, Some(life)) if life.end.is_empty() => {
                life.e = t;
                life.end.clone_from(&event.what);
            }
            _ => {}
        }
    }
    lives
}

/// Log end and durable end by partition, each step with both.
fn positions(world: &World, noted: &[PositionAt]) -> BTreeMap<String, Vec<Step>> {
    let mut positions: BTreeMap<String, Vec<Step>> = BTreeMap::new();
    for at in noted {
        let name = world.name_of_key(&at.position.of).unwrap_or_else(|| at.position.of.clone());
        let steps = positions.entry(name).or_default();
        let t = at.at_ns / 1000;
        let mut step = steps.last().map_or(Step { t, end: 0, durable: 0 }, |last| Step { t, ..*last });
        match at.position.name {
            "log.end" => step.end = at.position.value,
            _ => step.durable = at.position.value,
        }
        match steps.last_mut() {
            Some(last) if last.t == t => *last = step,
            _ => steps.push(step),
        }
    }
    positions
}

fn failures(report: &Report, violations: &[Violation]) -> Vec<Failure> {
    let mut proofs: BTreeMap<&str, Vec<&Violation>> = BTreeMap::new();
    for violation in violations.iter().rev() {
        proofs.entry(violation.check).or_default().push(violation);
    }
    let all = report.failures.iter().map(|one| (one, false)).chain(report.beyond.iter().map(|one| (one, true)));
    all.map(|(failure, beyond)| {
        // Failures of a check are in the order of its violations.
        let violation = proofs.get_mut(failure.check.as_str()).and_then(Vec::pop);
        let source = |source: &Witness| match *source {
            Witness::Ack(send) => ('s', send.0),
            Witness::Read(read) => ('r', read.0),
            Witness::TimeQuery(index) => ('q', index),
            Witness::Creation(index) => ('c', index),
            Witness::TopicList(index) => ('l', index),
        };
        Failure {
            check: failure.check.clone(),
            // The operations that prove it are drawn, and told where they are asked for.
            what: violation.map_or_else(|| failure.what.clone(), |found| found.message.clone()),
            beyond,
            partition: violation.and_then(|found| found.partition).map(|partition| partition.0),
            offset: violation.map_or(-1, |found| found.offset),
            proof: violation.map_or_else(Vec::new, |found| found.proof.iter().map(source).collect()),
            t: failure.span_ns.map(|(from, _)| from / 1000),
            e: failure.span_ns.map(|(_, to)| to / 1000),
        }
    })
    .collect()
}
