//! Consumers by assignment: from the beginning to the end and on, now and then from somewhere else; and the last read
//! of everything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kilo::io::Env;
use kilo::wire::ErrorCode;
use kilo::wire::batch::{BatchError, RecordBatch};

use super::admin::{NO_ADMIN, list_topics};
use super::link::{FetchQuestion, Fetched, Link, Lost, Versions, Which};
use super::producer::is_passing;
use super::record;
use super::world::{Phase, World};
use crate::history::{Partition, Read, Response, Seen, Stamp, TimeQuery};
use crate::scenario::Range;

/// What a reader does, drawn by the seed.
#[derive(Clone, Debug)]
pub struct ReaderPlan {
    /// Its number among the readers.
    pub id: u32,
    /// What it reads.
    pub partitions: Vec<Partition>,
    /// Bytes of a whole answer.
    pub max_bytes: i32,
    /// Bytes of one partition.
    pub partition_bytes: i32,
    /// From how many bytes on the broker need not wait.
    pub min_bytes: i32,
    /// How long it may wait, in milliseconds.
    pub max_wait_ms: i32,
    /// 1 to read committed data alone.
    pub isolation: i8,
    /// Chance after an answer that the reader starts somewhere else for a while.
    pub jump: f64,
    /// Milliseconds between two polls that find something.
    pub pause_ms: Range<u32>,
    /// Versions it speaks.
    pub versions: Versions,
}

/// Bytes to which a batch of the workload may decompress.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// A reader that lets the broker wait for less pauses by itself when there is nothing to read, in milliseconds.
const IDLE_MS_MIN: i32 = 50;
/// A reader that has jumped goes on where it was after fewer polls than this.
const LOOK_BACK_POLLS: u32 = 8;
/// Readers ask for times up to so long ago, in milliseconds.
const ASKED_AGO_MS_MAX: i64 = 20_000;
/// The reader number of the last read.
const LAST_READER: u32 = u32::MAX;

struct PollingReader {
    world: Arc<World>,
    env: Env,
    plan: ReaderPlan,
    rng: fastrand::Rng,
    assignment: u32,
    /// The next offset by partition of the plan.
    next: Vec<i64>,
    /// It has jumped back.
    look_back: Option<LookBack>,
    last: bool,
}

struct LookBack {
    /// Polls until it goes on.
    polls: u32,
    /// Where it was.
    left: BTreeMap<Partition, i64>,
}

/// Runs a reader until it is told to stop.
pub async fn run(world: Arc<World>, env: Env, plan: ReaderPlan) {
    let rng = env.rng("reader");
    let next = vec![0; plan.partitions.len()];
    let assignment = world.next_session();
    let mut reader = PollingReader { world, env, plan, rng, assignment, next, look_back: None, last: false };
    while *reader.world.phase().borrow() == Phase::Run {
        if let Some(link) = Link::open(&reader.world, &reader.env).await {
            reader.serve(&link).await;
            link.abort();
        }
        let pause = reader.rng.u64(5..100);
        reader.env.sleep(Duration::from_millis(pause)).await;
    }
}

impl PollingReader {
    async fn serve(&mut self, link: &Link) {
        while *self.world.phase().borrow() == Phase::Run {
            let asked = match self.rng.u8(..) {
                0..20 => self.ask_ends(link).await,
                20..35 => self.ask_by_time(link).await,
                _ => self.poll(link).await,
            };
            if asked.is_err() {
                return;
            }
            if self.look_back.as_ref().is_some_and(|back| back.polls == 0) {
                self.go_on();
            } else if self.look_back.is_none() && self.rng.f64() < self.plan.jump {
                self.jump();
            }
        }
    }

    /// Starts somewhere else, for a few polls: reading on from there would read the whole log again and again.
    fn jump(&mut self) {
        let left: BTreeMap<Partition, i64> =
            self.plan.partitions.iter().copied().zip(self.next.iter().copied()).collect();
        self.look_back = Some(LookBack { polls: self.rng.u32(1..LOOK_BACK_POLLS), left });
        self.assignment = self.world.next_session();
        for next in &mut self.next {
            *next = self.rng.i64(0..=*next);
        }
    }

    /// Goes on where it was before it jumped, unless it has come further.
    fn go_on(&mut self) {
        let Some(LookBack { left, .. }) = self.look_back.take() else { return };
        self.assignment = self.world.next_session();
        for (partition, next) in self.plan.partitions.iter().zip(&mut self.next) {
            *next = left.get(partition).copied().unwrap_or_default().max(*next);
        }
    }

    async fn ask_ends(&mut self, link: &Link) -> Result<(), Lost> {
        let partition = self.plan.partitions[self.rng.usize(..self.plan.partitions.len())];
        self.ask_end(link, partition).await
    }

    async fn ask_by_time(&mut self, link: &Link) -> Result<(), Lost> {
        let partition = self.plan.partitions[self.rng.usize(..self.plan.partitions.len())];
        let ago = self.rng.i64(-1_000..ASKED_AGO_MS_MAX);
        let timestamp = (self.rng.u8(..4) > 0).then(|| self.env.wall().0 - ago);
        let began = self.stamp();
        let told = link.offset_by_time(partition, timestamp).await?;
        if told.error != ErrorCode::None {
            self.refused(partition, told.error).await;
            return Ok(());
        }
        let ended = self.stamp();
        let reader = self.plan.id;
        let query =
            TimeQuery { reader, partition, timestamp, offset: told.offset, found: told.timestamp, began, ended };
        self.world.history().time_queries.push(query);
        Ok(())
    }

    async fn ask_end(&mut self, link: &Link, partition: Partition) -> Result<(), Lost> {
        for which in [Which::Latest, Which::Earliest] {
            let began = self.stamp();
            let told = link.offset(partition, which).await?;
            if told.error == ErrorCode::None {
                self.record(link, began, 0, &told, Response::Offsets, &[]);
            } else {
                self.refused(partition, told.error).await;
            }
        }
        Ok(())
    }

    /// One Fetch of all partitions.
    async fn poll(&mut self, link: &Link) -> Result<(), Lost> {
        let from: Vec<(Partition, i64)> = self.plan.partitions.iter().copied().zip(self.next.iter().copied()).collect();
        let question = FetchQuestion {
            from,
            max_wait_ms: self.plan.max_wait_ms,
            min_bytes: self.plan.min_bytes,
            max_bytes: self.plan.max_bytes,
            partition_bytes: self.plan.partition_bytes,
            isolation: self.plan.isolation,
        };
        if let Some(back) = &mut self.look_back {
            back.polls = back.polls.saturating_sub(1);
        }
        let began = self.stamp();
        let mut bytes = 0;
        for fetched in link.fetch(&question, self.plan.versions.fetch).await? {
            bytes += fetched.records.len();
            self.take(link, began, fetched).await?;
        }
        if bytes == 0 && !self.last && self.plan.max_wait_ms < IDLE_MS_MIN {
            // Asking again at once would spend the run on empty answers.
            self.pause().await;
        } else {
            let pause = self.plan.pause_ms.draw(&mut self.rng);
            self.env.sleep(Duration::from_millis(pause.into())).await;
        }
        // Rotated, as clients do, so that no partition starves behind another's bytes.
        let by = self.rng.usize(..self.next.len());
        self.next.rotate_left(by);
        self.plan.partitions.rotate_left(by);
        Ok(())
    }

    async fn take(&mut self, link: &Link, began: Stamp, fetched: Fetched) -> Result<(), Lost> {
        let Some(at) = self.plan.partitions.iter().position(|&partition| partition == fetched.partition) else {
            self.world.complain("a Fetch answer holds a partition that was not asked for".to_owned());
            return Ok(());
        };
        let from = self.next[at];
        match fetched.error {
            ErrorCode::None => match decode(&fetched.records, from) {
                Ok(seen) => {
                    if let Some(last) = seen.last() {
                        self.next[at] = last.offset + 1;
                    }
                    self.record(link, began, from, &fetched, Response::Records { seen: 0..0 }, &seen);
                }
                Err(what) => {
                    self.world.sim.trace(format_args!("garbled answer: {what}"));
                    self.record(link, began, from, &fetched, Response::Garbled, &[]);
                    self.pause().await;
                }
            },
            ErrorCode::OffsetOutOfRange => {
                self.record(link, began, from, &fetched, Response::OutOfRange, &[]);
                self.ask_end(link, fetched.partition).await?;
                self.assignment = self.world.next_session();
                self.next[at] = 0;
            }
            error => self.refused(fetched.partition, error).await,
        }
        Ok(())
    }

    async fn refused(&mut self, partition: Partition, error: ErrorCode) {
        if !is_passing(error) {
            let (topic, index) = self.world.place(partition);
            self.world.complain(format!("reading {topic}-{index} is refused with {error}"));
        }
        self.pause().await;
    }

    async fn pause(&mut self) {
        let pause = self.rng.u64(5..50);
        self.env.sleep(Duration::from_millis(pause)).await;
    }

    fn stamp(&self) -> Stamp {
        let now_ns = self.world.now_ns();
        self.world.history().stamp(now_ns)
    }

    fn record(&self, link: &Link, began: Stamp, from: i64, told: &Fetched, response: Response, seen: &[Seen]) {
        let now_ns = self.world.now_ns();
        let mut history = self.world.history();
        let ended = history.stamp(now_ns);
        // An error answer tells no offsets, whatever it holds in their place.
        let told_offsets = told.error == ErrorCode::None;
        let read = Read {
            reader: self.plan.id,
            assignment: self.assignment,
            partition: told.partition,
            from,
            began,
            ended,
            incarnation: link.incarnation,
            high_watermark: if told_offsets { told.high_watermark } else { -1 },
            log_start: if told_offsets { told.log_start } else { -1 },
            last: self.last,
            response,
        };
        history.end_read(read, seen);
    }
}

/// The records of a Fetch answer from an offset on. A batch that is cut off at the end is left for the next answer.
fn decode(records: &Bytes, from: i64) -> Result<Vec<Seen>, String> {
    let mut rest = records.clone();
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let batch = match RecordBatch::take_first(&mut rest) {
            Ok(batch) => batch,
            Err(BatchError::Truncated { .. }) if rest.len() < records.len() => break,
            Err(error) => return Err(error.to_string()),
        };
        if !batch.verify_crc() {
            return Err(format!("the batch at offset {} has a wrong CRC", batch.base_offset()));
        }
        for record in batch.records(BATCH_BYTES_MAX).map_err(|error| error.to_string())? {
            let record = record.map_err(|error| error.to_string())?;
            if record.offset >= from {
                let (value, digest) = record::identify(&record);
                seen.push(Seen { offset: record.offset, value, digest });
            }
        }
    }
    Ok(seen)
}

/// Reads every partition from the beginning to its end, then lists the topics; returns when all that is done.
pub async fn last_read(world: Arc<World>, env: Env) {
    let plan = ReaderPlan {
        id: LAST_READER,
        partitions: (0..world.partitions.len() as u32).map(Partition).collect(),
        max_bytes: 4 << 20,
        partition_bytes: 1 << 20,
        min_bytes: 0,
        max_wait_ms: 0,
        isolation: 0,
        jump: 0.0,
        pause_ms: Range(0, 0),
        versions: Versions { produce: 9, fetch: 12 },
    };
    let rng = env.rng("last read");
    let next = vec![0; plan.partitions.len()];
    let assignment = world.next_session();
    let mut reader = PollingReader { world, env, plan, rng, assignment, next, look_back: None, last: true };
    loop {
        if let Some(link) = Link::open(&reader.world, &reader.env).await {
            // Whatever was begun before is known to the broker's log when the first answer is here.
            while !reader.is_complete() {
                if reader.poll(&link).await.is_err() {
                    break;
                }
            }
            let listed = reader.is_complete() && list_topics(&reader.world, &link, NO_ADMIN).await;
            link.abort();
            if listed {
                return;
            }
        }
        reader.pause().await;
    }
}

impl PollingReader {
    /// Whether everything has been read; marks the partitions in the history where that is so.
    fn is_complete(&self) -> bool {
        let mut history = self.world.history();
        let mut complete = 0;
        for (&partition, &next) in self.plan.partitions.iter().zip(&self.next) {
            let at_end = |read: &&Read| {
                read.last
                    && read.partition == partition
                    && read.from == next
                    && read.high_watermark == next
                    && history.records(read).is_empty()
            };
            let done = history.last_read_complete.contains(&partition)
                || history.reads.iter().rev().take(1000).any(|read| at_end(&read));
            if done && !history.last_read_complete.contains(&partition) {
                history.last_read_complete.push(partition);
            }
            complete += usize::from(done);
        }
        complete == self.plan.partitions.len()
    }
}
