//! A pipelined connection to one broker.
//!
//! Requests leave in the order in which they were started, answers are matched by order and checked by correlation id. A
//! failure tells apart what surely was not sent from what may have been done: a request counts as sent from the moment its
//! bytes are handed to the socket.
//!
//! Two tasks serve a connection. The writer takes what waits, moves it to the list of the sent, and writes it in one go. The
//! reader completes the sent in order. Whoever first meets a failure closes the connection, which completes all requests.

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, oneshot, watch};

use kilo_io::{AbortHandle, Env, Monotonic, ReadHalf, WriteHalf};
use kilo_wire::api::ApiKey;
use kilo_wire::error_code::ErrorCode;
use kilo_wire::frame::{FrameLimits, FrameReader, Pieces};
use kilo_wire::messages::{
    ApiVersionsRequestData, ApiVersionsResponseData, KafkaString, Message, Request, decode_response, encode_request,
    string,
};

/// How a connection behaves.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// What the client calls itself.
    pub client_id: String,
    /// For connecting and agreeing on versions together.
    pub connect_timeout: Duration,
    /// For each request, from its start to its answer. Must be longer than the broker is asked to wait.
    pub request_timeout: Duration,
    /// The largest answer that is taken, in bytes.
    pub response_bytes_max: usize,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            client_id: "kilo".to_owned(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            response_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address does not answer.
    #[error("cannot connect to {addr}: {source}")]
    Unreachable {
        /// The broker's address.
        addr: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// Nothing came in time.
    #[error("no answer from {addr} within {after:?}")]
    TimedOut {
        /// The broker's address.
        addr: SocketAddr,
        /// The time-out.
        after: Duration,
    },
    /// Connected, but no versions could be agreed on.
    #[error("{addr} does not speak a Kafka protocol that is understood: {reason}")]
    Handshake {
        /// The broker's address.
        addr: SocketAddr,
        /// What went wrong.
        reason: String,
    },
}

/// Why a request has no answer. Answers that carry an error code are answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Not a byte of it was sent: the broker surely did nothing.
    #[error("not sent: {reason}")]
    NotSent {
        /// What went wrong.
        reason: String,
    },
    /// It was sent, and the connection ended before the answer: the broker may or may not have done it.
    #[error("no answer, so the outcome is not known: {reason}")]
    Unknown {
        /// What went wrong.
        reason: String,
    },
    /// It was sent, and no answer came in time: the broker may or may not have done it.
    #[error("no answer within {after:?}, so the outcome is not known")]
    TimedOut {
        /// The time-out.
        after: Duration,
    },
    /// The answer cannot be understood.
    #[error("malformed answer: {reason}")]
    Protocol {
        /// What is wrong with it.
        reason: String,
    },
}

impl CallError {
    /// Whether the broker surely did nothing.
    pub fn is_surely_not_sent(&self) -> bool {
        matches!(self, Self::NotSent { .. })
    }

    fn not_sent(reason: impl ToString) -> Self {
        Self::NotSent { reason: reason.to_string() }
    }

    fn protocol(reason: impl ToString) -> Self {
        Self::Protocol { reason: reason.to_string() }
    }
}

/// A connection to one broker. Cheap to clone; it is closed when the last clone is dropped.
#[derive(Clone)]
pub struct Connection {
    guard: Arc<CloseOnDrop>,
    versions: Arc<BTreeMap<ApiKey, i16>>,
}

struct CloseOnDrop(Arc<ConnectionState>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.end("the connection was closed by this side");
    }
}

struct ConnectionState {
    env: Env,
    client_id: KafkaString,
    request_timeout: Duration,
    peer: SocketAddr,
    abort: AbortHandle,
    state: Mutex<State>,
    /// Wakes the writer: something waits to be sent, or the connection is to end.
    work: Notify,
    /// Tells the reader and the writer that the connection has ended.
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    next_correlation_id: i32,
    waiting: VecDeque<Waiting>,
    sent: VecDeque<Sent>,
    /// The writer ends the stream once nothing waits.
    closing: bool,
    /// Why the connection has ended.
    ended: Option<String>,
}

type ResponseSender = oneshot::Sender<Result<Bytes, CallError>>;

struct Waiting {
    correlation_id: i32,
    frame: Bytes,
    /// Gets the answer, or for a request without one is told (with empty bytes) that it has been written.
    sender: ResponseSender,
    answered: bool,
}

struct Sent {
    correlation_id: i32,
    sender: ResponseSender,
}

impl Connection {
    /// Connects and agrees on versions.
    pub async fn connect(env: &Env, addr: SocketAddr, config: ConnectionConfig) -> Result<Self, ConnectError> {
        let mut timer = env.sleep(config.connect_timeout);
        let after = config.connect_timeout;
        tokio::select! {
            biased;
            () = &mut timer => Err(ConnectError::TimedOut { addr, after }),
            connected = Self::connect_and_negotiate(env, addr, config) => connected,
        }
    }

    async fn connect_and_negotiate(
        env: &Env,
        addr: SocketAddr,
        config: ConnectionConfig,
    ) -> Result<Self, ConnectError> {
        let stream = env.net().connect(addr).await.map_err(|source| ConnectError::Unreachable { addr, source })?;
        let shared = Arc::new(ConnectionState {
            env: env.clone(),
            client_id: string(&config.client_id),
            request_timeout: config.request_timeout,
            peer: addr,
            abort: stream.abort,
            state: Mutex::default(),
            work: Notify::new(),
            ended: watch::Sender::new(false),
        });
        let guard = Arc::new(CloseOnDrop(shared.clone()));
        let limits = FrameLimits::Answers { bytes_max: config.response_bytes_max };
        env.spawn("client-read", read_responses(shared.clone(), FrameReader::new(stream.read, limits)));
        env.spawn("client-write", write_requests(shared, stream.write));
        let mut connection = Self { guard, versions: Arc::default() };
        let versions = connection.ask_versions().await.map_err(|reason| ConnectError::Handshake { addr, reason })?;
        connection.versions = Arc::new(versions);
        Ok(connection)
    }

    /// Asks what the broker can do, and picks a version of each API.
    async fn ask_versions(&self) -> Result<BTreeMap<ApiKey, i16>, String> {
        let request = ApiVersionsRequestData {
            client_software_name: string("kilo"),
            client_software_version: string(env!("CARGO_PKG_VERSION")),
            ..ApiVersionsRequestData::default()
        };
        let bytes = self.start_bytes(&request, 3).map_err(|error| error.to_string())?.bytes().await;
        let bytes = bytes.map_err(|error| error.to_string())?;
        // A broker that does not know version 3 says so in the form of version 0.
        let error = bytes.get(4..).and_then(<[u8]>::first_chunk::<2>).map(|code| i16::from_be_bytes(*code));
        let response = if error == Some(ErrorCode::UnsupportedVersion.code()) {
            self.call_version(&ApiVersionsRequestData::default(), 0).await.map_err(|error| error.to_string())?
        } else {
            decode_response::<ApiVersionsResponseData>(bytes, 3).map_err(|error| error.to_string())?.1
        };
        let error = ErrorCode::from(response.error_code);
        if error.is_error() {
            return Err(format!("it answers {error}"));
        }
        let offered = response.api_keys.iter().filter_map(|offer| {
            let key = ApiKey::from_code(offer.api_key)?;
            Some((key, key.api().negotiate(offer.min_version, offer.max_version)?))
        });
        Ok(offered.collect())
    }

    /// The version that both sides have of an API.
    pub fn version(&self, api: ApiKey) -> Option<i16> {
        self.versions.get(&api).copied()
    }

    /// The broker's address.
    pub fn peer(&self) -> SocketAddr {
        self.guard.0.peer
    }

    /// Whether the connection has ended, so that nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        self.shared().lock().ended.is_some()
    }

    /// Sends a request in the version agreed on and waits for its answer.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, CallError> {
        self.start(request)?.response().await
    }

    /// Sends a request in a given version and waits for its answer.
    pub async fn call_version<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, CallError> {
        self.start_version(request, version)?.response().await
    }

    /// Queues a request in the version agreed on. Requests are sent in the order of these calls.
    pub fn start<R: Request>(&self, request: &R) -> Result<Call<R::Response>, CallError> {
        self.start_version(request, self.version_of::<R>()?)
    }

    /// Queues a request in a given version. Requests are sent in the order of these calls.
    pub fn start_version<R: Request>(&self, request: &R, version: i16) -> Result<Call<R::Response>, CallError> {
        self.start_bytes(request, version)
    }

    /// Sends a request that has no answer, which is Produce with `acks=0`. Returns once its bytes were handed to the
    /// system: whether they arrive is not known.
    pub async fn tell<R: Request>(&self, request: &R) -> Result<(), CallError> {
        let call = self.enqueue(request, self.version_of::<R>()?, false)?;
        call.bytes().await.map(drop)
    }

    /// Sends what still waits, then ends the connection. Requests without an answer yet fail with [`CallError::Unknown`].
    pub async fn close(self) {
        let mut ended = self.shared().ended.subscribe();
        self.shared().lock().closing = true;
        self.shared().work.notify_one();
        // An error means that the sender is gone, and with it the connection.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Ends the connection at once (RST).
    pub fn abort(&self) {
        self.shared().abort.abort();
        self.shared().end("the connection was aborted by this side");
    }

    fn version_of<R: Request>(&self) -> Result<i16, CallError> {
        let name = R::API.api().name;
        let peer = self.peer();
        self.version(R::API).ok_or_else(|| CallError::not_sent(format!("{peer} has no version of {name} in common")))
    }

    fn start_bytes<R: Request>(&self, request: &R, version: i16) -> Result<Call<R::Response>, CallError> {
        self.enqueue(request, version, true)
    }

    fn enqueue<R: Request>(&self, request: &R, version: i16, answered: bool) -> Result<Call<R::Response>, CallError> {
        let shared = self.shared();
        let frame = encode_request(request, version, 0, Some(&shared.client_id)).map_err(CallError::not_sent)?;
        let mut frame = BytesMut::from(frame);
        let (sender, receiver) = oneshot::channel();
        let mut state = shared.lock();
        if let Some(reason) = &state.ended {
            return Err(CallError::not_sent(reason));
        }
        if state.closing {
            return Err(CallError::not_sent("the connection is being closed"));
        }
        let correlation_id = state.next_correlation_id;
        state.next_correlation_id = correlation_id.wrapping_add(1) & i32::MAX;
        // Length, API and version stand before it.
        frame[8..12].copy_from_slice(&correlation_id.to_be_bytes());
        state.waiting.push_back(Waiting { correlation_id, frame: frame.freeze(), sender, answered });
        drop(state);
        shared.work.notify_one();
        let deadline = shared.env.now() + shared.request_timeout;
        Ok(Call { receiver, version, deadline, correlation_id, shared: shared.clone(), response: PhantomData })
    }

    fn shared(&self) -> &Arc<ConnectionState> {
        &self.guard.0
    }
}

impl ConnectionState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    /// Ends the connection and completes all requests. The first reason stays.
    fn end(&self, reason: &str) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(reason.to_owned());
        let (waiting, sent) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.sent));
        drop(state);
        for Sent { sender, .. } in sent {
            let _ = sender.send(Err(CallError::Unknown { reason: reason.to_owned() }));
        }
        for Waiting { sender, .. } in waiting {
            let _ = sender.send(Err(CallError::not_sent(reason)));
        }
        self.ended.send_replace(true);
        self.work.notify_one();
    }
}

/// A request under way.
pub struct Call<A> {
    receiver: oneshot::Receiver<Result<Bytes, CallError>>,
    version: i16,
    deadline: Monotonic,
    correlation_id: i32,
    shared: Arc<ConnectionState>,
    response: PhantomData<fn() -> A>,
}

impl<A: Message> Call<A> {
    /// The version it was sent in.
    pub fn version(&self) -> i16 {
        self.version
    }

    /// Waits for the answer.
    pub async fn response(self) -> Result<A, CallError> {
        let version = self.version;
        let bytes = self.bytes().await?;
        decode_response(bytes, version).map(|(_, response)| response).map_err(CallError::protocol)
    }

    async fn bytes(mut self) -> Result<Bytes, CallError> {
        let mut timer = self.shared.env.sleep_until(self.deadline);
        tokio::select! {
            biased;
            replied = &mut self.receiver => replied.unwrap_or_else(|_| {
                Err(CallError::Unknown { reason: "the connection is gone".to_owned() })
            }),
            () = &mut timer => Err(self.give_up()),
        }
    }

    /// What a request that took too long has come to: if it still waits, it will not be sent.
    fn give_up(&self) -> CallError {
        let after = self.shared.request_timeout;
        let mut state = self.shared.lock();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| waiting.correlation_id != self.correlation_id);
        if state.waiting.len() < before {
            CallError::not_sent(format!("the connection took nothing for {after:?}"))
        } else {
            CallError::TimedOut { after }
        }
    }
}

async fn write_requests(shared: Arc<ConnectionState>, mut writer: WriteHalf) {
    let mut ended = shared.ended.subscribe();
    loop {
        let mut written = Vec::new();
        let mut pieces = Pieces::default();
        let closing = {
            let mut state = shared.lock();
            if state.ended.is_some() {
                break;
            }
            while let Some(Waiting { correlation_id, frame, sender, answered }) = state.waiting.pop_front() {
                pieces.push(frame);
                if answered {
                    state.sent.push_back(Sent { correlation_id, sender });
                } else {
                    written.push(sender);
                }
            }
            state.closing
        };
        if pieces.is_empty() {
            if closing {
                break;
            }
            shared.work.notified().await;
            continue;
        }
        let result = tokio::select! {
            biased;
            result = pieces.write_to(&mut writer) => result,
            _ = ended.wait_for(|ended| *ended) => break,
        };
        if let Err(error) = result {
            return shared.end(&format!("sending to {} failed: {error}", shared.peer));
        }
        for sender in written {
            let _ = sender.send(Ok(Bytes::new()));
        }
    }
    // The peer may be gone already; then there is nothing to end.
    let _ = writer.shutdown().await;
    shared.end("the connection was closed by this side");
}

async fn read_responses(shared: Arc<ConnectionState>, mut reader: FrameReader<ReadHalf>) {
    let mut ended = shared.ended.subscribe();
    loop {
        let frame = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => return,
            frame = reader.next() => frame,
        };
        let peer = shared.peer;
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return shared.end(&format!("{peer} closed the connection")),
            Err(error) => return shared.end(&format!("{peer}: {error}")),
        };
        if let Err(reason) = complete(&shared, frame) {
            return shared.end(&format!("{peer} {reason}"));
        }
    }
}

/// Gives an answer to the request at the front.
fn complete(shared: &ConnectionState, frame: Bytes) -> Result<(), String> {
    let correlation_id =
        frame.first_chunk::<4>().map(|id| i32::from_be_bytes(*id)).ok_or("sent an answer without a correlation id")?;
    let Some(sent) = shared.lock().sent.pop_front() else {
        return Err(format!("sent an answer ({correlation_id}) that nothing waits for"));
    };
    if sent.correlation_id != correlation_id {
        let expected = sent.correlation_id;
        let reason = format!("answered {correlation_id} where {expected} was next");
        let _ = sent.sender.send(Err(CallError::protocol(&reason)));
        return Err(reason);
    }
    // Whoever gave up waiting is not there to take it.
    let _ = sent.sender.send(Ok(frame));
    Ok(())
}

#[cfg(test)]
mod tests;
