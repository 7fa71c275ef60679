//! What a topic may set: one table of Kafka's keys, from which checking, defaults, synonyms and documentation come.

use std::collections::BTreeMap;

use super::config_def::{Kind, ValueError, split_list};

/// One key that a topic may set.
#[derive(Debug)]
pub struct TopicKey {
    /// The key.
    pub name: &'static str,
    /// Its type and bounds.
    pub kind: Kind,
    /// The value when neither topic nor broker says otherwise.
    pub default: &'static str,
    /// The broker's key of the same meaning, if there is one.
    pub broker_key: Option<&'static str>,
    /// What it does.
    pub doc: &'static str,
}

const LONG: Kind = Kind::Long { min: 0, max: i64::MAX };
const LONG_OR_NONE: Kind = Kind::Long { min: -1, max: i64::MAX };
const LONG_OR_INHERIT: Kind = Kind::Long { min: -2, max: i64::MAX };
const FOREVER: &str = "9223372036854775807";
const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    broker_key: Option<&'static str>,
    doc: &'static str,
) -> TopicKey {
    TopicKey { name, kind, default, broker_key, doc }
}

const fn int(min: i32, max: i32) -> Kind {
    Kind::Int { min, max }
}

/// All keys, by name.
static KEYS: &[TopicKey] = &[
    key(
        "cleanup.policy",
        Kind::List(&["compact", "delete"]),
        "delete",
        Some("log.cleanup.policy"),
        "What becomes of old segments: deleted, compacted by key, or both.",
    ),
    key(
        "compression.gzip.level",
        int(-1, 9),
        "-1",
        Some("compression.gzip.level"),
        "The gzip level where the broker compresses.",
    ),
    key(
        "compression.lz4.level",
        int(1, 17),
        "9",
        Some("compression.lz4.level"),
        "The lz4 level where the broker compresses.",
    ),
    key(
        "compression.type",
        Kind::Word(CODECS),
        "producer",
        Some("compression.type"),
        "The codec of stored batches; producer keeps what was sent, and is the only one built so far.",
    ),
    key(
        "compression.zstd.level",
        int(-131_072, 22),
        "3",
        Some("compression.zstd.level"),
        "The zstd level where the broker compresses.",
    ),
    key(
        "delete.retention.ms",
        LONG,
        "86400000",
        Some("log.cleaner.delete.retention.ms"),
        "How long compaction keeps a tombstone, in milliseconds.",
    ),
    key(
        "errors.deadletterqueue.group.enable",
        Kind::Boolean,
        "false",
        None,
        "Whether share groups may use the topic as a dead letter queue.",
    ),
    key(
        "file.delete.delay.ms",
        LONG,
        "60000",
        Some("log.segment.delete.delay.ms"),
        "How long a deleted file stays on disk, in milliseconds.",
    ),
    key(
        "flush.messages",
        Kind::Long { min: 1, max: i64::MAX },
        "1000",
        Some("log.flush.interval.messages"),
        "The segment file is flushed after so many messages. Acknowledgements do not wait for it: the write-ahead log is flushed first.",
    ),
    key("flush.ms", LONG, FOREVER, None, "The segment file is flushed after so many milliseconds."),
    key(
        "follower.replication.throttled.replicas",
        Kind::List(&[]),
        "",
        None,
        "Replicas whose followers are throttled.",
    ),
    key(
        "index.interval.bytes",
        int(0, i32::MAX),
        "1048576",
        Some("log.index.interval.bytes"),
        "A sparse index entry at least every so many bytes.",
    ),
    key(
        "index.interval.messages",
        int(0, i32::MAX),
        "1000",
        Some("log.index.interval.messages"),
        "A sparse index entry at least every so many messages; 0 switches this rule off.",
    ),
    key("leader.replication.throttled.replicas", Kind::List(&[]), "", None, "Replicas whose leaders are throttled."),
    key(
        "local.retention.bytes",
        LONG_OR_INHERIT,
        "-2",
        Some("log.local.retention.bytes"),
        "Bytes kept locally once tiered; -2 means retention.bytes.",
    ),
    key(
        "local.retention.ms",
        LONG_OR_INHERIT,
        "-2",
        Some("log.local.retention.ms"),
        "Milliseconds kept locally once tiered; -2 means retention.ms.",
    ),
    key(
        "max.compaction.lag.ms",
        Kind::Long { min: 1, max: i64::MAX },
        FOREVER,
        Some("log.cleaner.max.compaction.lag.ms"),
        "The longest that a record escapes compaction, in milliseconds.",
    ),
    key(
        "max.decompressed.message.bytes",
        int(0, i32::MAX),
        "2147483639",
        Some("max.decompressed.message.bytes"),
        "The largest batch once decompressed, in bytes.",
    ),
    key(
        "max.message.bytes",
        int(0, i32::MAX),
        "1048588",
        Some("message.max.bytes"),
        "The largest record batch, as sent, in bytes.",
    ),
    key(
        "message.timestamp.after.max.ms",
        LONG,
        "3600000",
        Some("log.message.timestamp.after.max.ms"),
        "How far a record's timestamp may lie after the broker's clock, in milliseconds.",
    ),
    key(
        "message.timestamp.before.max.ms",
        LONG,
        FOREVER,
        Some("log.message.timestamp.before.max.ms"),
        "How far a record's timestamp may lie before the broker's clock, in milliseconds.",
    ),
    key(
        "message.timestamp.type",
        Kind::Word(&["CreateTime", "LogAppendTime"]),
        "CreateTime",
        Some("log.message.timestamp.type"),
        "Whose clock stamps a record: the producer's or the broker's.",
    ),
    key(
        "min.cleanable.dirty.ratio",
        Kind::Double { min: 0.0, max: 1.0 },
        "0.5",
        Some("log.cleaner.min.cleanable.ratio"),
        "The part of the log that must be uncompacted before compaction runs.",
    ),
    key(
        "min.compaction.lag.ms",
        LONG,
        "0",
        Some("log.cleaner.min.compaction.lag.ms"),
        "The least that a record escapes compaction, in milliseconds.",
    ),
    key(
        "min.insync.replicas",
        int(1, i32::MAX),
        "1",
        Some("min.insync.replicas"),
        "Replicas that must be in sync for acks=all.",
    ),
    key(
        "preallocate",
        Kind::Boolean,
        "false",
        Some("log.preallocate"),
        "Whether segment files are allocated in advance.",
    ),
    key(
        "remote.copy.lag.bytes",
        LONG_OR_INHERIT,
        "-1",
        Some("log.remote.copy.lag.bytes"),
        "How much may wait to be copied to remote storage, in bytes.",
    ),
    key(
        "remote.copy.lag.ms",
        LONG_OR_INHERIT,
        "0",
        Some("log.remote.copy.lag.ms"),
        "How long data may wait to be copied to remote storage, in milliseconds.",
    ),
    key(
        "remote.log.copy.disable",
        Kind::Boolean,
        "false",
        None,
        "Whether a tiered topic stops being copied to remote storage.",
    ),
    key(
        "remote.log.delete.on.disable",
        Kind::Boolean,
        "false",
        None,
        "Whether remote data goes when tiering is switched off.",
    ),
    key(
        "remote.storage.enable",
        Kind::Boolean,
        "false",
        None,
        "Whether the topic uses remote storage, which Kilo does not have.",
    ),
    key(
        "retention.bytes",
        LONG_OR_NONE,
        "-1",
        Some("log.retention.bytes"),
        "The size at which a partition loses its oldest segments, in bytes; -1 means none.",
    ),
    key(
        "retention.ms",
        LONG_OR_NONE,
        "604800000",
        Some("log.retention.ms"),
        "The age at which segments go, in milliseconds; -1 means never.",
    ),
    key(
        "segment.bytes",
        int(1024, i32::MAX),
        "1073741824",
        Some("log.segment.bytes"),
        "A segment is closed before it grows past so many bytes.",
    ),
    key(
        "segment.index.bytes",
        int(4, i32::MAX),
        "10485760",
        Some("log.index.size.max.bytes"),
        "The largest index file, in bytes.",
    ),
    key("segment.jitter.ms", LONG, "0", None, "The largest random delay of a timed roll, in milliseconds."),
    key(
        "segment.ms",
        Kind::Long { min: 1, max: i64::MAX },
        "604800000",
        Some("log.roll.ms"),
        "A segment is closed so many milliseconds after it got its first record since the start of the broker, whatever the wall clock does.",
    ),
    key(
        "unclean.leader.election.enable",
        Kind::Boolean,
        "false",
        Some("unclean.leader.election.enable"),
        "Whether a replica out of sync may lead, losing data.",
    ),
];

/// All keys that a topic may set, by name.
pub fn topic_keys() -> &'static [TopicKey] {
    KEYS
}

/// Why a topic's configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicConfigError {
    /// There is no such key.
    #[error("Unknown topic config name: {0}")]
    Unknown(String),
    /// The value does not fit the key.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Keys without a value.
    #[error("Null value not supported for topic configs: {0}")]
    Null(String),
    /// Two keys contradict each other.
    #[error("conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})")]
    CompactionLag {
        /// The lower bound.
        min: i64,
        /// The upper bound.
        max: i64,
    },
    /// Taken by Kafka and not built here: refused rather than ignored.
    #[error("{name}={value} is not supported by this version of Kilo: {why}")]
    NotBuilt {
        /// The key.
        name: &'static str,
        /// The value.
        value: String,
        /// What to do.
        why: &'static str,
    },
}

/// What applies to a topic that sets nothing: the broker's settings over the table's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicDefaults {
    /// By topic key: the broker's key and value, where the operator set one.
    set: BTreeMap<&'static str, (&'static str, String)>,
    /// By topic key: the broker's default where it differs from the table's.
    defaults: BTreeMap<&'static str, String>,
}

impl TopicDefaults {
    /// Takes over the broker's values. `lookup` tells, for a broker key, its value and whether the operator set it.
    pub fn from_broker(lookup: impl Fn(&str) -> Option<(String, bool)>) -> Self {
        let mut all = Self::default();
        for key in KEYS {
            let Some(broker_key) = key.broker_key else { continue };
            match lookup(broker_key) {
                Some((value, true)) => {
                    all.set.insert(key.name, (broker_key, value));
                }
                Some((value, false)) if value != key.default => {
                    all.defaults.insert(key.name, value);
                }
                _ => {}
            }
        }
        all
    }

    /// The broker's key and value for a topic key, where the operator set one.
    pub fn set_by_operator(&self, key: &TopicKey) -> Option<(&'static str, &str)> {
        self.set.get(key.name).map(|(name, value)| (*name, value.as_str()))
    }

    /// The value that nobody set.
    pub fn default_value<'a>(&'a self, key: &TopicKey) -> &'a str {
        self.defaults.get(key.name).map_or(key.default, String::as_str)
    }

    /// What applies to a topic that does not set `key`.
    pub fn value<'a>(&'a self, key: &TopicKey) -> &'a str {
        self.set.get(key.name).map_or_else(|| self.default_value(key), |(_, value)| value)
    }
}

/// What becomes of old segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// They are deleted by age and size.
    pub delete: bool,
    /// They are compacted by key.
    pub compact: bool,
}

/// A topic's settings, resolved and typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// `cleanup.policy`.
    pub cleanup_policy: CleanupPolicy,
    /// `flush.messages`.
    pub flush_messages: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: i32,
    /// `index.interval.messages`; 0 switches the rule off.
    pub index_interval_messages: i32,
    /// `max.message.bytes`.
    pub max_message_bytes: i32,
    /// `max.decompressed.message.bytes`.
    pub max_decompressed_message_bytes: i32,
    /// `message.timestamp.type` is `LogAppendTime`.
    pub log_append_time: bool,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// `retention.bytes`; −1 means no limit.
    pub retention_bytes: i64,
    /// `retention.ms`; −1 means no limit.
    pub retention_ms: i64,
    /// `segment.bytes`.
    pub segment_bytes: i32,
    /// `segment.ms`.
    pub segment_ms: i64,
}

impl TopicConfig {
    /// Checks what a topic wants to set.
    pub fn validate(
        overrides: &BTreeMap<String, Option<String>>,
    ) -> Result<BTreeMap<String, String>, TopicConfigError> {
        let nulls: Vec<&str> =
            overrides.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.as_str()).collect();
        if !nulls.is_empty() {
            return Err(TopicConfigError::Null(nulls.join(",")));
        }
        let mut checked = BTreeMap::new();
        for (name, value) in overrides {
            let key = find(name).ok_or_else(|| TopicConfigError::Unknown(name.clone()))?;
            let value = value.as_deref().expect("nulls were refused above").trim();
            key.kind.check(name, value)?;
            refuse_unbuilt(key, value)?;
            checked.insert(name.clone(), value.to_owned());
        }
        let lag = |name: &str| checked.get(name).and_then(|value| value.parse::<i64>().ok());
        if let (Some(min), Some(max)) = (lag("min.compaction.lag.ms"), lag("max.compaction.lag.ms"))
            && min > max
        {
            return Err(TopicConfigError::CompactionLag { min, max });
        }
        Ok(checked)
    }

    /// Resolves a topic's settings. `overrides` and the broker's values have been checked when they were set.
    pub fn resolve(defaults: &TopicDefaults, overrides: &BTreeMap<String, String>) -> Self {
        let values = Values { defaults, overrides };
        let policy = values.text("cleanup.policy");
        Self {
            cleanup_policy: CleanupPolicy {
                delete: split_list(policy).any(|item| item == "delete"),
                compact: split_list(policy).any(|item| item == "compact"),
            },
            flush_messages: values.number("flush.messages"),
            index_interval_bytes: values.number("index.interval.bytes"),
            index_interval_messages: values.number("index.interval.messages"),
            max_message_bytes: values.number("max.message.bytes"),
            max_decompressed_message_bytes: values.number("max.decompressed.message.bytes"),
            log_append_time: values.text("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms: values.number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: values.number("message.timestamp.after.max.ms"),
            min_insync_replicas: values.number("min.insync.replicas"),
            retention_bytes: values.number("retention.bytes"),
            retention_ms: values.number("retention.ms"),
            segment_bytes: values.number("segment.bytes"),
            segment_ms: values.number("segment.ms"),
        }
    }
}

fn find(name: &str) -> Option<&'static TopicKey> {
    KEYS.binary_search_by(|key| key.name.cmp(name)).ok().map(|at| &KEYS[at])
}

/// Settings that Kafka takes and that would be ignored here are refused: ignored settings surprise later.
fn refuse_unbuilt(key: &'static TopicKey, value: &str) -> Result<(), TopicConfigError> {
    let why = match (key.name, value) {
        ("compression.type", "producer") => return Ok(()),
        ("compression.type", _) => "batches are stored as they were sent; let the producer compress",
        ("remote.storage.enable", value) if value.eq_ignore_ascii_case("true") => "there is no remote storage",
        _ => return Ok(()),
    };
    Err(TopicConfigError::NotBuilt { name: key.name, value: value.to_owned(), why })
}

struct Values<'a> {
    defaults: &'a TopicDefaults,
    overrides: &'a BTreeMap<String, String>,
}

impl<'a> Values<'a> {
    fn text(&self, name: &'static str) -> &'a str {
        let key = find(name).expect("only keys of the table are asked for");
        self.overrides.get(name).map_or_else(|| self.defaults.value(key), String::as_str)
    }

    /// A number. A stored value that no longer parses falls back to the table's default, which always does.
    fn number<T: std::str::FromStr>(&self, name: &'static str) -> T {
        self.text(name).trim().parse().unwrap_or_else(|_| {
            let default = find(name).expect("only keys of the table are asked for").default;
            default.parse().ok().expect("the table's defaults have their keys' types")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(pairs: &[(&str, Option<&str>)]) -> Result<BTreeMap<String, String>, String> {
        let overrides = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect();
        TopicConfig::validate(&overrides).map_err(|error| error.to_string())
    }

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_valid() {
        assert!(KEYS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for key in KEYS {
            assert_eq!(key.kind.check(key.name, key.default), Ok(()));
            assert!(!key.doc.is_empty());
        }
    }

    #[test]
    fn refusals_have_kafkas_texts() {
        assert_eq!(
            validate(&[("no.such.config", Some("1"))]).unwrap_err(),
            "Unknown topic config name: no.such.config"
        );
        assert_eq!(
            validate(&[("retention.ms", Some("soon"))]).unwrap_err(),
            "Invalid value soon for configuration retention.ms: Not a number of type LONG"
        );
        assert_eq!(
            validate(&[("retention.ms", None), ("a", None)]).unwrap_err(),
            "Null value not supported for topic configs: a,retention.ms"
        );
        assert!(validate(&[("min.compaction.lag.ms", Some("2")), ("max.compaction.lag.ms", Some("1"))]).is_err());
        assert!(validate(&[("compression.type", Some("gzip"))]).unwrap_err().contains("not supported"));
    }

    /// The keys in quotes of the item of the list that begins with `start`.
    fn documented(start: &str) -> Vec<&'static str> {
        let page = include_str!("../../docs/configuration.md");
        let (_, rest) = page.split_once(&format!("* {start}: ")).expect("the item is there");
        let item = rest.split("\n* ").next().expect("there is a first part");
        item.split('`').skip(1).step_by(2).filter(|word| find(word).is_some()).collect()
    }

    #[test]
    fn the_documentation_says_what_becomes_of_each_key() {
        // What `TopicConfig` resolves is acted on, but for retention, which nothing asks for yet.
        let code = include_str!("topic_config.rs");
        let (_, resolve) = code.split_once("pub fn resolve").expect("it is in this file");
        let (resolve, _) = resolve.split_once("fn find").expect("which follows it");
        let mut resolved: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        resolved.retain(|name| resolve.contains(&format!("\"{name}\"")) && !name.starts_with("retention."));
        let acted_on = [documented("acted on in part"), documented("acted on")].concat();
        let mut sorted = acted_on.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, resolved);
        let refused = documented("refused unless it says what happens anyway");
        for key in KEYS {
            let values: &[&str] = match key.kind {
                Kind::Word(words) => words,
                Kind::Boolean => &["true", "false"],
                _ => &[key.default],
            };
            let taken = values.iter().filter(|value| validate(&[(key.name, Some(value))]).is_ok()).count();
            let is_refused = taken < values.len();
            assert_eq!(is_refused, refused.contains(&key.name), "{}", key.name);
            assert!(validate(&[(key.name, Some(key.default))]).is_ok(), "{}", key.name);
        }
    }

    #[test]
    fn topic_goes_before_broker_goes_before_default() {
        let defaults = TopicDefaults::from_broker(|key| match key {
            "log.segment.bytes" => Some(("2048".to_owned(), true)),
            "log.flush.interval.messages" => Some(("77".to_owned(), false)),
            _ => None,
        });
        let plain = TopicConfig::resolve(&defaults, &BTreeMap::new());
        assert_eq!((plain.segment_bytes, plain.flush_messages, plain.retention_ms), (2048, 77, 604_800_000));
        let own = TopicConfig::resolve(&defaults, &[("segment.bytes".to_owned(), "4096".to_owned())].into());
        assert_eq!(own.segment_bytes, 4096);
        assert!(own.cleanup_policy.delete && !own.cleanup_policy.compact);
    }
}
