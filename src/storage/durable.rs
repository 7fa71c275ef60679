//! Flushing as Kilo means it: a failed flush ends the incarnation, so no caller can go on with a page cache that
//! cannot be believed. Nothing here knows a format.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use crate::io::{Env, FailStop, File, OpenMode, is_too_many_open_files};

/// How long a flush of a directory waits for a descriptor before it tries again.
const DESCRIPTOR_WAIT: Duration = Duration::from_millis(20);

/// Makes a file's data and length stable, or ends this incarnation.
pub(crate) async fn sync_data(env: &Env, file: &File, path: &Path) {
    if let Err(error) = file.sync_data().await {
        env.fail_stop(FailStop::FsyncFailed, &format!("flushing {} failed: {error}", path.display())).await;
    }
}

/// Makes the names in a directory stable, or ends this incarnation. While there is no descriptor to open the directory
/// with, nothing has been flushed and nothing has failed to be: it waits for one.
pub(crate) async fn sync_dir(env: &Env, dir: &Path) {
    let mut told = false;
    while let Err(error) = env.disk().sync_dir(dir).await {
        if !is_too_many_open_files(&error) {
            let message = format!("flushing directory {} failed: {error}", dir.display());
            env.fail_stop(FailStop::FsyncFailed, &message).await;
        }
        crate::sometimes!("storage.directory_flush_waits");
        if !std::mem::replace(&mut told, true) && env.may_log("directories that wait to be flushed", None) {
            let dir = dir.display();
            tracing::warn!(%dir, "a directory waits to be flushed: too many open files, raise the limit (ulimit -n)");
        }
        env.sleep(DESCRIPTOR_WAIT).await;
    }
}

/// Replaces `dir/name` by `contents` in one step: temporary file, flush, rename, directory flush.
///
/// After an error the old file is what it was. A temporary file may stay; the next replacement overwrites it.
pub(crate) async fn replace(env: &Env, dir: &Path, name: &str, contents: Bytes) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let file = env.disk().open(&temporary, OpenMode::Create).await?;
    file.set_len(0).await?;
    file.write_at(0, vec![contents]).await?;
    sync_data(env, &file, &temporary).await;
    drop(file);
    env.disk().rename(&temporary, &dir.join(name)).await?;
    sync_dir(env, dir).await;
    Ok(())
}

/// Reads a whole file of at most `max_bytes`; a longer one is `InvalidData`. `None` if there is none.
pub(crate) async fn read_file(env: &Env, path: &Path, max_bytes: u64) -> io::Result<Option<Bytes>> {
    match read_prefix(env, path, max_bytes).await? {
        Some((_, len)) if len > max_bytes => {
            let message = format!("{} has {len} bytes, more than the {max_bytes} it could ever have", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidData, message))
        }
        found => Ok(found.map(|(bytes, _)| bytes)),
    }
}

/// Reads up to `max_bytes` from the beginning of a file, and its length. `None` if there is none.
pub(crate) async fn read_prefix(env: &Env, path: &Path, max_bytes: u64) -> io::Result<Option<(Bytes, u64)>> {
    let file = match env.disk().open(path, OpenMode::Read).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = file.len().await?;
    let wanted = usize::try_from(len.min(max_bytes)).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    Ok(Some((file.read_at(0, wanted).await?, len)))
}
