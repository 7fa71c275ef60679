//! A property that did not hold, with its proof.

use super::evidence::Witness;
use crate::history::{History, Partition};

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which property.
    pub check: &'static str,
    /// Where; `None` if it is not about one partition.
    pub partition: Option<Partition>,
    /// At which offset; −1 if it is not about one.
    pub offset: i64,
    /// What was expected and what was found, in a sentence.
    pub message: String,
    /// The operations that prove it.
    pub proof: Vec<Witness>,
}

impl Violation {
    pub(super) fn new(
        check: &'static str,
        partition: Partition,
        offset: i64,
        message: String,
        proof: &[Witness],
    ) -> Self {
        Self { check, partition: Some(partition), offset, message, proof: proof.to_vec() }
    }

    /// The violation with the operations that prove it, in a few lines.
    pub fn report(&self, history: &History) -> String {
        let place = self.partition.map_or(String::new(), |partition| format!(" in {}", history.name(partition)));
        let mut text = format!("{}{place}: {}", self.check, self.message);
        for source in &self.proof {
            text.push_str("\n    ");
            text.push_str(&match source {
                Witness::Ack(send) => history.describe_send(*send),
                Witness::Read(read) => history.describe_read(*read),
                Witness::TimeQuery(index) => history.describe_time_query(&history.time_queries[*index as usize]),
                Witness::Creation(index) => history.describe_creation(&history.creations[*index as usize]),
                Witness::TopicList(index) => history.describe_topic_list(&history.topic_lists[*index as usize]),
            });
            // What was answered in the end was answered to the last attempt, not to the first.
            let retried = if let Witness::Ack(send) = source { history.describe_last_attempt(*send) } else { None };
            if let Some(attempt) = retried {
                text.push_str("\n      ");
                text.push_str(&attempt);
            }
        }
        text
    }
}
