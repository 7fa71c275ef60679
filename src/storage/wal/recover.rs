//! Opening the log: which files are the log, where it ends, and the replay. The module docs of [`super`] list what a
//! crash can leave.
//!
//! 1. Survey: read the first header of every file. Files with one are the log's *chain*, in order of their sequence.
//! 2. Claims: the headers of the newest file (and of files whose start is unreadable) say up to where the log was flushed
//!    and from where it is needed. Both only ever rise, so the newest say the most. A header is believed even if the
//!    payload behind it is torn: what it says was true when it was written.
//! 3. Reading: from the floor on, each block must have the next number. A file ends where the next file's first block
//!    takes over. At the first number that is missing the log ends; if a claim says that this block was flushed,
//!    the log is damaged.
//! 4. Replay: the same once more, and now the entries are applied and files may be changed. A start that is refused has
//!    changed nothing.
//! 5. Where the log goes on in another file and that may not be durable, it is made so.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::block::{BLOCK_ALIGN, BlockHeader, FORMAT_VERSION, HeaderError};
use super::config::WalConfig;
use super::core::{Core, CoreStart};
use super::entry::{self, Entry};
use super::error::WalOpenError;
use super::files::WriteHandles;
use super::list::FileList;
use super::names::slot_number;
use super::rewrite::rewrite_first;
use super::scan::{At, SlotFile, Walker};
use super::slots::{SlotNumber, Slots};
use super::submission::Done;
use crate::io::{BoxFuture, Env, OpenMode, is_no_space, is_too_many_open_files};
use crate::storage::Lsn;

/// How far file sequences jump at a start, besides one for each file: an incarnation that crashed may have used some that
/// left no trace.
const SEQUENCE_JUMP: u64 = 16;

/// Why a visitor refuses.
pub type VisitError = Box<dyn std::error::Error + Send + Sync>;

/// Takes the entries of a replay.
pub trait ReplayVisitor: Send {
    /// Comes once, before anything else: the log still has every entry from block `from` on. `None` if it has no block at
    /// all, or may lack some because its list of files is gone. Changes nothing, for the log may yet turn out to be
    /// damaged.
    fn begins(&mut self, _from: Option<Lsn>) -> BoxFuture<'_, Result<(), VisitError>> {
        Box::pin(async { Ok(()) })
    }

    /// The next entry of the first reading, which is there to refuse what cannot be applied.
    fn check(&mut self, _lsn: Lsn, _entry: &Entry) -> Result<(), VisitError> {
        Ok(())
    }

    /// Comes once, when the whole log has been read and found good: nothing has been changed in the data folder so far.
    fn decided(&mut self) -> BoxFuture<'_, Result<(), VisitError>> {
        Box::pin(async { Ok(()) })
    }

    /// The next entry; those of one block come one after the other under the same number. The next one is read when
    /// this future is done. Batches share the memory of a read buffer of up to a block.
    fn entry(&mut self, lsn: Lsn, entry: Entry) -> BoxFuture<'_, Result<(), VisitError>>;
}

/// What the caller knows from its checkpoints. Not which block is the first that it needs: the log remembers that itself, and a
/// replay that began behind a place where an earlier one ended would bring back what that one had given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownLsns {
    /// The highest number in any checkpoint; `Lsn(0)` without one. New blocks get higher ones.
    pub checkpointed: Lsn,
}

/// What opening found.
pub(super) struct Recovered {
    pub(super) start: CoreStart,
    pub(super) slots: Slots,
    pub(super) files: BTreeMap<SlotNumber, WriteHandles>,
    pub(super) list: FileList,
    pub(super) end: Option<LogEnd>,
}

/// Where a start found the end of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The file.
    pub path: PathBuf,
    /// The byte in it behind the last block.
    pub offset: u64,
    /// What is there.
    pub found: &'static str,
}

/// What headers say about the log as a whole.
#[derive(Clone, Copy, Default)]
struct Claims {
    durable_below: Lsn,
    floor: Lsn,
}

impl Claims {
    fn add(&mut self, header: &BlockHeader) {
        self.durable_below = self.durable_below.max(header.durable_below);
        self.floor = self.floor.max(header.floor);
    }
}

/// Where the log ended.
struct Replayed {
    /// The first block that is not there.
    end: Lsn,
    bytes: u64,
    /// Where that is.
    at: Option<LogEnd>,
    /// The last block found in each file of the chain; missing for files that hold nothing of the log.
    last: BTreeMap<SlotNumber, Lsn>,
    /// The file in which a block is missing, and where.
    missing: Option<(PathBuf, End)>,
}

/// Which reading of the log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Check,
    Apply,
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> WalOpenError + use<'a> {
    move |source| WalOpenError::Io { action, path: path.to_owned(), source }
}

/// Opens and replays the log in `dir`.
pub(super) async fn recover(
    env: &Env,
    dir: &Path,
    config: &WalConfig,
    known: KnownLsns,
    visitor: &mut dyn ReplayVisitor,
) -> Result<Recovered, WalOpenError> {
    let mut list = FileList::load(env, dir).await?;
    let Survey { files, unfinished } = survey(env, dir, config, &list).await?;
    let mut chain: Vec<&SlotFile> = files.iter().filter(|file| file.first.is_some()).collect();
    chain.sort_by_key(|file| file.first.map(|first| first.file_sequence));
    let (claims, highest_sequence) = claims(&files, chain.last().copied()).await?;
    let from = claims.floor.max(Lsn(1));
    if !list.exists() && (!chain.is_empty() || known.checkpointed > Lsn(0)) {
        let list = list.path();
        tracing::warn!(list = %list.display(), "the list of the write-ahead log's files is gone: what is there counts");
    }
    // Without the list nobody knows whether the newest file is missing.
    let has_all = list.exists() && !chain.is_empty();
    let begun = visitor.begins(has_all.then_some(from)).await;
    begun.map_err(|source| WalOpenError::Visitor { lsn: from, source })?;

    let read = replay(&chain, from, Pass::Check, visitor).await?;
    judge(&files, &read, claims.durable_below)?;
    read.warn();
    visitor.decided().await.map_err(|source| WalOpenError::Visitor { lsn: from, source })?;
    create_dir(env, dir).await?;
    for path in unfinished {
        env.disk().remove_file(&path).await.map_err(failed("remove", &path))?;
    }
    let replayed = replay(&chain, from, Pass::Apply, visitor).await?;
    judge(&files, &replayed, read.end)?;
    flush_takeovers(env, &chain, claims.durable_below).await?;
    let next_lsn = replayed.end.max(known.checkpointed.next());
    if next_lsn > replayed.end && known.checkpointed > Lsn(0) {
        let (end, checkpointed) = (replayed.end, known.checkpointed);
        tracing::warn!(
            "the write-ahead log ends before block {end}, and a checkpoint has everything up to block {checkpointed}: a power \
             cut after kill -9, or in a weaker wal.sync, does that; files of another time do it too"
        );
    }
    let is_empty = replayed.end == from;
    let start = CoreStart {
        writer: env.rng("wal-writer").u64(..),
        next_lsn,
        replayed_from: if is_empty { next_lsn } else { from },
        replayed_bytes: replayed.bytes,
    };
    let sequence = highest_sequence.saturating_add(files.len() as u64 + SEQUENCE_JUMP);
    let mut slots = Slots::new(Core::<Done>::slot_limits(config), sequence);
    let mut handles = BTreeMap::new();
    // What is listed must be there after a power cut: where there was no list, names and lengths may not be durable yet.
    for file in files.iter().filter(|file| !list.has(file.slot)) {
        file.file.sync_data().await.map_err(failed("flush", &file.path))?;
    }
    env.disk().sync_dir(dir).await.map_err(failed("flush", dir))?;
    match list.set(files.iter().map(|file| (file.slot, file.bytes)).collect()).await {
        // Reading goes on; the list is made up with the next file.
        Err(error) if is_no_space(&error) || is_too_many_open_files(&error) => {
            tracing::warn!(%error, "cannot list the write-ahead log's files")
        }
        listed => listed.map_err(failed("list the files of", dir))?,
    }
    for file in files {
        // Even a file that this replay did not need stays as it is until a new block that says so is durable: the header
        // that says it now may be known from the page cache alone.
        slots.found(file.slot, file.bytes, replayed.last.get(&file.slot).copied());
        let opened = WriteHandles::open(env, &file.path, file.file, config.writes_in_flight_max).await;
        handles.insert(file.slot, opened.map_err(failed("open", &file.path))?);
    }
    Ok(Recovered { start, slots, files: handles, list, end: replayed.at })
}

/// The slot files there are.
struct Survey {
    /// All whole ones, opened, with their first headers.
    files: Vec<SlotFile>,
    /// Those that were being made, which no list has.
    unfinished: Vec<PathBuf>,
}

async fn survey(env: &Env, dir: &Path, config: &WalConfig, list: &FileList) -> Result<Survey, WalOpenError> {
    let disk = env.disk();
    let (mut files, mut unfinished) = (Vec::new(), Vec::new());
    let paths = match disk.list(dir).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(failed("list", dir))?,
    };
    for path in paths {
        let Some(slot) = slot_number(&path) else { continue };
        let file = disk.open(&path, OpenMode::ReadWrite).await.map_err(failed("open", &path))?;
        let bytes = file.len().await.map_err(failed("read", &path))?;
        let page = file.read_at(0, BLOCK_ALIGN as usize).await.map_err(failed("read", &path))?;
        let first = match BlockHeader::decode(&page) {
            Ok(header) => Some(header),
            Err(HeaderError::Version(version)) if version > FORMAT_VERSION => {
                return Err(WalOpenError::NewerFormat { path, version, supported: FORMAT_VERSION });
            }
            Err(_) => None,
        };
        let is_whole = bytes == config.file_bytes || bytes == config.first_file_bytes;
        // No block is in a file before it is listed; one that is not may even stand in the page cache alone.
        let is_unfinished = !list.has(slot) && (list.exists() || !is_whole);
        if first.is_none() && is_unfinished && is_zero(&page) {
            unfinished.push(path);
            continue;
        }
        files.push(SlotFile { slot, path, file, bytes, first });
    }
    Ok(Survey { files, unfinished })
}

/// Makes sure that the directory exists, and that it and the parents that had to be made survive a power cut. Its own
/// name is flushed in any case: a process that was killed may have made it and not have come to that.
async fn create_dir(env: &Env, dir: &Path) -> Result<(), WalOpenError> {
    let disk = env.disk();
    let mut made = holder(dir);
    let mut holders = vec![made];
    while !disk.exists(made).await.map_err(failed("look for", made))? {
        made = holder(made);
        holders.push(made);
    }
    disk.create_dir_all(dir).await.map_err(failed("create", dir))?;
    for holder in holders {
        disk.sync_dir(holder).await.map_err(failed("flush", holder))?;
    }
    Ok(())
}

/// The directory that holds the name of `path`.
fn holder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// What the headers say, and the highest file sequence among those looked at.
async fn claims(files: &[SlotFile], newest: Option<&SlotFile>) -> Result<(Claims, u64), WalOpenError> {
    let mut claims = Claims::default();
    let mut highest = 0;
    // A producer can write bytes that look like a header but cannot know a writer's number.
    let writers: BTreeSet<u64> = files.iter().filter_map(|file| file.first).map(|first| first.writer).collect();
    for file in files {
        let is_newest = newest.is_some_and(|newest| newest.slot == file.slot);
        if let Some(first) = &file.first {
            claims.add(first);
            highest = highest.max(first.file_sequence);
            if !is_newest {
                continue;
            }
        }
        let mut walker = Walker::headers(file);
        let believed = |header: &BlockHeader| match file.first {
            Some(_) => file.owns(header),
            None => writers.is_empty() || writers.contains(&header.writer),
        };
        while let Some((_, at)) = walker.next(believed).await.map_err(failed("read", &file.path))? {
            if let At::Block(header) = at {
                claims.add(&header);
                highest = highest.max(header.file_sequence);
            }
        }
    }
    Ok((claims, highest))
}

/// The first number that a later file takes over, for each file of the chain.
fn limits(chain: &[&SlotFile]) -> Vec<Lsn> {
    let mut limits = vec![Lsn(u64::MAX); chain.len()];
    let mut limit = Lsn(u64::MAX);
    for (file, slot) in limits.iter_mut().zip(chain).rev() {
        *file = limit;
        limit = limit.min(slot.first.map_or(limit, |first| first.lsn));
    }
    limits
}

/// Makes the places durable where the log goes on in another file. After `kill -9` such a place may be in the page cache
/// alone, and a power cut would then bring back what the file before it holds under the same numbers: blocks that failed
/// for lack of space, which this start has passed over.
async fn flush_takeovers(env: &Env, chain: &[&SlotFile], durable_below: Lsn) -> Result<(), WalOpenError> {
    for (file, limit) in chain.iter().zip(limits(chain)).skip(1) {
        if file.first.is_some_and(|first| first.lsn >= durable_below && first.lsn < limit) {
            rewrite_first(env, &file.file, &file.path).await?;
        }
    }
    Ok(())
}

async fn replay(
    chain: &[&SlotFile],
    from: Lsn,
    pass: Pass,
    visitor: &mut dyn ReplayVisitor,
) -> Result<Replayed, WalOpenError> {
    let mut replayed = Replayed { end: from, bytes: 0, at: None, last: BTreeMap::new(), missing: None };
    let writer = |file: &SlotFile| file.first.map(|first| first.writer);
    let newest = chain.last().and_then(|file| writer(file));
    for (file, limit) in chain.iter().zip(limits(chain)) {
        let begins = file.first.map_or(limit, |first| first.lsn);
        if begins >= limit || replayed.missing.is_some() {
            // Overtaken by a later file from its first block on, or behind the end of the log.
            crate::sometimes!("wal.overtaken_file");
            continue;
        }
        // No incarnation writes before all that it has found is released, so its headers have a floor above that. What an
        // earlier one has from there on lies behind the place where a start found the log's end.
        if limit <= from || writer(file) != newest {
            replayed.last.insert(file.slot, Lsn(limit.min(from).0 - 1));
            continue;
        }
        let end = replay_file(file, limit, pass, &mut replayed, visitor).await?;
        replayed.at = Some(LogEnd { path: file.path.clone(), offset: end.offset, found: end.found });
        replayed.last.insert(file.slot, Lsn(replayed.end.max(begins).0 - 1));
        if replayed.end < limit {
            replayed.missing = Some((file.path.clone(), end));
        }
    }
    Ok(replayed)
}

/// Refuses a log that ends before a block that was durable.
fn judge(files: &[SlotFile], replayed: &Replayed, durable_below: Lsn) -> Result<(), WalOpenError> {
    // Without a chain nothing was missed; unless a file whose start is unreadable says so.
    let unreadable = End { offset: 0, found: "no block", is_torn: false };
    let missing = replayed.missing.clone().or(files.first().map(|file| (file.path.clone(), unreadable)));
    match missing {
        Some((path, End { offset, found, .. })) if durable_below > replayed.end => {
            Err(WalOpenError::Corrupt { path, offset, lsn: replayed.end, found, durable_below })
        }
        _ => Ok(()),
    }
}

impl Replayed {
    /// Says where the log was torn.
    fn warn(&self) {
        if let Some((path, End { offset, found, is_torn: true })) = &self.missing {
            let (path, lsn) = (path.display(), self.end);
            tracing::warn!(
                "the write-ahead log ends before block {lsn}: byte {offset} of {path} has {found}. A crash leaves that of a \
                 write that it cut short, and nothing from there on had been acknowledged"
            );
        }
    }
}

/// Where a file stops being part of the log.
#[derive(Clone, Copy)]
struct End {
    offset: u64,
    found: &'static str,
    /// Whether a block was begun there.
    is_torn: bool,
}

/// Replays the blocks of one file below `limit`.
async fn replay_file(
    file: &SlotFile,
    limit: Lsn,
    pass: Pass,
    replayed: &mut Replayed,
    visitor: &mut dyn ReplayVisitor,
) -> Result<End, WalOpenError> {
    let mut walker = Walker::payloads(file);
    // The number that belongs to the place looked at.
    let mut here = file.first.map_or(limit, |first| first.lsn);
    while let Some((offset, at)) = walker.next(|header| file.owns(header)).await.map_err(failed("read", &file.path))? {
        let header = match at {
            At::Block(header) => header,
            // Damage to what is not needed any more: the place where the needed part begins is yet to come.
            _ if here < replayed.end => continue,
            _ => {
                crate::sometimes!("wal.stale_block_rejected", matches!(at, At::Stale(_)));
                crate::sometimes!("wal.torn_tail", matches!(at, At::Torn | At::Other));
                return Ok(End { offset, found: at.describe(), is_torn: at == At::Torn });
            }
        };
        if header.lsn >= limit {
            return Ok(End { offset, found: "a block that a later file replaces", is_torn: false });
        }
        here = header.lsn.next();
        if header.lsn < replayed.end {
            continue;
        }
        if header.lsn > replayed.end {
            crate::sometimes!("wal.torn_tail");
            return Ok(End { offset, found: "a later block", is_torn: true });
        }
        let payload = walker.payload(offset, &header).await.map_err(failed("read", &file.path))?;
        if !header.payload_matches(&payload) {
            crate::sometimes!("wal.torn_tail");
            return Ok(End { offset, found: "a block with a wrong checksum", is_torn: true });
        }
        let entries = entry::decode(payload, header.entries).map_err(|reason| WalOpenError::Unreadable {
            path: file.path.clone(),
            offset,
            lsn: header.lsn,
            reason,
        })?;
        for entry in entries {
            let visited = match pass {
                Pass::Check => visitor.check(header.lsn, &entry),
                Pass::Apply => {
                    crate::sometimes!("wal.entries_replayed");
                    visitor.entry(header.lsn, entry).await
                }
            };
            visited.map_err(|source| WalOpenError::Visitor { lsn: header.lsn, source })?;
        }
        replayed.end = here;
        replayed.bytes += header.block_bytes();
    }
    Ok(End { offset: file.bytes, found: "the end of the file", is_torn: false })
}
