//! Making the log itself durable after a start: all of it when what it holds cannot be brought elsewhere yet, since the
//! disk is full; the places where it goes on in another file always.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::block::{BLOCK_ALIGN, BlockHeader};
use super::error::WalOpenError;
use super::names::slot_number;
use crate::io::{Env, File, OpenMode, is_no_space};
use crate::storage::durable;

/// Bytes written again in one go.
const REWRITE_BYTES: usize = 1 << 20;

fn failed(path: &Path) -> impl FnOnce(io::Error) -> WalOpenError + use<> {
    let path = path.to_owned();
    move |source| WalOpenError::Io { action: "write again", path, source }
}

/// Writes bytes over themselves. On file systems that never write in place even this can meet a full disk; reading must go
/// on then.
async fn write_again(file: &File, path: &Path, offset: u64, bytes: Bytes) -> Result<(), WalOpenError> {
    match file.write_at(offset, vec![bytes]).await {
        Err(error) if !is_no_space(&error) => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// Makes the header at the start of a file durable, as [`rewrite_and_sync`] does with all of it.
pub(super) async fn rewrite_first(env: &Env, file: &File, path: &Path) -> Result<(), WalOpenError> {
    let page = file.read_at(0, BLOCK_ALIGN as usize).await.map_err(failed(path))?;
    write_again(file, path, 0, page).await?;
    durable::sync_data(env, file, path).await;
    Ok(())
}

/// Writes every file that holds blocks once more over itself, and flushes it. What is in the page cache alone, after
/// `kill -9`, may count as clean there after a flush that failed: flushing would then succeed without writing anything.
/// It takes no space, for the files are preallocated.
pub(super) async fn rewrite_and_sync(env: &Env, dir: &Path) -> Result<(), WalOpenError> {
    for path in env.disk().list(dir).await.map_err(failed(dir))? {
        if slot_number(&path).is_none() {
            continue;
        }
        let file = match env.disk().open(&path, OpenMode::ReadWrite).await {
            // One that was being prepared.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(failed(&path))?,
        };
        let first = file.read_at(0, BLOCK_ALIGN as usize).await.map_err(failed(&path))?;
        if BlockHeader::decode(&first).is_err() {
            continue;
        }
        let mut position = 0;
        loop {
            let bytes = file.read_at(position, REWRITE_BYTES).await.map_err(failed(&path))?;
            let len = bytes.len() as u64;
            if len == 0 {
                break;
            }
            write_again(&file, &path, position, bytes).await?;
            position += len;
        }
        durable::sync_data(env, &file, &path).await;
    }
    Ok(())
}
