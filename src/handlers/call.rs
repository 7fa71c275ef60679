//! What goes into a handler and what comes out of it.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::io::BoxFuture;
use crate::wire::frame::Pieces;
use crate::wire::header::HeaderError;
use crate::wire::messages::{Message, MessageError, Request, decode_request, encode_response};

/// Topics and partitions that one Fetch or ListOffsets may name, as for Produce.
pub(super) const ENTRIES_MAX: usize = 100_000;

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

/// The parts of a request's header that its answer needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) version: i16,
    pub(super) correlation_id: i32,
}

impl Call {
    pub(super) fn decode<R: Request>(self, body: Bytes) -> Result<R, ConnectionError> {
        Ok(decode_request(body, self.version)?)
    }

    pub(super) fn encode(self, response: &impl Message) -> Result<ResponseFrame, ConnectionError> {
        Ok(Pieces::from(encode_response(response, self.version, self.correlation_id)?).into())
    }

    pub(super) fn response(self, response: &impl Message) -> Result<Response, ConnectionError> {
        Ok(Response::Ready(self.encode(response)?))
    }
}
