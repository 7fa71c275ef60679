//! Frames: a length of four bytes, then that many bytes. Reading them from a peer that may claim anything, and writing
//! them from pieces without joining the pieces.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::api::ApiKey;

/// Kafka's `socket.request.max.bytes`.
pub const PRODUCE_FRAME_BYTES_MAX: usize = 100 * 1024 * 1024;
/// The bound for all requests but Produce. A decoded list takes up to some fifty times the memory of its shortest
/// encoding, so a bound made for records would not bound memory. A Fetch of 100,000 partitions fits.
pub const REQUEST_FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The least that is asked of the connection at a time.
const READ_BYTES_MIN: usize = 4 * 1024;
/// The most that is asked while no larger frame is under way.
const READ_BYTES_MAX: usize = 64 * 1024;

/// How large frames may be.
#[derive(Clone, Copy, Debug)]
pub enum FrameLimits {
    /// Frames that are requests: the API's number stands in front, and only Produce needs large ones.
    Requests {
        /// For Produce.
        produce_bytes_max: usize,
        /// For all others.
        other_bytes_max: usize,
    },
    /// Frames that are answers.
    Answers {
        /// For all.
        bytes_max: usize,
    },
}

impl FrameLimits {
    /// Requests within Kafka's usual bound.
    pub const REQUESTS: Self =
        Self::Requests { produce_bytes_max: PRODUCE_FRAME_BYTES_MAX, other_bytes_max: REQUEST_FRAME_BYTES_MAX };

    /// The bound for a frame that starts with these bytes; an upper one while they are too few to tell.
    fn bytes_max(&self, start: &[u8]) -> usize {
        match *self {
            Self::Answers { bytes_max } => bytes_max,
            Self::Requests { produce_bytes_max, other_bytes_max } => match start.first_chunk::<2>() {
                Some(key) if i16::from_be_bytes(*key) != ApiKey::Produce.code() => other_bytes_max,
                _ => produce_bytes_max,
            },
        }
    }
}

/// What else a peer may speak to the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// HTTP.
    Http,
    /// TLS.
    Tls,
    /// SSH.
    Ssh,
}

impl Foreign {
    /// Looks at the first four bytes of a connection.
    fn detect(start: [u8; 4]) -> Option<Self> {
        match &start {
            b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"OPTI" | b"PATC" | b"TRAC" | b"CONN" | b"PRI " => {
                Some(Self::Http)
            }
            b"SSH-" => Some(Self::Ssh),
            [0x16, 0x03, ..] => Some(Self::Tls),
            _ => None,
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Http => "HTTP: this port speaks the Kafka protocol",
            Self::Tls => "TLS: this listener is not encrypted, set security.protocol=PLAINTEXT in the client",
            Self::Ssh => "SSH: this port speaks the Kafka protocol",
        }
    }
}

/// Why no further frame can be read from a connection.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    /// It ended inside a frame.
    #[error("the connection ended inside a frame: {received} of {expected} bytes had come")]
    Cut {
        /// Bytes of the frame that came.
        received: usize,
        /// Bytes it has, as far as known.
        expected: usize,
    },
    /// The length is negative.
    #[error("a frame claims a length of {0} bytes")]
    Negative(i32),
    /// The length is beyond the bound.
    #[error("a frame claims {claimed} bytes, more than the {limit} allowed")]
    TooLarge {
        /// Bytes claimed.
        claimed: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Not the Kafka protocol at all.
    #[error("looks like {}", .0.hint())]
    Foreign(Foreign),
}

/// Reads frames. Buffers grow as bytes arrive: a claimed length alone makes nothing be allocated.
pub struct FrameReader<R> {
    source: R,
    limits: FrameLimits,
    buffer: BytesMut,
    /// Bytes to ask for while no larger frame is under way: follows what the peer sends.
    read_bytes: usize,
    /// Whether the peer has shown by a whole frame that it speaks the protocol.
    known: bool,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames from `source`.
    pub fn new(source: R, limits: FrameLimits) -> Self {
        Self { source, limits, buffer: BytesMut::new(), read_bytes: READ_BYTES_MIN, known: false }
    }

    /// The next frame without its length; `None` when the peer has ended the connection between frames.
    ///
    /// Cancel-safe. After an error the connection is of no more use.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            if !self.fill(usize::MAX).await? {
                return Ok(None);
            }
        }
    }

    /// The next frame without its length, if all of it has been read.
    pub fn take(&mut self) -> Result<Option<Bytes>, FrameError> {
        let expected = self.expected()?;
        if self.buffer.len() < expected {
            return Ok(None);
        }
        self.known = true;
        let mut frame = self.buffer.split_to(expected).freeze();
        frame.advance(4);
        Ok(Some(frame))
    }

    /// Reads once, so that no more than `buffered_max` bytes (and at least one) wait to be taken. False when the peer
    /// has ended the connection between frames.
    ///
    /// Cancel-safe. After an error the connection is of no more use.
    pub async fn fill(&mut self, buffered_max: usize) -> Result<bool, FrameError> {
        let expected = self.expected()?;
        self.make_room(expected.min(buffered_max));
        let received = self.buffer.len();
        // What lies behind a large frame is not read with it.
        let most = buffered_max.min(expected.max(READ_BYTES_MAX)).saturating_sub(received).max(1);
        let room = (self.buffer.capacity() - received).min(most);
        let read = self.source.read_buf(&mut (&mut self.buffer).limit(most)).await?;
        if read == 0 {
            return if received == 0 { Ok(false) } else { Err(FrameError::Cut { received, expected }) };
        }
        if read >= room.min(self.read_bytes) {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        } else if read < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
        Ok(true)
    }

    /// Bytes read that no frame has taken yet.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of the next frame with its length, once the length has been read.
    pub fn frame_bytes(&self) -> Result<Option<usize>, FrameError> {
        Ok(Some(self.expected()?).filter(|_| self.buffer.len() >= 4))
    }

    /// Bytes of the next frame with its length, as far as known: at least four.
    fn expected(&self) -> Result<usize, FrameError> {
        let Some((start, rest)) = self.buffer.split_first_chunk::<4>() else { return Ok(4) };
        if !self.known
            && let Some(foreign) = Foreign::detect(*start)
        {
            return Err(FrameError::Foreign(foreign));
        }
        let length = i32::from_be_bytes(*start);
        let claimed = usize::try_from(length).map_err(|_| FrameError::Negative(length))?;
        let limit = self.limits.bytes_max(rest);
        if claimed > limit { Err(FrameError::TooLarge { claimed, limit }) } else { Ok(claimed + 4) }
    }

    /// Makes room for reading: up to the whole frame, but no more than three times what has come of it.
    fn make_room(&mut self, expected: usize) {
        let received = self.buffer.len();
        let wanted = expected.min(received.saturating_mul(4)).max(received + self.read_bytes.min(READ_BYTES_MAX));
        let room = self.buffer.capacity() - received;
        // A little room left is used up first, unless a larger frame is known to come.
        if room < READ_BYTES_MIN.min(self.read_bytes) / 4 || received > 4 && received + room < wanted.min(expected) {
            self.buffer.reserve(wanted - received);
        }
    }
}

/// Bytes in pieces, to be written one after the other without joining them.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Pieces {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Appends all pieces of `other`.
    pub fn append(&mut self, other: Self) {
        self.len += other.len;
        self.pieces.extend(other.pieces);
    }

    /// Bytes in all pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes everything, many pieces at a time where the writer can, and leaves this empty.
    pub async fn write_to(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        writer.write_all_buf(self).await
    }
}

impl From<Bytes> for Pieces {
    fn from(piece: Bytes) -> Self {
        let mut pieces = Self::default();
        pieces.push(piece);
        pieces
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let used = out.len().min(self.pieces.len());
        for (slot, piece) in out.iter_mut().zip(&self.pieces) {
            *slot = IoSlice::new(piece);
        }
        used
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "advanced past the end");
        self.len -= count;
        while count > 0 {
            let front = self.pieces.front_mut().expect("the length is that of all pieces");
            if front.len() > count {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
