//! The writer task: executes what the pure [`core`](super::core) decides.
//!
//! Blocks are written in order, several may be in flight, and completions are taken in order. Each block in flight uses a
//! descriptor of its own of the same file: Linux reports a failed write-back once per descriptor, so that two flushes
//! at the same time on one descriptor could hide an error from one of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::block;
use super::config::{WalConfig, WalSync};
use super::core::{Block, Completed, Next};
use super::error::WalFailed;
use super::files::{NewFile, PrepareError, WriteHandles, prepare};
use super::list::FileList;
use super::shared::{Phase, WalShared};
use super::slots::{NewSlot, SlotNumber};
use super::submission::Done;
use crate::io::{BoxFuture, Env, FailStop, Monotonic, is_no_space};

/// How long a file that is wanted ahead of need, and could not be made, is not tried again.
const AHEAD_RETRY: std::time::Duration = std::time::Duration::from_millis(500);

/// A block on its way to the disk.
struct Flight {
    slot: SlotNumber,
    done: Vec<Done>,
    /// Whether the write includes a flush.
    flushes: bool,
    write: BoxFuture<'static, io::Result<()>>,
}

/// A flush that serves every block written before it started.
struct Flush {
    completed: Completed,
    run: BoxFuture<'static, io::Result<()>>,
}

enum Event {
    Written(io::Result<()>),
    Prepared(Result<NewFile, PrepareError>),
    Removed,
    Flushed(io::Result<()>),
    FlushDue,
    Woken,
}

/// The task's own state.
pub(super) struct Writer {
    env: Env,
    dir: PathBuf,
    config: WalConfig,
    shared: Arc<WalShared>,
    files: BTreeMap<SlotNumber, WriteHandles>,
    in_flight: VecDeque<Flight>,
    list: Arc<Mutex<FileList>>,
    preparing: Option<BoxFuture<'static, Result<NewFile, PrepareError>>>,
    /// Files to remove, and the removal that is under way.
    unwanted: Vec<SlotNumber>,
    removing: Option<BoxFuture<'static, ()>>,
    /// Until then no file is prepared ahead of need: the last attempt failed.
    ahead_not_before: Monotonic,
    /// Files with written blocks that no flush has covered. Always empty in the mode `always`.
    unflushed: BTreeSet<SlotNumber>,
    flush: Option<Flush>,
    flush_timer: FlushTimer,
}

/// When the next flush of the mode `interval` starts.
enum FlushTimer {
    /// Nothing was written since the last one.
    Unset,
    Running(BoxFuture<'static, ()>),
    Due,
}

impl Writer {
    /// Starts the task on the files found at the start.
    pub(super) fn start(
        env: &Env,
        dir: &Path,
        config: &WalConfig,
        shared: Arc<WalShared>,
        files: BTreeMap<SlotNumber, WriteHandles>,
        list: FileList,
    ) {
        env.spawn_core("wal-writer", Self::new(env, dir, config, shared, files, list).run());
    }

    fn new(
        env: &Env,
        dir: &Path,
        config: &WalConfig,
        shared: Arc<WalShared>,
        files: BTreeMap<SlotNumber, WriteHandles>,
        list: FileList,
    ) -> Self {
        Self {
            env: env.clone(),
            dir: dir.to_owned(),
            config: config.clone(),
            shared,
            files,
            in_flight: VecDeque::new(),
            list: Arc::new(Mutex::new(list)),
            preparing: None,
            unwanted: Vec::new(),
            removing: None,
            ahead_not_before: Monotonic::default(),
            unflushed: BTreeSet::new(),
            flush: None,
            flush_timer: FlushTimer::Unset,
        }
    }

    /// Runs until the log is closed or abandoned.
    async fn run(mut self) {
        let first = self.shared.state().core.slots.prepare_first();
        self.start_prepare(first);
        while self.step().await {}
        // A file under preparation is finished first: nothing is done in the folder any more when the log has ended.
        if let Some(preparing) = self.preparing.take() {
            let result = preparing.await;
            self.on_prepared(result).await;
        }
        if let Some(removing) = self.removing.take() {
            removing.await;
        }
        self.shared.end(WalFailed::Closed);
    }

    /// Starts what can be started, then waits for one event. Returns whether to go on.
    async fn step(&mut self) -> bool {
        self.start_writes();
        self.start_flush();
        self.start_remove();
        if self.is_finished() {
            return false;
        }
        match self.next_event().await {
            Event::Written(result) => self.on_written(result).await,
            Event::Prepared(result) => self.on_prepared(result).await,
            Event::Removed => self.removing = None,
            Event::Flushed(result) => self.on_flushed(result).await,
            Event::FlushDue => self.flush_timer = FlushTimer::Due,
            Event::Woken => {}
        }
        true
    }

    async fn next_event(&mut self) -> Event {
        async fn present<T>(future: Option<&mut BoxFuture<'static, T>>) -> T {
            match future {
                Some(future) => future.await,
                None => pending().await,
            }
        }
        let flush_timer = match &mut self.flush_timer {
            FlushTimer::Running(sleep) => Some(sleep),
            FlushTimer::Unset | FlushTimer::Due => None,
        };
        tokio::select! {
            biased;
            result = present(self.in_flight.front_mut().map(|flight| &mut flight.write)) => Event::Written(result),
            result = present(self.preparing.as_mut()) => Event::Prepared(result),
            () = present(self.removing.as_mut()) => Event::Removed,
            result = present(self.flush.as_mut().map(|flush| &mut flush.run)) => Event::Flushed(result),
            () = present(flush_timer) => Event::FlushDue,
            () = self.shared.wake.notified() => Event::Woken,
        }
    }

    fn start_writes(&mut self) {
        loop {
            let next = self.shared.state().core.next_block();
            match next {
                Next::Write(block) => self.start_write(block),
                Next::Prepare(new) => self.start_prepare(Some(new)),
                Next::Idle => break,
            }
        }
        if self.preparing.is_none() && self.env.now() >= self.ahead_not_before {
            let ahead = self.shared.state().core.slots.prepare_ahead();
            self.start_prepare(ahead);
        }
    }

    fn start_write(&mut self, block: Block<Done>) {
        let Block { identity, place, items, takes_over } = block;
        let buffers = block::build(&identity, items.iter().map(|item| &item.entry));
        self.shared.counters.wrote(items.len(), buffers.iter().map(bytes::Bytes::len).sum(), place.recycles);
        crate::sometimes!("wal.recycled", place.recycles);
        crate::sometimes!("wal.overlapped", !self.in_flight.is_empty());
        let handles = self.files.get(&place.slot).expect("a file with a place is open");
        let file = handles.of(identity.lsn);
        let flushes = takes_over || self.config.sync == WalSync::Always;
        let write = if flushes {
            self.shared.counters.flushed();
            file.write_at_and_sync(place.offset, buffers)
        } else {
            file.write_at(place.offset, buffers)
        };
        let done = items.into_iter().map(|item| item.tag).collect();
        self.in_flight.push_back(Flight { slot: place.slot, done, flushes, write });
    }

    fn start_prepare(&mut self, new: Option<NewSlot>) {
        if let Some(new) = new {
            let (env, dir, list) = (self.env.clone(), self.dir.clone(), Arc::clone(&self.list));
            self.preparing = Some(Box::pin(prepare(env, dir, new, self.handles(), list)));
        }
    }

    fn handles(&self) -> usize {
        self.config.writes_in_flight_max
    }

    async fn on_written(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            if is_no_space(&error) {
                return self.on_no_space().await;
            }
            let flushes = self.in_flight.front().is_some_and(|flight| flight.flushes);
            return self.fail_write(flushes, &error).await;
        }
        let flight = self.in_flight.pop_front().expect("the oldest block has just completed");
        if self.config.sync != WalSync::Always {
            self.unflushed.insert(flight.slot);
        }
        let (lsn, removed) = self.shared.state().core.completed();
        self.remove(removed);
        flight.done.into_iter().for_each(|done| done(Ok(lsn)));
        self.shared.settled(lsn);
    }

    /// A block met a full disk although its file was preallocated (a file system that copies on write, say). Blocks
    /// behind it cannot be acknowledged without it: all in flight fail, and their numbers go to another file.
    async fn on_no_space(&mut self) {
        let mut failed = VecDeque::from([self.in_flight.pop_front().expect("a block has failed")]);
        while let Some(mut flight) = self.in_flight.pop_front() {
            match (&mut flight.write).await {
                Err(error) if !is_no_space(&error) => return self.fail_write(flight.flushes, &error).await,
                _ => failed.push_back(flight),
            }
        }
        crate::sometimes!("wal.no_space_write");
        self.shared.state().core.no_space();
        failed.into_iter().flat_map(|flight| flight.done).for_each(|done| done(Err(WalFailed::NoSpace)));
        self.fail_waiting(WalFailed::NoSpace);
    }

    async fn fail_write(&mut self, flushes: bool, error: &io::Error) {
        let (code, what) =
            if flushes { (FailStop::FsyncFailed, "writing and flushing") } else { (FailStop::WriteFailed, "writing") };
        self.fail_stop(code, what, error).await;
    }

    /// Fails everything that waits or is in flight, then ends this incarnation.
    async fn fail_stop(&mut self, code: FailStop, what: &str, error: &io::Error) {
        self.shared.end(WalFailed::Stopped);
        let in_flight = std::mem::take(&mut self.in_flight);
        in_flight.into_iter().flat_map(|flight| flight.done).for_each(|done| done(Err(WalFailed::Stopped)));
        let message = format!("{what} the write-ahead log in {} failed: {error}", self.dir.display());
        self.env.fail_stop(code, &message).await
    }

    /// Fails everything that waits, and what is submitted while the callbacks run: a caller may have queued a successor
    /// of a failed entry before it hears of the failure, and that one must not be written.
    fn fail_waiting(&self, why: WalFailed) {
        loop {
            let waiting = self.shared.state().core.take_waiting();
            if waiting.is_empty() {
                return;
            }
            if why == WalFailed::NoSpace {
                self.shared.counters.no_space(waiting.len());
            }
            waiting.into_iter().for_each(|item| (item.tag)(Err(why)));
        }
    }

    async fn on_prepared(&mut self, result: Result<NewFile, PrepareError>) {
        self.preparing = None;
        self.shared.state().core.slots.prepared(result.is_ok());
        let why = match result {
            Ok(new) => {
                self.shared.counters.created();
                self.files.insert(new.slot, new.handles);
                return;
            }
            Err(PrepareError::Flush(error)) => {
                return self.fail_stop(FailStop::FsyncFailed, "flushing a new file of", &error).await;
            }
            Err(PrepareError::NoSpace) => WalFailed::NoSpace,
            Err(PrepareError::Other(error)) => {
                if self.env.may_log("files of the write-ahead log that cannot be created", None) {
                    tracing::warn!("cannot create a file of the write-ahead log in {}: {error}", self.dir.display());
                }
                WalFailed::NoFile
            }
        };
        crate::sometimes!("wal.no_space_file", why == WalFailed::NoSpace);
        self.ahead_not_before = self.env.now() + AHEAD_RETRY;
        // What waits has no file to go to. What still fits into the active file does not wait for this one.
        if self.shared.state().core.needs_file() {
            self.fail_waiting(why);
        }
    }

    /// Starts a flush in the modes that acknowledge before it: `interval` when its time has come, `os` when a file is
    /// full, both at the end.
    fn start_flush(&mut self) {
        if self.unflushed.is_empty() || self.flush.is_some() {
            return;
        }
        let (is_closing, completed) = {
            let state = self.shared.state();
            (state.phase == Phase::Closing && state.core.is_quiet(), state.core.completed_now())
        };
        if !is_closing && !self.is_flush_due() {
            return;
        }
        let slots = std::mem::take(&mut self.unflushed);
        let syncs: Vec<_> = slots.iter().filter_map(|slot| self.files.get(slot)).map(|file| file.flush()).collect();
        self.shared.counters.flushed();
        self.flush_timer = FlushTimer::Unset;
        let run = Box::pin(async move {
            for sync in syncs {
                sync.await?;
            }
            Ok(())
        });
        self.flush = Some(Flush { completed, run });
    }

    fn is_flush_due(&mut self) -> bool {
        match (self.config.sync, &self.flush_timer) {
            (WalSync::Always, _) | (WalSync::Interval(_), FlushTimer::Running(_)) => false,
            (WalSync::Os, _) => self.unflushed.len() > 1,
            (WalSync::Interval(_), FlushTimer::Due) => true,
            (WalSync::Interval(interval), FlushTimer::Unset) => {
                self.flush_timer = FlushTimer::Running(self.env.sleep(interval));
                false
            }
        }
    }

    async fn on_flushed(&mut self, result: io::Result<()>) {
        let flush = self.flush.take().expect("a flush has just completed");
        if let Err(error) = result {
            return self.fail_stop(FailStop::FsyncFailed, "flushing", &error).await;
        }
        let removed = self.shared.state().core.flushed(flush.completed);
        self.remove(removed);
    }

    /// Lets go of files that are not worth keeping.
    fn remove(&mut self, slots: Vec<SlotNumber>) {
        self.files.retain(|slot, _| !slots.contains(slot));
        self.unwanted.extend(slots);
    }

    /// Removes them. Whether that succeeds, and when, does not matter: nothing in them is needed, and a later start finds
    /// that out again.
    fn start_remove(&mut self) {
        if self.removing.is_none() && !self.unwanted.is_empty() {
            let (list, slots) = (Arc::clone(&self.list), std::mem::take(&mut self.unwanted));
            self.removing = Some(Box::pin(async move { list.lock().await.remove(&slots).await }));
        }
    }

    fn is_finished(&mut self) -> bool {
        let phase = self.shared.state().phase;
        let can_write = !self.shared.state().core.is_gated();
        match phase {
            Phase::Open => false,
            Phase::Closing if can_write => {
                let is_written = self.unflushed.is_empty() && self.flush.is_none();
                // Whoever opens the log next finds nobody at work on its files.
                let is_tidy = self.preparing.is_none() && self.removing.is_none();
                self.shared.state().core.is_quiet() && is_written && is_tidy
            }
            Phase::Closing | Phase::Abandoned | Phase::Ended(_) => {
                self.fail_waiting(WalFailed::Closed);
                true
            }
        }
    }
}
