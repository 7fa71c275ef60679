//! The log start moves only with a permission (retention, DeleteRecords), never back and never past the high
//! watermark.

use super::evidence::{Evidence, Witness};
use super::lost_write::granted_log_start;
use super::violation::Violation;
use crate::history::{History, ReadId};

/// Name of the property.
pub const NAME: &str = "log start";

/// Reports each answer that tells an unjustified log start.
pub fn check(history: &History, _evidence: &Evidence, violations: &mut Vec<Violation>) {
    let reads = || history.reads.iter().enumerate().filter(|(_, read)| read.log_start >= 0);
    let mut by_end: Vec<usize> = reads().map(|(index, _)| index).collect();
    by_end.sort_unstable_by_key(|&index| history.reads[index].ended.order);
    let mut by_begin = by_end.clone();
    by_begin.sort_unstable_by_key(|&index| history.reads[index].began.order);
    let mut highest = vec![(-1, 0); history.partitions.len()];
    let mut by_end = by_end.into_iter().peekable();
    for index in by_begin {
        let read = &history.reads[index];
        while let Some(ended) = by_end.next_if(|&at| history.reads[at].ended.before(read.began)) {
            let before = &history.reads[ended];
            let slot = &mut highest[before.partition.0 as usize];
            if before.log_start > slot.0 {
                *slot = (before.log_start, ended);
            }
        }
        let (highest, by) = highest[read.partition.0 as usize];
        let told = read.log_start;
        let source = Witness::Read(ReadId(index as u32));
        let mut report = |message: String, proof: &[Witness]| {
            violations.push(Violation::new(NAME, read.partition, told, message, proof));
        };
        if told > granted_log_start(history, read) {
            report(format!("it moved to {told} without a permission"), &[source]);
        } else if told < highest {
            report(format!("it was {highest} and then {told}"), &[Witness::Read(ReadId(by as u32)), source]);
        } else if read.high_watermark >= 0 && told > read.high_watermark {
            report(format!("it is {told}, past the high watermark {}", read.high_watermark), &[source]);
        }
    }
}
