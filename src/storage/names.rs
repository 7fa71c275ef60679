//! Names of partition directories and of the files in them. Pure.
//!
//! `<topic>-<partition>/` holds `<topic>-<partition>_<20-digit offset>.log`, `.index` and `.timeindex`. File systems end
//! a name at 255 bytes: where the longest file name would pass that, the topic part of the *file* names is the first 150
//! bytes of the topic + `~` + the topic id in hexadecimal digits (`~` is illegal in topic names, so no other topic can
//! own such a name). The directory's name follows the same rule by itself.

use std::fmt;
use std::path::{Path, PathBuf};

use super::TopicId;

/// What file systems allow in one name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// How much of a topic's name a shortened stem keeps, in bytes.
const SHORT_TOPIC_BYTES: usize = 150;
/// Kafka's bound on a topic's name, in bytes.
const TOPIC_BYTES_MAX: usize = 249;
/// Digits of an offset in a file name: as many as the largest one has.
const OFFSET_DIGITS: usize = 20;
/// What a directory's name may grow by when it is set aside.
const ASIDE_BYTES_MAX: usize = "~aside.999".len();

/// The files that a segment consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Frames.
    Log,
    /// Sparse index offset → position.
    Index,
    /// Sparse index timestamp → place, parallel to [`FileKind::Index`].
    TimeIndex,
}

impl FileKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Log, Self::Index, Self::TimeIndex];

    /// The suffix of the file's name, with its dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::Index => ".index",
            Self::TimeIndex => ".timeindex",
        }
    }
}

/// Why a topic's name cannot become a file name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or longer than Kafka allows.
    #[error("a topic name has 1 to {TOPIC_BYTES_MAX} bytes, this one has {0}")]
    Length(usize),
    /// `.` or `..`, or a character outside `[a-zA-Z0-9._-]`: could leave the data directory.
    #[error("topic name {0:?} has a character other than ASCII letters, digits, '.', '_' and '-', or is '.' or '..'")]
    Illegal(String),
    /// Partitions count from 0.
    #[error("partition number {0} is negative")]
    Partition(i32),
}

/// A partition as files know it. Cheap enough to clone; keep it in an `Arc` where it is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionName {
    dir: String,
    file_prefix: String,
}

impl PartitionName {
    /// Checks the topic's name: what comes out cannot name anything outside the data directory.
    pub fn new(topic: &str, topic_id: TopicId, partition: i32) -> Result<Self, NameError> {
        if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX {
            return Err(NameError::Length(topic.len()));
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if topic == "." || topic == ".." || !topic.chars().all(legal) {
            return Err(NameError::Illegal(topic.to_owned()));
        }
        if partition < 0 {
            return Err(NameError::Partition(partition));
        }
        let long = format!("{topic}-{partition}");
        let short = || {
            let kept = &topic[..topic.len().min(SHORT_TOPIC_BYTES)];
            format!("{kept}~{}-{partition}", topic_id.to_hex())
        };
        let longest_suffix = FileKind::ALL.map(|kind| kind.suffix().len()).into_iter().max().unwrap_or(0);
        let file_bytes = long.len() + 1 + OFFSET_DIGITS + longest_suffix;
        let file_prefix = if file_bytes > NAME_BYTES_MAX { short() } else { long.clone() };
        let dir = if long.len() + ASIDE_BYTES_MAX > NAME_BYTES_MAX { short() } else { long };
        Ok(Self { dir, file_prefix })
    }

    /// Whether a directory of this name can be a partition's.
    pub fn is_dir(name: &str) -> bool {
        let number = name.rsplit_once('-').map_or("", |(_, number)| number);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// The directory's name.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// A name for the directory when it turned out to be another topic's: `<dir>~aside.<n>`, which no partition can have.
    pub fn aside_dir(&self, n: u32) -> String {
        format!("{}~aside.{n}", self.dir)
    }

    /// The name of a segment's file.
    pub fn file(&self, base_offset: i64, kind: FileKind) -> String {
        format!("{}_{base_offset:0width$}{}", self.file_prefix, kind.suffix(), width = OFFSET_DIGITS)
    }

    /// Reads back what [`Self::file`] made. `None` for any other name: such a file is not this partition's.
    pub fn parse_file(&self, name: &str) -> Option<(i64, FileKind)> {
        let rest = name.strip_prefix(&self.file_prefix)?.strip_prefix('_')?;
        let (digits, suffix) = rest.split_at_checked(OFFSET_DIGITS)?;
        let kind = FileKind::ALL.into_iter().find(|kind| kind.suffix() == suffix)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some((digits.parse().ok()?, kind))
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dir)
    }
}

/// A partition's directory: where it is and how its files are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDir {
    path: PathBuf,
    name: PartitionName,
}

impl PartitionDir {
    /// The directory of `name` under `data`, one of the data directories.
    pub fn new(data: &Path, name: PartitionName) -> Self {
        Self { path: data.join(name.dir()), name }
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How its files are called.
    pub fn name(&self) -> &PartitionName {
        &self.name
    }

    /// The path of a segment's file.
    pub fn file(&self, base_offset: i64, kind: FileKind) -> PathBuf {
        self.path.join(self.name.file(base_offset, kind))
    }
}

/// Reads a directory's name as `<topic or shortened stem>-<partition>`. Says nothing about whose it is: a manifest does.
pub fn parse_dir(name: &str) -> Option<(&str, i32)> {
    let (stem, digits) = name.rsplit_once('-')?;
    if stem.is_empty() || digits.is_empty() {
        return None;
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((stem, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: TopicId = TopicId([0xAB; 16]);

    #[test]
    fn ordinary_names_read_as_kafka_users_expect() {
        let name = PartitionName::new("orders", ID, 3).expect("a legal topic name");
        assert_eq!(name.dir(), "orders-3");
        assert_eq!(name.file(42, FileKind::Log), "orders-3_00000000000000000042.log");
        assert_eq!(name.file(i64::MAX, FileKind::TimeIndex), "orders-3_09223372036854775807.timeindex");
        assert_eq!(name.parse_file("orders-3_00000000000000000042.index"), Some((42, FileKind::Index)));
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for topic in ["", ".", "..", "../x", "a/b", "a\0b", "a~b", "ü", &"x".repeat(250)] {
            assert!(PartitionName::new(topic, ID, 0).is_err(), "{topic:?} was accepted");
        }
        assert!(PartitionName::new("a", ID, -1).is_err());
    }

    #[test]
    fn foreign_files_are_not_ours() {
        let name = PartitionName::new("a", ID, 1).expect("a legal topic name");
        for file in [
            "a-1_42.log",
            "a-1_00000000000000000042.log.tmp",
            "a-11_00000000000000000042.log",
            "a-1_+0000000000000000042.log",
            "a-1_99999999999999999999.log",
            "manifest",
        ] {
            assert_eq!(name.parse_file(file), None, "{file}");
        }
    }

    #[test]
    fn set_aside_directories_are_no_partitions() {
        let name = PartitionName::new("a", ID, 1).expect("a legal topic name");
        assert_eq!(parse_dir(&name.aside_dir(7)), None);
        assert_eq!(parse_dir("a-b-12"), Some(("a-b", 12)));
        assert_eq!(parse_dir(".hidden-1"), Some((".hidden", 1)));
        assert_eq!(parse_dir("a-01"), None);
        assert_eq!(parse_dir("a-"), None);
    }

    proptest! {
        #[test]
        fn every_name_fits_and_parses_back(
            topic in "[a-zA-Z0-9_][a-zA-Z0-9._-]{0,248}",
            partition in prop_oneof![0i32..20, Just(i32::MAX)],
            offset in prop_oneof![0i64..1000, Just(i64::MAX)],
        ) {
            let name = PartitionName::new(&topic, ID, partition).expect("a legal topic name");
            prop_assert!(name.aside_dir(999).len() <= 255);
            prop_assert_eq!(parse_dir(name.dir()).map(|(_, partition)| partition), Some(partition));
            for kind in FileKind::ALL {
                let file = name.file(offset, kind);
                prop_assert!(file.len() <= 255, "{} bytes", file.len());
                prop_assert_eq!(name.parse_file(&file), Some((offset, kind)));
            }
        }

        #[test]
        fn long_topics_that_share_a_beginning_differ(tail in "[a-z]{0,20}") {
            let topic = format!("{}{tail}", "x".repeat(229));
            let one = PartitionName::new(&topic, TopicId([1; 16]), 0).expect("a legal topic name");
            let two = PartitionName::new(&topic, TopicId([2; 16]), 0).expect("a legal topic name");
            prop_assert_ne!(one.file(0, FileKind::Log), two.file(0, FileKind::Log));
        }
    }
}
