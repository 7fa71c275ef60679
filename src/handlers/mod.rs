//! One handler for each API: a request in, an answer out. The only place that maps errors to protocol codes.
//!
//! [`handle`] has two halves. The first runs in the order of the requests: whatever a request changes is decided in it,
//! and it is awaited before the next request of the connection is looked at. The second, in [`Response::Deferred`], only
//! waits: for a flush, for data, for a time-out. It is polled when the answers before it have been sent, so that one
//! connection never holds more than one large answer in memory.

mod api_versions;
mod config_entries;
mod context;
mod create_topics;
mod describe_configs;
mod fetch;
mod find_coordinator;
mod init_producer_id;
mod list_offsets;
mod metadata;
mod produce;
mod producer_ids;
mod topics;

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

pub use context::{Advertised, BrokerEntry, Context, Peer, Settings};

pub(crate) use topics::partition_specs;

use crate::io::BoxFuture;
use crate::wire::frame::Pieces;
use crate::wire::header::{HeaderError, RequestHeader};
use crate::wire::messages::{Message, MessageError, Request, decode_request, encode_response};
use crate::wire::{Api, ApiKey};

/// Topics and partitions that one Fetch or ListOffsets may name, as for Produce.
const ENTRIES_MAX: usize = 100_000;

/// An answer frame, and the memory that it was given until it is sent.
pub struct ResponseFrame {
    /// The frame.
    pub pieces: Pieces,
    /// Given back when dropped.
    pub memory: Option<OwnedSemaphorePermit>,
}

impl From<Pieces> for ResponseFrame {
    fn from(pieces: Pieces) -> Self {
        Self { pieces, memory: None }
    }
}

/// A request frame.
pub struct Incoming {
    /// Without its length.
    pub frame: Bytes,
    /// Whether it takes up memory that the requests of other connections may have to wait for.
    pub holds_up_others: bool,
}

/// What a request gets.
pub enum Response {
    /// An answer that is ready.
    Ready(ResponseFrame),
    /// An answer that waits for something.
    Deferred(BoxFuture<'static, Result<ResponseFrame, ConnectionError>>),
    /// Nothing: the request asked for no answer.
    Nothing,
}

/// Why a connection cannot go on. It is closed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The header cannot be read.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The body cannot be read, or the answer cannot be written.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// There is no such API here.
    #[error("unknown API key {0}")]
    UnknownApi(i16),
    /// The API has no such version here.
    #[error("{api} version {version} is not supported, only {min} to {max}")]
    UnknownVersion {
        /// The API.
        api: &'static str,
        /// The version asked for.
        version: i16,
        /// The lowest that is offered.
        min: i16,
        /// The highest.
        max: i16,
    },
    /// More entries than any client asks for: answering would cost far more than asking did.
    #[error("a request names {0} entries, more than the {1} allowed")]
    TooMany(usize, usize),
    /// A request that wants no answer failed. Only a closed connection can tell the client.
    #[error("a request that wants no answer failed: {0}")]
    Unanswerable(&'static str),
}

/// Handles one request.
pub async fn handle(ctx: &Arc<Context>, peer: &Peer, incoming: Incoming) -> Result<Response, ConnectionError> {
    let Incoming { mut frame, holds_up_others } = incoming;
    let frame_len = frame.len();
    let header = RequestHeader::decode(&mut frame)?;
    let Some(key) = ApiKey::from_code(header.api_key) else {
        return Err(ConnectionError::UnknownApi(header.api_key));
    };
    let api = key.api();
    if !api.accepts(header.api_version) {
        if key == ApiKey::ApiVersions {
            return Ok(Response::Ready(api_versions::unsupported(header.correlation_id)?.into()));
        }
        return Err(unknown_version(api, header.api_version));
    }
    let call = Call { version: header.api_version, correlation_id: header.correlation_id };
    match key {
        ApiKey::ApiVersions => call.response(&api_versions::handle(&call.decode(frame)?)),
        ApiKey::Metadata => call.response(&metadata::handle(ctx, peer, call.decode(frame)?, call.version).await),
        ApiKey::Produce => produce::handle(ctx, peer, call, frame, frame_len).await,
        ApiKey::Fetch => Ok(fetch::handle(ctx, call, frame, holds_up_others)),
        ApiKey::ListOffsets => Ok(list_offsets::handle(ctx, call, frame)),
        ApiKey::CreateTopics => call.response(&create_topics::handle(ctx, call.decode(frame)?).await),
        ApiKey::DescribeConfigs => call.response(&describe_configs::handle(ctx, &call.decode(frame)?)),
        ApiKey::FindCoordinator => call.response(&find_coordinator::handle(&call.decode(frame)?, call.version)?),
        ApiKey::InitProducerId => call.response(&init_producer_id::handle(ctx, &call.decode(frame)?).await),
    }
}

fn unknown_version(api: &Api, version: i16) -> ConnectionError {
    ConnectionError::UnknownVersion { api: api.name, version, min: api.advertised_min, max: api.max }
}

/// The parts of a request's header that its answer needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    version: i16,
    correlation_id: i32,
}

impl Call {
    fn decode<R: Request>(self, body: Bytes) -> Result<R, ConnectionError> {
        Ok(decode_request(body, self.version)?)
    }

    fn encode(self, response: &impl Message) -> Result<ResponseFrame, ConnectionError> {
        Ok(Pieces::from(encode_response(response, self.version, self.correlation_id)?).into())
    }

    fn response(self, response: &impl Message) -> Result<Response, ConnectionError> {
        Ok(Response::Ready(self.encode(response)?))
    }
}
