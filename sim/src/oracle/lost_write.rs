//! What was acknowledged or seen is not missing for a reader that reads past it later; and no offset that was in the
//! log is out of range later.

use super::evidence::{Evidence, Observed, Witness};
use super::violation::Violation;
use crate::history::{History, Partition, Read, ReadId, Response};

/// Name of the property.
pub const NAME: &str = "lost write";

/// Reports each missing offset once for each read that jumps over it.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    let mut known_end = KnownEnd::new(history, evidence);
    let mut by_begin: Vec<usize> = (0..history.reads.len()).collect();
    by_begin.sort_by_key(|&index| history.reads[index].began.order);
    for index in by_begin {
        let read = &history.reads[index];
        let source = Witness::Read(ReadId(index as u32));
        match read.response {
            Response::OutOfRange => {
                let end = known_end.before(read);
                if read.from < end && read.from >= granted_log_start(history, read) {
                    let message = format!("offset {} is out of range, but the log had reached {end}", read.from);
                    violations.push(Violation::new(NAME, read.partition, read.from, message, &[source]));
                }
            }
            Response::Records { .. } => gaps(history, evidence, read, source, violations),
            Response::Offsets | Response::Garbled => {}
        }
    }
}

fn gaps(history: &History, evidence: &Evidence, read: &Read, source: Witness, violations: &mut Vec<Violation>) {
    let mut expected = read.from;
    for seen in history.records(read) {
        // A jump to an absurd offset is bounded by what is known.
        for missing in expected..seen.offset.min(evidence.end(read.partition)) {
            let Some(known) = evidence.first_at(read.partition, missing) else { continue };
            if !known.at.before(read.began) || missing < granted_log_start(history, read) {
                continue;
            }
            let message = format!("value {} at offset {missing} is missing for a later reader", known.value);
            violations.push(Violation::new(NAME, read.partition, missing, message, &[known.source, source]));
        }
        expected = expected.max(seen.offset.saturating_add(1));
    }
}

/// How far the log start may have moved when this read was answered.
pub fn granted_log_start(history: &History, read: &Read) -> i64 {
    let grants = history.log_start_grants.iter();
    let valid = grants.filter(|grant| grant.partition == read.partition && grant.at.before(read.ended));
    valid.map(|grant| grant.offset).max().unwrap_or(0)
}

/// One past the largest offset that had been observed at a moment; asked in the order of moments.
struct KnownEnd<'a> {
    evidence: Vec<&'a [Observed]>,
    position: Vec<usize>,
    end: Vec<i64>,
}

impl<'a> KnownEnd<'a> {
    fn new(history: &History, evidence: &'a Evidence) -> Self {
        let count = history.partitions.len();
        let evidence = evidence.partitions().map(|(_, observed)| observed).collect();
        Self { evidence, position: vec![0; count], end: vec![0; count] }
    }

    fn before(&mut self, read: &Read) -> i64 {
        let Partition(partition) = read.partition;
        let at = partition as usize;
        while let Some(one) = self.evidence[at].get(self.position[at]).filter(|one| one.at.before(read.began)) {
            self.end[at] = self.end[at].max(one.offset.saturating_add(1));
            self.position[at] += 1;
        }
        self.end[at]
    }
}
