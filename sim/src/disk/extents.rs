//! Sparse bytes: extents of shared, immutable buffers. Holes read as zeros; overwriting never copies.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

/// Bytes by position, without overlaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents(BTreeMap<u64, Bytes>);

impl Extents {
    /// Puts `bytes` at `offset`, over whatever was there.
    pub(super) fn write(&mut self, offset: u64, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.clear(offset, offset + bytes.len() as u64);
        self.0.insert(offset, bytes);
    }

    /// Makes `start..end` a hole.
    pub(super) fn clear(&mut self, start: u64, end: u64) {
        if let Some((&at, extent)) = self.0.range(..start).next_back() {
            let extent = extent.clone();
            let extent_end = at + extent.len() as u64;
            if extent_end > start {
                let keep = (start - at) as usize;
                self.0.insert(at, extent.slice(..keep));
                if extent_end > end {
                    self.0.insert(end, extent.slice((end - at) as usize..));
                }
            }
        }
        while let Some((&at, _)) = self.0.range(start..end).next() {
            let Some(extent) = self.0.remove(&at) else { break };
            let extent_end = at + extent.len() as u64;
            if extent_end > end {
                self.0.insert(end, extent.slice((end - at) as usize..));
            }
        }
    }

    /// Makes everything from `start` on a hole.
    pub(super) fn clear_from(&mut self, start: u64) {
        self.clear(start, u64::MAX);
    }

    /// Reads `len` bytes; without a copy where one extent holds them all.
    pub(super) fn read(&self, offset: u64, len: usize) -> Bytes {
        let end = offset + len as u64;
        let first = self.0.range(..=offset).next_back().map_or(offset, |(&at, _)| at);
        let mut covering = self.0.range(first..end).filter(|(at, extent)| **at + extent.len() as u64 > offset);
        if let Some((&at, extent)) = covering.clone().next()
            && at <= offset
            && at + extent.len() as u64 >= end
        {
            return extent.slice((offset - at) as usize..(end - at) as usize);
        }
        let mut out = BytesMut::zeroed(len);
        covering.by_ref().for_each(|(&at, extent)| {
            let from = at.max(offset);
            let to = (at + extent.len() as u64).min(end);
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&extent[(from - at) as usize..(to - at) as usize]);
        });
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_flat_array(operations in proptest::collection::vec((0_u64..200, 0_usize..60, any::<u8>(), any::<bool>()), 1..40)) {
            let mut flat = vec![0_u8; 300];
            let mut extents = Extents::default();
            for (offset, len, byte, clears) in operations {
                let range = offset as usize..offset as usize + len;
                if clears {
                    extents.clear(offset, offset + len as u64);
                    flat[range].fill(0);
                } else {
                    extents.write(offset, Bytes::from(vec![byte; len]));
                    flat[range].fill(byte);
                }
                prop_assert_eq!(&extents.read(0, 300)[..], &flat[..]);
                prop_assert_eq!(&extents.read(offset, len)[..], &flat[offset as usize..offset as usize + len]);
            }
        }
    }
}
