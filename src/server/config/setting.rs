//! Settings as they come from outside, where they come from, and what can be wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::value::Value;
use crate::metadata::config_def::ValueError;

/// Where a setting was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A configuration file.
    File(String),
    /// An environment variable.
    Variable(String),
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag => f.write_str("--set"),
        }
    }
}

/// One `key = value` from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key as written.
    pub key: String,
    /// The value as written.
    pub value: String,
    /// Where.
    pub origin: Origin,
}

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no such key.
    #[error("{origin}: unknown key {key}; {remedy}")]
    Unknown {
        /// Where it was found.
        origin: Origin,
        /// The key.
        key: String,
        /// What to do about it.
        remedy: String,
    },
    /// A value does not fit.
    #[error("{origin}: {source}")]
    Value {
        /// Where it was found.
        origin: Origin,
        /// What is wrong with it.
        source: ValueError,
    },
    /// Two values contradict each other.
    #[error("{0}")]
    Conflict(String),
}

/// Settings by key, checked against the table.
#[derive(Default)]
pub(super) struct Values {
    pub(super) given: BTreeMap<&'static str, (String, Origin)>,
}

impl Values {
    pub(super) fn parse<T: Value>(&self, name: &'static str, default: &'static str) -> Result<T, ConfigError> {
        match self.given.get(name) {
            None => Ok(T::parse(name, default).expect("the table's defaults have their keys' types")),
            Some((text, origin)) => {
                T::parse(name, text).map_err(|source| ConfigError::Value { origin: origin.clone(), source })
            }
        }
    }

    pub(super) fn set(&self) -> BTreeSet<&'static str> {
        self.given.keys().copied().collect()
    }
}
