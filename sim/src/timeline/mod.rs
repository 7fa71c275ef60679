//! The timeline of a run: one page that a browser opens without a network. All that happened is in it as data; the
//! page's own script draws it.
//!
//! | lane | what it shows |
//! |---|---|
//! | one for each client | its sends and reads as bars, arrows to the broker and back |
//! | the broker | its incarnations: starting, serving, stopping |
//! | one for each kind of fault | the faults of the plan as bands |
//! | positions | log end and durable end of a partition over time |

use std::collections::BTreeMap;

use serde::Serialize;

use crate::history::{Answer, Created, EventKind, History, Outcome, Stamp};
use crate::oracle::{Source, Violation};
use crate::plan::Track;
use crate::runner::Report;
use crate::trace::Position;
use crate::workload::Clients;
use crate::workload::world::World;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

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
    lives: Vec<Life>,
    ops: Vec<Op>,
    positions: BTreeMap<String, Vec<Step>>,
    failures: Vec<Failure>,
}

/// A client.
#[derive(Serialize)]
struct Lane {
    name: String,
}

#[derive(Serialize)]
struct Event<'a> {
    t: u64,
    kind: &'static str,
    what: &'a str,
}

#[derive(Serialize)]
struct Fault<'a> {
    t: u64,
    e: u64,
    what: &'a str,
    track: &'static str,
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

/// A send, a read, a question for an offset by time, the creation of a topic or a list of them.
#[derive(Serialize)]
struct Op {
    /// `s`, `r`, `q`, `c` or `l`.
    k: char,
    /// Index among those of its kind.
    i: u32,
    /// Index of its lane.
    l: usize,
    /// Index of its partition, if it is about one.
    p: Option<u32>,
    t: u64,
    /// When it was answered; absent if never.
    e: Option<u64>,
    /// How it ended: `ok`, `maybe`, `failed`, `empty`, `bad`.
    s: &'static str,
    /// First and last offset, if any.
    o: Option<[i64; 2]>,
    /// First and last value, if any.
    v: Option<[u64; 2]>,
    text: String,
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
}

/// The page of a run. `violations` are the first of the report's failures of their checks, with their proofs.
pub fn page(report: &Report, world: &World, clients: &Clients, violations: &[Violation]) -> String {
    let history = world.history();
    let lanes = Lanes::new(clients);
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
        lives: lives(&history, end),
        ops: ops(&history, &lanes),
        positions: positions(world, &world.sim.gauges()),
        failures: failures(report, violations),
        lanes: lanes.list,
    };
    // Nothing in the data may end the script element that it stands in.
    let json = serde_json::to_string(&data).unwrap_or_else(|error| format!("{{\"title\":\"{error}\"}}"));
    PAGE.replace("/*STYLE*/", STYLE).replace("/*DATA*/", &json.replace('<', "\\u003c")).replace("/*SCRIPT*/", SCRIPT)
}

fn us(stamp: Stamp) -> u64 {
    stamp.at_ns / 1000
}

/// The clients' lanes: producers, readers, admins, then those that only prepare or judge.
struct Lanes {
    list: Vec<Lane>,
    producers: usize,
    admins: usize,
    clients: usize,
}

impl Lanes {
    fn new(clients: &Clients) -> Self {
        let producers = clients.producers().len();
        let admins = clients.admins().start;
        let name = |index: usize| match index {
            _ if index < producers => format!("producer {index}"),
            _ if index < admins => format!("reader {}", index - producers),
            _ => format!("admin {}", index - admins),
        };
        let mut list: Vec<Lane> = (0..clients.len()).map(|index| Lane { name: name(index) }).collect();
        list.push(Lane { name: "set-up, prober".to_owned() });
        list.push(Lane { name: "last read".to_owned() });
        Self { list, producers, admins, clients: clients.len() }
    }

    fn of_producer(&self, producer: u32) -> usize {
        if producer == u32::MAX { self.clients } else { producer as usize }
    }

    fn of_reader(&self, reader: u32) -> usize {
        if reader == u32::MAX { self.clients + 1 } else { self.producers + reader as usize }
    }

    fn of_admin(&self, admin: u32, others: usize) -> usize {
        if admin == u32::MAX { self.clients + others } else { self.admins + admin as usize }
    }
}

fn events(history: &History) -> Vec<Event<'_>> {
    let kind = |kind: EventKind| match kind {
        EventKind::Phase => "phase",
        EventKind::BrokerStarts(_) | EventKind::BrokerServes(_) => "broker",
        EventKind::BrokerStops | EventKind::BrokerEnds => "end",
        EventKind::ClientStarts(_) | EventKind::ClientEnds(_) => "client",
        EventKind::FaultBegins { .. } | EventKind::FaultEnds(_) => "fault",
        EventKind::Failure => "failure",
    };
    let events = history.events.iter();
    events.map(|event| Event { t: us(event.at), kind: kind(event.kind), what: &event.what }).collect()
}

fn faults(history: &History, end: u64) -> Vec<Fault<'_>> {
    let mut faults: BTreeMap<u32, Fault<'_>> = BTreeMap::new();
    for event in &history.events {
        match event.kind {
            EventKind::FaultBegins { number, track } => {
                let track = track_name(track);
                faults.insert(number, Fault { t: us(event.at), e: end, what: &event.what, track });
            }
            EventKind::FaultEnds(number) => {
                faults.entry(number).and_modify(|fault| fault.e = us(event.at));
            }
            _ => {}
        }
    }
    faults.into_values().collect()
}

fn track_name(track: Track) -> &'static str {
    match track {
        Track::Process => "process",
        Track::Space => "disk space",
        Track::Disk => "disk",
        Track::Descriptors => "descriptors",
        Track::Network => "network",
        Track::Clocks => "clocks",
        Track::Clients => "clients",
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

fn ops(history: &History, lanes: &Lanes) -> Vec<Op> {
    let mut ops = Vec::with_capacity(history.operations());
    for (index, send) in history.sends.iter().enumerate() {
        let i = index as u32;
        let (s, first) = match send.outcome {
            Outcome::Maybe => ("maybe", None),
            Outcome::Acked { base_offset } => ("ok", Some(base_offset)),
            Outcome::AckedSomewhere => ("ok", None),
            Outcome::Failed => ("failed", None),
        };
        let more = u64::from(send.records) - 1;
        ops.push(Op {
            k: 's',
            i,
            l: lanes.of_producer(send.producer),
            p: Some(send.partition.0),
            t: us(send.began),
            e: send.ended.map(us),
            s,
            o: first.map(|first| [first, first + more as i64]),
            v: Some([send.first_value, send.first_value + more]),
            text: history.describe_send(crate::history::SendId(i)),
        });
    }
    for (index, read) in history.reads.iter().enumerate() {
        let i = index as u32;
        let records = history.records(read);
        let ends = records.first().zip(records.last());
        let s = match read.answer {
            Answer::OutOfRange | Answer::Garbled => "bad",
            Answer::Offsets => "empty",
            Answer::Records { .. } => {
                if ends.is_some() {
                    "ok"
                } else {
                    "empty"
                }
            }
        };
        ops.push(Op {
            k: 'r',
            i,
            l: lanes.of_reader(read.reader),
            p: Some(read.partition.0),
            t: us(read.began),
            e: Some(us(read.ended)),
            s,
            o: ends.map(|(first, last)| [first.offset, last.offset]),
            v: ends.map(|(first, last)| [first.value, last.value]),
            text: history.describe_read(crate::history::ReadId(i)),
        });
    }
    for (index, query) in history.time_queries.iter().enumerate() {
        ops.push(Op {
            k: 'q',
            i: index as u32,
            l: lanes.of_reader(query.reader),
            p: Some(query.partition.0),
            t: us(query.began),
            e: Some(us(query.ended)),
            s: "empty",
            o: (query.offset >= 0).then_some([query.offset, query.offset]),
            v: None,
            text: history.describe_time_query(query),
        });
    }
    topic_ops(history, lanes, &mut ops);
    ops
}

fn topic_ops(history: &History, lanes: &Lanes, ops: &mut Vec<Op>) {
    let op = |k, i: usize, l, t: Stamp, e: Option<Stamp>, s, text| {
        let (i, t, e) = (i as u32, us(t), e.map(us));
        Op { k, i, l, p: None, t, e, s, o: None, v: None, text }
    };
    for (index, creation) in history.creations.iter().enumerate() {
        let (lane, text) = (lanes.of_admin(creation.client, 0), history.describe_creation(creation));
        let s = match creation.outcome {
            Created::Maybe => "maybe",
            Created::Done(_) => "ok",
            Created::Failed => "failed",
        };
        ops.push(op('c', index, lane, creation.began, creation.ended, s, text));
    }
    for (index, list) in history.topic_lists.iter().enumerate() {
        let (lane, text) = (lanes.of_admin(list.client, 1), history.describe_topic_list(list));
        ops.push(op('l', index, lane, list.began, Some(list.ended), "empty", text));
    }
}

/// Log end and durable end by partition, each step with both.
fn positions(world: &World, gauges: &[Position]) -> BTreeMap<String, Vec<Step>> {
    let mut positions: BTreeMap<String, Vec<Step>> = BTreeMap::new();
    for position in gauges {
        let name = world.name_of_key(&position.gauge.of).unwrap_or_else(|| position.gauge.of.clone());
        let steps = positions.entry(name).or_default();
        let t = position.at_ns / 1000;
        let mut step = steps.last().map_or(Step { t, end: 0, durable: 0 }, |last| Step { t, ..*last });
        match position.gauge.name {
            "log.end" => step.end = position.gauge.value,
            _ => step.durable = position.gauge.value,
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
        let source = |source: &Source| match *source {
            Source::Ack(send) => ('s', send.0),
            Source::Read(read) => ('r', read.0),
            Source::TimeQuery(index) => ('q', index),
            Source::Creation(index) => ('c', index),
            Source::TopicList(index) => ('l', index),
        };
        Failure {
            check: failure.check.clone(),
            what: failure.what.clone(),
            beyond,
            partition: violation.and_then(|found| found.partition).map(|partition| partition.0),
            offset: violation.map_or(-1, |found| found.offset),
            proof: violation.map_or_else(Vec::new, |found| found.proof.iter().map(source).collect()),
        }
    })
    .collect()
}
