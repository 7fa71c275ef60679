//! Opening the metadata log: it is read to its end first, and changed only when nothing refuses the start. What a refused
//! start finds, the next one finds again, above all what [`End`] says. The module docs of [`super::log`] list what a crash
//! can leave.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::end::End;
use super::image::ClusterImage;
use super::log::{
    Expect, FILE_HEADER_LEN, Header, LogError, MetadataLog, Replayed, SNAPSHOT, SNAPSHOT_TEMPORARY, disk_remove, fail,
    find_witness, read_file, read_header, replay,
};
use super::snapshot;
use crate::io::{Env, OpenMode, is_no_space};

/// A log that has been read, and not changed.
pub(super) struct Found {
    env: Env,
    dir: PathBuf,
    image: ClusterImage,
    /// Files that hold nothing.
    garbage: Vec<PathBuf>,
    /// Log files in their order.
    files: Vec<FoundFile>,
}

/// A log file.
struct FoundFile {
    path: PathBuf,
    bytes: Bytes,
    good: Replayed,
    /// The last entry in the image when it had been read.
    last: u64,
}

/// What must be there.
#[derive(Debug, Clone, Copy)]
struct Known {
    expect: Expect,
    /// Entries up to this one.
    flushed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Earlier,
    Last,
}

impl Known {
    fn check_end(self, dir: &Path, image: &ClusterImage) -> Result<(), LogError> {
        let (found, flushed) = (image.applied().index, self.flushed);
        if found < flushed { Err(LogError::Cut { dir: dir.to_owned(), found, flushed }) } else { Ok(()) }
    }
}

impl Found {
    /// Reads the log in `dir` into an image.
    pub(super) async fn look(env: &Env, dir: &Path, expect: Expect) -> Result<Self, LogError> {
        let disk = env.disk();
        let mut found = Self {
            env: env.clone(),
            dir: dir.to_owned(),
            image: ClusterImage::default(),
            garbage: Vec::new(),
            files: Vec::new(),
        };
        let temporary = dir.join(SNAPSHOT_TEMPORARY);
        if disk.exists(&temporary).await.map_err(fail("look for", &temporary))? {
            found.garbage.push(temporary);
        }
        let path = dir.join(SNAPSHOT);
        if disk.exists(&path).await.map_err(fail("look for", &path))? {
            let bytes = read_file(env, &path).await?;
            found.image = snapshot::decode(&bytes).map_err(|error| LogError::Snapshot(path.clone(), error))?;
        }
        let end = End::path(dir);
        let flushed = End::read(env, dir).await.map_err(fail("read", &end))?;
        let known = Known { expect, flushed };
        let files = found.without_empty(log_files(env, dir).await?).await?;
        if files.is_empty() && found.image == ClusterImage::default() && expect == Expect::MustExist {
            return Err(LogError::Missing(dir.to_owned()));
        }
        let last = files.len().saturating_sub(1);
        for (number, (first, path)) in files.into_iter().enumerate() {
            let position = if number == last { Position::Last } else { Position::Earlier };
            found.read(&path, first, position, known).await?;
        }
        known.check_end(dir, &found.image)?;
        Ok(found)
    }

    /// What it says.
    pub(super) fn image(&self) -> &ClusterImage {
        &self.image
    }

    /// Reads one file into the image.
    async fn read(&mut self, path: &Path, first: u64, position: Position, known: Known) -> Result<(), LogError> {
        let bytes = read_file(&self.env, path).await?;
        match read_header(&bytes) {
            Header::Good(found) if found == first => {}
            Header::Newer(found) => return Err(LogError::Newer { path: path.to_owned(), found }),
            Header::Good(_) | Header::Torn => {
                // The first log of a folder that has been in use was flushed with its header.
                let was_whole = known.expect == Expect::MustExist && self.image == ClusterImage::default();
                if position == Position::Earlier || bytes.len() > FILE_HEADER_LEN || was_whole {
                    return Err(LogError::Header(path.to_owned()));
                }
                crate::sometimes!("metadata.torn_new_log");
                self.garbage.push(path.to_owned());
                return Ok(());
            }
        }
        let wanted = self.image.applied().index + 1;
        if first > wanted {
            return Err(LogError::Gap { path: path.to_owned(), found: first, wanted });
        }
        let good = replay(path, &bytes, first, &mut self.image)?;
        if let Some(index) = good.broken {
            let witness = find_witness(&bytes, good.len, index);
            if let Some(witness) = witness.or((position == Position::Earlier).then_some(index)) {
                return Err(LogError::Damaged { path: path.to_owned(), position: good.len as u64, index, witness });
            }
        }
        let last = self.image.applied().index;
        self.files.push(FoundFile { path: path.to_owned(), bytes, good, last });
        Ok(())
    }

    /// The files that hold an entry; if none does, the last. The others are garbage.
    async fn without_empty(&mut self, mut files: Vec<(u64, PathBuf)>) -> Result<Vec<(u64, PathBuf)>, LogError> {
        let last = files.pop();
        let mut kept = Vec::with_capacity(files.len() + 1);
        for (first, path) in files {
            if is_empty(&self.env, &path).await? {
                self.garbage.push(path);
            } else {
                kept.push((first, path));
            }
        }
        if let Some((first, path)) = last {
            if !kept.is_empty() && is_empty(&self.env, &path).await? {
                crate::sometimes!("metadata.empty_new_log");
                self.garbage.push(path);
            } else {
                kept.push((first, path));
            }
        }
        Ok(kept)
    }

    /// Cuts off what was torn, removes what holds nothing, and makes the rest durable.
    pub(super) async fn open(self) -> Result<(MetadataLog, ClusterImage), LogError> {
        let Self { env, dir, image, garbage, files } = self;
        env.disk().create_dir_all(&dir).await.map_err(fail("create", &dir))?;
        if let Some(parent) = dir.parent() {
            env.disk().sync_dir(parent).await.map_err(fail("flush", parent))?;
        }
        for path in &garbage {
            disk_remove(&env, path).await?;
        }
        if !garbage.is_empty() {
            env.disk().sync_dir(&dir).await.map_err(fail("flush", &dir))?;
        }
        let mut open = None;
        for file in files {
            open = Some(file.open(&env, &dir).await?);
        }
        match open {
            Some(log) => {
                log.end.say(log.durable).await;
                Ok((log, image))
            }
            None => Ok((MetadataLog::create(&env, &dir, image.applied().index + 1).await?, image)),
        }
    }
}

impl FoundFile {
    async fn open(self, env: &Env, dir: &Path) -> Result<MetadataLog, LogError> {
        let Self { path, bytes, good, last } = self;
        let file = env.disk().open(&path, OpenMode::ReadWrite).await.map_err(fail("open", &path))?;
        if good.len < bytes.len() {
            crate::sometimes!("metadata.torn_tail");
            file.set_len(good.len as u64).await.map_err(fail("cut", &path))?;
        }
        // What was read may be in the page cache only, and even count as clean there.
        let unproven = bytes.slice(good.unproven..good.len);
        match file.write_at(good.unproven as u64, vec![unproven]).await {
            // On file systems that never write in place even this can meet a full disk; reading must go on then.
            Err(error) if !is_no_space(&error) => return Err(fail("write again", &path)(error)),
            _ => file.sync_data().await.map_err(fail("flush", &path))?,
        }
        let end = End::open(env, dir).await;
        let len = good.len as u64;
        Ok(MetadataLog { env: env.clone(), dir: dir.to_owned(), path, file, len, durable: last, end })
    }
}

/// Log files in `dir` with their first index, in order.
async fn log_files(env: &Env, dir: &Path) -> Result<Vec<(u64, PathBuf)>, LogError> {
    let names = match env.disk().list(dir).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(fail("list", dir))?,
    };
    let mut files: Vec<(u64, PathBuf)> = names
        .into_iter()
        .filter_map(|path| {
            let digits = path.file_name()?.to_str()?.strip_prefix("log-")?;
            (digits.len() == 20).then(|| digits.parse().ok()).flatten().map(|first| (first, path.clone()))
        })
        .collect();
    files.sort();
    Ok(files)
}

/// Whether a file has nothing behind its header, torn or not, of a format that this version writes.
async fn is_empty(env: &Env, path: &Path) -> Result<bool, LogError> {
    let bytes = read_file(env, path).await?;
    Ok(bytes.len() <= FILE_HEADER_LEN && !matches!(read_header(&bytes), Header::Newer(_)))
}
