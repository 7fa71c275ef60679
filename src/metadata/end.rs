//! How far the metadata log has been flushed, beside it: what a log that was cut short cannot say of itself.
//!
//! `end` holds {index u64, CRC-32 of it u32}, big endian. It is written after each flush of the log and never flushed
//! itself: after a power cut it may say less than is true, or nothing, but never more.

use std::io;
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::io::{Env, File, OpenMode};

const NAME: &str = "end";
const LEN: usize = 12;

/// The file, open for writing.
pub(super) struct End {
    file: Option<File>,
}

impl End {
    /// Where it is in the metadata's directory.
    pub(super) fn path(dir: &Path) -> PathBuf {
        dir.join(NAME)
    }

    /// The index that it says has been flushed; 0 if it says nothing.
    pub(super) async fn read(env: &Env, dir: &Path) -> io::Result<u64> {
        let file = match env.disk().open(&Self::path(dir), OpenMode::Read).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened?,
        };
        Ok(decode(file.read_at(0, LEN).await?).unwrap_or_default())
    }

    /// Opens it for writing. Where that fails the log goes without.
    pub(super) async fn open(env: &Env, dir: &Path) -> Self {
        let opened = env.disk().open(&Self::path(dir), OpenMode::Create).await;
        if let Err(error) = &opened {
            tracing::warn!("the end of the metadata log is not kept beside it: {error}");
        }
        Self { file: opened.ok() }
    }

    /// Entries up to `index` have been flushed. A failure leaves what was said before, which still holds.
    pub(super) async fn say(&self, index: u64) {
        if let Some(file) = &self.file {
            let _ = file.write_at(0, vec![encode(index)]).await;
        }
    }
}

fn encode(index: u64) -> Bytes {
    let mut bytes = BytesMut::with_capacity(LEN);
    bytes.put_u64(index);
    bytes.put_u32(crc32fast::hash(&bytes));
    bytes.freeze()
}

fn decode(mut bytes: Bytes) -> Option<u64> {
    let is_whole = bytes.len() >= LEN && bytes.slice(8..).get_u32() == crc32fast::hash(&bytes[..8]);
    is_whole.then(|| bytes.get_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_it_and_no_other_bytes_are_believed() {
        let whole = encode(77);
        assert_eq!(decode(whole.clone()), Some(77));
        for at in 0..LEN {
            assert_eq!(decode(whole.slice(..at)), None);
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1;
            assert_eq!(decode(bytes.into()), None);
        }
        assert_eq!(decode(vec![0; LEN].into()), None);
    }
}
