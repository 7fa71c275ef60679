//! The commands of the metadata log and how they are stored.
//!
//! A stored command is {kind u16, version u8, fields}. Kinds and versions are only ever added: a reader that meets a
//! number it does not know stops with an error that says so, and never guesses.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};

use super::codec::{DecodeError, FieldReader, put_ids, put_len, put_map, put_opt_str, put_str};
use crate::storage::TopicId;

const REGISTER_BROKER: u16 = 1;
const CREATE_TOPIC: u16 = 2;
const ALLOCATE_PRODUCER_IDS: u16 = 3;
const VERSION: u8 = 0;

/// A change of the cluster's metadata. Every id and timestamp is chosen by the proposer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A broker has started. It gets a new broker epoch, and each partition that it leads a new leader epoch.
    RegisterBroker {
        /// The broker's id.
        broker_id: i32,
        /// The host that clients are told.
        host: String,
        /// The port that clients are told; 0 when the system chooses it.
        port: u16,
        /// The rack, if one is configured.
        rack: Option<String>,
        /// Wall-clock time of the start, in milliseconds since the epoch.
        started_ms: i64,
    },
    /// A new topic with all its partitions.
    CreateTopic {
        /// Its identity.
        id: TopicId,
        /// Its name.
        name: String,
        /// Partitions 0, 1, 2, …
        partitions: Vec<NewPartition>,
        /// What the topic sets itself, by Kafka's key names.
        configs: BTreeMap<String, String>,
        /// Wall-clock time, in milliseconds since the epoch.
        created_ms: i64,
    },
    /// A broker takes the next block of producer ids.
    AllocateProducerIds {
        /// The broker.
        broker_id: i32,
        /// Its epoch: a block asked for before a restart is not handed to the next incarnation.
        broker_epoch: i64,
        /// How many ids.
        count: i32,
    },
}

/// A partition at its creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPartition {
    /// Brokers that hold it; the first is the preferred leader.
    pub replicas: Vec<i32>,
    /// The first in-sync replicas.
    pub isr: Vec<i32>,
    /// The first leader.
    pub leader: i32,
}

impl Command {
    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::RegisterBroker { broker_id, host, port, rack, started_ms } => {
                out.put_u16(REGISTER_BROKER);
                out.put_u8(VERSION);
                out.put_i32(*broker_id);
                put_str(&mut out, host);
                out.put_u16(*port);
                put_opt_str(&mut out, rack.as_deref());
                out.put_i64(*started_ms);
            }
            Self::CreateTopic { id, name, partitions, configs, created_ms } => {
                out.put_u16(CREATE_TOPIC);
                out.put_u8(VERSION);
                out.put_slice(&id.0);
                put_str(&mut out, name);
                put_len(&mut out, partitions.len());
                for partition in partitions {
                    put_ids(&mut out, &partition.replicas);
                    put_ids(&mut out, &partition.isr);
                    out.put_i32(partition.leader);
                }
                put_map(&mut out, configs);
                out.put_i64(*created_ms);
            }
            Self::AllocateProducerIds { broker_id, broker_epoch, count } => {
                out.put_u16(ALLOCATE_PRODUCER_IDS);
                out.put_u8(VERSION);
                out.put_i32(*broker_id);
                out.put_i64(*broker_epoch);
                out.put_i32(*count);
            }
        }
        out.freeze()
    }

    /// Reads the stored form.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut reader = FieldReader(bytes);
        let kind = reader.u16()?;
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError::Newer { what: "a command of version", number: version.into() });
        }
        let command = match kind {
            REGISTER_BROKER => Self::RegisterBroker {
                broker_id: reader.i32()?,
                host: reader.str()?,
                port: reader.u16()?,
                rack: reader.opt_str()?,
                started_ms: reader.i64()?,
            },
            CREATE_TOPIC => Self::CreateTopic {
                id: TopicId(reader.id()?),
                name: reader.str()?,
                partitions: {
                    let len = reader.len(12)?;
                    (0..len).map(|_| read_partition(&mut reader)).collect::<Result<_, _>>()?
                },
                configs: reader.map()?,
                created_ms: reader.i64()?,
            },
            ALLOCATE_PRODUCER_IDS => Self::AllocateProducerIds {
                broker_id: reader.i32()?,
                broker_epoch: reader.i64()?,
                count: reader.i32()?,
            },
            other => return Err(DecodeError::Newer { what: "a command of kind", number: other.into() }),
        };
        reader.end()?;
        Ok(command)
    }
}

fn read_partition(reader: &mut FieldReader) -> Result<NewPartition, DecodeError> {
    Ok(NewPartition { replicas: reader.ids()?, isr: reader.ids()?, leader: reader.i32()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Command> {
        vec![
            Command::RegisterBroker { broker_id: 1, host: "h".into(), port: 9092, rack: None, started_ms: 7 },
            Command::RegisterBroker {
                broker_id: -1,
                host: String::new(),
                port: 0,
                rack: Some("r".into()),
                started_ms: 0,
            },
            Command::CreateTopic {
                id: TopicId([9; 16]),
                name: "täst".into(),
                partitions: vec![
                    NewPartition { replicas: vec![1, 2], isr: vec![1], leader: 1 },
                    NewPartition { replicas: vec![], isr: vec![], leader: -1 },
                ],
                configs: [("retention.ms".to_owned(), "5".to_owned())].into(),
                created_ms: i64::MAX,
            },
            Command::AllocateProducerIds { broker_id: 1, broker_epoch: 3, count: 1000 },
        ]
    }

    #[test]
    fn what_is_stored_reads_back() {
        for command in samples() {
            assert_eq!(Command::decode(command.encode()), Ok(command));
        }
    }

    #[test]
    fn every_cut_is_an_error() {
        for command in samples() {
            let bytes = command.encode();
            for len in 0..bytes.len() {
                assert!(Command::decode(bytes.slice(..len)).is_err(), "{command:?} cut to {len}");
            }
        }
    }

    #[test]
    fn an_unknown_kind_says_that_it_is_newer() {
        let error = Command::decode(Bytes::from_static(&[0x12, 0x34, 0])).expect_err("kind 0x1234 does not exist");
        assert!(error.to_string().contains("newer"), "{error}");
    }

    #[test]
    fn a_huge_count_allocates_nothing() {
        let mut bytes = BytesMut::new();
        bytes.put_u16(CREATE_TOPIC);
        bytes.put_u8(VERSION);
        bytes.put_slice(&[0; 16]);
        put_str(&mut bytes, "t");
        bytes.put_u32(u32::MAX);
        assert_eq!(Command::decode(bytes.freeze()), Err(DecodeError::Short));
    }
}
