//! Asked for a time, the broker tells the first record with that timestamp or a later one; asked for the latest, a
//! record of the largest timestamp. Timestamps are the clients' own and may go back.

use super::evidence::{Evidence, Witness};
use super::violation::Violation;
use crate::history::{History, Partition, TimeQuery};

/// Name of the property.
pub const NAME: &str = "offset by time";

/// Reports each wrong answer.
pub fn check(history: &History, evidence: &Evidence, violations: &mut Vec<Violation>) {
    if history.time_queries.is_empty() {
        return;
    }
    let timelines: Vec<Timeline> =
        (0..history.partitions.len()).map(|index| Timeline::new(history, evidence, Partition(index as u32))).collect();
    for (index, query) in history.time_queries.iter().enumerate() {
        let timeline = &timelines[query.partition.0 as usize];
        if let Some((offset, message)) = timeline.fault(query) {
            let known = evidence.first_at(query.partition, offset).map(|known| known.source);
            let proof: Vec<Witness> = known.into_iter().chain([Witness::TimeQuery(index as u32)]).collect();
            violations.push(Violation::new(NAME, query.partition, offset, message, &proof));
        }
    }
}

/// What is known of a partition's timestamps.
struct Timeline {
    /// By offset: the timestamp, where it is known.
    known: Vec<Option<i64>>,
    /// By offset: the largest timestamp so far.
    highest: Vec<i64>,
    /// In the order of proofs: the order, and the latest record proven so far as its timestamp and offset.
    latest: Vec<(u32, (i64, i64))>,
}

impl Timeline {
    fn new(history: &History, evidence: &Evidence, partition: Partition) -> Self {
        let (mut known, mut proofs) = (Vec::new(), Vec::new());
        for offset in 0..evidence.end(partition) {
            let first = evidence.first_at(partition, offset);
            let proven = first.and_then(|one| Some((one.at.order, history.send_of(one.value)?)));
            let timestamp = proven.map(|(_, send)| history.sends[send.0 as usize].timestamp);
            known.push(timestamp);
            proofs.extend(proven.zip(timestamp).map(|((order, _), timestamp)| (order, (timestamp, offset))));
        }
        proofs.sort_unstable();
        let latest = proofs.into_iter().scan((i64::MIN, -1), |latest, (order, one)| {
            *latest = if one.0 > latest.0 { one } else { *latest };
            Some((order, *latest))
        });
        let highest = known.iter().scan(i64::MIN, |highest, timestamp| {
            *highest = timestamp.unwrap_or(*highest).max(*highest);
            Some(*highest)
        });
        Self { latest: latest.collect(), highest: highest.collect(), known }
    }

    /// The latest record that was in the log for sure when a question was sent: its timestamp and offset.
    fn latest_before(&self, query: &TimeQuery) -> Option<(i64, i64)> {
        let proven = self.latest.partition_point(|(order, _)| *order < query.began.order);
        proven.checked_sub(1).map(|last| self.latest[last].1)
    }

    /// What is wrong with an answer, and the offset that shows it.
    fn fault(&self, query: &TimeQuery) -> Option<(i64, String)> {
        let TimeQuery { offset: told, found, .. } = *query;
        if let Some(Some(timestamp)) = usize::try_from(told).ok().and_then(|at| self.known.get(at))
            && *timestamp != found
        {
            return Some((told, format!("offset {told} has time {timestamp}, not {found}")));
        }
        let latest = self.latest_before(query);
        match query.timestamp {
            Some(asked) if told >= 0 && found < asked => {
                Some((told, format!("time {found} was told for time {asked}")))
            }
            Some(asked) if told >= 0 => {
                // What stands before the answer was there when it was given, whenever it was proven.
                let first = self.highest.partition_point(|&highest| highest < asked) as i64;
                (first < told).then(|| (first, format!("offset {told} was told for time {asked}, not {first}")))
            }
            Some(asked) => latest
                .filter(|(timestamp, _)| *timestamp >= asked)
                .map(|(timestamp, offset)| (offset, format!("nothing was told for time {asked}, not {timestamp}"))),
            None => latest
                .filter(|(timestamp, _)| *timestamp > found)
                .map(|(timestamp, offset)| (offset, format!("{found} was told as the latest time, not {timestamp}"))),
        }
    }
}
