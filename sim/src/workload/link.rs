//! A client's connection to the broker: the few requests that the workload makes, their answers in the workload's own
//! terms. The only file here that knows [`Connection`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kilo::client::{CallError, ConnectError, Connection, ConnectionConfig};
use kilo::io::Env;
use kilo::wire::ErrorCode;
use kilo::wire::batch::RecordBatch;
use kilo::wire::codec::Codec;
use kilo::wire::messages::{self, Request, fetch_types, list_offsets, produce_types, string};

use super::world::World;
use crate::history::{AttemptEnd, Partition, Topic};

/// The longest that the workload lets a broker wait before it answers.
pub const MAX_WAIT_MAX: Duration = Duration::from_millis(500);

/// In place of a time: a record of the largest timestamp (KIP-734).
const LATEST_TIMESTAMP: i64 = -3;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The request was surely never sent.
    NeverSent,
    /// The connection ended; it may have been received and done.
    Unknown,
    /// No answer came in time; it may have been received and done.
    TimedOut,
}

/// A partition's part of a Produce answer.
#[derive(Clone, Copy, Debug)]
pub struct Produced {
    /// Its error.
    pub error: ErrorCode,
    /// Offset of the first record; −1 with an error.
    pub base_offset: i64,
}

/// An answer to a Produce request, or the lack of one, as the end of an attempt.
pub fn attempt_end(response: &Result<Produced, Lost>, acks: i16) -> AttemptEnd {
    match response {
        Ok(Produced { error: ErrorCode::None, .. }) if acks == 0 => AttemptEnd::Unasked,
        Ok(Produced { error: ErrorCode::None, base_offset }) => AttemptEnd::Acked { base_offset: *base_offset },
        Ok(Produced { error, .. }) => AttemptEnd::Refused(error.name()),
        Err(Lost::NeverSent) => AttemptEnd::NeverSent,
        Err(Lost::Unknown) => AttemptEnd::ConnectionLost,
        Err(Lost::TimedOut) => AttemptEnd::TimedOut,
    }
}

/// What to fetch.
#[derive(Clone, Debug)]
pub struct FetchQuestion {
    /// Partitions, each with the offset to read from.
    pub from: Vec<(Partition, i64)>,
    /// How long the broker may wait, in milliseconds.
    pub max_wait_ms: i32,
    /// From how many bytes on it need not.
    pub min_bytes: i32,
    /// Bytes of a whole answer.
    pub max_bytes: i32,
    /// Bytes of one partition.
    pub partition_bytes: i32,
    /// 1 to read committed data alone.
    pub isolation: i8,
}

/// A partition's part of a Fetch or ListOffsets answer.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Which.
    pub partition: Partition,
    /// Its error.
    pub error: ErrorCode,
    /// −1 if not told.
    pub high_watermark: i64,
    /// −1 if not told.
    pub log_start: i64,
    /// Batches, the last one perhaps in part.
    pub records: Bytes,
}

/// A partition's part of a ListOffsets answer.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Its error.
    pub error: ErrorCode,
    /// −1 for none.
    pub offset: i64,
    /// −1 for none.
    pub timestamp: i64,
}

/// A topic to create.
#[derive(Clone, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Its number of partitions.
    pub partitions: i32,
    /// Whether it is only to be checked.
    pub validate_only: bool,
}

/// A topic's part of a CreateTopics answer.
#[derive(Clone, Debug)]
pub struct CreateResponse {
    /// Its error.
    pub error: ErrorCode,
    /// The topic; means nothing with an error.
    pub topic: Topic,
}

/// A connection.
pub struct Link {
    world: Arc<World>,
    connection: Connection,
    /// The incarnation of the broker at the other end.
    pub incarnation: u32,
}

/// Versions that the workload uses, drawn by each client.
#[derive(Clone, Copy, Debug)]
pub struct Versions {
    /// Of Produce.
    pub produce: i16,
    /// Of Fetch.
    pub fetch: i16,
}

impl Versions {
    /// Draws versions. Zstandard came with Produce 7 and Fetch 10: older versions of either may not be used with it.
    pub fn draw(codecs: &[Codec], rng: &mut fastrand::Rng) -> Self {
        let zstd = codecs.contains(&Codec::Zstd);
        let mut pick = |old: &[i16], new: &[i16]| {
            let from = if zstd { new } else { old };
            from[rng.usize(..from.len())]
        };
        Self { produce: pick(&[3, 5, 7, 8, 9], &[7, 8, 9]), fetch: pick(&[4, 5, 7, 9, 11, 12], &[10, 11, 12]) }
    }
}

impl Link {
    /// Connects; `None` if that does not work within the request time-out.
    pub async fn open(world: &Arc<World>, env: &Env) -> Option<Self> {
        let config = ConnectionConfig {
            client_id: "workload".to_owned(),
            connect_timeout: world.request_timeout,
            request_timeout: world.request_timeout + MAX_WAIT_MAX,
            response_bytes_max: 64 << 20,
        };
        match Connection::connect(env, world.broker, config).await {
            Ok(connection) => Some(Self { world: world.clone(), connection, incarnation: world.incarnation() }),
            Err(ConnectError::Handshake { .. } | ConnectError::Unreachable { .. } | ConnectError::TimedOut { .. }) => {
                None
            }
        }
    }

    /// Ends the connection at once; calls under way fail.
    pub fn abort(&self) {
        self.connection.abort();
    }

    async fn call<R: Request>(&self, request: R, version: i16) -> Result<R::Response, Lost> {
        // Queued here and now: requests leave in the order of these calls.
        let call = self.connection.start_version(&request, version).map_err(|error| self.lost(&error))?;
        call.response().await.map_err(|error| self.lost(&error))
    }

    fn lost(&self, error: &CallError) -> Lost {
        if matches!(error, CallError::Protocol { .. }) {
            self.world.complain(error.to_string());
        }
        match error {
            _ if error.is_surely_not_sent() => Lost::NeverSent,
            CallError::TimedOut { .. } => Lost::TimedOut,
            _ => Lost::Unknown,
        }
    }

    /// Sends a batch. With `acks` 0 the answer comes at once and means nothing.
    pub async fn produce(
        &self,
        partition: Partition,
        batch: &RecordBatch,
        acks: i16,
        version: i16,
    ) -> Result<Produced, Lost> {
        let (topic, index) = self.world.place(partition);
        let records = Some(batch.to_bytes());
        let data = produce_types::PartitionProduceData { index, records, ..Default::default() };
        let topic_data =
            produce_types::TopicProduceData { name: string(topic), partition_data: vec![data], ..Default::default() };
        let timeout_ms = i32::try_from(self.world.request_timeout.as_millis()).unwrap_or(i32::MAX);
        let request =
            messages::ProduceRequestData { acks, timeout_ms, topic_data: vec![topic_data], ..Default::default() };
        if acks == 0 {
            self.connection.tell(&request).await.map_err(|error| self.lost(&error))?;
            return Ok(Produced { error: ErrorCode::None, base_offset: -1 });
        }
        let response = self.call(request, version).await?;
        let parts = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        let Some(part) = parts.clone().next().filter(|part| part.index == index) else {
            self.world.complain(format!("a Produce answer leaves out the partition that was asked for: {response:?}"));
            return Err(Lost::Unknown);
        };
        Ok(Produced { error: ErrorCode::from(part.error_code), base_offset: part.base_offset })
    }

    /// Reads.
    pub async fn fetch(&self, question: &FetchQuestion, version: i16) -> Result<Vec<Fetched>, Lost> {
        let mut topics: Vec<fetch_types::FetchTopic> = Vec::new();
        for &(partition, fetch_offset) in &question.from {
            let (topic, index) = self.world.place(partition);
            let at = topics.iter().position(|known| known.topic.as_str() == topic).unwrap_or_else(|| {
                topics.push(fetch_types::FetchTopic { topic: string(topic), ..Default::default() });
                topics.len() - 1
            });
            let wanted = fetch_types::FetchPartition {
                partition: index,
                fetch_offset,
                partition_max_bytes: question.partition_bytes,
                ..Default::default()
            };
            topics[at].partitions.push(wanted);
        }
        let request = messages::FetchRequestData {
            max_wait_ms: question.max_wait_ms,
            min_bytes: question.min_bytes,
            max_bytes: question.max_bytes,
            isolation_level: question.isolation,
            topics,
            ..Default::default()
        };
        let response = self.call(request, version).await?;
        if response.error_code != 0 {
            self.world.complain(format!("a Fetch as a whole is refused: {}", ErrorCode::from(response.error_code)));
        }
        let mut fetched = Vec::new();
        for topic in &response.responses {
            for part in &topic.partitions {
                let Some(partition) = self.world.partition(topic.topic.as_str(), part.partition_index) else {
                    self.world.complain(format!("a Fetch answer holds {}-{}", topic.topic, part.partition_index));
                    continue;
                };
                fetched.push(Fetched {
                    partition,
                    error: ErrorCode::from(part.error_code),
                    high_watermark: part.high_watermark,
                    log_start: part.log_start_offset,
                    records: part.records.clone().unwrap_or_default(),
                });
            }
        }
        Ok(fetched)
    }

    /// Asks for the end (or, with `earliest`, the start) of a partition.
    pub async fn offset(&self, partition: Partition, which: Which) -> Result<Fetched, Lost> {
        let timestamp = if which == Which::Earliest { -2 } else { -1 };
        let Placed { error, offset, .. } = self.list_offsets(partition, timestamp).await?;
        let told = |wanted| if which == wanted && error == ErrorCode::None { offset } else { -1 };
        let (high_watermark, log_start) = (told(Which::Latest), told(Which::Earliest));
        Ok(Fetched { partition, error, high_watermark, log_start, records: Bytes::new() })
    }

    /// Asks for the first record of this time or later; with `None` for a record of the latest time.
    pub async fn offset_by_time(&self, partition: Partition, timestamp: Option<i64>) -> Result<Placed, Lost> {
        self.list_offsets(partition, timestamp.unwrap_or(LATEST_TIMESTAMP)).await
    }

    async fn list_offsets(&self, partition: Partition, timestamp: i64) -> Result<Placed, Lost> {
        let (topic, index) = self.world.place(partition);
        let wanted = list_offsets::ListOffsetsPartition { partition_index: index, timestamp, ..Default::default() };
        let topics = vec![list_offsets::ListOffsetsTopic {
            name: string(topic),
            partitions: vec![wanted],
            ..Default::default()
        }];
        let request = messages::ListOffsetsRequestData { replica_id: -1, topics, ..Default::default() };
        let response = self.call(request, 7).await?;
        let Some(part) = response.topics.iter().flat_map(|topic| &topic.partitions).next() else {
            self.world.complain(format!("a ListOffsets answer leaves out what was asked for: {response:?}"));
            return Err(Lost::Unknown);
        };
        Ok(Placed { error: ErrorCode::from(part.error_code), offset: part.offset, timestamp: part.timestamp })
    }

    /// Asks for a producer id and epoch.
    pub async fn producer_id(&self) -> Result<(ErrorCode, i64, i16), Lost> {
        let request = messages::InitProducerIdRequestData {
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        let response = self.call(request, 4).await?;
        Ok((ErrorCode::from(response.error_code), response.producer_id, response.producer_epoch))
    }

    /// Creates topics, or checks whether they could be if the first of them says so; one answer a topic.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Result<Vec<CreateResponse>, Lost> {
        let creatable = |topic: &NewTopic| messages::create_topics::CreatableTopic {
            name: string(&topic.name),
            num_partitions: topic.partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let request = messages::CreateTopicsRequestData {
            topics: topics.iter().map(creatable).collect(),
            timeout_ms: 10_000,
            validate_only: topics.first().is_some_and(|topic| topic.validate_only),
            ..Default::default()
        };
        let response = self.call(request, 7).await?;
        for topic in response.topics.iter().filter(|topic| topic.error_code == 0) {
            self.world.learn_topic_id(topic.name.as_str(), hex(topic.topic_id.to_bytes()));
        }
        let told = |name: &str| response.topics.iter().find(|topic| topic.name.as_str() == name);
        let mut responses = Vec::with_capacity(topics.len());
        for NewTopic { name, .. } in topics {
            let Some(topic) = told(name) else {
                self.world.complain(format!("a CreateTopics answer leaves out {name}: {response:?}"));
                return Err(Lost::Unknown);
            };
            let (id, partitions) = (topic.topic_id.to_bytes(), topic.num_partitions);
            let error = ErrorCode::from(topic.error_code);
            responses.push(CreateResponse { error, topic: Topic { name: name.clone(), id, partitions } });
        }
        Ok(responses)
    }

    /// Lists all topics.
    pub async fn topics(&self) -> Result<Vec<Topic>, Lost> {
        let response = self.call(messages::MetadataRequestData { topics: None, ..Default::default() }, 12).await?;
        let mut topics = Vec::with_capacity(response.topics.len());
        for topic in &response.topics {
            let name = topic.name.as_ref().map(ToString::to_string).unwrap_or_default();
            if topic.error_code != 0 {
                let error = ErrorCode::from(topic.error_code);
                self.world.complain(format!("a list of all topics has {error} for {name}"));
            }
            let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            topics.push(Topic { name, id: topic.topic_id.to_bytes(), partitions });
        }
        Ok(topics)
    }
}

/// Which end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Its start.
    Earliest,
    /// Its end.
    Latest,
}

/// A topic's id as the broker writes it in its own names.
fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
