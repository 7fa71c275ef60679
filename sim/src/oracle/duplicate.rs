//! One value never stands at two offsets. A retry of an idempotent send has the value of the original, any other
//! attempt one of its own: so this is exactly-once for the idempotent, and for the plain it says that one request is
//! stored once.

use std::collections::BTreeSet;

use super::evidence::Evidence;
use super::violation::Violation;
use crate::history::History;

/// Name of the property.
pub const NAME: &str = "duplicate";

/// Reports each value once for each further offset.
pub fn check(_history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    for (partition, observed) in evidence.partitions() {
        let mut reported = BTreeSet::new();
        for one in observed.iter().filter(|one| one.value != 0) {
            let Some((home, first)) = evidence.placed(one.value) else { continue };
            // In another partition it is a corrupt read.
            if home != partition || first.offset == one.offset || !reported.insert((one.value, one.offset)) {
                continue;
            }
            let message = format!("value {} stands at offset {} and at offset {}", one.value, first.offset, one.offset);
            violations.push(Violation::new(NAME, partition, one.offset, message, &[first.source, one.source]));
        }
    }
}
