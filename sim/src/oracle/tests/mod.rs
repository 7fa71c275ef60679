//! Tests of the judges: hand-made histories with one anomaly each, named rightly; clean ones accepted; and every check
//! against a naive re-implementation on random histories.

mod anomalies;
mod naive;
mod random;
mod topics;

use super::judge;
use crate::history::{Batch, Beyond, History, Outcome, Partition, Read, Response, Seen, SendId, TimeQuery};

/// The digest of a value's record in these tests.
fn digest(value: u64) -> u64 {
    value * 1_000_003
}

/// Builds histories by hand. Time stands still: only the order counts.
struct Make {
    history: History,
    incarnation: u32,
    /// Of what is sent next.
    timestamp: i64,
}

const P: Partition = Partition(0);
const OTHER: Partition = Partition(1);

impl Make {
    fn new() -> Self {
        Self { history: History::new(vec!["t-0".to_owned(), "t-1".to_owned()]), incarnation: 1, timestamp: 0 }
    }

    fn send_to(&mut self, producer: u32, partition: Partition, records: u32) -> SendId {
        let first = self.history.next_value();
        let digests: Vec<u64> = (first..first + u64::from(records)).map(digest).collect();
        let batch = Batch { producer, session: 0, partition, timestamp: self.timestamp, digests: &digests };
        self.history.begin_send(batch, 0)
    }

    fn send(&mut self, records: u32) -> SendId {
        self.send_to(0, P, records)
    }

    fn ack(&mut self, send: SendId, base_offset: i64) {
        self.history.end_send(send, Outcome::Acked { base_offset }, 0);
    }

    fn fail(&mut self, send: SendId) {
        self.history.end_send(send, Outcome::Failed, 0);
    }

    /// A send of one record, acknowledged at an offset.
    fn acked(&mut self, offset: i64) -> SendId {
        let send = self.send(1);
        self.ack(send, offset);
        send
    }

    /// A whole answer: begun and ended now.
    fn response(&mut self, partition: Partition, from: i64, high_watermark: i64, response: Response) -> Read {
        Read {
            reader: 0,
            assignment: 0,
            partition,
            from,
            began: self.history.stamp(0),
            ended: self.history.stamp(0),
            incarnation: self.incarnation,
            high_watermark,
            log_start: 0,
            last: false,
            response,
        }
    }

    /// A read by an assignment of its own, answered with values from an offset on.
    fn read(&mut self, from: i64, high_watermark: i64, values: &[u64]) {
        self.read_at(from, high_watermark, &dense(from, values));
    }

    fn read_at(&mut self, from: i64, high_watermark: i64, seen: &[Seen]) {
        let mut read = self.response(P, from, high_watermark, Response::Records { seen: 0..0 });
        read.assignment = 1 + self.history.reads.len() as u32;
        self.history.end_read(read, seen);
    }

    /// The last read of everything.
    fn last(&mut self, values: &[u64]) {
        let mut read = self.response(P, 0, values.len() as i64, Response::Records { seen: 0..0 });
        read.last = true;
        read.assignment = 1 + self.history.reads.len() as u32;
        self.history.end_read(read, &dense(0, values));
        self.history.last_read_complete.push(P);
    }

    /// A question for an offset by time, answered now.
    fn ask(&mut self, timestamp: Option<i64>, offset: i64, found: i64) {
        self.ask_in(P, timestamp, offset, found);
    }

    fn ask_in(&mut self, partition: Partition, timestamp: Option<i64>, offset: i64, found: i64) {
        let (began, ended) = (self.history.stamp(0), self.history.stamp(0));
        self.history.time_queries.push(TimeQuery { reader: 0, partition, timestamp, offset, found, began, ended });
    }

    fn crash(&mut self) {
        self.incarnation += 1;
    }

    /// The names of the checks that fire, each once.
    fn judged(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> =
            judge(&self.history, &[]).violations.iter().map(|violation| violation.check).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn dense(from: i64, values: &[u64]) -> Vec<Seen> {
    let seen = |(at, &value): (usize, &u64)| Seen { offset: from + at as i64, value, digest: digest(value) };
    values.iter().enumerate().map(seen).collect()
}

/// Builds a history and compares the checks that fire.
fn check(expected: &[&str], build: impl FnOnce(&mut Make)) {
    let mut make = Make::new();
    build(&mut make);
    let judged = make.judged();
    assert_eq!(judged, expected, "{:#?}\n{}", judge(&make.history, &[]), make.history);
}
