//! The attempts of a send: an idempotent producer sends the same bytes again until it knows what became of them. They
//! are for people who ask why; no checker judges them, and they do not belong to the trace.

/// Attempts kept of a send from the first one on.
pub const FIRST_KEPT: usize = 4;
/// Attempts kept of a send up to the last one. What lies between is only counted: a send may be tried for minutes.
pub const LAST_KEPT: usize = 4;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// Acknowledged; its first record has this offset.
    Acked {
        /// Offset of the first record.
        base_offset: i64,
    },
    /// Answered with the error of this name.
    Refused(&'static str),
    /// Sent without asking for an answer.
    Unasked,
    /// Not a byte of it was sent.
    NeverSent,
    /// The connection ended before an answer came.
    ConnectionLost,
    /// No answer came in time.
    TimedOut,
}

/// One attempt of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// Which connection of its producer, 1 for the first.
    pub connection: u32,
    /// The incarnation of the broker at the other end.
    pub incarnation: u32,
    /// When it was sent, in nanoseconds since the run began.
    pub sent_ns: u64,
    /// When and how it ended; `None` if nobody was there to see that.
    pub ended: Option<(u64, AttemptEnd)>,
}

impl Attempt {
    /// Whether the broker answered.
    pub fn is_answered(&self) -> bool {
        matches!(self.ended, Some((_, AttemptEnd::Acked { .. } | AttemptEnd::Refused(_))))
    }
}

/// The attempts of a send, as far as they are kept.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    kept: Vec<Attempt>,
    count: u32,
}

impl Attempts {
    /// How many there were.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The first few and the last few.
    pub fn kept(&self) -> &[Attempt] {
        &self.kept
    }

    pub(super) fn begin(&mut self, connection: u32, incarnation: u32, sent_ns: u64) -> u32 {
        self.count += 1;
        if self.kept.len() == FIRST_KEPT + LAST_KEPT {
            self.kept.remove(FIRST_KEPT);
        }
        // Nearly every send has one attempt.
        self.kept.reserve_exact(1);
        self.kept.push(Attempt { number: self.count, connection, incarnation, sent_ns, ended: None });
        self.count
    }

    pub(super) fn end(&mut self, number: u32, how: AttemptEnd, at_ns: u64) {
        if let Some(attempt) = self.kept.iter_mut().rfind(|attempt| attempt.number == number) {
            attempt.ended = Some((at_ns, how));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, History, Partition, SendId};
    use super::*;

    fn history() -> (History, SendId) {
        let mut history = History::new(vec!["t-0".to_owned()]);
        let batch = Batch { producer: 0, session: 0, partition: Partition(0), timestamp: 0, digests: &[1] };
        let send = history.begin_send(batch, 0);
        (history, send)
    }

    #[test]
    fn the_first_and_the_last_attempts_are_kept_and_all_are_counted() {
        let (mut history, send) = history();
        for at in 1..=1000 {
            let number = history.begin_attempt(send, 1, 1, at * 1000);
            history.end_attempt(send, number, AttemptEnd::Refused("NOT_LEADER_OR_FOLLOWER"), at * 1000 + 500);
        }
        // One whose answer comes when it is not kept any more.
        history.end_attempt(send, 500, AttemptEnd::TimedOut, 0);
        let attempts = &history.sends[0].attempts;
        let numbers: Vec<u32> = attempts.kept().iter().map(|attempt| attempt.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 997, 998, 999, 1000]);
        assert!(attempts.kept().iter().all(Attempt::is_answered));
        assert_eq!(attempts.count(), 1000);
    }

    #[test]
    fn attempts_are_told_but_are_not_part_of_the_history_s_text() {
        let (mut history, send) = history();
        let before = history.to_string();
        let first = history.begin_attempt(send, 1, 1, 1_000_000);
        assert_eq!(history.describe_last_attempt(send), None);
        history.end_attempt(send, first, AttemptEnd::ConnectionLost, 2_000_000);
        let second = history.begin_attempt(send, 2, 1, 3_000_000);
        history.end_attempt(send, second, AttemptEnd::Acked { base_offset: 279 }, 4_000_000);
        assert_eq!(
            history.describe_last_attempt(send).as_deref(),
            Some(
                "attempt 2 of 2: sent 0.003000s on connection 2 to incarnation 1, answered 0.004000s: acknowledged at \
                 offset 279"
            )
        );
        assert_eq!(history.to_string(), before);
    }
}
