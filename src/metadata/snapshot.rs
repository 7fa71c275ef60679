//! The stored form of a whole [`ClusterImage`].
//!
//! ```text
//! 0  magic "KILOMIMG"      8  format u32      12 body length u32      16 CRC-32 of the body u32      20 body
//! ```
//!
//! Written to a temporary file, flushed and renamed over the old one, so a crash leaves the old image or the new one.
//! A damaged image is therefore never a crash's doing and is refused.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::codec::{DecodeError, FieldReader, put_ids, put_len, put_map, put_opt_str, put_str};
use super::image::{Broker, ClusterImage, LogId, Partition, Topic};
use crate::storage::TopicId;

const MAGIC: &[u8; 8] = b"KILOMIMG";
const FORMAT: u32 = 1;
const HEADER_LEN: usize = 20;

/// Why a stored image was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It does not begin like one.
    #[error("is not a metadata snapshot")]
    Foreign,
    /// Length or checksum do not match.
    #[error("is damaged: its checksum does not match")]
    Checksum,
    /// Written by a newer version.
    #[error("has format {0}, and this version of Kilo reads up to format {FORMAT}: use a newer one")]
    Newer(u32),
    /// The checksum is right and the content is not.
    #[error("cannot be read: it {0}")]
    Content(#[from] DecodeError),
}

/// Encodes an image.
pub(super) fn encode(image: &ClusterImage) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u64(image.applied.term);
    body.put_u64(image.applied.index);
    body.put_i64(image.next_producer_id);
    put_len(&mut body, image.brokers.len());
    for broker in image.brokers.values() {
        body.put_i32(broker.id);
        body.put_i64(broker.epoch);
        put_str(&mut body, &broker.host);
        body.put_u16(broker.port);
        put_opt_str(&mut body, broker.rack.as_deref());
    }
    put_len(&mut body, image.topics.len());
    for topic in image.topics.values() {
        body.put_slice(&topic.id.0);
        put_str(&mut body, &topic.name);
        put_len(&mut body, topic.partitions.len());
        for partition in &topic.partitions {
            body.put_i32(partition.leader);
            body.put_i32(partition.leader_epoch);
            body.put_i32(partition.partition_epoch);
            put_ids(&mut body, &partition.replicas);
            put_ids(&mut body, &partition.isr);
        }
        put_map(&mut body, &topic.configs);
        body.put_i64(topic.created_ms);
    }
    let mut out = BytesMut::with_capacity(HEADER_LEN + body.len());
    out.put_slice(MAGIC);
    out.put_u32(FORMAT);
    put_len(&mut out, body.len());
    out.put_u32(crc32fast::hash(&body));
    out.put_slice(&body);
    out.freeze()
}

/// Decodes an image.
pub(super) fn decode(bytes: &Bytes) -> Result<ClusterImage, SnapshotError> {
    if bytes.len() < HEADER_LEN || &bytes[..8] != MAGIC {
        return Err(SnapshotError::Foreign);
    }
    let mut header = bytes.slice(8..HEADER_LEN);
    let (format, len, crc) = (header.get_u32(), header.get_u32() as usize, header.get_u32());
    if format != FORMAT {
        return Err(SnapshotError::Newer(format));
    }
    let body = bytes.slice(HEADER_LEN..);
    if body.len() != len || crc32fast::hash(&body) != crc {
        return Err(SnapshotError::Checksum);
    }
    Ok(read_body(body)?)
}

fn read_body(body: Bytes) -> Result<ClusterImage, DecodeError> {
    let mut reader = FieldReader(body);
    let mut image = ClusterImage {
        applied: LogId { term: reader.u64()?, index: reader.u64()? },
        next_producer_id: reader.i64()?,
        brokers: BTreeMap::new(),
        ..ClusterImage::default()
    };
    for _ in 0..reader.len(19)? {
        let broker = Broker {
            id: reader.i32()?,
            epoch: reader.i64()?,
            host: reader.str()?,
            port: reader.u16()?,
            rack: reader.opt_str()?,
        };
        image.brokers.insert(broker.id, broker);
    }
    for _ in 0..reader.len(36)? {
        let topic = Topic {
            id: TopicId(reader.id()?),
            name: reader.str()?,
            partitions: {
                let len = reader.len(20)?;
                (0..len).map(|_| read_partition(&mut reader)).collect::<Result<_, _>>()?
            },
            configs: reader.map()?,
            created_ms: reader.i64()?,
        };
        image.insert(topic);
    }
    reader.end()?;
    Ok(image)
}

fn read_partition(reader: &mut FieldReader) -> Result<Partition, DecodeError> {
    Ok(Partition {
        leader: reader.i32()?,
        leader_epoch: reader.i32()?,
        partition_epoch: reader.i32()?,
        replicas: reader.ids()?,
        isr: reader.ids()?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::metadata::{Command, NewPartition};

    pub(crate) fn sample() -> ClusterImage {
        let mut image = ClusterImage::default();
        let partition = NewPartition { replicas: vec![1], isr: vec![1], leader: 1 };
        let commands = [
            Command::RegisterBroker { broker_id: 1, host: "h".into(), port: 1, rack: Some("r".into()), started_ms: 0 },
            Command::CreateTopic {
                id: TopicId([3; 16]),
                name: "t".into(),
                partitions: vec![partition; 3],
                configs: [("retention.ms".to_owned(), "1".to_owned())].into(),
                created_ms: 4,
            },
            Command::AllocateProducerIds { broker_id: 1, broker_epoch: 1, count: 1000 },
        ];
        for (index, command) in (1..).zip(commands) {
            image.apply(LogId { term: 1, index }, &command).expect("the sample applies");
        }
        image
    }

    #[test]
    fn an_image_reads_back() {
        let image = sample();
        assert_eq!(decode(&encode(&image)), Ok(image));
    }

    #[test]
    fn each_changed_byte_and_each_cut_is_noticed() {
        let good = encode(&sample());
        for at in 0..good.len() {
            let mut bytes = good.to_vec();
            bytes[at] ^= 0x40;
            assert!(decode(&Bytes::from(bytes)).is_err(), "byte {at}");
            assert!(decode(&good.slice(..at)).is_err(), "cut to {at}");
        }
    }
}
