//! Which slot files there must be: a list beside the directory of the log, so that the two are not lost together.
//!
//! `<directory>.files` has a line `version=1`, a line `<number> <bytes>` for each file, and a line `crc=` with the CRC-32 of
//! those before it. It is replaced by rename.
//!
//! A file is listed once it is durable, before its first block, and is taken off the list before it is removed. So no
//! crash leaves a listed file missing or short.
//!
//! | found | done |
//! |---|---|
//! | no list | a new folder, or someone gave up what is missing: what is there counts |
//! | a listed file is missing or short | not left by a crash: [`WalOpenError::Lost`], and nothing is changed |
//! | a file that is not listed | it was being made, and is removed; or it was being removed, and its blocks are not needed |

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::error::WalOpenError;
use super::names::slot_path;
use super::slots::SlotNumber;
use crate::io::{Env, OpenMode};
use crate::storage::durable;

const VERSION: &str = "version=1";
/// No honest list is longer.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The list, and the directory that it is about.
pub(super) struct FileList {
    env: Env,
    dir: PathBuf,
    files: BTreeMap<SlotNumber, u64>,
    /// Whether there is such a file.
    exists: bool,
}

impl FileList {
    /// Reads the list and makes sure that every file on it is there.
    pub(super) async fn load(env: &Env, dir: &Path) -> Result<Self, WalOpenError> {
        let path = list_path(dir);
        let read = durable::read_file(env, &path, LIST_BYTES_MAX).await;
        let bytes = read.map_err(|source| WalOpenError::Io { action: "read", path: path.clone(), source })?;
        let exists = bytes.is_some();
        let files = match bytes {
            Some(bytes) => decode(&bytes).ok_or_else(|| WalOpenError::List(path.clone()))?,
            None => BTreeMap::new(),
        };
        for (&slot, &bytes) in &files {
            let file = slot_path(dir, slot);
            let found = len(env, &file).await;
            let found = found.map_err(|source| WalOpenError::Io { action: "read", path: file.clone(), source })?;
            if found.is_none_or(|found| found < bytes) {
                return Err(WalOpenError::Lost { path: file, found: found.unwrap_or_default(), bytes, list: path });
            }
        }
        Ok(Self { env: env.clone(), dir: dir.to_owned(), files, exists })
    }

    /// Whether there is a list.
    pub(super) fn exists(&self) -> bool {
        self.exists
    }

    /// Whether a file is on it.
    pub(super) fn has(&self, slot: SlotNumber) -> bool {
        self.files.contains_key(&slot)
    }

    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        list_path(&self.dir)
    }

    /// Lists exactly these files, for good when it answers.
    pub(super) async fn set(&mut self, files: BTreeMap<SlotNumber, u64>) -> io::Result<()> {
        if self.exists && files == self.files {
            return Ok(());
        }
        let path = list_path(&self.dir);
        let (Some(holder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        durable::replace(&self.env, holder, name, encode(&files)).await?;
        (self.files, self.exists) = (files, true);
        Ok(())
    }

    /// Adds a file.
    pub(super) async fn add(&mut self, slot: SlotNumber, bytes: u64) -> io::Result<()> {
        let mut files = self.files.clone();
        files.insert(slot, bytes);
        self.set(files).await
    }

    /// Takes files off the list, then removes them. A file that stays is found by the next start.
    pub(super) async fn remove(&mut self, slots: &[SlotNumber]) {
        let mut files = self.files.clone();
        files.retain(|slot, _| !slots.contains(slot));
        if self.set(files).await.is_ok() {
            for &slot in slots {
                let _ = self.env.disk().remove_file(&slot_path(&self.dir, slot)).await;
            }
        }
    }
}

fn list_path(dir: &Path) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push(".files");
    path.into()
}

async fn len(env: &Env, path: &Path) -> io::Result<Option<u64>> {
    match env.disk().open(path, OpenMode::Read).await {
        Ok(file) => file.len().await.map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn encode(files: &BTreeMap<SlotNumber, u64>) -> Bytes {
    let mut text = format!("{VERSION}\n");
    for (slot, bytes) in files {
        writeln!(text, "{slot} {bytes}").expect("a string takes what is written");
    }
    let crc = crc32fast::hash(text.as_bytes());
    writeln!(text, "crc={crc:08x}").expect("a string takes what is written");
    text.into()
}

fn decode(bytes: &[u8]) -> Option<BTreeMap<SlotNumber, u64>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, crc) = text.strip_suffix('\n')?.rsplit_once("crc=")?;
    if u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let mut lines = body.lines();
    let files = |line: &str| -> Option<(SlotNumber, u64)> {
        let (slot, bytes) = line.split_once(' ')?;
        Some((slot.parse().ok()?, bytes.parse().ok()?))
    };
    (lines.next()? == VERSION).then(|| lines.map(files).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_back_and_no_part_of_it_passes() {
        let files = BTreeMap::from([(1, 65_536), (7, 262_144)]);
        let whole = encode(&files);
        assert_eq!(decode(&whole), Some(files));
        assert_eq!(decode(&encode(&BTreeMap::new())), Some(BTreeMap::new()));
        for len in 0..whole.len() {
            assert_eq!(decode(&whole[..len]), None);
            let mut bytes = whole.to_vec();
            bytes[len] ^= 1;
            assert_eq!(decode(&bytes), None, "byte {len}");
        }
    }
}
