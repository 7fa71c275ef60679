//! Within one assignment a reader neither jumps over offsets nor goes back.

use std::collections::BTreeMap;

use super::evidence::{Evidence, Witness};
use super::lost_write::granted_log_start;
use super::violation::Violation;
use crate::history::{History, Partition, ReadId, Response};

/// Name of the property that nothing is jumped over.
pub const SKIP: &str = "poll-skip";
/// Name of the property that nothing comes twice.
pub const BACK: &str = "nonmonotonic poll";

/// Reports each jump and each step back.
pub fn check(history: &History, _evidence: &Evidence, violations: &mut Vec<Violation>) {
    let mut next: BTreeMap<(u32, u32, Partition), i64> = BTreeMap::new();
    for (index, read) in history.reads.iter().enumerate() {
        if !matches!(read.response, Response::Records { .. }) {
            continue;
        }
        let proof = [Witness::Read(ReadId(index as u32))];
        let expected = next.entry((read.reader, read.assignment, read.partition)).or_insert(read.from);
        for seen in history.records(read) {
            let allowed = seen.offset == *expected
                || (seen.offset > *expected && seen.offset <= granted_log_start(history, read));
            if !allowed {
                let check = if seen.offset > *expected { SKIP } else { BACK };
                let message = format!("offset {} was delivered where {expected} was due", seen.offset);
                violations.push(Violation::new(check, read.partition, seen.offset, message, &proof));
            }
            *expected = seen.offset.saturating_add(1);
        }
    }
}
