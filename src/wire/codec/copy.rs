//! What all decompressors do in the end.

/// Copies from the front of `from` at `at` into `out`, moving `at`.
pub(super) fn copy_out(from: &[u8], at: &mut usize, out: &mut [u8]) -> usize {
    let len = out.len().min(from.len() - *at);
    out[..len].copy_from_slice(&from[*at..*at + len]);
    *at += len;
    len
}
