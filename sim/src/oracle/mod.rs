//! The judges: one property per file, each a pure function over a recorded [`History`]. They know what Kafka's
//! protocol promises to clients and nothing of how the broker keeps it.
//!
//! The true order of a partition is built from acknowledged sends and from all reads together: the [`Evidence`].
//!
//! | check | what it says |
//! |---|---|
//! | `two values at one offset` | an offset never holds two values, whoever saw them |
//! | `corrupt read` | what is read was sent to this partition, byte for byte |
//! | `duplicate` | one value never stands at two offsets |
//! | `failed send read` | a send that surely failed is never delivered |
//! | `lost write` | what was acknowledged or seen is not missing for a reader that read past it |
//! | `unseen` | what was acknowledged is in the last read of everything |
//! | `uncommitted read` | what was shown before it was acknowledged is in the last read too; nothing at or above the high watermark is shown |
//! | `served then changed` | what one incarnation served, a later one serves alike |
//! | `nonmonotonic send` | a session's later record lands later |
//! | `real-time order` | a new offset is larger than each acknowledged before its send began |
//! | `high watermark monotone` | the high watermark never moves back |
//! | `poll-skip`, `nonmonotonic poll` | within an assignment a reader neither jumps nor goes back |
//! | `log start` | the log start moves only with a permission, never back, never past the high watermark |
//! | `offset by time` | asked for a time, the broker tells the first record that is as late, or the latest of all |
//! | `lost topic` | a topic whose creation was acknowledged, or that was listed, is in every list from then on |
//! | `changed topic` | a topic keeps its id and its number of partitions |
//! | `unasked topic` | what is listed was to be created by somebody |

mod corrupt;
mod duplicate;
mod evidence;
mod failed_send;
mod high_watermark;
mod log_start;
mod lost_write;
mod offset_by_time;
mod poll;
mod promise;
mod real_time;
mod send_order;
mod served_changed;
#[cfg(test)]
mod tests;
mod topics;
mod two_values;
mod uncommitted;
mod unseen;
mod violation;

pub use evidence::{Evidence, Observed, Witness};
pub use violation::Violation;

use crate::history::History;

/// Looks for violations of one property, or of a few that are told apart by the way.
pub type Check = fn(&History, &Evidence, &mut Vec<Violation>);

/// Every property that is judged, with its names, in the order in which it is reported.
pub const CHECKS: &[(&[&str], Check)] = &[
    (&[two_values::NAME], two_values::check),
    (&[corrupt::NAME], corrupt::check),
    (&[duplicate::NAME], duplicate::check),
    (&[failed_send::NAME], failed_send::check),
    (&[lost_write::NAME], lost_write::check),
    (&[unseen::NAME], unseen::check),
    (&[uncommitted::NAME], uncommitted::check),
    (&[served_changed::NAME], served_changed::check),
    (&[send_order::NAME], send_order::check),
    (&[real_time::NAME], real_time::check),
    (&[high_watermark::NAME], high_watermark::check),
    (&[poll::SKIP, poll::BACK], poll::check),
    (&[log_start::NAME], log_start::check),
    (&[offset_by_time::NAME], offset_by_time::check),
    (&[topics::LOST, topics::CHANGED, topics::UNASKED], topics::check),
];

/// The names of all properties.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().flat_map(|(names, _)| names.iter().copied())
}

/// What the checks found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What nothing explains.
    pub violations: Vec<Violation>,
    /// What a fault explains that no broker can promise to survive.
    pub beyond: Vec<Violation>,
}

/// Judges a history by every property but those named.
pub fn judge(history: &History, without: &[String]) -> Verdict {
    let evidence = Evidence::gather(history);
    let mut violations = Vec::new();
    for (_, check) in CHECKS {
        check(history, &evidence, &mut violations);
    }
    violations.retain(|found| !without.iter().any(|name| name == found.check));
    let (beyond, violations) = violations.into_iter().partition(|found| promise::explains(history, found));
    Verdict { violations, beyond }
}
