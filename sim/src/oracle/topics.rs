//! A topic whose creation was acknowledged, or that was listed, is there from then on, with the id and the number of
//! partitions that it had first; and nothing is listed that nobody asked for. (Nothing deletes topics yet.)

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Evidence, Witness};
use super::violation::Violation;
use crate::history::{Created, Creation, History, Stamp, Topic};

/// Name of the property that no topic goes away.
pub const LOST: &str = "lost topic";
/// Name of the property that a topic stays what it is.
pub const CHANGED: &str = "changed topic";
/// Name of the property that no topic comes from nowhere.
pub const UNASKED: &str = "unasked topic";

/// Reports each topic once for each property.
pub fn check(history: &History, _evidence: &Evidence, violations: &mut Vec<Violation>) {
    let known = known(history);
    lost(history, &known, violations);
    for (name, topic) in &known {
        if let Some((one, other)) = topic.changed {
            let words = |proof: Proof<'_>| proof.topic.map(Topic::to_string).unwrap_or_default();
            let message = format!("{} is also {}", words(one), words(other));
            violations.push(violation(CHANGED, message, &[one.source, other.source]));
        }
        let asked = |listed: &Proof<'_>| topic.asked.iter().any(|creation| may_have_made(creation, listed.at));
        if let Some(proof) = topic.listed.filter(|listed| !asked(listed)) {
            let message = format!("topic {name} is listed, and nobody can have created it");
            violations.push(violation(UNASKED, message, &[proof.source]));
        }
    }
}

/// Reports the topics that a list lacks.
fn lost(history: &History, known: &BTreeMap<&str, Known<'_>>, violations: &mut Vec<Violation>) {
    let mut orders: Vec<u32> = known.values().filter_map(|topic| Some(topic.first?.at.order)).collect();
    orders.sort_unstable();
    let mut reported = BTreeSet::new();
    for (index, list) in history.topic_lists.iter().enumerate() {
        let is_due = |topic: &Known<'_>| topic.first.is_some_and(|first| first.at.before(list.began));
        let due = orders.partition_point(|&order| order < list.began.order);
        let here: BTreeSet<&str> = list.topics.iter().map(|topic| topic.name.as_str()).collect();
        if here.iter().filter(|name| known.get(*name).is_some_and(is_due)).count() == due {
            continue;
        }
        for (name, topic) in known.iter().filter(|(name, topic)| is_due(topic) && !here.contains(*name)) {
            if let Some(first) = topic.first.filter(|_| reported.insert(*name)) {
                let message = format!("topic {name} is not listed any more");
                violations.push(violation(LOST, message, &[first.source, Witness::TopicList(index as u32)]));
            }
        }
    }
}

/// That a topic is there.
#[derive(Clone, Copy)]
struct Proof<'a> {
    at: Stamp,
    source: Witness,
    /// What it was said to be, if anything was said.
    topic: Option<&'a Topic>,
}

/// What is known of a name.
#[derive(Default)]
struct Known<'a> {
    asked: Vec<&'a Creation>,
    /// The earliest proof of all.
    first: Option<Proof<'a>>,
    /// The earliest list that has it.
    listed: Option<Proof<'a>>,
    /// One that says what it is.
    described: Option<Proof<'a>>,
    /// Two that say different things.
    changed: Option<(Proof<'a>, Proof<'a>)>,
}

impl<'a> Known<'a> {
    fn add(&mut self, proof: Proof<'a>) {
        if self.first.is_none_or(|first| proof.at.before(first.at)) {
            self.first = Some(proof);
        }
        let is_list = matches!(proof.source, Witness::TopicList(_));
        if is_list && self.listed.is_none_or(|listed| proof.at.before(listed.at)) {
            self.listed = Some(proof);
        }
        if proof.topic.is_some() {
            let one = *self.described.get_or_insert(proof);
            if one.topic != proof.topic {
                self.changed.get_or_insert((one, proof));
            }
        }
    }
}

/// All topics by name.
fn known(history: &History) -> BTreeMap<&str, Known<'_>> {
    let mut known: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for (index, creation) in history.creations.iter().enumerate() {
        let topic = known.entry(&creation.topic).or_default();
        topic.asked.push(creation);
        if let (Created::Done(described), Some(at)) = (&creation.outcome, creation.ended) {
            topic.add(Proof { at, source: Witness::Creation(index as u32), topic: described.as_ref() });
        }
    }
    for (index, list) in history.topic_lists.iter().enumerate() {
        for listed in &list.topics {
            let proof = Proof { at: list.ended, source: Witness::TopicList(index as u32), topic: Some(listed) };
            known.entry(&listed.name).or_default().add(proof);
        }
    }
    known
}

fn may_have_made(creation: &Creation, listed: Stamp) -> bool {
    !creation.validate_only && creation.outcome != Created::Failed && creation.began.before(listed)
}

fn violation(check: &'static str, message: String, proof: &[Witness]) -> Violation {
    Violation { check, partition: None, offset: -1, message, proof: proof.to_vec() }
}
