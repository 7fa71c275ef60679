//! Random histories: of a log that keeps every promise (no check may fire), and of one that breaks them at random (the
//! checks must agree with the naive judge). Also how fast judging is.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A toy log with clients, driven by random numbers; `anomalies` in 1000 steps break a promise.
struct World {
    make: Make,
    rng: fastrand::Rng,
    anomalies: u32,
    logs: [Vec<u64>; 2],
    open: Vec<(SendId, Partition, u64, u32)>,
    next: [i64; 4],
}

impl World {
    fn run(seed: u64, steps: usize, anomalies: u32) -> History {
        let rng = fastrand::Rng::with_seed(seed);
        let mut world =
            Self { make: Make::new(), rng, anomalies, logs: Default::default(), open: Vec::new(), next: [0; 4] };
        for _ in 0..steps {
            match world.rng.u32(..100) {
                0..30 => world.begin(),
                30..60 => world.end(),
                60..90 => world.read(),
                90..95 => world.ask(),
                95..97 => world.make.crash(),
                _ => world.offsets(),
            }
        }
        world.last();
        world.make.history
    }

    fn odd(&mut self) -> bool {
        self.rng.u32(..1000) < self.anomalies
    }

    fn begin(&mut self) {
        let partition = Partition(self.rng.u32(..2));
        let records = self.rng.u32(1..4);
        let first = self.make.history.next_value();
        // A producer a batch: what is in flight together may land in any order.
        let producer = first as u32;
        self.make.timestamp = self.rng.i64(0..50);
        let send = self.make.send_to(producer, partition, records);
        self.open.push((send, partition, first, records));
    }

    fn end(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (send, partition, first, records) = self.open.remove(self.rng.usize(..self.open.len()));
        let log = &mut self.logs[partition.0 as usize];
        let mut base_offset = log.len() as i64;
        let stored = match self.rng.u32(..10) {
            0 => {
                self.make.fail(send);
                false
            }
            1 => false,
            _ => true,
        };
        if stored || self.odd() {
            self.logs[partition.0 as usize].extend(first..first + u64::from(records));
        }
        if stored && self.rng.u32(..10) > 0 {
            if self.odd() {
                base_offset = (base_offset - 1).max(0);
            }
            self.make.ack(send, base_offset);
        }
        if self.odd() {
            let log = &mut self.logs[partition.0 as usize];
            let keep = self.rng.usize(..=log.len());
            log.truncate(keep);
        }
        if self.odd() && !self.logs[partition.0 as usize].is_empty() {
            let log = &mut self.logs[partition.0 as usize];
            let (a, b) = (self.rng.usize(..log.len()), self.rng.usize(..log.len()));
            log.swap(a, b);
        }
    }

    fn read(&mut self) {
        let reader = self.rng.usize(..4);
        let partition = Partition(reader as u32 % 2);
        let end = self.logs[partition.0 as usize].len() as i64;
        let from = self.next[reader];
        let mut read = self.make.response(partition, from, end, Response::Records { seen: 0..0 });
        read.reader = reader as u32;
        if from > end {
            read.response = Response::OutOfRange;
            read.high_watermark = -1;
            self.next[reader] = 0;
            self.make.history.end_read(read, &[]);
            return;
        }
        let to = self.rng.i64(from..=end);
        let mut seen = dense(from, &self.logs[partition.0 as usize][from as usize..to as usize]);
        if self.odd() && !seen.is_empty() {
            let at = self.rng.usize(..seen.len());
            match self.rng.u32(..4) {
                0 => seen[at].digest += 1,
                1 => seen[at].value = 0,
                2 => drop(seen.remove(at)),
                _ => read.high_watermark -= 1,
            }
        }
        self.next[reader] = to;
        if self.odd() {
            self.next[reader] = self.rng.i64(0..=end);
        }
        if self.odd() {
            read.log_start = self.rng.i64(0..3);
        }
        self.make.history.end_read(read, &seen);
    }

    fn offsets(&mut self) {
        let partition = Partition(self.rng.u32(..2));
        let end = self.logs[partition.0 as usize].len() as i64;
        let read = self.make.response(partition, end, end, Response::Offsets);
        self.make.history.end_read(read, &[]);
    }

    fn ask(&mut self) {
        let partition = Partition(self.rng.u32(..2));
        let history = &self.make.history;
        let time = |value: &u64| history.send_of(*value).map_or(-1, |send| history.sends[send.0 as usize].timestamp);
        let times: Vec<i64> = self.logs[partition.0 as usize].iter().map(time).collect();
        let asked = self.rng.bool().then(|| self.rng.i64(0..60));
        let wanted = asked.or(times.iter().copied().max()).unwrap_or(0);
        let at = times.iter().position(|&time| time >= wanted);
        let (mut offset, mut found) = at.map_or((-1, -1), |at| (at as i64, times[at]));
        if self.odd() {
            offset = self.rng.i64(-1..=times.len() as i64);
        }
        if self.odd() {
            found = self.rng.i64(-1..50);
        }
        self.make.ask_in(partition, asked, offset, found);
    }

    fn last(&mut self) {
        for partition in [P, OTHER] {
            let log = self.logs[partition.0 as usize].clone();
            let mut read = self.make.response(partition, 0, log.len() as i64, Response::Records { seen: 0..0 });
            read.reader = 9;
            read.last = true;
            self.make.history.end_read(read, &dense(0, &log));
            self.make.history.last_read_complete.push(partition);
        }
    }
}

fn findings(history: &History) -> BTreeSet<naive::Finding> {
    judge(history, &[]).violations.iter().map(|found| (found.check, found.partition.unwrap().0, found.offset)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_that_keeps_its_promises_is_accepted(seed: u64) {
        let history = World::run(seed, 300, 0);
        prop_assert_eq!(judge(&history, &[]).violations, vec![]);
    }

    #[test]
    fn the_checks_agree_with_the_naive_judge(seed: u64, steps in 1usize..120, anomalies in 0u32..120) {
        let history = World::run(seed, steps, anomalies);
        prop_assert_eq!(findings(&history), naive::judge(&history));
    }
}

#[test]
fn random_anomalies_reach_every_check() {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for seed in 0..300 {
        names.extend(findings(&World::run(seed, 200, 60)).into_iter().map(|(name, ..)| name));
    }
    assert_eq!(names.len(), 15, "{names:?}");
}

#[test]
fn a_long_clean_history_is_accepted() {
    assert_eq!(judge(&World::run(1, 40_000, 0), &[]).violations, vec![]);
}
