//! The disk of a node as its program sees it: operations that take time and can fail, on the pure model.
//!
//! An operation takes effect when it completes. What is in flight when a process is killed may or may not still take
//! effect, each for itself; a flush covers what had been written when it was submitted, and nothing later.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kilo::io::{BoxFuture, DirLock, Disk, DiskFile, File, OpenMode, Space};
use tokio::sync::oneshot;

use super::errno::{self, os_error};
use super::faults::{Fault, OpKind};
use super::file::SECTOR_BYTES;
use super::model::Ino;
use super::state::DiskState;
use crate::host::env::{SimHost, dead};
use crate::host::node_state::Incarnation;
use crate::host::{Cause, Effects, SharedState, State};

/// As in the real world.
const LOCK_FILE: &str = ".lock";

/// What a fault makes of an operation that then does nothing.
fn refusal(fault: Option<Fault>) -> io::Result<()> {
    match fault {
        Some(Fault::Eio) => Err(os_error(errno::EIO)),
        Some(Fault::NoSpace) => Err(os_error(errno::ENOSPC)),
        Some(Fault::TooManyFiles) => Err(os_error(errno::EMFILE)),
        Some(Fault::Lie | Fault::FlipBit | Fault::Slow(_)) | None => Ok(()),
    }
}

/// Who asks for what, for faults and traces.
struct Request {
    node: usize,
    kind: OpKind,
    path: Arc<str>,
    /// Position and length, where there are.
    range: Option<(u64, u64)>,
    /// The fault that it meets, with the number that it has in the plan, once it is in flight.
    met: Option<(Fault, u32)>,
}

impl Request {
    fn trace<T>(&self, state: &mut State, now: u64, result: &io::Result<T>) {
        self.note_hit(state, now, result.as_ref().err());
        let Self { node, kind, path, range, .. } = self;
        let name = kind.name();
        let outcome = match result {
            Ok(_) => String::new(),
            Err(error) => match error.raw_os_error() {
                Some(number) => format!(" {}", errno::name(number)),
                None => format!(" {error}"),
            },
        };
        match range {
            Some((at, len)) => state.trace(now, *node, format_args!("disk {name} {path} {at}+{len}{outcome}")),
            None => state.trace(now, *node, format_args!("disk {name} {path}{outcome}")),
        }
    }

    /// Tells the people who look at a run which operation a fault has hit, and how.
    fn note_hit(&self, state: &mut State, now: u64, error: Option<&io::Error>) {
        let Self { kind, path, range, met, .. } = self;
        if *kind == OpKind::FreeSpace && state.nodes[self.node].disk.model.is_limited() {
            let free = state.nodes[self.node].disk.model.space().free;
            state.hit(now, Cause::DiskSpace, format_args!("the disk says that {free} bytes are free"));
        }
        if error.is_none() && met.is_none() {
            return;
        }
        let name = kind.name();
        let at = range.map_or(String::new(), |(at, len)| format!(" at {at}+{len}"));
        match (error.and_then(io::Error::raw_os_error), *met) {
            (Some(code), Some((_, fault))) => {
                state.hits.note(now, fault, format_args!("{name} of {path}{at} failed: {}", errno::name(code)));
            }
            (Some(errno::ENOSPC), None) => {
                state.hit(now, Cause::DiskSpace, format_args!("{name} of {path}{at} failed: ENOSPC"));
            }
            (Some(errno::EMFILE), None) => {
                state.hit(now, Cause::Descriptors, format_args!("{name} of {path} failed: EMFILE"));
            }
            (None, Some((Fault::Lie, fault))) => {
                state.hits.note(now, fault, format_args!("{name} of {path} said that it succeeded and did nothing"));
            }
            (None, Some((Fault::FlipBit, fault))) => {
                state.hits.note(now, fault, format_args!("{name} of {path}{at} returned a wrong bit"));
            }
            (None, Some((Fault::Slow(ms), fault))) => {
                state.hits.note(now, fault, format_args!("{name} of {path}{at} took {ms} ms longer"));
            }
            _ => {}
        }
    }

    /// Puts `job` in flight; it runs when its time has come.
    fn start(
        mut self,
        state: &mut State,
        now: u64,
        bytes: u64,
        effects: &mut Effects,
        job: impl FnOnce(Self, &mut State, u64, Option<Fault>, &mut Effects) + Send + 'static,
    ) {
        let node = self.node;
        let disk = &mut state.nodes[node].disk;
        let drawn = disk.draw(self.kind, &self.path);
        let fault = drawn.map(|(fault, _)| fault);
        let at = disk.ends_at(now, self.kind, bytes, fault);
        let id = disk.operations;
        disk.operations += 1;
        self.met = drawn.and_then(|(fault, cause)| Some((fault, state.hits.blamed(cause)?)));
        let job = Box::new(move |state: &mut State, now, effects: &mut Effects| job(self, state, now, fault, effects));
        state.disk_jobs.insert((node, id), job);
        state.events.at(at, effects, move |state, now, effects| {
            if let Some(job) = state.disk_jobs.remove(&(node, id)) {
                job(state, now, effects);
            }
        });
    }
}

type Completion<T> = oneshot::Sender<io::Result<T>>;

fn response<T: Send + 'static>(completion: Completion<T>, result: io::Result<T>, effects: &mut Effects) {
    effects.after(move || {
        let _ = completion.send(result);
    });
}

/// What every operation starts from.
#[derive(Clone)]
struct Access {
    shared: Arc<SharedState>,
    incarnation: Arc<Incarnation>,
}

impl Access {
    fn host(&self) -> SimHost {
        SimHost::new(self.shared.clone(), self.incarnation.clone())
    }

    /// Submits an operation; `begin` puts it in flight.
    fn submit<T: Send + 'static>(
        &self,
        kind: OpKind,
        path: Arc<str>,
        range: Option<(u64, u64)>,
        begin: impl FnOnce(Request, &mut State, u64, Completion<T>, &mut Effects),
    ) -> BoxFuture<'static, io::Result<T>> {
        let (completion, receiver) = oneshot::channel();
        let now = self.shared.now();
        self.shared.with(|state, effects| {
            let request = Request { node: self.incarnation.node, kind, path, range, met: None };
            match self.host().check_alive(state, &format!("{} {}", kind.name(), request.path)) {
                Ok(()) => begin(request, state, now, completion, effects),
                Err(error) => response(completion, Err(error), effects),
            }
        });
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(dead())) })
    }

    /// Submits an operation that does one thing to the disk, unless a fault refuses it.
    fn simple<T: Send + 'static>(
        &self,
        kind: OpKind,
        path: Arc<str>,
        range: Option<(u64, u64)>,
        operation: impl FnOnce(&mut State) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let bytes = if kind == OpKind::Read { range.map_or(0, |(_, len)| len) } else { 0 };
        self.submit(kind, path, range, move |request, state, now, completion, effects| {
            request.start(state, now, bytes, effects, move |request, state, now, fault, effects| {
                let result = refusal(fault).and_then(|()| operation(state));
                request.trace(state, now, &result);
                response(completion, result, effects);
            });
        })
    }
}

struct SimFile {
    access: Access,
    ino: Ino,
    path: Arc<str>,
    is_writable: bool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        // The end of the incarnation has closed everything.
        if self.access.incarnation.is_alive() {
            self.access.shared.with(|state, _| {
                let node = &mut state.nodes[self.access.incarnation.node];
                node.disk.model.close(self.ino);
                node.descriptors = node.descriptors.saturating_sub(1);
            });
        }
    }
}

impl SimFile {
    fn simple<T: Send + 'static>(
        &self,
        kind: OpKind,
        range: Option<(u64, u64)>,
        operation: impl FnOnce(&mut DiskState, Ino) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let (ino, node) = (self.ino, self.access.incarnation.node);
        let handle = self.hold();
        self.access.simple(kind, self.path.clone(), range, move |state| {
            let result = operation(&mut state.nodes[node].disk, ino);
            handle.release(state);
            result
        })
    }

    /// An operation in flight keeps the file open, though its handle may be dropped.
    fn hold(&self) -> Held {
        let node = self.access.incarnation.node;
        // After the end of the incarnation the operation will be refused, and nothing lets go again.
        if self.access.incarnation.is_alive() {
            self.access.shared.with(|state, _| state.nodes[node].disk.model.hold(self.ino));
        }
        Held { node, ino: self.ino }
    }

    /// The error of changing a file that was opened for reading.
    fn read_only<T: Send + 'static>(&self) -> Option<BoxFuture<'static, io::Result<T>>> {
        (!self.is_writable).then(|| Box::pin(std::future::ready(Err(os_error(errno::EBADF)))) as _)
    }

    fn write(&self, offset: u64, buffers: Vec<Bytes>, then_sync: bool) -> BoxFuture<'static, io::Result<()>> {
        if let Some(error) = self.read_only() {
            return error;
        }
        let len: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let (ino, node) = (self.ino, self.access.incarnation.node);
        let handle = self.hold();
        let range = Some((offset, len));
        self.access.submit(OpKind::Write, self.path.clone(), range, move |request, state, now, completion, effects| {
            request.start(state, now, 0, effects, move |request, state, now, fault, effects| {
                let result = write(&mut state.nodes[node].disk, ino, offset, buffers, fault);
                request.trace(state, now, &result);
                if result.is_err() || !then_sync {
                    handle.release(state);
                    return response(completion, result, effects);
                }
                let request = Request { kind: OpKind::Sync, range: None, ..request };
                start_sync(request, state, now, handle, completion, effects);
            });
        })
    }
}

/// A handle that an operation in flight keeps.
struct Held {
    node: usize,
    ino: Ino,
}

impl Held {
    fn release(self, state: &mut State) {
        state.nodes[self.node].disk.model.close(self.ino);
    }
}

fn write(disk: &mut DiskState, ino: Ino, offset: u64, mut buffers: Vec<Bytes>, fault: Option<Fault>) -> io::Result<()> {
    let refused = refusal(fault);
    if refused.is_err() {
        let len: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let mut left = disk.rng.u64(0..=len / SECTOR_BYTES) * SECTOR_BYTES;
        for buffer in &mut buffers {
            let part = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            buffer.truncate(part);
            left -= part as u64;
        }
    }
    disk.model.write(ino, offset, &buffers)?;
    refused
}

fn start_sync(
    request: Request,
    state: &mut State,
    now: u64,
    handle: Held,
    completion: Completion<()>,
    effects: &mut Effects,
) {
    let disk = &mut state.nodes[handle.node].disk;
    let token = disk.model.begin_sync(handle.ino);
    let bytes = disk.model.pending_bytes(handle.ino);
    request.start(state, now, bytes, effects, move |request, state, now, fault, effects| {
        let disk = &mut state.nodes[handle.node].disk;
        let mut result = refusal(fault);
        match (&result, fault) {
            (Err(_), _) => disk.model.fail_sync(token, &mut disk.rng),
            (Ok(()), Some(Fault::Lie)) => {}
            (Ok(()), _) => result = disk.model.complete_sync(token),
        }
        handle.release(state);
        request.trace(state, now, &result);
        response(completion, result, effects);
    });
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'static, io::Result<Bytes>> {
        let (ino, node) = (self.ino, self.access.incarnation.node);
        let range = Some((offset, len as u64));
        let handle = self.hold();
        self.access.submit(OpKind::Read, self.path.clone(), range, move |request, state, now, completion, effects| {
            request.start(state, now, len as u64, effects, move |request, state, now, fault, effects| {
                let disk = &mut state.nodes[node].disk;
                let mut result = refusal(fault).and_then(|()| disk.model.read(ino, offset, len));
                if let (Ok(bytes), Some(Fault::FlipBit)) = (&mut result, fault) {
                    *bytes = flip_one_bit(bytes, &mut disk.rng);
                }
                handle.release(state);
                request.trace(state, now, &result);
                response(completion, result, effects);
            });
        })
    }

    fn write_at(&self, offset: u64, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<()>> {
        self.write(offset, buffers, false)
    }

    fn sync_data(&self) -> BoxFuture<'static, io::Result<()>> {
        let handle = self.hold();
        self.access.submit(OpKind::Sync, self.path.clone(), None, move |request, state, now, completion, effects| {
            start_sync(request, state, now, handle, completion, effects);
        })
    }

    fn write_at_and_sync(&self, offset: u64, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<()>> {
        self.write(offset, buffers, true)
    }

    fn allocate(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        if let Some(error) = self.read_only() {
            return error;
        }
        self.simple(OpKind::Allocate, Some((0, len)), move |disk, ino| disk.model.allocate(ino, len))
    }

    fn set_len(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        if let Some(error) = self.read_only() {
            return error;
        }
        self.simple(OpKind::SetLen, Some((0, len)), move |disk, ino| disk.model.set_len(ino, len))
    }

    fn len(&self) -> BoxFuture<'static, io::Result<u64>> {
        self.simple(OpKind::Len, None, |disk, ino| disk.model.len(ino))
    }
}

fn flip_one_bit(bytes: &Bytes, rng: &mut fastrand::Rng) -> Bytes {
    let mut bytes = BytesMut::from(&bytes[..]);
    if !bytes.is_empty() {
        let at = rng.usize(..bytes.len());
        bytes[at] ^= 1 << rng.u8(..8);
    }
    bytes.freeze()
}

struct SimLock {
    access: Access,
    path: PathBuf,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        if self.access.incarnation.is_alive() {
            let node = self.access.incarnation.node;
            self.access.shared.with(|state, _| state.nodes[node].disk.locks.remove(&self.path));
        }
    }
}

impl SimHost {
    fn access(&self) -> Access {
        Access { shared: self.shared.clone(), incarnation: self.incarnation.clone() }
    }

    /// Submits an operation on names.
    fn on_names<T: Send + 'static>(
        &self,
        kind: OpKind,
        path: &Path,
        operation: impl FnOnce(&mut DiskState, &Path) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let node = self.incarnation.node;
        let owned = path.to_owned();
        self.access().simple(kind, label(path), None, move |state| {
            // Listing and flushing a directory open it for as long as they take.
            let opens = matches!(kind, OpKind::List | OpKind::SyncDir);
            if opens && !state.nodes[node].has_descriptor() {
                return Err(os_error(errno::EMFILE));
            }
            operation(&mut state.nodes[node].disk, &owned)
        })
    }
}

fn label(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

impl Disk for SimHost {
    fn open(&self, path: &Path, mode: OpenMode) -> BoxFuture<'static, io::Result<File>> {
        let access = self.access();
        let path_label = label(path);
        let path = path.to_owned();
        self.access().simple(OpKind::Open, path_label.clone(), None, move |state| {
            let node = &mut state.nodes[access.incarnation.node];
            if !node.take_descriptor() {
                return Err(os_error(errno::EMFILE));
            }
            match node.disk.model.open(&path, mode) {
                Ok(ino) => {
                    Ok(Arc::new(SimFile { access, ino, path: path_label, is_writable: mode != OpenMode::Read }) as File)
                }
                Err(error) => {
                    node.descriptors -= 1;
                    Err(error)
                }
            }
        })
    }

    fn create_dir_all(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        self.on_names(OpKind::CreateDir, path, |disk, path| disk.model.create_dir_all(path))
    }

    fn list(&self, path: &Path) -> BoxFuture<'static, io::Result<Vec<PathBuf>>> {
        self.on_names(OpKind::List, path, |disk, path| disk.model.list(path))
    }

    fn exists(&self, path: &Path) -> BoxFuture<'static, io::Result<bool>> {
        self.on_names(OpKind::Exists, path, |disk, path| Ok(disk.model.exists(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<'static, io::Result<()>> {
        let to = to.to_owned();
        self.on_names(OpKind::Rename, from, move |disk, from| disk.model.rename(from, &to))
    }

    fn remove_file(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        self.on_names(OpKind::Remove, path, |disk, path| disk.model.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        self.on_names(OpKind::Remove, path, |disk, path| disk.model.remove_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        self.on_names(OpKind::SyncDir, path, |disk, path| disk.model.sync_dir(path))
    }

    fn lock_dir(&self, path: &Path) -> BoxFuture<'static, io::Result<Box<dyn DirLock>>> {
        let access = self.access();
        self.on_names(OpKind::Lock, path, move |disk, path| {
            let ino = disk.model.open(&path.join(LOCK_FILE), OpenMode::Create)?;
            disk.model.close(ino);
            if !disk.locks.insert(path.to_owned()) {
                let message = format!("{} is in use by process 1", path.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
            }
            Ok(Box::new(SimLock { access, path: path.to_owned() }) as Box<dyn DirLock>)
        })
    }

    fn space(&self, path: &Path) -> BoxFuture<'static, io::Result<Space>> {
        self.on_names(OpKind::FreeSpace, path, |disk, path| {
            if disk.model.exists(path) { Ok(disk.model.space()) } else { Err(os_error(errno::ENOENT)) }
        })
    }
}
