//! One connection: a task that reads and handles requests in order, and one that writes the answers in order.
//!
//! | what the peer does | what becomes of the connection |
//! |---|---|
//! | sends more requests than may be in flight | it is not read until answers have left |
//! | stops in the middle of a request, or drips it | closed after `socket.request.timeout.ms`: see [`RequestDeadline`] |
//! | sends a large request while others fill the memory | it is not read on until there is room for all of it |
//! | does not take its answers | closed after the same time without a byte taken |
//! | sends nothing and waits for nothing | closed after `connections.max.idle.ms` |
//! | sends what is no request | closed with a log line as far as [`Env::may_log`] lets it, after the answers before it |
//! | ends its side | its answers are sent, then this side ends too |
//!
//! A panic in a handler ends its connection and nothing else.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::budget::{ALLOWANCE_BYTES, Account, Budget, Ticket};
use super::registry::Registry;
use super::request_deadline::RequestDeadline;
use crate::handlers::{self, ConnectionError, Context, Incoming, Peer, Response, ResponseFrame};
use crate::io::{AbortHandle, BoxFuture, Env, Monotonic, ReadHalf, Stream, WriteHalf};
use crate::wire::frame::{FrameError, FrameLimits, FrameReader, Pieces};

/// Answers that are ready are joined into writes of about this size.
const WRITE_BYTES: usize = 128 * 1024;
/// How long answers may still leave when the connection ends for a fault.
const DRAIN_AFTER_FAULT: Duration = Duration::from_secs(1);

/// What all connections share.
pub(super) struct ConnectionContext {
    pub(super) ctx: Arc<Context>,
    pub(super) budget: Budget,
    pub(super) registry: Registry,
    pub(super) limits: FrameLimits,
    pub(super) in_flight_max: usize,
    /// `None`: never.
    pub(super) idle: Option<Duration>,
    pub(super) stall: Duration,
    pub(super) drain: Duration,
    pub(super) stopping: watch::Receiver<bool>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the peer ended it")]
    Peer,
    #[error("the broker stops")]
    Stopping,
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Request(#[from] ConnectionError),
    #[error("a request came too slowly: {0} bytes in {1:?}")]
    Slow(usize, Duration),
    #[error("it was idle for {0:?}")]
    Idle(Duration),
    #[error("its answers could not be written")]
    ResponseWriter,
}

/// An answer on its way, with the room of its request.
struct Item {
    response: PendingResponse,
    ticket: Ticket,
}

enum PendingResponse {
    Ready(ResponseFrame),
    Deferred(BoxFuture<'static, Result<ResponseFrame, ConnectionError>>),
}

/// Serves a connection until it ends. `id` is its number in the registry.
pub(super) async fn serve(shared: Arc<ConnectionContext>, id: u64, stream: Stream) {
    let env = shared.ctx.env.clone();
    let peer = Peer { remote: stream.peer, local: stream.local };
    let (sender, receiver) = mpsc::channel(shared.in_flight_max);
    let writer = ResponseWriter {
        env: env.clone(),
        half: stream.write,
        stall: shared.stall,
        out: Pieces::default(),
        memory: Vec::new(),
    };
    let abort = stream.abort;
    let written = write_until_end(Arc::clone(&shared), id, peer.remote, writer, receiver, abort.clone());
    let writing = env.spawn("connection-write", written);
    let frames = FrameReader::new(stream.read, shared.limits);
    let account = Account::new(&env, &shared.budget);
    let mut reader = RequestReader { shared: &shared, frames, account, sender, peer };
    let end = reader.run().await;
    let drain = match &end {
        End::Peer | End::Stopping => shared.drain,
        _ => DRAIN_AFTER_FAULT,
    };
    log_end(&env, &peer, &end);
    // Ends the writer once it has sent what is under way.
    drop(reader);
    tokio::select! { biased;
        () = writing.join() => {}
        () = env.sleep(drain) => {
            abort.abort();
            writing.cancel();
        }
    }
    shared.registry.remove(id);
}

fn log_end(env: &Env, peer: &Peer, end: &End) {
    let remote = peer.remote;
    match end {
        End::Peer | End::Stopping | End::ResponseWriter => tracing::debug!("connection from {remote} ended: {end}"),
        // A peer that vanishes is nothing unusual.
        End::Frame(FrameError::Io(_)) => tracing::debug!("connection from {remote} ended: {end}"),
        End::Frame(_) | End::Request(_) => {
            if env.may_log("connections closed for what they sent", Some(remote.ip())) {
                tracing::warn!("closing connection from {remote}: {end}");
            }
        }
        End::Slow(..) => {
            if env.may_log("connections closed for being slow", Some(remote.ip())) {
                tracing::warn!("closing connection from {remote}: {end}");
            }
        }
        End::Idle(_) => {
            if env.may_log("connections closed for being idle", Some(remote.ip())) {
                tracing::info!("closing connection from {remote}: {end}");
            }
        }
    }
}

struct RequestReader<'a> {
    shared: &'a Arc<ConnectionContext>,
    frames: FrameReader<ReadHalf>,
    account: Arc<Account>,
    sender: mpsc::Sender<Item>,
    peer: Peer,
}

impl RequestReader<'_> {
    async fn run(&mut self) -> End {
        loop {
            match self.step().await {
                Ok(()) => {}
                Err(end) => return end,
            }
        }
    }

    /// Reads and handles one request.
    async fn step(&mut self) -> Result<(), End> {
        let (frame, ticket) = self.next_frame().await?;
        let incoming = Incoming { frame, holds_up_others: ticket.is_borrowed() };
        let response = match handlers::handle(&self.shared.ctx, &self.peer, incoming).await? {
            Response::Ready(response) => PendingResponse::Ready(response),
            Response::Deferred(future) => PendingResponse::Deferred(future),
            Response::Nothing => return Ok(()),
        };
        self.sender.send(Item { response, ticket }).await.map_err(|_| End::ResponseWriter)
    }

    /// Reads the next request: a little of it, then, when there is room for all of it, the rest.
    async fn next_frame(&mut self) -> Result<(Bytes, Ticket), End> {
        let env = &self.shared.ctx.env;
        let mut stopping = self.shared.stopping.clone();
        let entered = env.now();
        let mut request_deadline = RequestDeadline::new(self.shared.stall, entered);
        let mut ticket = None;
        let mut timer = Timer::default();
        loop {
            let bytes = self.frames.frame_bytes()?;
            if let Some(bytes) = bytes.filter(|bytes| self.frames.buffered() >= ALLOWANCE_BYTES.min(*bytes))
                && ticket.is_none()
            {
                ticket = Some(tokio::select! { biased;
                    _ = stopping.wait_for(|stopping| *stopping) => return Err(End::Stopping),
                    ticket = self.account.reserve(bytes) => ticket,
                    () = self.sender.closed() => return Err(End::ResponseWriter),
                });
                // While it waited, nothing was read: that was not the peer's doing.
                request_deadline.restart(env.now());
            }
            if ticket.is_some()
                && let Some(frame) = self.frames.take()?
            {
                return Ok((frame, ticket.take().expect("was just looked at")));
            }
            timer.set(env, self.deadline(&request_deadline, entered));
            let buffered_max = if ticket.is_some() { usize::MAX } else { ALLOWANCE_BYTES };
            let before = self.frames.buffered();
            tokio::select! { biased;
                _ = stopping.wait_for(|stopping| *stopping) => return Err(End::Stopping),
                more = self.frames.fill(buffered_max) => {
                    if !more? {
                        return Err(End::Peer);
                    }
                    if before == 0 {
                        request_deadline.restart(env.now());
                    }
                    request_deadline.moved(self.frames.buffered() - before, env.now());
                }
                () = timer.passed() => self.overdue(&request_deadline, entered)?,
            }
        }
    }

    /// When the connection is to be ended unless something comes.
    fn deadline(&self, request_deadline: &RequestDeadline, entered: Monotonic) -> Option<Monotonic> {
        if self.frames.buffered() > 0 {
            return Some(request_deadline.at());
        }
        let idle = self.shared.idle?;
        // Whoever waits for an answer is not idle.
        let quiet_since = self.account.quiet_since().unwrap_or_else(|| self.shared.ctx.env.now());
        Some(quiet_since.max(entered) + idle)
    }

    /// A deadline has passed that may have moved since.
    fn overdue(&self, request_deadline: &RequestDeadline, entered: Monotonic) -> Result<(), End> {
        let now = self.shared.ctx.env.now();
        if self.deadline(request_deadline, entered).is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        Err(match self.frames.buffered() {
            0 => End::Idle(now - self.account.quiet_since().unwrap_or(now).max(entered)),
            bytes => End::Slow(bytes, now - request_deadline.began()),
        })
    }
}

/// A sleep that is kept while its deadline moves away, and replaced when it comes nearer.
#[derive(Default)]
struct Timer {
    at: Option<Monotonic>,
    sleep: Option<BoxFuture<'static, ()>>,
}

impl Timer {
    fn set(&mut self, env: &Env, deadline: Option<Monotonic>) {
        if let Some(deadline) = deadline.filter(|deadline| self.at.is_none_or(|at| *deadline < at)) {
            *self = Self { at: Some(deadline), sleep: Some(env.sleep_until(deadline)) };
        }
    }

    async fn passed(&mut self) {
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().await,
            None => std::future::pending().await,
        }
        *self = Self::default();
    }
}

async fn write_until_end(
    shared: Arc<ConnectionContext>,
    id: u64,
    remote: SocketAddr,
    mut writer: ResponseWriter,
    receiver: mpsc::Receiver<Item>,
    abort: AbortHandle,
) {
    match writer.run(receiver).await {
        Ok(()) => {
            let _ = writer.half.shutdown().await;
        }
        Err(error) => {
            match &error {
                WriteError::Response(error) => {
                    if writer.env.may_log("connections closed for what they sent", Some(remote.ip())) {
                        tracing::warn!("closing connection from {remote}: {error}");
                    }
                }
                _ => tracing::debug!("connection from {remote}: {error}"),
            }
            // Wakes the reader.
            abort.abort();
        }
    }
    shared.registry.remove(id);
}

struct ResponseWriter {
    env: Env,
    half: WriteHalf,
    stall: Duration,
    /// Answers that are ready and not written yet.
    out: Pieces,
    /// The memory that they were given.
    memory: Vec<OwnedSemaphorePermit>,
}

impl ResponseWriter {
    async fn run(&mut self, mut receiver: mpsc::Receiver<Item>) -> Result<(), WriteError> {
        loop {
            let item = match receiver.try_recv() {
                Ok(item) => item,
                Err(_) => {
                    self.flush().await?;
                    match receiver.recv().await {
                        Some(item) => item,
                        None => return Ok(()),
                    }
                }
            };
            let response = match item.response {
                PendingResponse::Ready(response) => response,
                PendingResponse::Deferred(mut future) => match poll_once(&mut future).await {
                    Some(response) => response?,
                    None => {
                        // What is ready does not wait for it.
                        self.flush().await?;
                        future.await?
                    }
                },
            };
            drop(item.ticket);
            self.out.append(response.pieces);
            self.memory.extend(response.memory);
            if self.out.len() >= WRITE_BYTES {
                self.flush().await?;
            }
        }
    }

    async fn flush(&mut self) -> Result<(), WriteError> {
        while !self.out.is_empty() {
            tokio::select! { biased;
                written = self.half.write_buf(&mut self.out) => {
                    if written? == 0 {
                        return Err(WriteError::Io(io::ErrorKind::WriteZero.into()));
                    }
                }
                () = self.env.sleep(self.stall) => return Err(WriteError::Stalled(self.stall)),
            }
        }
        self.memory.clear();
        Ok(self.half.flush().await?)
    }
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("writing failed: {0}")]
    Io(#[from] io::Error),
    #[error("the peer took nothing for {0:?}")]
    Stalled(Duration),
    #[error("an answer could not be made: {0}")]
    Response(#[from] ConnectionError),
}

/// The future's result if it has one already.
async fn poll_once<T>(future: &mut BoxFuture<'static, T>) -> Option<T> {
    std::future::poll_fn(|context| match Pin::new(&mut *future).poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
