//! A new offset is larger than every offset that had been acknowledged before its send began.

use super::evidence::{Evidence, Witness};
use super::violation::Violation;
use crate::history::{History, Outcome, Send, SendId};

/// Name of the property.
pub const NAME: &str = "real-time order";

/// Reports each send once.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    let mut acks: Vec<(u32, SendId)> = Vec::new();
    for (index, send) in history.sends.iter().enumerate() {
        if let (Outcome::Acked { .. }, Some(ended)) = (send.outcome, send.ended) {
            acks.push((ended.order, SendId(index as u32)));
        }
    }
    acks.sort_unstable_by_key(|(order, _)| *order);
    // Per partition, the acknowledged send that reaches furthest so far.
    let mut furthest: Vec<Option<(i64, SendId)>> = vec![None; history.partitions.len()];
    let mut acks = acks.into_iter().peekable();
    for (index, send) in history.sends.iter().enumerate() {
        while let Some((_, id)) = acks.next_if(|(order, _)| *order < send.began.order) {
            let acked = &history.sends[id.0 as usize];
            let slot = &mut furthest[acked.partition.0 as usize];
            let last = last_offset(acked);
            if slot.is_none_or(|(furthest, _)| furthest < last) {
                *slot = Some((last, id));
            }
        }
        let Some((acked_to, id)) = furthest[send.partition.0 as usize] else { continue };
        let values = send.first_value..send.first_value + u64::from(send.records);
        let placed = values.filter_map(|value| evidence.placed(value));
        let here = placed.filter(|(partition, _)| *partition == send.partition).map(|(_, one)| one.offset).min();
        let Some(offset) = here.filter(|&offset| offset <= acked_to) else { continue };
        let message = format!("offset {offset} was given to a send that began after {acked_to} was acknowledged");
        let proof = [Witness::Ack(id), Witness::Ack(SendId(index as u32))];
        violations.push(Violation::new(NAME, send.partition, offset, message, &proof));
    }
}

fn last_offset(send: &Send) -> i64 {
    match send.outcome {
        Outcome::Acked { base_offset } => base_offset + i64::from(send.records) - 1,
        _ => -1,
    }
}
