//! A topic whose creation was acknowledged, or that was listed, is there from then on, with the id and the number of
//! partitions that it had first; and nothing is listed that nobody asked for. (Nothing deletes topics yet.)

use std::collections::BTreeMap;

use super::{Evidence, Source, Violation};
use crate::history::{Created, Creation, History, Stamp, Topic};

/// Name of the property that no topic goes away.
pub const LOST: &str = "lost topic";
/// Name of the property that a topic stays what it is.
pub const CHANGED: &str = "changed topic";
/// Name of the property that no topic comes from nowhere.
pub const UNASKED: &str = "unasked topic";

/// Reports each topic once for each property.
pub fn check(history: &History, _evidence: &Evidence, violations: &mut Vec<Violation>) {
    for (name, topic) in known(history) {
        let first = topic.proofs.iter().min_by_key(|proof| proof.at.order);
        for (index, list) in history.topic_lists.iter().enumerate() {
            let here = Source::TopicList(index as u32);
            let listed = list.topics.iter().any(|listed| listed.name == name);
            let missed = first.filter(|proof| !listed && proof.at.before(list.began));
            if let Some(proof) = missed {
                let message = format!("topic {name} is not listed any more");
                violations.push(violation(LOST, message, &[proof.source, here]));
                break;
            }
        }
        let told = |proof: &&Proof<'_>| proof.topic.is_some();
        let mut described = topic.proofs.iter().filter(told);
        if let Some(one) = described.next()
            && let Some(other) = described.find(|other| other.topic != one.topic)
        {
            let words = |proof: &Proof<'_>| proof.topic.map(Topic::to_string).unwrap_or_default();
            let message = format!("{} is also {}", words(one), words(other));
            violations.push(violation(CHANGED, message, &[one.source, other.source]));
        }
        let unasked = |proof: &&Proof<'_>| {
            let list = matches!(proof.source, Source::TopicList(_));
            list && !topic.asked.iter().any(|creation| may_have_made(creation, proof.at))
        };
        if let Some(proof) = topic.proofs.iter().find(unasked) {
            let message = format!("topic {name} is listed, and nobody can have created it");
            violations.push(violation(UNASKED, message, &[proof.source]));
        }
    }
}

/// That a topic is there.
struct Proof<'a> {
    at: Stamp,
    source: Source,
    /// What it was said to be, if anything was said.
    topic: Option<&'a Topic>,
}

#[derive(Default)]
struct Known<'a> {
    asked: Vec<&'a Creation>,
    proofs: Vec<Proof<'a>>,
}

/// All topics by name.
fn known(history: &History) -> BTreeMap<&str, Known<'_>> {
    let mut known: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for (index, creation) in history.creations.iter().enumerate() {
        let topic = known.entry(&creation.topic).or_default();
        topic.asked.push(creation);
        if let (Created::Done(described), Some(at)) = (&creation.outcome, creation.ended) {
            let source = Source::Creation(index as u32);
            topic.proofs.push(Proof { at, source, topic: described.as_ref() });
        }
    }
    for (index, list) in history.topic_lists.iter().enumerate() {
        for listed in &list.topics {
            let source = Source::TopicList(index as u32);
            let proof = Proof { at: list.ended, source, topic: Some(listed) };
            known.entry(&listed.name).or_default().proofs.push(proof);
        }
    }
    known
}

fn may_have_made(creation: &Creation, listed: Stamp) -> bool {
    !creation.validate_only && creation.outcome != Created::Failed && creation.began.before(listed)
}

fn violation(check: &'static str, message: String, proof: &[Source]) -> Violation {
    Violation { check, partition: None, offset: -1, message, proof: proof.to_vec() }
}
