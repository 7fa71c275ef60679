//! `kilo consume TOPIC`: prints records as they come.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;

use super::client_args::{ClientArgs, is_retriable};
use super::text::RecordFormat;
use crate::client::{Cluster, ClusterError, Connection, Create};
use crate::io::real::{print_to_stderr, reader_of_stdout_is_gone};
use crate::io::{Env, Monotonic};
use crate::wire::batch::{BatchError, RecordBatch};
use crate::wire::error_code::ErrorCode;
use crate::wire::messages::fetch_types::{FetchPartition, FetchTopic, PartitionData};
use crate::wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use crate::wire::messages::{FetchRequestData, ListOffsetsRequestData, string};

/// How long the broker waits for records before it answers without any.
const WAIT: Duration = Duration::from_millis(500);
const FETCH_BYTES_MAX: i32 = 50 * 1024 * 1024;
const PARTITION_BYTES_MAX: i32 = 1024 * 1024;
/// Bytes that may come out of one batch.
const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;
const BACKOFF: Duration = Duration::from_millis(200);
/// How long failures in a row are put up with.
const PATIENCE: Duration = Duration::from_secs(30);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timestamps that ListOffsets takes for the ends of the log.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// Print the records of a topic
#[derive(Args, Clone, Debug)]
pub struct ConsumeArgs {
    /// Topic to read
    topic: String,
    #[command(flatten)]
    client: ClientArgs,
    /// Start with the oldest record, not with the next new one
    #[arg(long, conflicts_with = "offset")]
    from_beginning: bool,
    /// Start at this offset; -N for the last N records of each partition
    #[arg(short, long, value_name = "OFFSET", allow_hyphen_values = true, value_parser = offset)]
    offset: Option<i64>,
    /// Read this partition only
    #[arg(short, long, value_name = "NUMBER")]
    partition: Option<i32>,
    /// End after so many records
    #[arg(short = 'n', long, value_name = "COUNT")]
    max_messages: Option<u64>,
    /// End where the log ends at the start, instead of waiting for new records
    #[arg(short, long)]
    exit: bool,
    /// How to print a record: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, %h headers
    #[arg(short, long, value_name = "FORMAT", default_value = "%s\\n", value_parser = RecordFormat::parse)]
    format: RecordFormat,
}

fn offset(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "expected a number: an offset, or -N for the last N records".to_owned())
}

/// Why consuming ended.
#[derive(Debug, thiserror::Error)]
pub enum ConsumeError {
    /// The cluster cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// There is no such topic.
    #[error("there is no topic {topic}. `kilo produce {topic}` creates it, where auto.create.topics.enable is on")]
    NoTopic {
        /// The topic.
        topic: String,
    },
    /// There is no such partition.
    #[error("topic {topic} has no partition {partition}, it has {partitions}, numbered from 0")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition asked for.
        partition: i32,
        /// How many there are.
        partitions: usize,
    },
    /// The offset is not in the log.
    #[error("partition {partition} has no offset {offset}: --from-beginning starts with the oldest record there is")]
    OutOfRange {
        /// The partition.
        partition: i32,
        /// The offset asked for.
        offset: i64,
    },
    /// The broker refuses.
    #[error("partition {partition} of {topic}: {error}")]
    Refused {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The answer.
        error: ErrorCode,
    },
    /// What the broker sends is damaged.
    #[error("partition {partition}, near offset {offset}: {source}")]
    Damaged {
        /// The partition.
        partition: i32,
        /// The offset that was to be read.
        offset: i64,
        /// What is wrong.
        source: BatchError,
    },
    /// It kept failing.
    #[error("gave up after {PATIENCE:?} of failures: {last}")]
    GaveUp {
        /// The last failure.
        last: String,
    },
    /// The records cannot be printed.
    #[error("writing to standard output failed: {0}")]
    Output(io::Error),
    /// The program is ending.
    #[error("the program is ending")]
    Ending,
}

/// Prints records to standard output.
pub async fn run(env: Env, args: ConsumeArgs) -> Result<(), ConsumeError> {
    let waits_for_new = args.max_messages.is_none() && !args.exit;
    if waits_for_new && io::stderr().is_terminal() {
        let from_end = !args.from_beginning && args.offset.is_none();
        let hint = if from_end { "--from-beginning prints those that are there" } else { "--exit ends without them" };
        print_to_stderr(&format!("waiting for new records; {hint} (Ctrl-C ends)\n"));
    }
    consume(env, args, Arc::new(Mutex::new(io::stdout())), reader_of_stdout_is_gone).await
}

pub(super) type Output = Arc<Mutex<dyn Write + Send>>;

/// Prints to `output` as long as somebody reads it.
pub(super) async fn consume(
    env: Env,
    args: ConsumeArgs,
    output: Output,
    reader_is_gone: fn() -> bool,
) -> Result<(), ConsumeError> {
    let cluster = args.client.connect(&env, REQUEST_TIMEOUT).await?;
    let left = args.max_messages.unwrap_or(u64::MAX);
    let exit = args.exit;
    let mut consumer = Consumer {
        env,
        args,
        cluster,
        output,
        positions: BTreeMap::new(),
        ends: BTreeMap::new(),
        left,
        failing_since: None,
    };
    let partitions = consumer.partitions().await?;
    consumer.retrying(Step::Start(partitions)).await?;
    while consumer.left > 0 && !(exit && consumer.positions.is_empty()) {
        // Whoever has read enough (`head`) is noticed when something is written to it, or else here.
        if consumer.retrying(Step::Fetch).await? == Flow::ReaderGone || reader_is_gone() {
            break;
        }
    }
    consumer.cluster.close().await;
    Ok(())
}

/// What can be tried again.
enum Step {
    /// Finds where to start in these partitions.
    Start(Vec<i32>),
    /// Fetches and prints once.
    Fetch,
}

#[derive(PartialEq, Eq)]
enum Flow {
    Continue,
    /// Nobody reads what is printed any more.
    ReaderGone,
}

struct Consumer {
    env: Env,
    args: ConsumeArgs,
    cluster: Cluster,
    output: Output,
    /// The next offset of each partition that is read.
    positions: BTreeMap<i32, i64>,
    /// With `--exit`: where each partition is done.
    ends: BTreeMap<i32, i64>,
    /// Records that may still be printed.
    left: u64,
    failing_since: Option<Monotonic>,
}

impl Consumer {
    /// The partitions to read.
    async fn partitions(&mut self) -> Result<Vec<i32>, ConsumeError> {
        let topic = match self.cluster.topic(&self.args.topic, Create::Never).await {
            Err(ClusterError::Topic { error: ErrorCode::UnknownTopicOrPartition, topic }) => {
                return Err(ConsumeError::NoTopic { topic });
            }
            topic => topic?,
        };
        let all: Vec<_> = topic.partitions.iter().map(|partition| partition.index).collect();
        match self.args.partition {
            None => Ok(all),
            Some(partition) if all.contains(&partition) => Ok(vec![partition]),
            Some(partition) => Err(ConsumeError::NoPartition { topic: topic.name, partition, partitions: all.len() }),
        }
    }

    /// Does a step until it works, looking again for the leaders after each failure.
    async fn retrying(&mut self, step: Step) -> Result<Flow, ConsumeError> {
        loop {
            let result = match &step {
                Step::Start(partitions) => self.find_start(partitions).await.map(|()| Flow::Continue),
                Step::Fetch => self.fetch_once().await,
            };
            let last = match result {
                Ok(flow) => {
                    self.failing_since = None;
                    return Ok(flow);
                }
                Err(ConsumeError::Cluster(error)) if is_retriable(&error) => error.to_string(),
                Err(ConsumeError::Refused { partition, error, .. }) if error.is_retriable() => {
                    format!("partition {partition}: {error}")
                }
                Err(error) => return Err(error),
            };
            let now = self.env.now();
            let since = *self.failing_since.get_or_insert(now);
            if now - since > PATIENCE {
                return Err(ConsumeError::GaveUp { last });
            }
            self.env.sleep(BACKOFF).await;
            match self.cluster.topic(&self.args.topic, Create::Never).await {
                Err(error) if !is_retriable(&error) => return Err(error.into()),
                _ => {}
            }
        }
    }

    async fn find_start(&mut self, partitions: &[i32]) -> Result<(), ConsumeError> {
        let latest = self.list_offsets(partitions, LATEST).await?;
        let earliest = self.list_offsets(partitions, EARLIEST).await?;
        for (&partition, &end) in &latest {
            let first = earliest.get(&partition).copied().unwrap_or(0);
            let start = match self.args.offset {
                Some(offset) if offset < 0 => end.saturating_add(offset).max(first),
                Some(offset) => offset,
                None if self.args.from_beginning => first,
                None => end,
            };
            if !(first..=end).contains(&start) {
                return Err(ConsumeError::OutOfRange { partition, offset: start });
            }
            if !self.args.exit || start < end {
                self.positions.insert(partition, start);
                self.ends.insert(partition, end);
            }
        }
        Ok(())
    }

    async fn list_offsets(&mut self, partitions: &[i32], timestamp: i64) -> Result<BTreeMap<i32, i64>, ConsumeError> {
        let mut calls = Vec::new();
        for (connection, partitions) in self.by_leader(partitions).await? {
            let each = partitions.iter().map(|&partition_index| ListOffsetsPartition {
                partition_index,
                timestamp,
                ..ListOffsetsPartition::default()
            });
            let topic = ListOffsetsTopic {
                name: string(&self.args.topic),
                partitions: each.collect(),
                ..ListOffsetsTopic::default()
            };
            let request = ListOffsetsRequestData { replica_id: -1, topics: vec![topic], ..Default::default() };
            calls.push(connection.start(&request).map_err(ClusterError::Call)?);
        }
        let mut offsets = BTreeMap::new();
        for call in calls {
            let response = call.response().await.map_err(ClusterError::Call)?;
            for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
                self.check(partition.partition_index, partition.error_code)?;
                offsets.insert(partition.partition_index, partition.offset);
            }
        }
        Ok(offsets)
    }

    /// The connections to the leaders of partitions, each with its partitions.
    async fn by_leader(&mut self, partitions: &[i32]) -> Result<Vec<(Connection, Vec<i32>)>, ConsumeError> {
        let mut by_leader = BTreeMap::new();
        for &partition in partitions {
            let connection = self.cluster.leader(&self.args.topic, partition).await?;
            by_leader.entry(connection.peer()).or_insert_with(|| (connection, Vec::new())).1.push(partition);
        }
        Ok(by_leader.into_values().collect())
    }

    async fn fetch_once(&mut self) -> Result<Flow, ConsumeError> {
        let partitions: Vec<_> = self.positions.keys().copied().collect();
        let mut calls = Vec::new();
        for (connection, partitions) in self.by_leader(&partitions).await? {
            calls.push(connection.start(&self.fetch_request(&partitions)).map_err(ClusterError::Call)?);
        }
        for call in calls {
            let response = call.response().await.map_err(ClusterError::Call)?;
            let mut text = Vec::new();
            let mut result = Ok(());
            for partition in response.responses.into_iter().flat_map(|topic| topic.partitions) {
                result = self.take_partition(partition, &mut text);
                if result.is_err() {
                    break;
                }
            }
            // What came before a failure is printed first.
            if self.write(text).await? == Flow::ReaderGone {
                return Ok(Flow::ReaderGone);
            }
            result?;
        }
        Ok(Flow::Continue)
    }

    fn fetch_request(&self, partitions: &[i32]) -> FetchRequestData {
        let each = partitions.iter().filter_map(|partition| {
            let fetch_offset = *self.positions.get(partition)?;
            Some(FetchPartition {
                partition: *partition,
                fetch_offset,
                partition_max_bytes: PARTITION_BYTES_MAX,
                ..FetchPartition::default()
            })
        });
        let topic = FetchTopic { topic: string(&self.args.topic), partitions: each.collect(), ..FetchTopic::default() };
        FetchRequestData {
            max_wait_ms: i32::try_from(WAIT.as_millis()).expect("less than a second"),
            min_bytes: 1,
            max_bytes: FETCH_BYTES_MAX,
            topics: vec![topic],
            ..FetchRequestData::default()
        }
    }

    /// Prints the records of one partition's answer into `text` and moves on.
    fn take_partition(&mut self, response: PartitionData, text: &mut Vec<u8>) -> Result<(), ConsumeError> {
        let partition = response.partition_index;
        let Some(&position) = self.positions.get(&partition) else { return Ok(()) };
        if ErrorCode::from(response.error_code) == ErrorCode::OffsetOutOfRange {
            return Err(ConsumeError::OutOfRange { partition, offset: position });
        }
        self.check(partition, response.error_code)?;
        let mut bytes = response.records.unwrap_or_default();
        while self.left > 0 && !bytes.is_empty() {
            let position = self.positions.get(&partition).copied().unwrap_or(position);
            match self.take_batch(partition, position, &mut bytes, text) {
                // The last batch may be cut off.
                Err(BatchError::Truncated { .. }) => break,
                result => result.map_err(|source| ConsumeError::Damaged { partition, offset: position, source })?,
            }
        }
        let position = self.positions.get(&partition).copied().unwrap_or(position);
        if self.args.exit && self.ends.get(&partition).is_some_and(|&end| position >= end) {
            self.positions.remove(&partition);
        }
        Ok(())
    }

    fn take_batch(
        &mut self,
        partition: i32,
        position: i64,
        bytes: &mut Bytes,
        text: &mut Vec<u8>,
    ) -> Result<(), BatchError> {
        let batch = RecordBatch::take_first(bytes)?;
        batch.check_crc()?;
        let end = if self.args.exit { self.ends.get(&partition).copied() } else { None };
        let end = end.unwrap_or(i64::MAX);
        if !batch.is_control() {
            for record in batch.records(BATCH_BYTES_MAX)? {
                let record = record?;
                // A batch is sent whole, from its first record on.
                if record.offset < position || record.offset >= end {
                    continue;
                }
                if self.left == 0 {
                    return Ok(());
                }
                self.args.format.print(text, &self.args.topic, partition, &record);
                self.left -= 1;
            }
        }
        self.positions.insert(partition, batch.last_offset() + 1);
        Ok(())
    }

    fn check(&self, partition: i32, error: i16) -> Result<(), ConsumeError> {
        match ErrorCode::from(error) {
            ErrorCode::None => Ok(()),
            error => Err(ConsumeError::Refused { topic: self.args.topic.clone(), partition, error }),
        }
    }

    async fn write(&self, text: Vec<u8>) -> Result<Flow, ConsumeError> {
        if text.is_empty() {
            return Ok(Flow::Continue);
        }
        let output = self.output.clone();
        let written = self.env.compute(move || {
            let mut output = output.lock().expect("one writer at a time, which does not panic");
            output.write_all(&text).and_then(|()| output.flush())
        });
        match written.await.ok_or(ConsumeError::Ending)? {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Flow::ReaderGone),
            Err(error) => Err(ConsumeError::Output(error)),
            Ok(()) => Ok(Flow::Continue),
        }
    }
}
