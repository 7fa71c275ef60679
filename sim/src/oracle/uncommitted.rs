//! Nothing above the durable end is ever shown: a record shown lies below the high watermark told with it, and a
//! record shown before it was acknowledged is still there at the end.

use std::collections::BTreeSet;

use super::evidence::{Evidence, Witness, last_read};
use super::violation::Violation;
use crate::history::{History, Outcome, ReadId, Stamp, Value};

/// Name of the property.
pub const NAME: &str = "uncommitted read";

/// Reports each offset once.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    let last = last_read(history, evidence);
    let mut reported = BTreeSet::new();
    for (index, read) in history.reads.iter().enumerate() {
        let source = Witness::Read(ReadId(index as u32));
        for seen in history.records(read) {
            let above = read.high_watermark >= 0 && seen.offset >= read.high_watermark;
            let message = if above {
                format!("offset {} was shown above the high watermark {}", seen.offset, read.high_watermark)
            } else {
                let Some(values) = &last[read.partition.0 as usize] else { continue };
                let at_end = usize::try_from(seen.offset).ok().and_then(|at| values.get(at)).copied();
                if at_end == Some(seen.value) || seen.value == 0 || acked_before(history, seen.value, read.ended) {
                    continue;
                }
                format!("value {} was shown at offset {} and was not there to stay", seen.value, seen.offset)
            };
            if reported.insert((read.partition, seen.offset)) {
                violations.push(Violation::new(NAME, read.partition, seen.offset, message, &[source]));
            }
        }
    }
}

fn acked_before(history: &History, value: Value, moment: Stamp) -> bool {
    history.send_of(value).is_some_and(|id| {
        let send = &history.sends[id.0 as usize];
        let acked = matches!(send.outcome, Outcome::Acked { .. } | Outcome::AckedSomewhere);
        acked && send.ended.is_some_and(|ended| ended.before(moment))
    })
}
