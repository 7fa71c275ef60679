//! Slot files on the disk: their descriptors, and how one is made.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::list::FileList;
use super::names::slot_path;
use super::slots::{NewSlot, SlotNumber};
use crate::io::{BoxFuture, Env, File, OpenMode, is_no_space, is_too_many_open_files};
use crate::storage::Lsn;

/// One file, opened as often as blocks may be in flight.
pub(super) struct WriteHandles(Vec<File>);

impl WriteHandles {
    /// Opens `path` some more times beside `first`.
    pub(super) async fn open(env: &Env, path: &Path, first: File, count: usize) -> io::Result<Self> {
        let mut handles = vec![first];
        while handles.len() < count {
            handles.push(env.disk().open(path, OpenMode::ReadWrite).await?);
        }
        Ok(Self(handles))
    }

    /// The descriptor for a block. Of as many consecutive blocks as there are lanes, no two share one.
    pub(super) fn of(&self, lsn: Lsn) -> &File {
        let handle = lsn.0 % self.0.len() as u64;
        &self.0[usize::try_from(handle).expect("less than the number of lanes")]
    }

    /// Flushes everything written to the file, through whichever descriptor.
    pub(super) fn flush(&self) -> BoxFuture<'static, io::Result<()>> {
        self.0[0].sync_data()
    }
}

/// A file ready for use.
pub(super) struct NewFile {
    pub(super) slot: SlotNumber,
    pub(super) handles: WriteHandles,
}

/// Why a file could not be made.
#[derive(Debug)]
pub(super) enum PrepareError {
    NoSpace,
    /// Its contents or its name could not be made durable.
    Flush(io::Error),
    Other(io::Error),
}

fn other(error: io::Error) -> PrepareError {
    if is_no_space(&error) { PrepareError::NoSpace } else { PrepareError::Other(error) }
}

/// A directory that could not be opened for lack of a descriptor has not been flushed, and its flush has not failed.
fn flush(error: io::Error) -> PrepareError {
    if is_no_space(&error) || is_too_many_open_files(&error) { other(error) } else { PrepareError::Flush(error) }
}

/// Creates a file, reserves its space, makes data and name durable, so that a block in it is found after a power cut, and
/// lists it, so that it is missed when it is gone.
pub(super) async fn prepare(
    env: Env,
    dir: PathBuf,
    new: NewSlot,
    handles: usize,
    list: Arc<Mutex<FileList>>,
) -> Result<NewFile, PrepareError> {
    let path = slot_path(&dir, new.slot);
    let file = env.disk().open(&path, OpenMode::CreateNew).await.map_err(other)?;
    let made = async {
        file.allocate(new.bytes).await.map_err(other)?;
        file.sync_data().await.map_err(flush)?;
        env.disk().sync_dir(&dir).await.map_err(flush)?;
        let handles = WriteHandles::open(&env, &path, file.clone(), handles).await.map_err(other)?;
        list.lock().await.add(new.slot, new.bytes).await.map_err(other)?;
        Ok(handles)
    };
    match made.await {
        Ok(handles) => Ok(NewFile { slot: new.slot, handles }),
        Err(error) => {
            // An unfinished file is no use; if it cannot be removed now, the next start does it.
            let _ = env.disk().remove_file(&path).await;
            Err(error)
        }
    }
}
