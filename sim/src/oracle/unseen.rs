//! What was acknowledged is in the last read of everything, after healing.

use super::evidence::{Evidence, Witness, last_read, last_read_complete};
use super::violation::Violation;
use crate::history::{History, Outcome, Partition, SendId};

/// Name of the property.
pub const NAME: &str = "unseen";

/// Reports each send once, with its first record that is absent.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    let mut present = vec![None; history.next_value() as usize];
    for (partition, values) in last_read(history, evidence).into_iter().enumerate() {
        for value in values.into_iter().flatten().filter(|&value| value != 0) {
            if let Some(slot) = present.get_mut(value as usize) {
                *slot = Some(Partition(partition as u32));
            }
        }
    }
    for (index, send) in history.sends.iter().enumerate() {
        let base_offset = match send.outcome {
            Outcome::Acked { base_offset } => base_offset,
            Outcome::AckedSomewhere => -1,
            Outcome::Maybe | Outcome::Failed => continue,
        };
        if !last_read_complete(history, send.partition) {
            continue;
        }
        let mut values = send.first_value..send.first_value + u64::from(send.records);
        let Some(absent) = values.find(|&value| present[value as usize] != Some(send.partition)) else { continue };
        let offset = if base_offset < 0 { -1 } else { base_offset + (absent - send.first_value) as i64 };
        let message = format!("value {absent} was acknowledged and is absent from the last read");
        let proof = [Witness::Ack(SendId(index as u32))];
        violations.push(Violation::new(NAME, send.partition, offset, message, &proof));
    }
}
