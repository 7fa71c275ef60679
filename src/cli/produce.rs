//! `kilo produce TOPIC`: each line of standard input becomes a record.
//!
//! Lines that are there already go into one request, so that a file is sent fast and typed lines at once. With `acks=all`
//! the producer is idempotent: a line that is sent again after a lost answer is stored once.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::client_args::{ClientArgs, is_retriable};
use super::text::unescape;
use crate::client::{CallError, Cluster, ClusterError, Create, partition_for_key};
use crate::io::real::print_to_stderr;
use crate::io::{Env, Monotonic};
use crate::wire::api::ApiKey;
use crate::wire::batch::{BatchBuilder, RecordBatch};
use crate::wire::codec::Codec;
use crate::wire::error_code::ErrorCode;
use crate::wire::messages::produce_types::{PartitionProduceData, PartitionProduceResponse, TopicProduceData};
use crate::wire::messages::{InitProducerIdRequestData, ProduceRequestData, string};

/// Bytes of lines that go into one round of requests.
const ROUND_BYTES: usize = 256 * 1024;
/// Between two attempts.
const BACKOFF: Duration = Duration::from_millis(100);
/// How long the broker may take for one request.
const BROKER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may take: longer than the broker may.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);

/// Send lines of standard input as records
#[derive(Args, Clone, Debug)]
pub struct ProduceArgs {
    /// Topic to send to
    topic: String,
    #[command(flatten)]
    client: ClientArgs,
    /// Split each line into key and value at the first SEPARATOR; without this, records have no key
    #[arg(short, long, value_name = "SEPARATOR", value_parser = separator)]
    key_separator: Option<String>,
    /// Send everything to this partition, instead of by key or, without keys, in turn
    #[arg(short, long, value_name = "NUMBER")]
    partition: Option<i32>,
    /// When a record counts as sent: stored by all in-sync replicas, by the leader, or not waited for
    #[arg(short, long, value_enum, default_value_t = Acks::All, allow_hyphen_values = true)]
    acks: Acks,
    /// Compress with none, gzip, snappy, lz4 or zstd
    #[arg(short = 'z', long, value_name = "CODEC", default_value = "none", value_parser = codec)]
    compression: Codec,
    /// Give up on a record after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
}

/// When a record counts as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Acks {
    /// Stored by all in-sync replicas.
    #[value(alias = "-1")]
    All,
    /// Stored by the leader.
    #[value(name = "1")]
    One,
    /// Not waited for.
    #[value(name = "0")]
    Zero,
}

impl Acks {
    fn number(self) -> i16 {
        match self {
            Self::All => -1,
            Self::One => 1,
            Self::Zero => 0,
        }
    }
}

fn separator(text: &str) -> Result<String, String> {
    match unescape(text)? {
        separator if separator.is_empty() => Err("the separator is empty".to_owned()),
        separator => Ok(separator),
    }
}

fn codec(name: &str) -> Result<Codec, String> {
    Codec::from_name(name).ok_or_else(|| "known are none, gzip, snappy, lz4, zstd".to_owned())
}

/// Why not everything was sent.
#[derive(Debug, thiserror::Error)]
pub enum ProduceError {
    /// The cluster cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Standard input cannot be read.
    #[error("reading standard input failed: {0}")]
    Input(#[from] io::Error),
    /// A line without a key.
    #[error("line {line} has no key: the separator {separator:?} is not in it. {sent} records were sent before")]
    NoKey {
        /// Its number, from 1.
        line: u64,
        /// The separator.
        separator: String,
        /// Records sent before.
        sent: u64,
    },
    /// The partition asked for is not there.
    #[error("topic {topic} has no partition {partition}, it has {partitions}, numbered from 0")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition asked for.
        partition: i32,
        /// How many there are.
        partitions: usize,
    },
    /// The broker does not take it.
    #[error("partition {partition} of {topic} refuses the records: {error}{}. {sent} records were sent before",
        .message.as_ref().map(|message| format!(", {message}")).unwrap_or_default())]
    Refused {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The answer.
        error: ErrorCode,
        /// What it says besides.
        message: Option<String>,
        /// Records sent before.
        sent: u64,
    },
    /// It did not work out in time.
    #[error("gave up after {after:?}: {last}. {sent} records were sent before")]
    GaveUp {
        /// The time-out.
        after: Duration,
        /// The last failure.
        last: String,
        /// Records sent before.
        sent: u64,
    },
    /// A batch cannot be made or the program is ending.
    #[error("{0}")]
    Internal(String),
}

/// Sends standard input.
pub async fn run(env: Env, args: ProduceArgs) -> Result<(), ProduceError> {
    let sent = produce(&env, args.clone(), Box::new(io::stdin())).await?;
    let records = if sent == 1 { "record" } else { "records" };
    // Nothing comes back with `--acks 0`, not even a refusal.
    let unknown = if args.acks == Acks::Zero { ", without asking whether they are stored (--acks 0)" } else { "" };
    print_to_stderr(&format!("sent {sent} {records} to {}{unknown}\n", args.topic));
    Ok(())
}

type Input = Arc<Mutex<BufReader<Box<dyn Read + Send>>>>;

/// Sends all lines of `input`; tells how many.
pub(super) async fn produce(env: &Env, args: ProduceArgs, input: Box<dyn Read + Send>) -> Result<u64, ProduceError> {
    let input: Input = Arc::new(Mutex::new(BufReader::with_capacity(64 * 1024, input)));
    let mut cluster = args.client.connect(env, REQUEST_TIMEOUT).await?;
    let partitions = cluster.topic(&args.topic, Create::IfMissing).await?.partitions.len();
    if let Some(partition) = args.partition
        && usize::try_from(partition).map_or(true, |partition| partition >= partitions)
    {
        return Err(ProduceError::NoPartition { topic: args.topic, partition, partitions });
    }
    let partitions = i32::try_from(partitions).expect("partitions are numbered by i32");
    let turn = env.rng("produce-partition").i32(0..partitions);
    let mut producer = Producer { env, args, cluster, id: None, sequences: BTreeMap::new(), partitions, turn, sent: 0 };
    loop {
        let lines = read_lines(env, &input).await?;
        if lines.is_empty() {
            break;
        }
        producer.send(lines).await?;
    }
    producer.cluster.close().await;
    Ok(producer.sent)
}

/// Waits for a line and takes those that are there besides. None at the end.
async fn read_lines(env: &Env, input: &Input) -> Result<Vec<Vec<u8>>, ProduceError> {
    let input = input.clone();
    let lines = env.compute(move || {
        let mut input = input.lock().expect("one reader at a time, which does not panic");
        let (mut lines, mut bytes) = (Vec::new(), 0);
        loop {
            let mut line = Vec::new();
            if input.read_until(b'\n', &mut line)? == 0 {
                return Ok(lines);
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            bytes += line.len();
            lines.push(line);
            if bytes >= ROUND_BYTES || !input.buffer().contains(&b'\n') {
                return Ok::<_, io::Error>(lines);
            }
        }
    });
    Ok(lines.await.ok_or_else(|| ProduceError::Internal("the program is ending".to_owned()))??)
}

struct Producer<'a> {
    env: &'a Env,
    args: ProduceArgs,
    cluster: Cluster,
    /// Id and epoch of the idempotent producer.
    id: Option<(i64, i16)>,
    /// The next sequence number of each partition.
    sequences: BTreeMap<i32, i32>,
    partitions: i32,
    /// Where records without a key go next.
    turn: i32,
    sent: u64,
}

/// What came of an attempt.
enum Attempt {
    Done,
    Again(String),
}

impl Producer<'_> {
    /// Sends lines and waits until they are stored.
    async fn send(&mut self, lines: Vec<Vec<u8>>) -> Result<(), ProduceError> {
        let timeout = Duration::from_secs(self.args.timeout);
        let deadline = self.env.now() + timeout;
        if self.args.acks == Acks::All && self.id.is_none() {
            self.take_id(deadline).await?;
        }
        let count = lines.len() as u64;
        let mut pending = self.batches(lines)?;
        loop {
            let last = match self.attempt(&mut pending).await {
                Ok(Attempt::Done) => {
                    self.sent += count;
                    return Ok(());
                }
                Ok(Attempt::Again(reason)) => reason,
                Err(ProduceError::Cluster(error)) if is_retriable(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            self.pause(deadline, last).await?;
        }
    }

    /// Waits before another attempt and looks again who leads the partitions.
    async fn pause(&mut self, deadline: Monotonic, last: String) -> Result<(), ProduceError> {
        if self.env.now() + BACKOFF >= deadline {
            let after = Duration::from_secs(self.args.timeout);
            return Err(ProduceError::GaveUp { after, last, sent: self.sent });
        }
        self.env.sleep(BACKOFF).await;
        match self.cluster.topic(&self.args.topic, Create::Never).await {
            Err(error) if !is_retriable(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Becomes an idempotent producer, where the broker knows such.
    async fn take_id(&mut self, deadline: Monotonic) -> Result<(), ProduceError> {
        loop {
            let last = match self.ask_id().await {
                Ok(None) => return Ok(()),
                Ok(Some(reason)) => reason,
                Err(error) if is_retriable(&error) => error.to_string(),
                Err(error) => return Err(error.into()),
            };
            self.pause(deadline, last).await?;
        }
    }

    async fn ask_id(&mut self) -> Result<Option<String>, ClusterError> {
        let connection = self.cluster.any_broker().await?;
        if connection.version(ApiKey::InitProducerId).is_none() {
            return Ok(None);
        }
        let request = InitProducerIdRequestData { transaction_timeout_ms: 60_000, ..Default::default() };
        let response = connection.call(&request).await?;
        let error = ErrorCode::from(response.error_code);
        if error.is_error() {
            return Ok(Some(format!("no producer id: {error}")));
        }
        self.id = Some((response.producer_id, response.producer_epoch));
        Ok(None)
    }

    /// Makes one batch for each partition that gets records.
    fn batches(&mut self, lines: Vec<Vec<u8>>) -> Result<BTreeMap<i32, RecordBatch>, ProduceError> {
        let now = self.env.wall().0;
        let mut builders = BTreeMap::new();
        let turn = self.turn;
        self.turn = (turn + 1) % self.partitions;
        for (number, line) in lines.iter().enumerate() {
            let (key, value) = match &self.args.key_separator {
                None => (None, &line[..]),
                Some(separator) => {
                    let (key, value) = split(line, separator.as_bytes()).ok_or_else(|| ProduceError::NoKey {
                        line: self.sent + number as u64 + 1,
                        separator: separator.clone(),
                        sent: self.sent,
                    })?;
                    (Some(key), value)
                }
            };
            let by_key = || key.map_or(turn, |key| partition_for_key(key, self.partitions));
            let partition = self.args.partition.unwrap_or_else(by_key);
            let builder = builders.entry(partition).or_insert_with(|| BatchBuilder::new(self.args.compression));
            builder.push(now, key, Some(value));
        }
        let mut batches = BTreeMap::new();
        for (partition, mut builder) in builders {
            let count = builder.count();
            if let Some((id, epoch)) = self.id {
                let sequence = self.sequences.entry(partition).or_insert(0);
                builder = builder.producer(id, epoch, *sequence);
                *sequence = sequence.wrapping_add(count) & i32::MAX;
            }
            let batch = builder.build().map_err(|error| ProduceError::Internal(error.to_string()))?;
            batches.insert(partition, batch);
        }
        Ok(batches)
    }

    /// Sends what is pending once, to all leaders at a time, and takes out what is stored.
    async fn attempt(&mut self, pending: &mut BTreeMap<i32, RecordBatch>) -> Result<Attempt, ProduceError> {
        let mut by_leader = BTreeMap::new();
        for partition in pending.keys() {
            let connection = self.cluster.leader(&self.args.topic, *partition).await?;
            by_leader.entry(connection.peer()).or_insert_with(|| (connection, Vec::new())).1.push(*partition);
        }
        let mut again = None;
        let mut calls = Vec::new();
        for (connection, partitions) in by_leader.into_values() {
            let request = self.request(&partitions, pending);
            if self.args.acks == Acks::Zero {
                match connection.tell(&request).await {
                    Ok(()) => partitions.iter().for_each(|partition| drop(pending.remove(partition))),
                    Err(error) => again = Some(error.to_string()),
                }
            } else {
                calls.push(connection.start(&request));
            }
        }
        for call in calls {
            match async { call?.response().await }.await {
                Err(error @ CallError::Protocol { .. }) => return Err(ClusterError::Call(error).into()),
                Err(error) => again = Some(error.to_string()),
                Ok(response) => {
                    for partition in response.responses.iter().flat_map(|topic| &topic.partition_responses) {
                        again = self.take_response(partition, pending)?.or(again);
                    }
                }
            }
        }
        if pending.is_empty() {
            return Ok(Attempt::Done);
        }
        Ok(Attempt::Again(again.unwrap_or_else(|| "the broker did not answer for all partitions".to_owned())))
    }

    fn request(&self, partitions: &[i32], pending: &BTreeMap<i32, RecordBatch>) -> ProduceRequestData {
        let each = partitions.iter().filter_map(|&index| {
            let records = pending.get(&index)?.to_bytes();
            Some(PartitionProduceData { index, records: Some(records), ..PartitionProduceData::default() })
        });
        let topic = TopicProduceData {
            name: string(&self.args.topic),
            partition_data: each.collect(),
            ..TopicProduceData::default()
        };
        ProduceRequestData {
            acks: self.args.acks.number(),
            timeout_ms: i32::try_from(BROKER_TIMEOUT.as_millis()).expect("a few seconds"),
            topic_data: vec![topic],
            ..ProduceRequestData::default()
        }
    }

    /// Takes out a batch that is stored; tells why it is to be sent again; or fails.
    fn take_response(
        &self,
        response: &PartitionProduceResponse,
        pending: &mut BTreeMap<i32, RecordBatch>,
    ) -> Result<Option<String>, ProduceError> {
        let error = ErrorCode::from(response.error_code);
        if matches!(error, ErrorCode::None | ErrorCode::DuplicateSequenceNumber) {
            pending.remove(&response.index);
            return Ok(None);
        }
        let message = response.error_message.as_ref().map(ToString::to_string);
        if error.is_retriable() {
            let message = message.map(|message| format!(", {message}")).unwrap_or_default();
            return Ok(Some(format!("partition {}: {error}{message}", response.index)));
        }
        let (topic, partition, sent) = (self.args.topic.clone(), response.index, self.sent);
        Err(ProduceError::Refused { topic, partition, error, message, sent })
    }
}

/// Splits at the first separator.
fn split<'a>(line: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = line.windows(separator.len()).position(|window| window == separator)?;
    Some((&line[..at], &line[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::real::block_on_test;

    #[test]
    fn lines_are_split_at_the_first_separator() {
        assert_eq!(split(b"a::b::c", b"::"), Some((&b"a"[..], &b"b::c"[..])));
        assert_eq!(split(b"::", b"::"), Some((&b""[..], &b""[..])));
        assert_eq!(split(b"a:b", b"::"), None);
    }

    /// Gives its runs one by one, as a pipe does.
    struct Runs(Vec<&'static [u8]>);

    impl Read for Runs {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let run = self.0.remove(0);
            out[..run.len()].copy_from_slice(run);
            Ok(run.len())
        }
    }

    #[test]
    fn lines_that_are_there_come_together_and_no_others_are_waited_for() {
        block_on_test(|env| async move {
            let runs: Box<dyn Read + Send> = Box::new(Runs(vec![b"one\ntwo\nthr", b"ee\n", b"\xff\r\n\nlast"]));
            let input: Input = Arc::new(Mutex::new(BufReader::with_capacity(1000, runs)));
            let mut rounds = Vec::new();
            loop {
                let lines = read_lines(&env, &input).await.expect("memory");
                if lines.is_empty() {
                    break;
                }
                rounds.push(lines);
            }
            let expected: [&[&[u8]]; 4] = [&[b"one", b"two"], &[b"three"], &[b"\xff\r", b""], &[b"last"]];
            assert_eq!(rounds, expected);
        });
    }
}
