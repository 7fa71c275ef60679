//! A small world for property tests: the pure disk model, one thread, no madsim. Every disk operation is one or two steps;
//! the seed decides which pending step happens next, and the test at which step the world ends.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use kilo::io::{
    BoxFuture, Clock, DirLock, Disk, DiskFile, Env, FailStop, File, Host, Listener, Monotonic, Net, OpenMode, Space,
    Stream, Task, TaskControl, Tasks, WallMs,
};
use kilo_sim::disk::{DiskModel, Keep};
use tokio::sync::oneshot;

type Step = Box<dyn FnOnce(&mut Inner) + Send>;

/// How a life ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// The process is killed: the page cache stays, except that clean pages may be dropped.
    Kill { evict: bool },
    /// The machine loses power.
    Power(Keep),
}

/// What became of a life.
pub enum Outcome {
    /// Its program came to its end.
    Finished,
    /// It used up its steps.
    OutOfSteps,
    /// It stopped itself.
    Stopped(FailStop),
}

/// Everything that survives a life, and what is under way in the present one.
struct Inner {
    model: DiskModel,
    rng: fastrand::Rng,
    steps: Vec<Step>,
    spawned: Vec<BoxFuture<'static, ()>>,
    timers: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    now: u64,
    draws: u64,
    stopped: Option<FailStop>,
    /// Faults that the next operations of their kind meet.
    refuse_writes: u32,
    fail_syncs: u32,
}

/// The world. Clones share it.
#[derive(Clone)]
pub struct World(Arc<Mutex<Inner>>);

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut model = DiskModel::new();
        model.create_dir_all(Path::new("/data")).expect("there is room");
        model.sync_dir(Path::new("/")).expect("the root is there");
        Self(Arc::new(Mutex::new(Inner {
            model,
            rng: fastrand::Rng::with_seed(seed),
            steps: Vec::new(),
            spawned: Vec::new(),
            timers: BTreeMap::new(),
            now: 1,
            draws: 0,
            stopped: None,
            refuse_writes: 0,
            fail_syncs: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no step panics")
    }

    pub fn env(&self) -> Env {
        Env::new(Arc::new(self.clone()))
    }

    /// Nothing more can be allocated; or it can again.
    pub fn set_full(&self, is_full: bool) {
        let mut inner = self.lock();
        let capacity = is_full.then(|| inner.model.used());
        inner.model.set_capacity(capacity);
    }

    /// The next write meets a full disk although its space was reserved.
    pub fn refuse_write(&self) {
        self.lock().refuse_writes = 1;
    }

    /// The next flush fails.
    pub fn fail_sync(&self) {
        self.lock().fail_syncs = 1;
    }

    /// Runs a life until `program` ends, `steps` disk steps have happened, or it stops itself; then ends it.
    pub fn live(&self, program: BoxFuture<'static, ()>, steps: usize, end: End) -> Outcome {
        let mut tasks = vec![program];
        let mut outcome = Outcome::OutOfSteps;
        for _ in 0..steps {
            if self.poll_all(&mut tasks) {
                outcome = Outcome::Finished;
                break;
            }
            if let Some(code) = self.lock().stopped {
                outcome = Outcome::Stopped(code);
                break;
            }
            if !self.advance() {
                // Nothing can happen any more: the program waits for what will never come.
                break;
            }
        }
        drop(tasks);
        self.end(end);
        outcome
    }

    /// Polls everything until nothing moves; whether the program has ended.
    fn poll_all(&self, tasks: &mut Vec<BoxFuture<'static, ()>>) -> bool {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        let mut context = Context::from_waker(&waker);
        while flag.0.swap(false, Ordering::SeqCst) {
            let mut index = 0;
            while index < tasks.len() {
                if tasks[index].as_mut().poll(&mut context) == Poll::Ready(()) {
                    if index == 0 {
                        return true;
                    }
                    drop(tasks.remove(index));
                } else {
                    index += 1;
                }
            }
            let spawned = std::mem::take(&mut self.lock().spawned);
            if !spawned.is_empty() {
                flag.0.store(true, Ordering::SeqCst);
                tasks.extend(spawned);
            }
        }
        false
    }

    /// One disk step, or the next timer.
    fn advance(&self) -> bool {
        let mut inner = self.lock();
        if !inner.steps.is_empty() {
            let pending = inner.steps.len();
            let chosen = inner.rng.usize(..pending);
            let step = inner.steps.remove(chosen);
            step(&mut inner);
            return true;
        }
        let Some(((at, _), sender)) = inner.timers.pop_first() else { return false };
        inner.now = at;
        drop(inner);
        let _ = sender.send(());
        true
    }

    fn end(&self, end: End) {
        let mut inner = self.lock();
        let mut rng = inner.rng.fork();
        // What was in flight happens or not, each for itself.
        for step in std::mem::take(&mut inner.steps) {
            if rng.bool() {
                step(&mut inner);
            }
        }
        inner.steps.clear();
        inner.spawned.clear();
        inner.timers.clear();
        inner.stopped = None;
        inner.refuse_writes = 0;
        inner.fail_syncs = 0;
        inner.model.close_all();
        match end {
            End::Kill { evict } => {
                if evict {
                    inner.model.evict();
                }
            }
            End::Power(keep) => {
                inner.model.crash(&mut rng, keep);
            }
        }
    }

    fn submit<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Inner, oneshot::Sender<io::Result<T>>) + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let (sender, receiver) = oneshot::channel();
        self.lock().steps.push(Box::new(move |inner| operation(inner, sender)));
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(errno(5))) })
    }

    fn simple<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut DiskModel) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        self.submit(move |inner, reply| _ = reply.send(operation(&mut inner.model)))
    }
}

impl Inner {
    fn write(&mut self, ino: u64, offset: u64, mut buffers: Vec<Bytes>) -> io::Result<()> {
        if self.refuse_writes == 0 {
            return self.model.write(ino, offset, &buffers);
        }
        self.refuse_writes -= 1;
        let total: usize = buffers.iter().map(Bytes::len).sum();
        let mut left = self.rng.usize(..=total);
        for buffer in &mut buffers {
            let part = left.min(buffer.len());
            buffer.truncate(part);
            left -= part;
        }
        self.model.write(ino, offset, &buffers)?;
        Err(errno(28))
    }

    fn sync(&mut self, ino: u64, reply: oneshot::Sender<io::Result<()>>) {
        let token = self.model.begin_sync(ino);
        let fails = self.fail_syncs > 0;
        self.fail_syncs = self.fail_syncs.saturating_sub(1);
        self.steps.push(Box::new(move |inner| {
            let result = if fails {
                inner.model.fail_sync(token, &mut inner.rng);
                Err(errno(5))
            } else {
                inner.model.complete_sync(token)
            };
            let _ = reply.send(result);
        }));
    }
}

struct OpenFile {
    world: World,
    ino: u64,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.world.lock().model.close(self.ino);
    }
}

impl DiskFile for OpenFile {
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'static, io::Result<Bytes>> {
        let ino = self.ino;
        self.world.simple(move |model| model.read(ino, offset, len))
    }

    fn write_at(&self, offset: u64, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<()>> {
        let ino = self.ino;
        self.world.submit(move |inner, reply| _ = reply.send(inner.write(ino, offset, buffers)))
    }

    fn sync_data(&self) -> BoxFuture<'static, io::Result<()>> {
        let ino = self.ino;
        self.world.submit(move |inner, reply| inner.sync(ino, reply))
    }

    fn write_at_and_sync(&self, offset: u64, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<()>> {
        let ino = self.ino;
        self.world.submit(move |inner, reply| match inner.write(ino, offset, buffers) {
            Ok(()) => inner.sync(ino, reply),
            Err(error) => _ = reply.send(Err(error)),
        })
    }

    fn allocate(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        let ino = self.ino;
        self.world.simple(move |model| model.allocate(ino, len))
    }

    fn set_len(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        let ino = self.ino;
        self.world.simple(move |model| model.set_len(ino, len))
    }

    fn len(&self) -> BoxFuture<'static, io::Result<u64>> {
        let ino = self.ino;
        self.world.simple(move |model| model.len(ino))
    }
}

impl Disk for World {
    fn open(&self, path: &Path, mode: OpenMode) -> BoxFuture<'static, io::Result<File>> {
        let (path, world) = (path.to_owned(), self.clone());
        self.submit(move |inner, reply| {
            let opened = inner.model.open(&path, mode);
            // A receiver that is gone would drop the file, which needs the lock held here.
            if !reply.is_closed() {
                let _ =
                    reply.send(opened.map(|ino| Arc::new(OpenFile { world, ino }) as File)).map_err(std::mem::forget);
            }
        })
    }

    fn create_dir_all(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.simple(move |model| model.create_dir_all(&path))
    }

    fn list(&self, path: &Path) -> BoxFuture<'static, io::Result<Vec<PathBuf>>> {
        let path = path.to_owned();
        self.simple(move |model| model.list(&path))
    }

    fn exists(&self, path: &Path) -> BoxFuture<'static, io::Result<bool>> {
        let path = path.to_owned();
        self.simple(move |model| Ok(model.exists(&path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<'static, io::Result<()>> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.simple(move |model| model.rename(&from, &to))
    }

    fn remove_file(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.simple(move |model| model.remove_file(&path))
    }

    fn remove_dir_all(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.simple(move |model| model.remove_dir_all(&path))
    }

    fn sync_dir(&self, path: &Path) -> BoxFuture<'static, io::Result<()>> {
        let path = path.to_owned();
        self.simple(move |model| model.sync_dir(&path))
    }

    fn lock_dir(&self, _: &Path) -> BoxFuture<'static, io::Result<Box<dyn DirLock>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn space(&self, _: &Path) -> BoxFuture<'static, io::Result<Space>> {
        self.simple(|model| Ok(model.space()))
    }
}

impl Clock for World {
    fn now(&self) -> Monotonic {
        Monotonic(self.lock().now)
    }

    fn wall(&self) -> WallMs {
        WallMs(0)
    }

    fn sleep_until(&self, deadline: Monotonic) -> BoxFuture<'static, ()> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.lock();
        inner.draws += 1;
        let key = (deadline.0, inner.draws);
        inner.timers.insert(key, sender);
        Box::pin(async move {
            let _ = receiver.await;
        })
    }
}

impl Net for World {
    fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Stream>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

struct NoControl;

impl TaskControl for NoControl {
    fn cancel(&self) {}

    fn join(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl Tasks for World {
    fn spawn_boxed(&self, _: &'static str, future: BoxFuture<'static, ()>) -> Task {
        self.lock().spawned.push(future);
        Task::new(Arc::new(NoControl))
    }

    fn compute_boxed(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

impl Host for World {
    fn descriptors_max(&self) -> u64 {
        u64::MAX
    }

    fn seed(&self, _: &str) -> u64 {
        let mut inner = self.lock();
        inner.draws += 1;
        inner.draws.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn fail_stop(&self, code: FailStop, _: &str) {
        self.lock().stopped = Some(code);
    }
}
