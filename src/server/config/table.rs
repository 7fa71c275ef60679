//! The one table of the broker's keys: field, type, key, kind, default, documentation.

use std::collections::BTreeSet;

use super::setting::{ConfigError, Values};
use super::value::{Endpoint, ProduceValidation, SyncMode, Value};
use crate::metadata::config_def::Kind;

/// One key of the broker's configuration.
#[derive(Debug)]
pub struct ConfigKey {
    /// The key, by Kafka's name where Kafka has it.
    pub name: &'static str,
    /// Its type and bounds.
    pub kind: Kind,
    /// The value when nothing else is said.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
}

const fn int(min: i32) -> Kind {
    Kind::Int { min, max: i32::MAX }
}

const fn long(min: i64) -> Kind {
    Kind::Long { min, max: i64::MAX }
}

macro_rules! config_table {
    ($($field:ident: $type:ty = $name:literal, $kind:expr, $default:literal, $doc:literal;)*) => {
        /// The broker's configuration, typed and checked. Made by [`Config::resolve`].
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $(#[doc = $doc] pub $field: $type,)*
            /// The keys that the operator set.
            pub set: BTreeSet<&'static str>,
        }

        static KEYS: &[ConfigKey] = &[$(ConfigKey { name: $name, kind: $kind, default: $default, doc: $doc },)*];

        impl Config {
            pub(super) fn from_values(values: &Values) -> Result<Self, ConfigError> {
                Ok(Self {
                    $($field: values.parse::<$type>($name, $default)?,)*
                    set: values.set(),
                })
            }

            /// Every key with its value, in the table's order.
            pub fn entries(&self) -> Vec<(&'static ConfigKey, String)> {
                let values = [$(Value::show(&self.$field),)*];
                KEYS.iter().zip(values).collect()
            }
        }
    };
}

config_table! {
    advertised_listeners: Option<Endpoint> = "advertised.listeners", Kind::Text, "", "The host:port that clients are told to use. Empty means the listener's; behind a wildcard listener, each client is told the address that it reached.";
    auto_create_topics_enable: bool = "auto.create.topics.enable", Kind::Boolean, "true", "Whether a topic that a client asks for by name is created.";
    connections_max_idle_ms: i64 = "connections.max.idle.ms", long(0), "600000", "A connection that sends nothing for so long is closed; 0 means never. In milliseconds.";
    default_replication_factor: i32 = "default.replication.factor", Kind::Int { min: 1, max: 32_767 }, "1", "Replicas of a topic that does not say how many.";
    fetch_max_bytes: i32 = "fetch.max.bytes", int(1024), "57671680", "The most bytes of records in one answer, whatever the client asks for. The first batch always passes.";
    listeners: Endpoint = "listeners", Kind::Text, "127.0.0.1:9092", "Where to listen: host:port or PLAINTEXT://host:port. Port 0 lets the system choose.";
    log_cleanup_policy: String = "log.cleanup.policy", Kind::List(&["compact", "delete"]), "delete", "What becomes of old segments of topics that do not say.";
    log_dirs: String = "log.dirs", Kind::Text, "./kilo-data", "The data folder.";
    log_flush_interval_messages: i64 = "log.flush.interval.messages", long(1), "1000", "Segment files are flushed after so many messages. Acknowledgements wait for the write-ahead log, not for this.";
    log_index_interval_bytes: i32 = "log.index.interval.bytes", int(0), "1048576", "A sparse index entry at least every so many bytes.";
    log_index_interval_messages: i32 = "log.index.interval.messages", int(0), "1000", "A sparse index entry at least every so many messages; 0 switches this rule off.";
    log_message_timestamp_after_max_ms: i64 = "log.message.timestamp.after.max.ms", long(0), "3600000", "How far a record's timestamp may lie after the broker's clock, in milliseconds.";
    log_message_timestamp_before_max_ms: i64 = "log.message.timestamp.before.max.ms", long(0), "9223372036854775807", "How far a record's timestamp may lie before the broker's clock, in milliseconds.";
    log_message_timestamp_type: String = "log.message.timestamp.type", Kind::Word(&["CreateTime", "LogAppendTime"]), "CreateTime", "Whose clock stamps a record: the producer's or the broker's.";
    log_roll_ms: i64 = "log.roll.ms", long(1), "604800000", "A segment is closed so many milliseconds after it got its first record since the start of the broker, whatever the wall clock does.";
    log_segment_bytes: i32 = "log.segment.bytes", int(1024), "1073741824", "A segment is closed before it grows past so many bytes.";
    max_connections: i32 = "max.connections", int(1), "10000", "Open connections; one more is closed at once.";
    max_requests_in_flight_per_connection: i32 = "max.requests.in.flight.per.connection", Kind::Int { min: 1, max: 100_000 }, "64", "Requests of one connection that may be unanswered; past it the connection is not read.";
    message_max_bytes: i32 = "message.max.bytes", int(0), "1048588", "The largest record batch, as sent, in bytes.";
    metadata_log_snapshot_bytes: i64 = "metadata.log.max.record.bytes.between.snapshots", long(1), "1048576", "The metadata is written as a whole, and its log cut, whenever the log has grown past so many bytes.";
    min_insync_replicas: i32 = "min.insync.replicas", int(1), "1", "Replicas that must be in sync for acks=all.";
    node_id: i32 = "node.id", int(0), "1", "This broker's id.";
    num_io_threads: i32 = "num.io.threads", Kind::Int { min: 1, max: 1024 }, "8", "Threads for files and heavy computations. Advice: twice the cores.";
    num_network_threads: i32 = "num.network.threads", Kind::Int { min: 1, max: 1024 }, "3", "Threads for connections and requests. Advice: a quarter of the cores.";
    num_partitions: i32 = "num.partitions", Kind::Int { min: 1, max: 10_000 }, "8", "Partitions of a topic that does not say how many.";
    produce_validation: ProduceValidation = "produce.validation", Kind::Word(ProduceValidation::WORDS), "strict", "strict decompresses produced batches and walks their records, so nothing is stored that cannot be read; relaxed trusts the checksum and looks at the framing of the compression alone.";
    producer_id_expiration_ms: i64 = "producer.id.expiration.ms", long(1), "86400000", "An idempotent producer that has sent nothing to a partition for so long is forgotten there, in milliseconds. Time in which the broker is down does not count, nor what the wall clock does.";
    queue_size: i32 = "queue.size", int(65_536), "33554432", "Bytes of one partition that may wait to be durable; past it producers are held back.";
    queued_max_response_bytes: i64 = "queued.max.response.bytes", long(0), "268435456", "Bytes of records in answers on their way over all connections; past it answers get small.";
    queued_max_request_bytes: i64 = "queued.max.request.bytes", long(65_536), "268435456", "Bytes of requests in flight over all connections. A request above 64 KiB is read on when there is room for all of it, first come first served; smaller ones need not wait for those of other connections.";
    rack: String = "broker.rack", Kind::Text, "", "The rack of this broker, told to clients.";
    shutdown_timeout_ms: i64 = "shutdown.timeout.ms", long(0), "10000", "How long a stop waits for answers that are on their way, in milliseconds. Flushing all partitions comes after it and takes its time.";
    socket_request_max_bytes: i32 = "socket.request.max.bytes", int(1024), "104857600", "The largest Produce request, in bytes; other requests may have 4 MiB of that. A longer one ends its connection.";
    socket_request_timeout_ms: i64 = "socket.request.timeout.ms", long(1), "30000", "How long the bytes of one request, or of one answer, may stand still before the connection is closed, in milliseconds. A request that takes longer altogether must come at 256 KiB a second.";
    wal_file_bytes: i64 = "wal.file.bytes", long(65_536), "67108864", "The size of a file of the write-ahead log.";
    wal_max_bytes: i64 = "wal.max.bytes", long(131_072), "268435456", "Bytes of the write-ahead log that a recovery may have to replay.";
    wal_sync: SyncMode = "wal.sync", Kind::Word(SyncMode::WORDS), "always", "When the write-ahead log is flushed. always: before every acknowledgement, nothing acknowledged is lost. interval: every wal.sync.interval.ms, a power cut loses at most that much. os: when the system likes, a power cut loses what it had not written; kill -9 alone loses nothing in any mode.";
    wal_sync_interval_ms: i64 = "wal.sync.interval.ms", long(1), "100", "The interval of wal.sync=interval, in milliseconds.";
}

/// All keys, sorted by name.
pub fn config_keys() -> &'static [ConfigKey] {
    KEYS
}
