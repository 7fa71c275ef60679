//! How settings appear in answers: value, source, synonyms, type, documentation.

use std::collections::BTreeMap;

use super::context::BrokerEntry;
use crate::metadata::{TopicDefaults, TopicKey, topic_keys};

/// Keys whose broker-side synonym Kafka leaves unset by default, and so does not show.
const UNSET_BY_DEFAULT: &[&str] = &["retention.ms", "segment.ms"];

/// Where a value comes from, as the protocol numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigSource {
    /// The topic's own.
    Topic = 1,
    /// The operator's.
    StaticBroker = 4,
    /// Nobody set it.
    Default = 5,
}

/// One setting as answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) source: ConfigSource,
    pub(super) kind_code: i8,
    pub(super) read_only: bool,
    pub(super) doc: &'static str,
    /// All values that there are, the one in force first: key, value, source.
    pub(super) synonyms: Vec<(&'static str, String, ConfigSource)>,
}

/// A topic's settings, by name.
pub(super) fn topic_entries(defaults: &TopicDefaults, own: &BTreeMap<String, String>) -> Vec<Entry> {
    topic_keys().iter().map(|key| topic_entry(defaults, own, key)).collect()
}

fn topic_entry(defaults: &TopicDefaults, own: &BTreeMap<String, String>, key: &'static TopicKey) -> Entry {
    let mut synonyms = Vec::new();
    if let Some(value) = own.get(key.name) {
        synonyms.push((key.name, value.clone(), ConfigSource::Topic));
    }
    if let Some((name, value)) = defaults.set_by_operator(key) {
        synonyms.push((name, value.to_owned(), ConfigSource::StaticBroker));
    }
    if let Some(name) = key.broker_key.filter(|_| !UNSET_BY_DEFAULT.contains(&key.name)) {
        synonyms.push((name, defaults.default_value(key).to_owned(), ConfigSource::Default));
    }
    let (value, source) = match synonyms.first() {
        Some((_, value, source)) => (value.clone(), *source),
        None => (defaults.default_value(key).to_owned(), ConfigSource::Default),
    };
    Entry { name: key.name, value, source, kind_code: key.kind.code(), read_only: false, doc: key.doc, synonyms }
}

/// The broker's settings, by name. None can be changed while it runs.
pub(super) fn broker_entries(all: &[BrokerEntry]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = all
        .iter()
        .map(|entry| {
            let source = if entry.set { ConfigSource::StaticBroker } else { ConfigSource::Default };
            let mut synonyms = vec![(entry.name, entry.value.clone(), source)];
            if entry.set {
                synonyms.push((entry.name, entry.default.to_owned(), ConfigSource::Default));
            }
            Entry {
                name: entry.name,
                value: entry.value.clone(),
                source,
                kind_code: entry.kind.code(),
                read_only: true,
                doc: entry.doc,
                synonyms,
            }
        })
        .collect();
    entries.sort_by_key(|entry| entry.name);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synonyms_go_from_topic_over_broker_to_default() {
        let defaults =
            TopicDefaults::from_broker(|key| (key == "log.segment.bytes").then(|| ("2048".to_owned(), true)));
        let own = [("segment.bytes".to_owned(), "4096".to_owned())].into();
        let entries = topic_entries(&defaults, &own);
        let find = |name: &str| entries.iter().find(|entry| entry.name == name).expect("a key of the table");
        let segment = find("segment.bytes");
        assert_eq!((segment.value.as_str(), segment.source), ("4096", ConfigSource::Topic));
        assert_eq!(
            segment.synonyms,
            [
                ("segment.bytes", "4096".to_owned(), ConfigSource::Topic),
                ("log.segment.bytes", "2048".to_owned(), ConfigSource::StaticBroker),
                ("log.segment.bytes", "1073741824".to_owned(), ConfigSource::Default),
            ]
        );
        let flush = find("flush.ms");
        assert_eq!((flush.synonyms.len(), flush.source), (0, ConfigSource::Default));
    }
}
