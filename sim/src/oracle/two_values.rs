//! An offset never holds two values, whoever saw them and whenever.

use std::collections::BTreeSet;

use super::evidence::Evidence;
use super::violation::Violation;
use crate::history::History;

/// Name of the property.
pub const NAME: &str = "two values at one offset";

/// Reports each offset once, with its first and its first other value.
pub fn check(_history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    for (partition, observed) in evidence.partitions() {
        let mut reported = BTreeSet::new();
        for one in observed.iter().filter(|one| one.value != 0) {
            let Some(first) = evidence.first_at(partition, one.offset) else { continue };
            if first.value == 0 || first.value == one.value || !reported.insert(one.offset) {
                continue;
            }
            let message = format!("offset {} held value {} and then value {}", one.offset, first.value, one.value);
            violations.push(Violation::new(NAME, partition, one.offset, message, &[first.source, one.source]));
        }
    }
}
