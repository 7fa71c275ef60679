//! The high watermark never moves back: an answer to a question asked later tells at least as much, and at least
//! what had been acknowledged.

use super::evidence::{Evidence, Witness};
use super::violation::Violation;
use crate::history::{History, Outcome, Partition, ReadId, SendId};

/// Name of the property.
pub const NAME: &str = "high watermark monotone";

/// Reports each answer that tells less than was known when it was asked.
pub fn check(history: &History, _evidence: &Evidence, violations: &mut Vec<Violation>) {
    let mut told: Vec<(u32, Partition, i64, Witness)> = Vec::new();
    for (index, read) in history.reads.iter().enumerate().filter(|(_, read)| read.high_watermark >= 0) {
        told.push((read.ended.order, read.partition, read.high_watermark, Witness::Read(ReadId(index as u32))));
    }
    for (index, send) in history.sends.iter().enumerate() {
        if let (Outcome::Acked { base_offset }, Some(ended)) = (send.outcome, send.ended) {
            let end = base_offset + i64::from(send.records);
            told.push((ended.order, send.partition, end, Witness::Ack(SendId(index as u32))));
        }
    }
    told.sort_unstable_by_key(|(order, ..)| *order);
    let mut by_begin: Vec<usize> = (0..history.reads.len()).collect();
    by_begin.sort_unstable_by_key(|&index| history.reads[index].began.order);
    let mut highest: Vec<Option<(i64, Witness)>> = vec![None; history.partitions.len()];
    let mut told = told.into_iter().peekable();
    for index in by_begin {
        let read = &history.reads[index];
        while let Some((_, partition, end, source)) = told.next_if(|(order, ..)| *order < read.began.order) {
            let slot = &mut highest[partition.0 as usize];
            if slot.is_none_or(|(highest, _)| highest < end) {
                *slot = Some((end, source));
            }
        }
        let Some((highest, source)) = highest[read.partition.0 as usize] else { continue };
        if read.high_watermark < 0 || read.high_watermark >= highest {
            continue;
        }
        let known = match source {
            Witness::Ack(_) => format!("offset {} was acknowledged", highest - 1),
            _ => format!("it was {highest}"),
        };
        let message = format!("{known}, and then it was {}", read.high_watermark);
        let proof = [source, Witness::Read(ReadId(index as u32))];
        violations.push(Violation::new(NAME, read.partition, read.high_watermark, message, &proof));
    }
}
