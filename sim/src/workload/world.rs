//! What all clients of a run share: the history, where the broker is, which phase the run is in.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kilo::io::Monotonic;
use tokio::sync::watch;

use crate::history::{Beyond, EventKind, History, Partition};
use crate::host::Sim;
use crate::plan::FaultKind;
use crate::trace::Seconds;

/// What clients are asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Send and read.
    Run,
    /// Finish what is begun, and begin nothing new.
    Drain,
    /// Stop at once.
    Stop,
}

/// What clients were told and must never be told.
struct Complaint {
    what: String,
    times: u64,
    first: Seconds,
    last: Seconds,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, times, first, last } = self;
        match times {
            1 => write!(f, "{what}, at {first}"),
            _ => write!(f, "{what}, {times} times from {first} to {last}"),
        }
    }
}

/// What all clients of a run share.
pub struct World {
    /// The simulated world.
    pub sim: Sim,
    /// The broker's address.
    pub broker: SocketAddr,
    /// Topic and number of each partition, by [`Partition`].
    pub partitions: Vec<(String, i32)>,
    /// After which a request counts as lost.
    pub request_timeout: Duration,
    history: Mutex<History>,
    incarnation: AtomicU32,
    sessions: AtomicU32,
    faults: AtomicU32,
    phase: watch::Sender<Phase>,
    complaints: Mutex<Vec<Complaint>>,
    /// The broker's own names of topics, by ours.
    topic_ids: Mutex<BTreeMap<String, String>>,
}

impl World {
    /// A world before anything has happened. `topics` are names with numbers of partitions.
    pub fn new(sim: Sim, broker: SocketAddr, topics: &[(String, i32)], request_timeout: Duration) -> Self {
        let partitions: Vec<(String, i32)> =
            topics.iter().flat_map(|(name, count)| (0..*count).map(move |index| (name.clone(), index))).collect();
        let names = partitions.iter().map(|(topic, index)| format!("{topic}-{index}")).collect();
        Self {
            sim,
            broker,
            partitions,
            request_timeout,
            history: Mutex::new(History::new(names)),
            incarnation: AtomicU32::new(0),
            sessions: AtomicU32::new(0),
            faults: AtomicU32::new(0),
            phase: watch::Sender::new(Phase::Run),
            complaints: Mutex::new(Vec::new()),
            topic_ids: Mutex::default(),
        }
    }

    /// Simulated time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.sim.now().0
    }

    /// The history. Never held across an await.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Topic and number of a partition.
    pub fn place(&self, partition: Partition) -> (&str, i32) {
        let (topic, index) = &self.partitions[partition.0 as usize];
        (topic, *index)
    }

    /// The partition of a topic and number, if it is one of the run's.
    pub fn partition(&self, topic: &str, index: i32) -> Option<Partition> {
        let at = self.partitions.iter().position(|(name, number)| name == topic && *number == index)?;
        Some(Partition(at as u32))
    }

    /// The current incarnation of the broker, from 1.
    pub fn incarnation(&self) -> u32 {
        self.incarnation.load(Ordering::Relaxed)
    }

    /// A new incarnation of the broker begins.
    pub fn next_incarnation(&self) -> u32 {
        self.incarnation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What is asked of the clients.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Asks something else of the clients.
    pub fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// A number for a session or an assignment that no other has.
    pub fn next_session(&self) -> u32 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Something happened: into history and trace.
    pub fn event(&self, kind: EventKind, what: impl Into<String>) {
        let what = what.into();
        self.sim.trace(format_args!("{what}"));
        let now_ns = self.now_ns();
        self.history().event(now_ns, kind, what);
    }

    /// A fault begins; returns its number.
    pub fn fault_begins(&self, what: &FaultKind) -> u32 {
        let number = self.faults.fetch_add(1, Ordering::Relaxed);
        self.event(EventKind::FaultBegins { number, track: what.track() }, what.to_string());
        number
    }

    /// A fault is over.
    pub fn fault_ends(&self, number: u32) {
        self.event(EventKind::FaultEnds(number), format!("fault {number} is over"));
    }

    /// A fault exceeded what any broker can promise to survive.
    pub fn exceed(&self, beyond: Beyond) {
        self.sim.trace(format_args!("beyond promise: {beyond:?}"));
        let now_ns = self.now_ns();
        self.history().exceed(now_ns, beyond);
    }

    /// The broker told a topic's id.
    pub fn learn_topic_id(&self, topic: &str, id: String) {
        self.topic_ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id, topic.to_owned());
    }

    /// The name of the partition that the broker calls so: `topic id-index`.
    pub fn name_of_key(&self, key: &str) -> Option<String> {
        let (id, index) = key.rsplit_once('-')?;
        let topics = self.topic_ids.lock().unwrap_or_else(PoisonError::into_inner);
        Some(format!("{}-{index}", topics.get(id)?))
    }

    /// A client was told something that no client must ever be told.
    pub fn complain(&self, what: String) {
        self.sim.trace(format_args!("COMPLAINT {what}"));
        let now = Seconds(self.now_ns());
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        match complaints.iter_mut().find(|known| known.what == what) {
            Some(known) => {
                known.times += 1;
                known.last = now;
            }
            None => complaints.push(Complaint { what, times: 1, first: now, last: now }),
        }
    }

    /// What clients complained of, each once, with when that was first and last.
    pub fn complaints(&self) -> Vec<(Monotonic, Monotonic, String)> {
        let complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let complaint = |one: &Complaint| (Monotonic(one.first.0), Monotonic(one.last.0), one.to_string());
        complaints.iter().map(complaint).collect()
    }
}
