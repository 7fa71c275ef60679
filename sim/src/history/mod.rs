//! What the clients of a run did and saw: the only thing that the checkers judge. Nothing here knows the broker, the
//! network or the disk; nothing here judges.
//!
//! Every call has a begin and an end [`Stamp`]. Stamps are totally ordered, so that "this began after that had been
//! answered" is a comparison. Every record sent has a [`Value`] of its own: a retry of an idempotent send carries the
//! same bytes and therefore the same value, any other attempt a new one. A call whose outcome is not known is *maybe*:
//! its records may be in the log or not, but only where one send could have put them.

mod attempts;
mod print;

use std::ops::Range;

pub use attempts::{Attempt, AttemptEnd, Attempts};

use crate::plan::Track;

/// The identity of a record: 1, 2, 3, … in the order in which sends began. 0 means: not one of ours.
pub type Value = u64;

/// A point in the total order of everything recorded, with its simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Position in the total order.
    pub order: u32,
    /// Simulated time in nanoseconds since the run began.
    pub at_ns: u64,
}

impl Stamp {
    /// Whether this point lies before `other`.
    pub fn before(self, other: Self) -> bool {
        self.order < other.order
    }
}

/// Index of a partition in [`History::partitions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u32);

/// Index of a send in [`History::sends`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SendId(pub u32);

/// Index of a read in [`History::reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(pub u32);

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is known: no answer (yet, or ever), or an answer that promises nothing.
    Maybe,
    /// Acknowledged; its first record has this offset.
    Acked {
        /// Offset of the first record.
        base_offset: i64,
    },
    /// Acknowledged without telling where (`acks=0` is not this: it stays [`Outcome::Maybe`]).
    AckedSomewhere,
    /// Surely not in the log: refused before anything was stored, or never sent.
    Failed,
}

/// One batch given to a partition.
#[derive(Clone, Debug)]
pub struct Send {
    /// Which producer of the workload.
    pub producer: u32,
    /// Within one session, sends are stored in the order in which they began, if at all: one connection of a plain
    /// producer, or the whole life of an idempotent one.
    pub session: u32,
    /// The partition.
    pub partition: Partition,
    /// Value of the first record; the others follow.
    pub first_value: Value,
    /// Number of records.
    pub records: u32,
    /// Timestamp of every record.
    pub timestamp: i64,
    /// When the first attempt began.
    pub began: Stamp,
    /// When the outcome was known.
    pub ended: Option<Stamp>,
    /// The outcome.
    pub outcome: Outcome,
    /// How often it was tried, and what came of that; not judged and not part of the trace.
    pub attempts: Attempts,
}

/// A record as a reader saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its offset.
    pub offset: i64,
    /// The value it carries; 0 if it carries none of ours.
    pub value: Value,
    /// Digest of everything in it.
    pub digest: u64,
}

/// What a read was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Records (perhaps none), as a range of [`History::seen`].
    Records {
        /// Which of [`History::seen`].
        seen: Range<u32>,
    },
    /// The offset asked for is not in the log.
    OutOfRange,
    /// The offsets alone, without reading (ListOffsets).
    Offsets,
    /// Bytes that are no record batch, or one whose CRC is wrong.
    Garbled,
}

/// One answered read of a partition. Reads that were not answered leave no trace: they prove nothing.
#[derive(Clone, Debug)]
pub struct Read {
    /// Which reader of the workload.
    pub reader: u32,
    /// Within one assignment a reader goes forward without a gap.
    pub assignment: u32,
    /// The partition.
    pub partition: Partition,
    /// The offset asked for.
    pub from: i64,
    /// When the question was sent.
    pub began: Stamp,
    /// When the answer was there.
    pub ended: Stamp,
    /// Which incarnation of the broker answered.
    pub incarnation: u32,
    /// The high watermark told; −1 if none.
    pub high_watermark: i64,
    /// The log start told; −1 if none.
    pub log_start: i64,
    /// Whether this belongs to the last read of everything, after healing.
    pub last: bool,
    /// What came back.
    pub response: Response,
}

/// An answered question for an offset by time.
#[derive(Clone, Copy, Debug)]
pub struct TimeQuery {
    /// Which reader of the workload.
    pub reader: u32,
    /// The partition.
    pub partition: Partition,
    /// The time asked for, in milliseconds; `None` for the latest of all.
    pub timestamp: Option<i64>,
    /// The offset told; −1 for none.
    pub offset: i64,
    /// The timestamp told; −1 for none.
    pub found: i64,
    /// When the question was sent.
    pub began: Stamp,
    /// When the answer was there.
    pub ended: Stamp,
}

/// A topic as an answer describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: [u8; 16],
    /// Its number of partitions.
    pub partitions: i32,
}

/// What became of the creation of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// Nothing is known.
    Maybe,
    /// The topic is there; as what, unless all that was said is that it exists.
    Done(Option<Topic>),
    /// Surely not created.
    Failed,
}

/// A topic that is to be created, until the outcome is known.
#[derive(Clone, Debug)]
pub struct Creation {
    /// Which client of the workload.
    pub client: u32,
    /// The topic's name.
    pub topic: String,
    /// Whether only the request was to be checked.
    pub validate_only: bool,
    /// When the first attempt began.
    pub began: Stamp,
    /// When the outcome was known.
    pub ended: Option<Stamp>,
    /// The outcome.
    pub outcome: Created,
}

/// An answered question for all topics.
#[derive(Clone, Debug)]
pub struct TopicList {
    /// Which client of the workload.
    pub client: u32,
    /// When the question was sent.
    pub began: Stamp,
    /// When the answer was there.
    pub ended: Stamp,
    /// The topics, in the order of the answer.
    pub topics: Vec<Topic>,
}

/// Index of a creation in [`History::creations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreationId(pub u32);

/// A batch that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Which producer of the workload.
    pub producer: u32,
    /// See [`Send::session`].
    pub session: u32,
    /// The partition.
    pub partition: Partition,
    /// Timestamp of every record.
    pub timestamp: i64,
    /// Digest of each record; the first record carries [`History::next_value`].
    pub digests: &'a [u64],
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A phase of the run begins.
    Phase,
    /// An incarnation of the broker begins to start.
    BrokerStarts(u32),
    /// It accepts connections.
    BrokerServes(u32),
    /// It is asked to stop.
    BrokerStops,
    /// It has ended, in whatever way, or is about to because it could not start.
    BrokerEnds,
    /// A client starts.
    ClientStarts(u32),
    /// A client ends suddenly.
    ClientEnds(u32),
    /// A fault of the plan begins.
    FaultBegins {
        /// Its number, in the order in which faults begin.
        number: u32,
        /// What it acts on.
        track: Track,
    },
    /// That fault is over.
    FaultEnds(u32),
    /// Something was found that must not be.
    Failure,
}

/// Something that happened in the run, other than sends and reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Stamp,
    /// What it is about.
    pub kind: EventKind,
    /// What, in words.
    pub what: String,
}

/// What a fault did that is beyond what any broker on one disk can promise to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// The disk had said of a flush that it was done when it was not, and then power was lost.
    LossAfterLie,
    /// What was read of the disk had a wrong bit.
    FlippedBit,
}

/// A permission to move the log start (none in scenarios without retention or DeleteRecords).
#[derive(Clone, Copy, Debug)]
pub struct LogStartGrant {
    /// The partition.
    pub partition: Partition,
    /// The log start may be this or lower, from `at` on.
    pub offset: i64,
    /// When the permission arose.
    pub at: Stamp,
}

/// Everything recorded in a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Names of the partitions, `topic-index`.
    pub partitions: Vec<String>,
    /// Sends in the order in which they began.
    pub sends: Vec<Send>,
    /// Answered reads in the order of their answers.
    pub reads: Vec<Read>,
    /// The records that reads saw.
    pub seen: Vec<Seen>,
    /// Answered questions for offsets by time, in the order of their answers.
    pub time_queries: Vec<TimeQuery>,
    /// Topics that were to be created, in the order in which that began.
    pub creations: Vec<Creation>,
    /// Answered questions for all topics, in the order of their answers.
    pub topic_lists: Vec<TopicList>,
    /// What happened to broker and clients.
    pub events: Vec<Event>,
    /// Faults that exceeded the promise, with when they hit.
    pub beyond: Vec<(Stamp, Beyond)>,
    /// Permissions to move the log start.
    pub log_start_grants: Vec<LogStartGrant>,
    /// Partitions whose last read came to the end.
    pub last_read_complete: Vec<Partition>,
    /// Digest of each record by value (entry 0 is unused).
    digests: Vec<u64>,
    order: u32,
}

impl History {
    /// An empty history over these partitions.
    pub fn new(partitions: Vec<String>) -> Self {
        Self { partitions, digests: vec![0], ..Self::default() }
    }

    /// The next point in the total order.
    pub fn stamp(&mut self, at_ns: u64) -> Stamp {
        self.order += 1;
        Stamp { order: self.order, at_ns }
    }

    /// The value that the next send's first record must carry.
    pub fn next_value(&self) -> Value {
        self.digests.len() as Value
    }

    /// Records that a send begins.
    pub fn begin_send(&mut self, batch: Batch<'_>, at_ns: u64) -> SendId {
        let first_value = self.next_value();
        let began = self.stamp(at_ns);
        self.digests.extend_from_slice(batch.digests);
        self.sends.push(Send {
            producer: batch.producer,
            session: batch.session,
            partition: batch.partition,
            first_value,
            records: batch.digests.len() as u32,
            timestamp: batch.timestamp,
            began,
            ended: None,
            outcome: Outcome::Maybe,
            attempts: Attempts::default(),
        });
        SendId(self.sends.len() as u32 - 1)
    }

    /// Records a send's outcome.
    pub fn end_send(&mut self, send: SendId, outcome: Outcome, at_ns: u64) {
        let stamp = self.stamp(at_ns);
        let send = &mut self.sends[send.0 as usize];
        send.ended = Some(stamp);
        send.outcome = outcome;
    }

    /// Records that a send is tried, for the first time or again; tells which attempt that is.
    pub fn begin_attempt(&mut self, send: SendId, connection: u32, incarnation: u32, at_ns: u64) -> u32 {
        self.sends[send.0 as usize].attempts.begin(connection, incarnation, at_ns)
    }

    /// Records how an attempt ended.
    pub fn end_attempt(&mut self, send: SendId, number: u32, how: AttemptEnd, at_ns: u64) {
        self.sends[send.0 as usize].attempts.end(number, how, at_ns);
    }

    /// Records an answered read; `records` is empty unless the answer is [`Response::Records`], whose range is set here.
    pub fn end_read(&mut self, mut read: Read, records: &[Seen]) -> ReadId {
        if let Response::Records { seen } = &mut read.response {
            let start = self.seen.len() as u32;
            self.seen.extend_from_slice(records);
            *seen = start..self.seen.len() as u32;
        }
        self.reads.push(read);
        ReadId(self.reads.len() as u32 - 1)
    }

    /// Records that a topic is to be created.
    pub fn begin_creation(&mut self, client: u32, topic: &str, validate_only: bool, at_ns: u64) -> CreationId {
        let (began, topic) = (self.stamp(at_ns), topic.to_owned());
        self.creations.push(Creation { client, topic, validate_only, began, ended: None, outcome: Created::Maybe });
        CreationId(self.creations.len() as u32 - 1)
    }

    /// Records what became of that.
    pub fn end_creation(&mut self, creation: CreationId, outcome: Created, at_ns: u64) {
        let stamp = self.stamp(at_ns);
        let creation = &mut self.creations[creation.0 as usize];
        (creation.ended, creation.outcome) = (Some(stamp), outcome);
    }

    /// Records that something happened.
    pub fn event(&mut self, at_ns: u64, kind: EventKind, what: impl Into<String>) {
        let at = self.stamp(at_ns);
        self.events.push(Event { at, kind, what: what.into() });
    }

    /// Records that a fault exceeded the promise.
    pub fn exceed(&mut self, at_ns: u64, beyond: Beyond) {
        let at = self.stamp(at_ns);
        self.beyond.push((at, beyond));
    }

    /// The send that a value belongs to.
    pub fn send_of(&self, value: Value) -> Option<SendId> {
        if value == 0 || value >= self.next_value() {
            return None;
        }
        let after = self.sends.partition_point(|send| send.first_value <= value);
        Some(SendId(after as u32 - 1))
    }

    /// The digest that a value was sent with.
    pub fn digest_of(&self, value: Value) -> Option<u64> {
        if value == 0 { None } else { self.digests.get(value as usize).copied() }
    }

    /// The records of a read.
    pub fn records(&self, read: &Read) -> &[Seen] {
        match &read.response {
            Response::Records { seen } => &self.seen[seen.start as usize..seen.end as usize],
            _ => &[],
        }
    }

    /// How many operations there are to judge.
    pub fn operations(&self) -> usize {
        self.sends.len() + self.reads.len() + self.time_queries.len() + self.creations.len() + self.topic_lists.len()
    }

    /// How many sends were acknowledged.
    pub fn acknowledged(&self) -> usize {
        let acked = |send: &&Send| matches!(send.outcome, Outcome::Acked { .. } | Outcome::AckedSomewhere);
        self.sends.iter().filter(acked).count()
    }
}
