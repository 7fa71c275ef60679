//! What is read was sent to this very partition, byte for byte.

use super::evidence::{Evidence, Witness};
use super::violation::Violation;
use crate::history::{History, ReadId, Response};

/// Name of the property.
pub const NAME: &str = "corrupt read";

/// Reports each record that nobody sent, that was sent elsewhere or that changed, and each answer that cannot be read.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    for (index, read) in history.reads.iter().enumerate() {
        if read.response == Response::Garbled {
            let message = "the answer holds bytes that are no valid record batch".to_owned();
            let proof = [Witness::Read(ReadId(index as u32))];
            violations.push(Violation::new(NAME, read.partition, read.from, message, &proof));
        }
    }
    for (partition, observed) in evidence.partitions() {
        for one in observed.iter().filter(|one| matches!(one.source, Witness::Read(_))) {
            let send = history.send_of(one.value);
            let message = match send.map(|id| &history.sends[id.0 as usize]) {
                None => format!("the record at offset {} was never sent by anyone", one.offset),
                Some(send) if send.partition != partition => {
                    format!("value {} at offset {} was sent to another partition", one.value, one.offset)
                }
                Some(_) if history.digest_of(one.value) != Some(one.digest) => {
                    format!("value {} at offset {} is not byte for byte what was sent", one.value, one.offset)
                }
                Some(_) => continue,
            };
            violations.push(Violation::new(NAME, partition, one.offset, message, &[one.source]));
        }
    }
}
