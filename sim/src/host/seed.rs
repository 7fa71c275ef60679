//! How one seed becomes many: names and numbers mixed into it.

/// Mixes names and numbers into a seed. Stable over versions: pinned seeds depend on it.
pub(crate) fn mix(seed: u64, parts: &[&[u8]]) -> u64 {
    let mut hash = seed ^ 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for &byte in *part {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        // Ends the part, so that ("ab", "c") and ("a", "bc") differ.
        hash = (hash ^ 0x1ff).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}
