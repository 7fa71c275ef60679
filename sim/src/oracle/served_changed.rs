//! What one incarnation of the broker served, a later one serves alike: same offset, same bytes.

use super::evidence::{Evidence, Observed, Witness};
use super::violation::Violation;
use crate::history::History;

/// Name of the property.
pub const NAME: &str = "served then changed";

/// Reports each offset once, with the first reading and the first that differs.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    for (partition, observed) in evidence.partitions() {
        let mut first: Vec<Option<&Observed>> = vec![None; evidence.end(partition) as usize];
        let mut reported = vec![false; first.len()];
        for one in observed {
            let Witness::Read(read) = one.source else { continue };
            let Some(at) = usize::try_from(one.offset).ok().filter(|&at| at < first.len()) else { continue };
            let Some(before) = first[at] else {
                first[at] = Some(one);
                continue;
            };
            let Witness::Read(earlier) = before.source else { continue };
            let same_incarnation =
                history.reads[earlier.0 as usize].incarnation == history.reads[read.0 as usize].incarnation;
            let same = before.value == one.value && before.digest == one.digest;
            if same || same_incarnation || reported[at] {
                continue;
            }
            reported[at] = true;
            let message = format!(
                "offset {} was served with value {} and, after a restart, with value {}",
                one.offset, before.value, one.value
            );
            violations.push(Violation::new(NAME, partition, one.offset, message, &[before.source, one.source]));
        }
    }
}
