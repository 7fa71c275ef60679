//! A history as text, one line an operation: for traces, which two runs of a seed must share byte for byte, and for
//! people.

use std::fmt::{self, Display};

use super::attempts::{Attempt, AttemptEnd};
use super::{
    Created, Creation, History, Outcome, Partition, Read, ReadId, Response, Seen, SendId, Stamp, TimeQuery, Topic,
    TopicList,
};
use crate::trace::Seconds;

/// Topics of a list that are named.
const LISTED_MAX: usize = 20;

impl Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Seconds(self.at_ns).fmt(f)
    }
}

impl History {
    /// An attempt of a send in one line.
    pub fn describe_attempt(&self, send: SendId, attempt: &Attempt) -> String {
        let Attempt { number, connection, incarnation, sent_ns, ended } = attempt;
        let count = self.sends[send.0 as usize].attempts.count();
        let head = format!(
            "attempt {number} of {count}: sent {} on connection {connection} to incarnation {incarnation}",
            Seconds(*sent_ns)
        );
        let Some((at_ns, how)) = ended else { return format!("{head}, never answered") };
        let at = Seconds(*at_ns);
        match how {
            AttemptEnd::Acked { base_offset } => format!("{head}, answered {at}: acknowledged at offset {base_offset}"),
            AttemptEnd::Refused(error) => format!("{head}, answered {at}: refused with {error}"),
            AttemptEnd::Unasked => format!("{head}, no answer asked for"),
            AttemptEnd::NeverSent => format!("{head}, not a byte of it sent by {at}"),
            AttemptEnd::ConnectionLost => format!("{head}, connection lost {at}"),
            AttemptEnd::TimedOut => format!("{head}, timed out {at}"),
        }
    }

    /// The last attempt of a send in one line, if there were several.
    pub fn describe_last_attempt(&self, send: SendId) -> Option<String> {
        let attempts = &self.sends[send.0 as usize].attempts;
        let last = attempts.kept().last().filter(|_| attempts.count() > 1)?;
        Some(self.describe_attempt(send, last))
    }
    /// A partition's name.
    pub fn name(&self, partition: Partition) -> &str {
        self.partitions.get(partition.0 as usize).map_or("?", String::as_str)
    }

    /// A send in one line.
    pub fn describe_send(&self, id: SendId) -> String {
        let send = &self.sends[id.0 as usize];
        let last = send.first_value + u64::from(send.records) - 1;
        let head = format!(
            "send #{} by producer {} session {} to {}, values {}..={last}, began {}",
            id.0,
            send.producer,
            send.session,
            self.name(send.partition),
            send.first_value,
            send.began
        );
        let ended = send.ended.map_or_else(|| "never".to_owned(), |at| at.to_string());
        match send.outcome {
            Outcome::Maybe => format!("{head}, outcome unknown"),
            Outcome::Acked { base_offset } => format!("{head}, acknowledged at offset {base_offset} at {ended}"),
            Outcome::AckedSomewhere => format!("{head}, acknowledged without an offset at {ended}"),
            Outcome::Failed => format!("{head}, failed at {ended}"),
        }
    }

    /// A read in one line.
    pub fn describe_read(&self, id: ReadId) -> String {
        let read = &self.reads[id.0 as usize];
        format!(
            "read #{} by reader {} assignment {} of {} from {}, began {}, answered {} by incarnation {} (high watermark \
             {}, log start {}){}: {}",
            id.0,
            read.reader,
            read.assignment,
            self.name(read.partition),
            read.from,
            read.began,
            read.ended,
            read.incarnation,
            read.high_watermark,
            read.log_start,
            if read.last { " last" } else { "" },
            self.describe_response(read)
        )
    }

    /// A question for an offset by time in one line.
    pub fn describe_time_query(&self, query: &TimeQuery) -> String {
        let asked = query.timestamp.map_or_else(|| "the latest".to_owned(), |at| format!("time {at}"));
        format!(
            "question for {asked} of {}, began {}, answered {} with offset {} time {}",
            self.name(query.partition),
            query.began,
            query.ended,
            query.offset,
            query.found
        )
    }

    /// A creation in one line.
    pub fn describe_creation(&self, creation: &Creation) -> String {
        let Creation { client, topic, began, .. } = creation;
        let what = if creation.validate_only { "a check of the creation" } else { "the creation" };
        let ended = creation.ended.map_or_else(|| "never".to_owned(), |at| at.to_string());
        let outcome = match &creation.outcome {
            Created::Maybe => "outcome unknown".to_owned(),
            Created::Done(Some(topic)) => format!("acknowledged at {ended} as {topic}"),
            Created::Done(None) => format!("known to exist at {ended}"),
            Created::Failed => format!("failed at {ended}"),
        };
        format!("{what} of topic {topic} by client {client}, began {began}, {outcome}")
    }

    /// A list of topics in one line.
    pub fn describe_topic_list(&self, list: &TopicList) -> String {
        let mut topics: Vec<String> = list.topics.iter().take(LISTED_MAX).map(Topic::to_string).collect();
        if list.topics.len() > LISTED_MAX {
            topics.push(format!("and {} more", list.topics.len() - LISTED_MAX));
        }
        let TopicList { client, began, ended, .. } = list;
        format!("all topics for client {client}, began {began}, answered {ended}: {}", topics.join(", "))
    }

    fn describe_response(&self, read: &Read) -> String {
        match read.response {
            Response::OutOfRange => "out of range".to_owned(),
            Response::Offsets => "offsets alone".to_owned(),
            Response::Garbled => "garbled bytes".to_owned(),
            Response::Records { .. } => match self.records(read) {
                [] => "nothing".to_owned(),
                [first, .., last] => {
                    format!("offsets {}..={} values {}..={}", first.offset, last.offset, first.value, last.value)
                }
                [only] => format!("offset {} value {}", only.offset, only.value),
            },
        }
    }
}

/// Of all that was seen: a line for each record would be most of a trace.
fn digest(records: &[Seen]) -> u64 {
    records.iter().fold(0, |digest, seen| mix(mix(mix(digest, seen.offset as u64), seen.value), seen.digest))
}

/// Of all topics listed, of which a line names only some.
fn topics_digest(topics: &[Topic]) -> u64 {
    topics.iter().flat_map(|topic| topic.to_string().into_bytes()).fold(0, |digest, byte| mix(digest, byte.into()))
}

fn mix(digest: u64, part: u64) -> u64 {
    (digest ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

impl Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (id ", self.name)?;
        self.id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ", {} partitions)", self.partitions)
    }
}

impl Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            writeln!(f, "{} {}", event.at, event.what)?;
        }
        for index in 0..self.sends.len() {
            writeln!(f, "{}", self.describe_send(SendId(index as u32)))?;
        }
        for (index, read) in self.reads.iter().enumerate() {
            writeln!(f, "{}", self.describe_read(ReadId(index as u32)))?;
            if let records @ [_, ..] = self.records(read) {
                writeln!(f, "  {} records, digest {:016x}", records.len(), digest(records))?;
            }
        }
        for query in &self.time_queries {
            writeln!(f, "{}", self.describe_time_query(query))?;
        }
        for creation in &self.creations {
            writeln!(f, "{}", self.describe_creation(creation))?;
        }
        for list in &self.topic_lists {
            writeln!(f, "{}", self.describe_topic_list(list))?;
            if list.topics.len() > LISTED_MAX {
                writeln!(f, "  {} topics, digest {:016x}", list.topics.len(), topics_digest(&list.topics))?;
            }
        }
        Ok(())
    }
}
