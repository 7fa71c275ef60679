//! Zigzag varints as record batches use them, and a cursor over bytes that never reads past the end.
//!
//! The compact arrays and tagged fields of messages use unsigned varints; those belong to the message types, not here.

/// A position in a byte slice. Every read is checked; `None` means "not there or malformed".
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the front of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// The next `len` bytes.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// A zigzag varint of up to five bytes.
    #[inline]
    pub(crate) fn varint(&mut self) -> Option<i32> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(unzigzag32(u32::from(first)));
        }
        self.varint_long(u32::from(first & 0x7f))
    }

    fn varint_long(&mut self, mut value: u32) -> Option<i32> {
        for shift in [7, 14, 21] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(unzigzag32(value));
            }
        }
        let byte = self.u8()?;
        (byte <= 0x0f).then(|| unzigzag32(value | u32::from(byte) << 28))
    }

    /// A zigzag varint of up to ten bytes.
    #[inline]
    pub(crate) fn varlong(&mut self) -> Option<i64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(unzigzag64(u64::from(first)));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..63).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(unzigzag64(value));
            }
        }
        let byte = self.u8()?;
        (byte <= 1).then(|| unzigzag64(value | u64::from(byte) << 63))
    }

    /// A length that may be null: −1 is `Some(None)`, anything below is malformed.
    #[inline]
    pub(crate) fn nullable_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            len => Some(Some(self.take(usize::try_from(len).ok()?)?)),
        }
    }
}

#[inline]
fn unzigzag32(value: u32) -> i32 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[inline]
fn unzigzag64(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Appends a zigzag varint of up to ten bytes; for values of 32 bits the encoding is the same as the five-byte form.
pub(crate) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut rest = (value << 1 ^ value >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Bytes that [`put_varlong`] appends for `value`.
pub(crate) fn varlong_len(value: i64) -> usize {
    let bits = 64 - ((value << 1 ^ value >> 63) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_round_trip() {
        for value in [0, 1, -1, 63, 64, -64, -65, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            assert_eq!(out.len(), varlong_len(value), "{value}");
            assert_eq!(Cursor::new(&out).varlong(), Some(value));
            let narrow = i32::try_from(value).ok();
            if narrow.is_some() {
                assert_eq!(Cursor::new(&out).varint(), narrow);
            }
        }
    }

    #[test]
    fn what_does_not_fit_or_does_not_end_is_refused() {
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint(), None, "33 bits");
        assert_eq!(Cursor::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]).varint(), None, "six bytes");
        assert_eq!(Cursor::new(&[0x80, 0x80]).varint(), None, "cut");
        assert_eq!(Cursor::new(&[0xff; 10]).varlong(), None);
        assert_eq!(Cursor::new(&[0x03, 0x00]).nullable_bytes(), None, "length −2");
        assert_eq!(Cursor::new(&[0x01]).nullable_bytes(), Some(None));
        assert_eq!(Cursor::new(&[0x04, 0x00]).nullable_bytes(), None, "two bytes claimed, one there");
    }
}
