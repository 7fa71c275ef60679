//! The primitives of the metadata format: big-endian integers, length-prefixed strings and lists.
//!
//! Everything read here has passed a checksum, so an error means a bug or another program's file; it is still an error
//! and never a panic.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Why stored metadata could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end in the middle of a value.
    #[error("ends in the middle of a value")]
    Short,
    /// A string is not UTF-8.
    #[error("holds a string that is not UTF-8")]
    NotUtf8,
    /// A kind or version that this program does not know: written by a newer one.
    #[error("holds {what} {number}, which this version of Kilo does not know: it was written by a newer one")]
    Newer {
        /// What is unknown.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// Bytes are left over where a value should end.
    #[error("has {0} bytes left over")]
    Trailing(usize),
}

/// Writes a string.
pub(super) fn put_str(out: &mut BytesMut, value: &str) {
    put_len(out, value.len());
    out.put_slice(value.as_bytes());
}

/// Writes an optional string.
pub(super) fn put_opt_str(out: &mut BytesMut, value: Option<&str>) {
    out.put_u8(u8::from(value.is_some()));
    if let Some(value) = value {
        put_str(out, value);
    }
}

/// Writes the length of what follows.
pub(super) fn put_len(out: &mut BytesMut, len: usize) {
    out.put_u32(u32::try_from(len).expect("metadata values are far below 4 GiB"));
}

/// Writes a list of broker ids.
pub(super) fn put_ids(out: &mut BytesMut, ids: &[i32]) {
    put_len(out, ids.len());
    for id in ids {
        out.put_i32(*id);
    }
}

/// Writes a map of strings.
pub(super) fn put_map(out: &mut BytesMut, map: &BTreeMap<String, String>) {
    put_len(out, map.len());
    for (key, value) in map {
        put_str(out, key);
        put_str(out, value);
    }
}

/// Reads what the functions above write.
pub(super) struct FieldReader(pub(super) Bytes);

impl FieldReader {
    fn need(&self, len: usize) -> Result<(), DecodeError> {
        if self.0.len() < len { Err(DecodeError::Short) } else { Ok(()) }
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.need(2)?;
        Ok(self.0.get_u16())
    }

    pub(super) fn i32(&mut self) -> Result<i32, DecodeError> {
        self.need(4)?;
        Ok(self.0.get_i32())
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    pub(super) fn i64(&mut self) -> Result<i64, DecodeError> {
        self.need(8)?;
        Ok(self.0.get_i64())
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.need(8)?;
        Ok(self.0.get_u64())
    }

    pub(super) fn id(&mut self) -> Result<[u8; 16], DecodeError> {
        self.need(16)?;
        let mut id = [0; 16];
        self.0.copy_to_slice(&mut id);
        Ok(id)
    }

    /// The length of what follows. `unit` is the least number of bytes that each element takes.
    pub(super) fn len(&mut self, unit: usize) -> Result<usize, DecodeError> {
        let len = self.u32()? as usize;
        self.need(len.saturating_mul(unit))?;
        Ok(len)
    }

    pub(super) fn str(&mut self) -> Result<String, DecodeError> {
        let len = self.len(1)?;
        let bytes = self.0.split_to(len);
        String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::NotUtf8)
    }

    pub(super) fn opt_str(&mut self) -> Result<Option<String>, DecodeError> {
        Ok(if self.u8()? == 0 { None } else { Some(self.str()?) })
    }

    pub(super) fn ids(&mut self) -> Result<Vec<i32>, DecodeError> {
        let len = self.len(4)?;
        (0..len).map(|_| self.i32()).collect()
    }

    pub(super) fn map(&mut self) -> Result<BTreeMap<String, String>, DecodeError> {
        let len = self.len(8)?;
        let mut map = BTreeMap::new();
        for _ in 0..len {
            let key = self.str()?;
            map.insert(key, self.str()?);
        }
        Ok(map)
    }

    /// The end of a value that must fill its bytes.
    pub(super) fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.0.len())) }
    }
}
