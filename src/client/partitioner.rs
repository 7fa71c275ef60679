//! Which partition a key goes to: the same as with other Kafka clients, so that records of one key stay in order whatever
//! wrote them.

const SEED: u32 = 0x9747_b28c;
const M: u32 = 0x5bd1_e995;
const R: u32 = 24;

/// MurmurHash2 of 32 bits with the seed that Kafka clients use.
pub fn murmur2(bytes: &[u8]) -> u32 {
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ k >> R).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// The partition of a key among `partitions` of them, which must be at least one.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    assert!(partitions > 0, "a topic has partitions");
    (murmur2(key) & 0x7fff_ffff).cast_signed() % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that Kafka's own tests expect of its implementation.
    #[test]
    fn hashes_are_those_of_other_clients() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
        assert_eq!(murmur2(b"abc").cast_signed(), 479_470_107);
        assert!((0..8).contains(&partition_for_key(b"", 8)));
    }
}
