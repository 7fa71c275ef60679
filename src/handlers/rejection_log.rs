//! Log lines about refused records: enough to find out whose they are, and not one for each.

use std::sync::Mutex;
use std::time::Duration;

use super::peer::Peer;
use crate::io::Monotonic;
use crate::wire::ErrorCode;

/// At most one line in so long.
const INTERVAL: Duration = Duration::from_secs(10);

/// When the last line was written, and how many refusals have been left out since.
#[derive(Default)]
pub(super) struct RejectionLog(Mutex<(Option<Monotonic>, u64)>);

impl RejectionLog {
    /// Records of a partition have been refused.
    pub(super) fn note(
        &self,
        now: Monotonic,
        peer: &Peer,
        topic: &str,
        partition: i32,
        error: ErrorCode,
        why: Option<&str>,
    ) {
        let Some(left_out) = self.admit(now) else { return };
        let (remote, error) = (peer.remote, error.name());
        // The name is the client's: it may be long, and hold anything.
        let topic: String = topic.chars().take(TOPIC_CHARS_MAX).collect();
        let why: String = why.unwrap_or("no more is known").chars().take(WHY_CHARS_MAX).collect();
        let more = if left_out > 0 { format!("; {left_out} more since the last such line") } else { String::new() };
        tracing::warn!("records for {topic:?} partition {partition} from {remote} refused with {error}: {why:?}{more}");
    }

    /// Whether a line is due, with the number of those left out before it.
    fn admit(&self, now: Monotonic) -> Option<u64> {
        let mut state = self.0.lock().expect("arithmetic under this lock does not panic");
        if state.0.is_some_and(|last| now - last < INTERVAL) {
            state.1 += 1;
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }
}

/// Characters of a topic's name in a line: the longest valid name.
const TOPIC_CHARS_MAX: usize = 249;
/// Characters of a reason in a line.
const WHY_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_a_while_which_counts_the_others() {
        let rejections = RejectionLog::default();
        let at = |seconds| Monotonic(0) + Duration::from_secs(seconds);
        assert_eq!(rejections.admit(at(0)), Some(0));
        assert_eq!((rejections.admit(at(1)), rejections.admit(at(9))), (None, None));
        assert_eq!(rejections.admit(at(10)), Some(2));
    }
}
