//! Within a session, a record sent later stands later in the same partition.

use std::collections::BTreeMap;

use super::evidence::{Evidence, Observed};
use super::violation::Violation;
use crate::history::{History, Partition};

/// Name of the property.
pub const NAME: &str = "nonmonotonic send";

/// Reports each record that stands before one sent earlier.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    let mut furthest: BTreeMap<(u32, u32, Partition), &Observed> = BTreeMap::new();
    for send in &history.sends {
        let key = (send.producer, send.session, send.partition);
        for value in send.first_value..send.first_value + u64::from(send.records) {
            let Some((partition, one)) = evidence.placed(value) else { continue };
            if partition != send.partition {
                continue;
            }
            match furthest.get(&key) {
                Some(before) if one.offset < before.offset => {
                    let message = format!(
                        "value {value} was sent after value {}, but stands at offset {}, before {}",
                        before.value, one.offset, before.offset
                    );
                    let proof = [before.source, one.source];
                    violations.push(Violation::new(NAME, partition, one.offset, message, &proof));
                }
                _ => {
                    furthest.insert(key, one);
                }
            }
        }
    }
}
