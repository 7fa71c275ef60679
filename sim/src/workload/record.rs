//! What a record of the workload looks like: its value says who it is, and the rest follows from that, so that every
//! byte can be checked.

use kilo::wire::batch::{BatchBuilder, Record};

use crate::history::Value;

/// The smallest record value: the identity alone.
pub const VALUE_BYTES_MIN: usize = 8;

/// Adds the record of `value` to a batch, about `bytes` long; returns its digest.
pub fn push(builder: &mut BatchBuilder, value: Value, bytes: usize, timestamp: i64) -> u64 {
    let mut rng = fastrand::Rng::with_seed(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let key = match rng.u8(..4) {
        0 => None,
        1 => Some(Vec::new()),
        _ => Some(format!("key-{}", rng.u8(..)).into_bytes()),
    };
    let mut body = value.to_be_bytes().to_vec();
    // Half of it compresses well, the other half not at all.
    let rest = bytes.saturating_sub(VALUE_BYTES_MIN);
    body.extend(std::iter::repeat_n(b'k', rest / 2));
    body.extend(std::iter::repeat_with(|| rng.u8(..)).take(rest - rest / 2));
    let trace = value.to_string();
    let headers: &[(&[u8], Option<&[u8]>)] =
        if rng.u8(..4) == 0 { &[(b"trace", Some(trace.as_bytes())), (b"trace", None)] } else { &[] };
    builder.push_with_headers(timestamp, key.as_deref(), Some(&body), headers);
    let mut digest = Digest::new(timestamp);
    digest.field(key.as_deref());
    digest.field(Some(&body));
    for (key, value) in headers {
        digest.field(Some(key));
        digest.field(*value);
    }
    digest.0
}

/// The identity that a record carries (0 if none) and its digest.
pub fn identify(record: &Record) -> (Value, u64) {
    let mut digest = Digest::new(record.timestamp);
    digest.field(record.key.as_deref());
    digest.field(record.value.as_deref());
    for header in &record.headers {
        digest.field(Some(&header.key));
        digest.field(header.value.as_deref());
    }
    let identity = record.value.as_deref().and_then(|value| value.first_chunk());
    (identity.map_or(0, |bytes| Value::from_be_bytes(*bytes)), digest.0)
}

/// A hash of all that a record consists of, with the boundaries between its parts.
struct Digest(u64);

impl Digest {
    fn new(timestamp: i64) -> Self {
        Self(0xcbf2_9ce4_8422_2325 ^ timestamp as u64)
    }

    fn field(&mut self, bytes: Option<&[u8]>) {
        // CRC-32 of the bytes alone and of the bytes after what came before: plenty against anything but malice.
        let (len, low, high) = match bytes {
            None => (u64::MAX, 0, 0),
            Some(bytes) => {
                let mut hasher = crc32fast::Hasher::new_with_initial(self.0 as u32);
                hasher.update(bytes);
                (bytes.len() as u64, crc32fast::hash(bytes), hasher.finalize())
            }
        };
        self.0 = (self.0.rotate_left(23) ^ len).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 ^= u64::from(low) | u64::from(high) << 32;
        self.0 = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilo::wire::codec::Codec;

    #[test]
    fn what_is_sent_is_identified_when_it_comes_back() {
        for codec in Codec::ALL {
            let mut builder = BatchBuilder::new(codec);
            let sent: Vec<(u64, u64)> = (1..200)
                .map(|value| (value, push(&mut builder, value, (value * 7) as usize, 5 + value as i64)))
                .collect();
            let batch = builder.build().expect("it fits");
            let records = batch.records(1 << 20).expect("its own records");
            let back: Vec<(u64, u64)> = records.map(|record| identify(&record.expect("whole"))).collect();
            assert_eq!(back, sent, "{codec:?}");
        }
    }

    #[test]
    fn any_change_changes_the_digest() {
        let record = |value: &[u8], key: Option<&[u8]>, timestamp| {
            let mut builder = BatchBuilder::default();
            builder.push(timestamp, key, Some(value));
            let batch = builder.build().expect("it fits");
            let mut records = batch.records(1 << 20).expect("its own records");
            identify(&records.next().expect("one").expect("whole")).1
        };
        let base = record(b"12345678abc", None, 1);
        assert_ne!(base, record(b"12345678abd", None, 1));
        assert_ne!(base, record(b"12345678ab", None, 1));
        assert_ne!(base, record(b"12345678abc", Some(b""), 1));
        assert_ne!(base, record(b"12345678abc", None, 2));
    }
}
