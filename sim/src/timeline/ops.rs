//! What clients asked for, as the page draws it.

use serde::Serialize;

use super::lanes::Lanes;
use crate::history::{AttemptEnd, Created, History, Outcome, Response, SendId, Stamp};

/// Microseconds since the run began.
pub(super) fn us(stamp: Stamp) -> u64 {
    stamp.at_ns / 1000
}

/// A send, a read, a question for an offset by time, the creation of a topic or a list of them.
#[derive(Serialize)]
pub(super) struct Op {
    /// `s`, `r`, `q`, `c` or `l`.
    pub(super) k: char,
    /// Index among those of its kind.
    pub(super) i: u32,
    /// Index of its lane.
    pub(super) l: usize,
    /// Index of its partition, if it is about one.
    pub(super) p: Option<u32>,
    pub(super) t: u64,
    /// When it was answered; absent if never.
    pub(super) e: Option<u64>,
    /// How it ended: `ok`, `maybe`, `failed`, `empty`, `bad`.
    pub(super) s: &'static str,
    /// First and last offset, if any.
    pub(super) o: Option<[i64; 2]>,
    /// First and last value, if any.
    pub(super) v: Option<[u64; 2]>,
    pub(super) text: String,
    /// The attempts of a send that are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) a: Vec<Try>,
    /// How many attempts were made.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) n: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// An attempt of a send.
#[derive(Serialize)]
pub(super) struct Try {
    /// Its number, 1 for the first.
    pub(super) i: u32,
    pub(super) t: u64,
    /// When it was over; absent if nobody saw that.
    pub(super) e: Option<u64>,
    /// Whether the broker answered it.
    pub(super) b: bool,
    /// How it ended: `ok`, `failed`, `maybe`.
    pub(super) s: &'static str,
    pub(super) text: String,
}

fn tries(history: &History, id: SendId) -> Vec<Try> {
    let attempts = history.sends[id.0 as usize].attempts.kept().iter();
    let one = |attempt: &crate::history::Attempt| Try {
        i: attempt.number,
        t: attempt.sent_ns / 1000,
        e: attempt.ended.map(|(at_ns, _)| at_ns / 1000),
        b: attempt.is_answered(),
        s: match attempt.ended {
            Some((_, AttemptEnd::Acked { .. })) => "ok",
            Some((_, AttemptEnd::Refused(_) | AttemptEnd::NeverSent)) => "failed",
            _ => "maybe",
        },
        text: history.describe_attempt(id, attempt),
    };
    attempts.map(one).collect()
}

/// Everything that clients asked for, kind by kind.
pub(super) fn ops(history: &History, lanes: &Lanes) -> Vec<Op> {
    let mut ops = Vec::with_capacity(history.operations());
    send_ops(history, lanes, &mut ops);
    for (index, read) in history.reads.iter().enumerate() {
        let i = index as u32;
        let records = history.records(read);
        let ends = records.first().zip(records.last());
        let s = match read.response {
            Response::OutOfRange | Response::Garbled => "bad",
            Response::Offsets => "empty",
            Response::Records { .. } => {
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
            a: Vec::new(),
            n: 0,
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
            a: Vec::new(),
            n: 0,
        });
    }
    topic_ops(history, lanes, &mut ops);
    ops
}

fn send_ops(history: &History, lanes: &Lanes, ops: &mut Vec<Op>) {
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
            text: history.describe_send(SendId(i)),
            a: tries(history, SendId(i)),
            n: send.attempts.count(),
        });
    }
}

fn topic_ops(history: &History, lanes: &Lanes, ops: &mut Vec<Op>) {
    let op = |k, i: usize, l, t: Stamp, e: Option<Stamp>, s, text| {
        let (i, t, e) = (i as u32, us(t), e.map(us));
        Op { k, i, l, p: None, t, e, s, o: None, v: None, text, a: Vec::new(), n: 0 }
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
