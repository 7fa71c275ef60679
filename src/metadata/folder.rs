//! The data folder: who uses it, in which format.
//!
//! `kilo.meta` holds `key=value` lines: the format version, the cluster's and the broker's id, and a checksum of those
//! lines. States that a crash can leave: no file (the folder is new: it is written, last of all, once the folder's other
//! parts are durable, and before anything is stored); a temporary file beside it (ignored and replaced). The file itself is
//! replaced by rename only; its name is flushed by whoever reads it, so no file beside data is not left by a crash.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::io::{DirLock, Env, OpenMode};
use crate::storage::PartitionName;

/// The format that this version writes and the newest that it reads.
const FORMAT: u32 = 1;
const FILE: &str = "kilo.meta";
const FILE_TEMPORARY: &str = "kilo.meta.tmp";
/// The file by which a folder of Apache Kafka is known.
const FILE_OF_KAFKA: &str = "meta.properties";
/// The checksum of a file that someone wrote by hand.
const CRC_BY_HAND: &str = "none";
/// What helps against a file that is damaged or gone.
const BY_HAND: &str = "Restore it from a copy, or write it by hand with four lines: version=1, cluster.id=ID (the broker logs it at each \
     start), node.id=NUMBER, crc=none";
/// No honest file is longer.
const FILE_LEN_MAX: usize = 4096;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process holds it.
    #[error("data folder {0} is in use by another broker (stop that one, or choose another log.dirs)")]
    InUse(PathBuf),
    /// Written by a newer Kilo.
    #[error(
        "data folder {path} has format {found}, and this version of Kilo reads up to format {FORMAT}: use a newer one"
    )]
    NewerFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It cannot be created, written or read.
    #[error("cannot {action} data folder {path}: {source}{}", hint(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The identity file is damaged.
    #[error("{0} is damaged: {1}. {BY_HAND}")]
    Damaged(PathBuf, &'static str),
    /// The identity file is gone.
    #[error("{0} is missing, though the data folder has been in use. {BY_HAND}")]
    Lost(PathBuf),
    /// It belongs to another broker.
    #[error(
        "data folder {path} belongs to broker {found}, and node.id says {wanted}: set node.id={found}, or choose another log.dirs"
    )]
    OtherBroker {
        /// The folder.
        path: PathBuf,
        /// The broker that it belongs to.
        found: i32,
        /// The configured id.
        wanted: i32,
    },
    /// It belongs to Apache Kafka.
    #[error("{0} is a data folder of Apache Kafka, which Kilo does not read: choose another log.dirs")]
    OfKafka(PathBuf),
}

/// What to do when the folder cannot be used.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ". The user that runs Kilo must be allowed to write there: change the owner, or choose another log.dirs"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            ". There is a file where a folder should be: remove it, or choose another log.dirs"
        }
        _ => "",
    }
}

/// A data folder held by this process. Dropping it releases the folder.
pub struct DataFolder {
    path: PathBuf,
    cluster_id: String,
    broker_id: i32,
    formatted: bool,
    _lock: Box<dyn DirLock>,
}

impl DataFolder {
    /// Creates the folder if need be, locks it and reads who it belongs to. `new_cluster_id` is used for a new folder.
    pub async fn open(
        env: &Env,
        path: &Path,
        broker_id: i32,
        new_cluster_id: impl FnOnce() -> String,
    ) -> Result<Self, FolderError> {
        let disk = env.disk();
        let fail = |action| move |source| FolderError::Io { action, path: path.to_owned(), source };
        // The folder's own name, and those of the parents made for it, outlast a power cut. Its own is flushed at every
        // start: the one before may have been killed in between.
        let mut holders = vec![parent(path)];
        while let Some(holder) = holders.last().filter(|holder| !holder.as_os_str().is_empty()).cloned() {
            if disk.exists(&holder).await.map_err(fail("look for the parent of"))? {
                break;
            }
            holders.push(parent(&holder));
        }
        disk.create_dir_all(path).await.map_err(fail("create"))?;
        for holder in holders {
            disk.sync_dir(&holder).await.map_err(fail("flush the parent of"))?;
        }
        let lock = disk.lock_dir(path).await.map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => FolderError::InUse(path.to_owned()),
            _ => FolderError::Io { action: "lock", path: path.to_owned(), source },
        })?;
        let file = path.join(FILE);
        if disk.exists(&file).await.map_err(fail("read"))? {
            let (cluster_id, found) = read(env, path).await?;
            // A start that was killed may not have come to it, and a power cut would leave data without an identity.
            disk.sync_dir(path).await.map_err(fail("flush"))?;
            if found != broker_id {
                return Err(FolderError::OtherBroker { path: path.to_owned(), found, wanted: broker_id });
            }
            return Ok(Self { path: path.to_owned(), cluster_id, broker_id, formatted: true, _lock: lock });
        }
        if disk.exists(&path.join(FILE_OF_KAFKA)).await.map_err(fail("read"))? {
            return Err(FolderError::OfKafka(path.to_owned()));
        }
        let names = disk.list(path).await.map_err(fail("list"))?;
        if names.iter().any(|name| is_data(name)) {
            return Err(FolderError::Lost(file));
        }
        let cluster_id = new_cluster_id();
        Ok(Self { path: path.to_owned(), cluster_id, broker_id, formatted: false, _lock: lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster that the folder belongs to.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Whether the folder has been used before: its metadata must then be there.
    pub fn formatted(&self) -> bool {
        self.formatted
    }

    /// Refuses a folder without identity whose metadata `holds` something all the same.
    pub fn check(&self, holds: bool) -> Result<(), FolderError> {
        if holds && !self.formatted { Err(FolderError::Lost(self.path.join(FILE))) } else { Ok(()) }
    }

    /// Marks a new folder as used. Call once everything else that a first start creates is durable.
    pub async fn format(&mut self, env: &Env) -> Result<(), FolderError> {
        if self.formatted {
            return Ok(());
        }
        let fail = |source| FolderError::Io { action: "write to", path: self.path.clone(), source };
        let mut text = format!("version={FORMAT}\ncluster.id={}\nnode.id={}\n", self.cluster_id, self.broker_id);
        text += &format!("crc={:08x}\n", crc32fast::hash(text.as_bytes()));
        let (temporary, file) = (self.path.join(FILE_TEMPORARY), self.path.join(FILE));
        let disk = env.disk();
        if disk.exists(&temporary).await.map_err(fail)? {
            disk.remove_file(&temporary).await.map_err(fail)?;
        }
        let handle = disk.open(&temporary, OpenMode::CreateNew).await.map_err(fail)?;
        handle.write_at_and_sync(0, vec![Bytes::from(text)]).await.map_err(fail)?;
        disk.rename(&temporary, &file).await.map_err(fail)?;
        disk.sync_dir(&self.path).await.map_err(fail)?;
        self.formatted = true;
        Ok(())
    }
}

/// Whether a name in a data folder is one of those that are made once the folder has its identity: the write-ahead log's,
/// and `<topic>-<partition>`.
fn is_data(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == "wal" || PartitionName::is_dir(name)
}

/// The directory that holds `path`'s name.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.to_owned(),
    }
}

async fn read(env: &Env, folder: &Path) -> Result<(String, i32), FolderError> {
    let path = folder.join(FILE);
    let fail = |source| FolderError::Io { action: "read", path: folder.to_owned(), source };
    let handle = env.disk().open(&path, OpenMode::Read).await.map_err(fail)?;
    let bytes = handle.read_at(0, FILE_LEN_MAX).await.map_err(fail)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| FolderError::Damaged(path.clone(), "it is not text"))?;
    parse(text).map_err(|problem| match problem {
        Problem::Newer(found) => FolderError::NewerFormat { path: folder.to_owned(), found },
        Problem::Damaged(why) => FolderError::Damaged(path, why),
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Newer(u32),
    Damaged(&'static str),
}

fn parse(text: &str) -> Result<(String, i32), Problem> {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .ok_or(Problem::Damaged("a line is missing"))
    };
    // The version comes first: a newer format may say anything else in another way.
    let version: u32 = value("version")?.parse().map_err(|_| Problem::Damaged("the version is not a number"))?;
    if version > FORMAT {
        return Err(Problem::Newer(version));
    }
    let (body, crc) = text.rsplit_once("crc=").ok_or(Problem::Damaged("the checksum is missing"))?;
    let crc = crc.trim_end();
    if crc != CRC_BY_HAND && u32::from_str_radix(crc, 16) != Ok(crc32fast::hash(body.as_bytes())) {
        return Err(Problem::Damaged("its checksum does not match"));
    }
    let broker_id = value("node.id")?.parse().map_err(|_| Problem::Damaged("node.id is not a number"))?;
    Ok((value("cluster.id")?.to_owned(), broker_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "version=1\ncluster.id=abc\nnode.id=1\n";

    fn sealed(body: &str) -> String {
        format!("{body}crc={:08x}\n", crc32fast::hash(body.as_bytes()))
    }

    #[test]
    fn a_good_file_is_read() {
        assert_eq!(parse(&sealed(GOOD)), Ok(("abc".to_owned(), 1)));
    }

    #[test]
    fn a_file_written_by_hand_needs_no_checksum_but_says_so() {
        assert_eq!(parse(&format!("{GOOD}crc=none\n")), Ok(("abc".to_owned(), 1)));
        assert!(parse(GOOD).is_err());
    }

    #[test]
    fn data_is_known_by_its_names() {
        let names = ["wal", "orders-0", "a-b-12"];
        assert!(names.into_iter().all(|name| is_data(Path::new(name))));
        let others = ["metadata", ".lock", "kilo.meta.tmp", "lost+found", "orders-", "orders-x", "wal-old"];
        assert!(!others.into_iter().any(|name| is_data(Path::new(name))));
    }

    #[test]
    fn a_newer_format_is_named_before_anything_else() {
        assert_eq!(parse("version=2\nwhatever"), Err(Problem::Newer(2)));
    }

    #[test]
    fn each_changed_byte_is_noticed() {
        let good = sealed(GOOD);
        for at in 0..good.len() - 1 {
            let mut bytes = good.clone().into_bytes();
            bytes[at] ^= 1;
            let text = String::from_utf8(bytes).expect("one bit of ASCII text");
            assert!(parse(&text).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_relative_folder_lies_in_the_current_one() {
        assert_eq!(parent(Path::new("kilo-data")), Path::new("."));
        assert_eq!(parent(Path::new("/a/b")), Path::new("/a"));
        assert_eq!(parent(Path::new("/")), Path::new("/"));
    }
}
