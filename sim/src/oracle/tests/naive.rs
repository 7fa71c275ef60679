//! Every property again, as its definition reads, in quadratic time and without sharing code with the checks.

use std::collections::BTreeSet;

use crate::history::{History, Outcome, Partition, Read, Response, Send};

/// What a violation is about: enough to compare two judges.
pub type Finding = (&'static str, u32, i64);

#[derive(Clone, Copy)]
struct Fact {
    partition: Partition,
    offset: i64,
    value: u64,
    digest: u64,
    order: u32,
    read: Option<usize>,
}

fn facts(history: &History) -> Vec<Fact> {
    let mut facts = Vec::new();
    for send in &history.sends {
        let (Outcome::Acked { base_offset }, Some(ended)) = (send.outcome, send.ended) else { continue };
        for at in 0..send.records {
            let value = send.first_value + u64::from(at);
            let digest = history.digest_of(value).unwrap();
            let offset = base_offset + i64::from(at);
            let order = ended.order;
            facts.push(Fact { partition: send.partition, offset, value, digest, order, read: None });
        }
    }
    for (index, read) in history.reads.iter().enumerate() {
        for seen in history.records(read) {
            facts.push(Fact {
                partition: read.partition,
                offset: seen.offset,
                value: seen.value,
                digest: seen.digest,
                order: read.ended.order,
                read: Some(index),
            });
        }
    }
    facts.sort_by_key(|fact| (fact.order, fact.offset));
    facts
}

fn send_of(history: &History, value: u64) -> Option<&Send> {
    history.sends.iter().find(|send| (send.first_value..send.first_value + u64::from(send.records)).contains(&value))
}

fn acked(send: &Send) -> bool {
    matches!(send.outcome, Outcome::Acked { .. } | Outcome::AckedSomewhere)
}

/// All findings.
pub fn judge(history: &History) -> BTreeSet<Finding> {
    let facts = facts(history);
    let mut found = BTreeSet::new();
    pairs(history, &facts, &mut found);
    single_facts(history, &facts, &mut found);
    sends(history, &facts, &mut found);
    reads(history, &facts, &mut found);
    time_queries(history, &facts, &mut found);
    found
}

fn pairs(history: &History, facts: &[Fact], found: &mut BTreeSet<Finding>) {
    for (later, b) in facts.iter().enumerate() {
        let p = b.partition.0;
        let earlier = || facts[..later].iter().filter(|a| a.partition == b.partition);
        let first_here = earlier().find(|a| a.offset == b.offset);
        if first_here.is_some_and(|a| a.value != b.value && a.value != 0 && b.value != 0) {
            found.insert(("two values at one offset", p, b.offset));
        }
        let home = facts.iter().find(|a| a.value == b.value).unwrap();
        if b.value != 0 && home.partition == b.partition && home.offset != b.offset {
            found.insert(("duplicate", p, b.offset));
        }
        let served = earlier().find(|a| a.offset == b.offset && a.read.is_some());
        if let (Some(read), Some(a)) = (b.read, served) {
            let other = a.read.unwrap();
            let restarted = history.reads[other].incarnation != history.reads[read].incarnation;
            if restarted && (a.value, a.digest) != (b.value, b.digest) {
                found.insert(("served then changed", p, b.offset));
            }
        }
    }
}

fn single_facts(history: &History, facts: &[Fact], found: &mut BTreeSet<Finding>) {
    for fact in facts.iter().filter(|fact| fact.read.is_some()) {
        let p = fact.partition.0;
        let send = send_of(history, fact.value);
        let genuine = send.is_some_and(|send| send.partition == fact.partition)
            && history.digest_of(fact.value) == Some(fact.digest);
        if !genuine {
            found.insert(("corrupt read", p, fact.offset));
        }
        // Reported once a value, at its first reading.
        let first_reading = facts
            .iter()
            .find(|a| a.read.is_some() && a.value == fact.value && a.partition == fact.partition)
            .is_some_and(|a| a.offset == fact.offset && a.order == fact.order);
        if first_reading && send.is_some_and(|send| send.outcome == Outcome::Failed) {
            found.insert(("failed send read", p, fact.offset));
        }
        let read = &history.reads[fact.read.unwrap()];
        let above = read.high_watermark >= 0 && fact.offset >= read.high_watermark;
        let promised = send.is_some_and(|send| acked(send) && send.ended.unwrap().order < read.ended.order);
        let complete = history.last_read_complete.contains(&fact.partition);
        let gone = complete && fact.value != 0 && !promised && last_value(history, fact) != fact.value;
        if above || gone {
            found.insert(("uncommitted read", p, fact.offset));
        }
    }
}

/// What the last read saw at a fact's offset.
fn last_value(history: &History, fact: &Fact) -> u64 {
    let mut value = 0;
    for read in history.reads.iter().filter(|read| read.last && read.partition == fact.partition) {
        for seen in history.records(read).iter().filter(|seen| seen.offset == fact.offset) {
            value = seen.value;
        }
    }
    value
}

fn sends(history: &History, facts: &[Fact], found: &mut BTreeSet<Finding>) {
    let place = |value: u64, send: &Send| {
        facts.iter().find(|fact| fact.value == value).filter(|fact| fact.partition == send.partition)
    };
    for (index, send) in history.sends.iter().enumerate() {
        let p = send.partition.0;
        let values = || send.first_value..send.first_value + u64::from(send.records);
        if acked(send) && history.last_read_complete.contains(&send.partition) {
            let in_last = |value: u64| {
                let last = history.reads.iter().filter(|read| read.last && read.partition == send.partition);
                last.flat_map(|read| history.records(read)).any(|seen| seen.value == value)
            };
            if let Some(absent) = values().find(|&value| !in_last(value)) {
                let offset = match send.outcome {
                    Outcome::Acked { base_offset } => base_offset + (absent - send.first_value) as i64,
                    _ => -1,
                };
                found.insert(("unseen", p, offset));
            }
        }
        let offset = values().filter_map(|value| place(value, send)).map(|fact| fact.offset).min();
        let before = history.sends.iter().filter_map(|other| match (other.outcome, other.ended) {
            (Outcome::Acked { base_offset }, Some(ended))
                if other.partition == send.partition && ended.order < send.began.order =>
            {
                Some(base_offset + i64::from(other.records) - 1)
            }
            _ => None,
        });
        if let (Some(offset), Some(acked_to)) = (offset, before.max())
            && offset <= acked_to
        {
            found.insert(("real-time order", p, offset));
        }
        for value in values() {
            let Some(here) = place(value, send) else { continue };
            let same_session = history.sends[..=index].iter().filter(|other| {
                (other.producer, other.session, other.partition) == (send.producer, send.session, send.partition)
            });
            let mut earlier = same_session.flat_map(|other| {
                let values = other.first_value..other.first_value + u64::from(other.records);
                values.filter(|&other| other < value).filter_map(|value| place(value, other))
            });
            if earlier.any(|fact| fact.offset > here.offset) {
                found.insert(("nonmonotonic send", p, here.offset));
            }
        }
    }
}

fn granted(history: &History, read: &Read) -> i64 {
    let grants = history.log_start_grants.iter();
    let valid = grants.filter(|grant| grant.partition == read.partition && grant.at.order < read.ended.order);
    valid.map(|grant| grant.offset).fold(0, i64::max)
}

fn reads(history: &History, facts: &[Fact], found: &mut BTreeSet<Finding>) {
    for (index, read) in history.reads.iter().enumerate() {
        let p = read.partition.0;
        let earlier = || history.reads.iter().filter(|a| a.partition == read.partition);
        let answered = || earlier().filter(|a| a.ended.order < read.began.order);
        let known = || facts.iter().filter(|a| a.partition == read.partition && a.order < read.began.order);
        if read.response == Response::Garbled {
            found.insert(("corrupt read", p, read.from));
        }
        let acked_end = known().filter(|fact| fact.read.is_none()).map(|fact| fact.offset + 1);
        let told = answered().map(|a| a.high_watermark).chain(acked_end).max();
        if read.high_watermark >= 0 && told.is_some_and(|told| told > read.high_watermark) {
            found.insert(("high watermark monotone", p, read.high_watermark));
        }
        let start = answered().map(|a| a.log_start).max().unwrap_or(-1);
        let unjustified = read.log_start > granted(history, read)
            || read.log_start < start
            || (read.high_watermark >= 0 && read.log_start > read.high_watermark);
        if read.log_start >= 0 && unjustified {
            found.insert(("log start", p, read.log_start));
        }
        let end = known().map(|fact| fact.offset + 1).max().unwrap_or(0);
        if read.response == Response::OutOfRange && (granted(history, read)..end).contains(&read.from) {
            found.insert(("lost write", p, read.from));
        }
        let records = history.records(read);
        for fact in known().filter(|fact| fact.offset >= read.from && fact.offset >= granted(history, read)) {
            let position = records.iter().position(|seen| seen.offset > fact.offset);
            if position.is_some_and(|at| records[..at].iter().all(|seen| seen.offset < fact.offset)) {
                found.insert(("lost write", p, fact.offset));
            }
        }
        polls(history, index, found);
    }
}

fn polls(history: &History, index: usize, found: &mut BTreeSet<Finding>) {
    let read = &history.reads[index];
    let key = |a: &Read| (a.reader, a.assignment, a.partition);
    let same =
        || history.reads.iter().filter(|a| key(a) == key(read) && matches!(a.response, Response::Records { .. }));
    let Some(first) = same().next() else { return };
    let before = history.reads[..index].iter().filter(|a| key(a) == key(read));
    let mut expected = before.flat_map(|a| history.records(a)).last().map_or(first.from, |seen| seen.offset + 1);
    for seen in history.records(read) {
        if seen.offset < expected {
            found.insert(("nonmonotonic poll", read.partition.0, seen.offset));
        } else if seen.offset > expected && seen.offset > granted(history, read) {
            found.insert(("poll-skip", read.partition.0, seen.offset));
        }
        expected = seen.offset + 1;
    }
}

fn time_queries(history: &History, facts: &[Fact], found: &mut BTreeSet<Finding>) {
    for query in &history.time_queries {
        // Each offset by its first proof, with its timestamp.
        let here = || facts.iter().filter(|fact| fact.partition == query.partition);
        let first = |fact: &&Fact| here().find(|a| a.offset == fact.offset).is_some_and(|a| a.order == fact.order);
        let mut known: Vec<(i64, i64, u32)> = here()
            .filter(first)
            .filter_map(|fact| Some((fact.offset, send_of(history, fact.value)?.timestamp, fact.order)))
            .collect();
        known.dedup_by_key(|known| known.0);
        known.sort_unstable();
        let time_at = |offset: i64| known.iter().find(|known| known.0 == offset).map(|known| known.1);
        let told = query.offset;
        let mut latest: Option<(i64, i64)> = None;
        let mut proven: Vec<_> = known.iter().filter(|known| known.2 < query.began.order).collect();
        proven.sort_by_key(|known| (known.2, known.1, known.0));
        for known in proven {
            if latest.is_none_or(|(time, _)| known.1 > time) {
                latest = Some((known.1, known.0));
            }
        }
        let wrong = match (time_at(told).filter(|_| told >= 0), query.timestamp) {
            (Some(time), _) if time != query.found => Some(told),
            (_, Some(asked)) if told >= 0 && query.found < asked => Some(told),
            (_, Some(asked)) if told >= 0 => {
                known.iter().find(|known| known.1 >= asked).map(|known| known.0).filter(|&first| first < told)
            }
            (_, Some(asked)) => latest.filter(|(time, _)| *time >= asked).map(|(_, offset)| offset),
            (_, None) => latest.filter(|(time, _)| *time > query.found).map(|(_, offset)| offset),
        };
        found.extend(wrong.map(|offset| ("offset by time", query.partition.0, offset)));
    }
}
