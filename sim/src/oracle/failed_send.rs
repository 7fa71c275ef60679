//! A send that surely failed is never delivered.

use std::collections::BTreeSet;

use super::evidence::{Evidence, Witness};
use super::violation::Violation;
use crate::history::{History, Outcome};

/// Name of the property.
pub const NAME: &str = "failed send read";

/// Reports each such value once.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    for (partition, observed) in evidence.partitions() {
        let mut reported = BTreeSet::new();
        for one in observed.iter().filter(|one| matches!(one.source, Witness::Read(_))) {
            let Some(id) = history.send_of(one.value) else { continue };
            if history.sends[id.0 as usize].outcome != Outcome::Failed || !reported.insert(one.value) {
                continue;
            }
            let message = format!("value {} was refused, and yet it stands at offset {}", one.value, one.offset);
            violations.push(Violation::new(NAME, partition, one.offset, message, &[Witness::Ack(id), one.source]));
        }
    }
}
