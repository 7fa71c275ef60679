//! The broker's configuration: typed, made from one table, resolved from several sources.

mod foreign;
mod setting;
mod table;
mod value;

use std::collections::BTreeMap;

pub use setting::{ConfigError, Origin, Setting};
pub use table::{Config, ConfigKey, config_keys};
pub use value::{Endpoint, ProduceValidation, SyncMode, Value};

use setting::Values;

use crate::metadata::{TopicDefaults, topic_keys};

/// Names that differ by more than this much are not offered as a suggestion.
const LIKENESS_MIN: f64 = 0.7;

/// What to do about a key, or a variable, that is unknown: use the nearest one that there is, or what Kafka's became.
/// `None` if it is like none of them.
pub fn remedy(name: &str) -> Option<String> {
    let variable = name.strip_prefix("KILO_");
    let key = variable.map_or_else(|| name.to_owned(), |name| name.to_ascii_lowercase().replace('_', "."));
    if find(&key).is_some() {
        return Some(format!("it is called {key}"));
    }
    if let Some(advice) = foreign::advice(&key).filter(|_| key.contains('.') || variable.is_none()) {
        return Some(advice.to_owned());
    }
    let nearest = nearest(&key)?;
    Some(match variable {
        Some(_) => format!("did you mean KILO_{}?", nearest.to_ascii_uppercase().replace('.', "_")),
        None => format!("did you mean {nearest}?"),
    })
}

impl Config {
    /// Resolves settings: a later one goes before an earlier one of the same key, anything goes before the defaults.
    pub fn resolve(settings: impl IntoIterator<Item = Setting>) -> Result<Self, ConfigError> {
        let mut values = Values::default();
        for setting in settings {
            let Some(key) = find(&setting.key) else {
                let remedy = remedy(&setting.key).unwrap_or_else(|| "`kilo config` lists all keys".to_owned());
                return Err(ConfigError::Unknown { origin: setting.origin, key: setting.key, remedy });
            };
            let value = setting.value.trim().to_owned();
            key.kind
                .check(key.name, &value)
                .map_err(|source| ConfigError::Value { origin: setting.origin.clone(), source })?;
            values.given.insert(key.name, (value, setting.origin));
        }
        let config = Self::from_values(&values)?;
        config.check()?;
        Ok(config)
    }

    /// Small limits, so that rolls, recycling and pressure happen within a simulated minute.
    pub fn sim() -> Self {
        Self {
            listeners: Endpoint { host: "0.0.0.0".to_owned(), port: 9092 },
            log_dirs: "/kilo-data".to_owned(),
            log_segment_bytes: 64 * 1024,
            log_index_interval_bytes: 4096,
            log_index_interval_messages: 16,
            log_flush_interval_messages: 100,
            wal_file_bytes: 256 * 1024,
            wal_max_bytes: 1024 * 1024,
            queue_size: 256 * 1024,
            queued_max_response_bytes: 8 * 1024 * 1024,
            queued_max_request_bytes: 8 * 1024 * 1024,
            socket_request_max_bytes: 2 * 1024 * 1024,
            message_max_bytes: 256 * 1024,
            metadata_log_snapshot_bytes: 2048,
            max_requests_in_flight_per_connection: 8,
            num_partitions: 4,
            ..Self::default()
        }
    }

    /// What applies to topics that set nothing.
    pub fn topic_defaults(&self) -> TopicDefaults {
        let entries: BTreeMap<&str, String> =
            self.entries().into_iter().map(|(key, value)| (key.name, value)).collect();
        TopicDefaults::from_broker(|name| entries.get(name).map(|value| (value.clone(), self.set.contains(name))))
    }

    /// Whether the operator set this key.
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// What is accepted and has no effect yet, said in words.
    pub fn without_effect(&self) -> Option<String> {
        let policy = &self.log_cleanup_policy;
        policy.contains("compact").then(|| {
            format!("log.cleanup.policy={policy}: records need keys from now on, but compaction is not built yet, so none goes away")
        })
    }

    fn check(&self) -> Result<(), ConfigError> {
        let at_least = |small: &str, low: i64, large: &str, high: i64| {
            if low > high {
                return Err(ConfigError::Conflict(format!("{large}={high} must be at least {small}={low}")));
            }
            Ok(())
        };
        let request = i64::from(self.socket_request_max_bytes);
        at_least("message.max.bytes", self.message_max_bytes.into(), "socket.request.max.bytes", request)?;
        at_least("socket.request.max.bytes", request, "queued.max.request.bytes", self.queued_max_request_bytes)?;
        at_least("wal.file.bytes", self.wal_file_bytes, "wal.max.bytes", self.wal_max_bytes)?;
        if let Some(endpoint) = self.advertised_listeners.as_ref().filter(|endpoint| endpoint.is_wildcard()) {
            let why = format!("advertised.listeners={endpoint} cannot be reached by anyone: name a host or an address");
            return Err(ConfigError::Conflict(why));
        }
        let one = |key: &str, value: i32| {
            if value > 1 {
                let why = format!(
                    "{key}={value} cannot be met: this version of Kilo is a cluster of one broker, so only 1 works"
                );
                return Err(ConfigError::Conflict(why));
            }
            Ok(())
        };
        one("default.replication.factor", self.default_replication_factor)?;
        one("min.insync.replicas", self.min_insync_replicas)?;
        if self.log_dirs.is_empty() || self.log_dirs.contains(',') {
            return Err(ConfigError::Conflict(format!("log.dirs={} must name one data folder", self.log_dirs)));
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::resolve([]).expect("the table's defaults are valid and agree")
    }
}

fn find(name: &str) -> Option<&'static ConfigKey> {
    config_keys().iter().find(|key| key.name == name)
}

/// The key that `name` was probably meant to be.
fn nearest(name: &str) -> Option<String> {
    // A topic's key is most likely meant as the broker's default for it.
    if let Some(key) = topic_keys().iter().find(|key| key.name == name) {
        return key.broker_key.filter(|broker_key| find(broker_key).is_some()).map(str::to_owned);
    }
    let name = name.to_ascii_lowercase().replace(['_', '-'], ".");
    let name = name.strip_prefix("kilo.").unwrap_or(&name);
    let likeness = |key: &ConfigKey| strsim::normalized_damerau_levenshtein(name, key.name);
    let best = config_keys().iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= LIKENESS_MIN).then(|| best.name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn set(key: &str, value: &str) -> Setting {
        Setting { key: key.to_owned(), value: value.to_owned(), origin: Origin::Flag }
    }

    #[test]
    fn the_table_is_sorted_and_documented() {
        assert!(config_keys().windows(2).all(|pair| pair[0].name != pair[1].name));
        for key in config_keys() {
            assert!(!key.doc.is_empty());
            assert_eq!(key.kind.check(key.name, key.default), Ok(()), "{}", key.name);
        }
        Config::default();
        Config::sim().check().expect("the simulator's limits agree");
    }

    #[test]
    fn the_documentation_is_the_table() {
        let page = include_str!("../../../docs/configuration.md");
        let mut rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        rows.sort_unstable();
        let mut expected: Vec<String> = config_keys()
            .iter()
            .map(|key| {
                let default = if key.default.is_empty() { "(empty)".to_owned() } else { format!("`{}`", key.default) };
                format!("| `{}` | {default} | {} |", key.name, key.doc)
            })
            .collect();
        expected.sort();
        assert_eq!(rows, expected);
    }

    #[test]
    fn what_is_shown_parses_again() {
        let config = Config::sim();
        let settings = config.entries().into_iter().map(|(key, value)| set(key.name, &value));
        let again = Config::resolve(settings).expect("own values are valid");
        assert_eq!(Config { set: BTreeSet::new(), ..again }, config);
    }

    #[test]
    fn the_last_setting_goes_first() {
        let config = Config::resolve([set("num.partitions", "3"), set("num.partitions", " 4 ")]).expect("valid");
        assert_eq!(config.num_partitions, 4);
        assert!(config.is_set("num.partitions") && !config.is_set("log.dirs"));
    }

    #[test]
    fn refusals_name_place_and_remedy() {
        let refuse = |key: &str, value: &str| Config::resolve([set(key, value)]).expect_err(key).to_string();
        assert_eq!(refuse("log.dir", "x"), "--set: unknown key log.dir; did you mean log.dirs?");
        assert_eq!(refuse("log_dirs", "x"), "--set: unknown key log_dirs; did you mean log.dirs?");
        assert_eq!(refuse("segment.bytes", "1"), "--set: unknown key segment.bytes; did you mean log.segment.bytes?");
        let variable = Origin::Variable("KILO_LOG_DIR".to_owned());
        let setting = Setting { key: "KILO_LOG_DIR".to_owned(), value: "x".to_owned(), origin: variable };
        let error = Config::resolve([setting]).expect_err("no such key").to_string();
        assert_eq!(error, "variable KILO_LOG_DIR: unknown key KILO_LOG_DIR; did you mean KILO_LOG_DIRS?");
        assert_eq!(refuse("broker.id", "1"), "--set: unknown key broker.id; it is called node.id");
        assert!(refuse("log.retention.hours", "1").contains("nothing is deleted"));
        assert!(refuse("ssl.keystore.location", "x").contains("not built"));
        for key in ["default.replication.factor", "min.insync.replicas"] {
            assert!(refuse(key, "3").contains("only 1 works"), "{key}");
        }
        assert_eq!(refuse("zzz", "1"), "--set: unknown key zzz; `kilo config` lists all keys");
        assert_eq!(
            refuse("num.partitions", "x"),
            "--set: Invalid value x for configuration num.partitions: Not a number of type INT"
        );
        assert!(refuse("listeners", "SSL://h:1").contains("PLAINTEXT"));
        assert_eq!(
            refuse("socket.request.max.bytes", "1048576"),
            "socket.request.max.bytes=1048576 must be at least message.max.bytes=1048588"
        );
        assert!(refuse("log.dirs", "a,b").contains("one data folder"));
        assert!(refuse("advertised.listeners", "0.0.0.0:1").contains("reached"));
    }

    #[test]
    fn topics_inherit_what_the_operator_set() {
        let config = Config::resolve([set("log.segment.bytes", "4096")]).expect("valid");
        let resolved = crate::metadata::TopicConfig::resolve(&config.topic_defaults(), &BTreeMap::new());
        assert_eq!((resolved.segment_bytes, resolved.flush_messages), (4096, 1000));
    }
}
