//! What no broker on one disk can promise: a disk that lies about flushes and then loses power takes data with it, and
//! one that returns wrong bits may hide it. What such a fault explains is no bug; everything else still is.
//!
//! | fault | what it may explain |
//! |---|---|
//! | power lost after a lying flush | missing records, and whatever was stored in their place, for operations that ended later |
//! | a flipped bit in what was read | missing records (a damaged tail looks like a torn one) and unreadable answers |

use super::evidence::Witness;
use super::violation::Violation;
use super::{corrupt, duplicate, high_watermark, lost_write, offset_by_time, poll, real_time};
use super::{send_order, served_changed, topics, two_values, uncommitted, unseen};
use crate::history::{Beyond, History, Stamp};

/// Checks that missing data makes fail, directly or by what is stored at its offsets later.
const LOSSES: &[&str] = &[
    lost_write::NAME,
    unseen::NAME,
    uncommitted::NAME,
    served_changed::NAME,
    two_values::NAME,
    high_watermark::NAME,
    poll::BACK,
    poll::SKIP,
    send_order::NAME,
    real_time::NAME,
    offset_by_time::NAME,
    // The state of producers is lost with the records.
    duplicate::NAME,
    topics::LOST,
    topics::CHANGED,
];

/// Whether a fault beyond the promise explains this violation.
pub fn explains(history: &History, violation: &Violation) -> bool {
    let is_loss = LOSSES.contains(&violation.check);
    let last_read = || history.reads.iter().rev().find(|read| read.last).map(|read| read.ended.order);
    let proof = violation.proof.iter().map(|source| ended(history, *source)).max();
    // These two are proven by what is absent from the last read.
    let by_absence = [unseen::NAME, uncommitted::NAME].contains(&violation.check);
    let shown = if by_absence { last_read().max(proof) } else { proof };
    history.beyond.iter().any(|(at, beyond)| match beyond {
        Beyond::LossAfterLie => is_loss && shown.is_some_and(|shown| at.order < shown),
        Beyond::FlippedBit => is_loss || violation.check == corrupt::NAME,
    })
}

fn ended(history: &History, source: Witness) -> u32 {
    let stamp: Stamp = match source {
        Witness::Ack(send) => history.sends[send.0 as usize].ended.unwrap_or_default(),
        Witness::Read(read) => history.reads[read.0 as usize].ended,
        Witness::TimeQuery(index) => history.time_queries[index as usize].ended,
        Witness::Creation(index) => history.creations[index as usize].ended.unwrap_or_default(),
        Witness::TopicList(index) => history.topic_lists[index as usize].ended,
    };
    stamp.order
}
