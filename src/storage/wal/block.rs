//! The block format: a 64-byte header, the entries, zeros up to the next multiple of 4 KiB. Pure.
//!
//! Header, big endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0–6   | magic `KILOWAL` |
//! | 7     | format version, 1 |
//! | 8–15  | writer: random number of the incarnation that wrote the block |
//! | 16–23 | file sequence: rises each time a file is started, recycled or new |
//! | 24–31 | LSN: number of the block in the endless log |
//! | 32–39 | durable LSN: every block *below* it had been flushed when this one was built |
//! | 40–47 | floor: no block below it is needed any more (all of it is in flushed segments) |
//! | 48–51 | payload length |
//! | 52–55 | number of entries |
//! | 56–59 | CRC-32 of the payload |
//! | 60–63 | CRC-32 of bytes 0–59 |
//!
//! Both checksums are seeded with file sequence and writer, so that what an earlier life of a recycled file left behind
//! never passes for a part of the new one. The header has a checksum of its own because what it *says* (durable LSN,
//! floor) is true even where the payload behind it was torn. The writer's number is secret to the log: a producer
//! cannot place bytes that look like a block.

use bytes::{BufMut, Bytes, BytesMut};
use crc32fast::Hasher;

use super::entry::{self, Entry};
use crate::storage::Lsn;

/// Blocks start and end at multiples of this, so that a sector that is durable is never written again.
pub const BLOCK_ALIGN: u64 = 4096;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// The format that is written.
pub const FORMAT_VERSION: u8 = 1;

const MAGIC: &[u8; 7] = b"KILOWAL";
/// Pieces up to this size are copied into one buffer: a short copy costs less than one more buffer in a vectored write.
const COPY_BYTES_MAX: usize = 4096;

/// What a block's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The incarnation that wrote it.
    pub writer: u64,
    /// Sequence of the file.
    pub file_sequence: u64,
    /// Number of the block.
    pub lsn: Lsn,
    /// Every block below this had been flushed.
    pub durable_below: Lsn,
    /// No block below this is needed.
    pub floor: Lsn,
    /// Bytes of entries.
    pub payload_bytes: u32,
    /// How many entries.
    pub entries: u32,
    /// Checksum of the entries.
    pub payload_crc: u32,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("short")]
    Short,
    /// No magic: zeros, or the middle of a block.
    #[error("not a block")]
    Magic,
    /// The magic of another version of the format.
    #[error("format version {0}")]
    Version(u8),
    /// The header's checksum is wrong.
    #[error("header checksum mismatch")]
    Crc,
}

/// The whole size of a block on disk, in bytes.
pub fn block_bytes(payload_bytes: u64) -> u64 {
    (payload_bytes + HEADER_BYTES as u64).next_multiple_of(BLOCK_ALIGN)
}

fn seeded(file_sequence: u64, writer: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.update(&file_sequence.to_be_bytes());
    hasher.update(&writer.to_be_bytes());
    hasher
}

impl BlockHeader {
    /// The bytes of the header, its checksum included.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut rest = &mut bytes[..];
        rest.put_slice(MAGIC);
        rest.put_u8(FORMAT_VERSION);
        rest.put_u64(self.writer);
        rest.put_u64(self.file_sequence);
        rest.put_u64(self.lsn.0);
        rest.put_u64(self.durable_below.0);
        rest.put_u64(self.floor.0);
        rest.put_u32(self.payload_bytes);
        rest.put_u32(self.entries);
        rest.put_u32(self.payload_crc);
        let crc = self.header_crc(&bytes);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Reads a header from the front of `bytes`. Checks magic, version and the header's checksum; nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(HeaderError::Short)?;
        if &bytes[..MAGIC.len()] != MAGIC {
            return Err(HeaderError::Magic);
        }
        if bytes[MAGIC.len()] != FORMAT_VERSION {
            return Err(HeaderError::Version(bytes[MAGIC.len()]));
        }
        let header = Self {
            writer: u64_at(bytes, 8),
            file_sequence: u64_at(bytes, 16),
            lsn: Lsn(u64_at(bytes, 24)),
            durable_below: Lsn(u64_at(bytes, 32)),
            floor: Lsn(u64_at(bytes, 40)),
            payload_bytes: u32_at(bytes, 48),
            entries: u32_at(bytes, 52),
            payload_crc: u32_at(bytes, 56),
        };
        if u32_at(bytes, 60) != header.header_crc(bytes) {
            return Err(HeaderError::Crc);
        }
        Ok(header)
    }

    /// The whole size of the block on disk, in bytes.
    pub fn block_bytes(&self) -> u64 {
        block_bytes(u64::from(self.payload_bytes))
    }

    /// Whether `payload` is what the header was written for.
    pub fn payload_matches(&self, payload: &[u8]) -> bool {
        let mut hasher = seeded(self.file_sequence, self.writer);
        hasher.update(payload);
        payload.len() == self.payload_bytes as usize && hasher.finalize() == self.payload_crc
    }

    fn header_crc(&self, bytes: &[u8; HEADER_BYTES]) -> u32 {
        let mut hasher = seeded(self.file_sequence, self.writer);
        hasher.update(&bytes[..HEADER_BYTES - 4]);
        hasher.finalize()
    }
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// What the builder needs to know about a block besides its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIdentity {
    /// The incarnation that writes.
    pub writer: u64,
    /// Sequence of the file.
    pub file_sequence: u64,
    /// Number of the block.
    pub lsn: Lsn,
    /// Every block below this has been flushed.
    pub durable_below: Lsn,
    /// No block below this is needed.
    pub floor: Lsn,
}

/// A stretch of the block: in the builder's own buffer, or shared with whoever handed the entry in.
enum Piece {
    Own { from: usize, to: usize },
    Shared(Bytes),
}

/// Gathers a block's bytes without copying large pieces.
struct Pieces {
    own: BytesMut,
    own_from: usize,
    pieces: Vec<Piece>,
}

impl Pieces {
    fn end_own(&mut self) {
        if self.own_from < self.own.len() {
            self.pieces.push(Piece::Own { from: self.own_from, to: self.own.len() });
            self.own_from = self.own.len();
        }
    }

    /// Length and checksum of everything gathered.
    fn checksum(&self, mut hasher: Hasher) -> (usize, u32) {
        let mut sum = 0;
        let mut add = |bytes: &[u8]| {
            hasher.update(bytes);
            sum += bytes.len();
        };
        for piece in &self.pieces {
            match piece {
                Piece::Own { from, to } => add(&self.own[*from..*to]),
                Piece::Shared(bytes) => add(bytes),
            }
        }
        add(&self.own[self.own_from..]);
        (sum, hasher.finalize())
    }
}

impl entry::Sink for Pieces {
    fn small(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
    }

    fn shared(&mut self, bytes: &Bytes) {
        if bytes.len() <= COPY_BYTES_MAX {
            self.own.extend_from_slice(bytes);
        } else {
            self.end_own();
            self.pieces.push(Piece::Shared(bytes.clone()));
        }
    }
}

/// The bytes of one block, ready for a vectored write: header, entries, padding.
pub fn build<'a>(identity: &BlockIdentity, entries: impl Iterator<Item = &'a Entry>) -> Vec<Bytes> {
    let mut out = Pieces { own: BytesMut::zeroed(HEADER_BYTES), own_from: HEADER_BYTES, pieces: Vec::new() };
    let mut count = 0;
    for entry in entries {
        entry::encode(entry, &mut out);
        count += 1;
    }
    let (payload_bytes, payload_crc) = out.checksum(seeded(identity.file_sequence, identity.writer));
    let header = BlockHeader {
        writer: identity.writer,
        file_sequence: identity.file_sequence,
        lsn: identity.lsn,
        durable_below: identity.durable_below,
        floor: identity.floor,
        payload_bytes: u32::try_from(payload_bytes).expect("a group is bounded far below 4 GiB"),
        entries: count,
        payload_crc,
    };
    let padding = usize::try_from(header.block_bytes()).expect("fits in memory") - HEADER_BYTES - payload_bytes;
    out.own[..HEADER_BYTES].copy_from_slice(&header.encode());
    out.own.put_bytes(0, padding);
    out.end_own();

    // The header and what follows it in the builder's buffer are one piece.
    let own = out.own.freeze();
    let mut buffers = Vec::with_capacity(out.pieces.len() + 1);
    let mut pieces = out.pieces.into_iter();
    match pieces.next() {
        Some(Piece::Own { to, .. }) => buffers.push(own.slice(..to)),
        Some(Piece::Shared(bytes)) => buffers.extend([own.slice(..HEADER_BYTES), bytes]),
        None => buffers.push(own.clone()),
    }
    buffers.extend(pieces.map(|piece| match piece {
        Piece::Own { from, to } => own.slice(from..to),
        Piece::Shared(bytes) => bytes,
    }));
    buffers
}
