//! The cluster as a pure state machine.
//!
//! | command | refused when | effect |
//! |---|---|---|
//! | RegisterBroker | never | broker epoch = the entry's index; each partition that the broker leads: leader epoch + 1, partition epoch + 1 |
//! | CreateTopic | the name or id is taken; the name collides in `.` and `_`; no partitions; a replica is not registered | the topic exists, its partitions at leader epoch 0 and partition epoch 0 |
//! | AllocateProducerIds | the broker is not registered, or under another epoch; the count is not positive; ids are used up | the next block belongs to the broker |
//!
//! A refused command changes nothing but the applied position. Invariants, checked by [`ClusterImage::check`]: `ids` and
//! `topics` mirror each other; every leader is a replica; every in-sync replica is a replica.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::command::{Command, NewPartition};
use super::names::collision_key;
use crate::storage::{PartitionKey, TopicId};

/// The position of an entry in the metadata log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId {
    /// The term of the controller that wrote it.
    pub term: u64,
    /// Its number; the first entry is 1.
    pub index: u64,
}

/// A registered broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: i32,
    /// Rises at every start.
    pub epoch: i64,
    /// The host that clients are told.
    pub host: String,
    /// The port that clients are told; 0 when the system chooses it.
    pub port: u16,
    /// Its rack.
    pub rack: Option<String>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its identity.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// By partition number.
    pub partitions: Vec<Partition>,
    /// What the topic sets itself, by Kafka's key names.
    pub configs: BTreeMap<String, String>,
    /// Wall-clock time of creation, in milliseconds since the epoch.
    pub created_ms: i64,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The leader's broker id; −1 while there is none.
    pub leader: i32,
    /// Rises with every change of leadership and every start of the leader.
    pub leader_epoch: i32,
    /// Rises with every change of this record.
    pub partition_epoch: i32,
    /// Brokers that hold it; the first is the preferred leader.
    pub replicas: Vec<i32>,
    /// Those of them that are in sync.
    pub isr: Vec<i32>,
}

/// What applying a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker is registered under this epoch.
    Registered {
        /// The broker's epoch.
        broker_epoch: i64,
    },
    /// The topic exists.
    TopicCreated,
    /// The ids `first .. first + count` belong to the broker.
    ProducerIds {
        /// The first id of the block.
        first: i64,
        /// The length of the block.
        count: i32,
    },
}

/// Why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// There is a topic of that name.
    #[error("Topic '{0}' already exists.")]
    TopicExists(String),
    /// There is a topic whose name differs only in `.` and `_`.
    #[error("Topic '{name}' collides with existing topic: {existing}")]
    TopicCollides {
        /// The new name.
        name: String,
        /// The existing topic.
        existing: String,
    },
    /// There is a topic of that id.
    #[error("topic id {0} is taken")]
    TopicIdTaken(TopicId),
    /// A topic needs at least one partition, each with a leader among its replicas.
    #[error("partition {0} has no leader among its replicas")]
    BadAssignment(usize),
    /// A replica is on a broker that is not registered.
    #[error("broker {0} is not registered")]
    UnknownBroker(i32),
    /// The broker has started again since.
    #[error("broker {broker_id} is at epoch {current}, not {given}")]
    StaleBrokerEpoch {
        /// The broker.
        broker_id: i32,
        /// The epoch in the command.
        given: i64,
        /// The broker's epoch.
        current: i64,
    },
    /// The block is empty, or the ids are used up.
    #[error("there is no block of {0} producer ids")]
    NoProducerIds(i32),
}

/// The cluster's metadata at one position of the log. Cheap to clone: topics are shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterImage {
    pub(super) applied: LogId,
    pub(super) brokers: BTreeMap<i32, Broker>,
    pub(super) topics: BTreeMap<String, Arc<Topic>>,
    pub(super) ids: BTreeMap<TopicId, String>,
    pub(super) collisions: BTreeMap<String, String>,
    pub(super) next_producer_id: i64,
}

impl ClusterImage {
    /// The last entry that this image holds.
    pub fn applied(&self) -> LogId {
        self.applied
    }

    /// All brokers, by id.
    pub fn brokers(&self) -> impl Iterator<Item = &Broker> {
        self.brokers.values()
    }

    /// A broker.
    pub fn broker(&self, id: i32) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// A topic by id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.ids.get(&id).and_then(|name| self.topics.get(name))
    }

    /// The topic, if any, whose name differs from `name` only in `.` and `_`.
    pub fn colliding_topic(&self, name: &str) -> Option<&str> {
        let existing = self.collisions.get(&collision_key(name))?;
        (existing != name).then_some(existing.as_str())
    }

    /// Partitions that `broker` holds, in order of topic name and number.
    pub fn partitions_of(&self, broker: i32) -> impl Iterator<Item = (PartitionKey, &Arc<Topic>, &Partition)> {
        self.topics.values().flat_map(move |topic| {
            topic.partitions.iter().enumerate().filter(move |(_, partition)| partition.replicas.contains(&broker)).map(
                move |(index, partition)| {
                    let index = i32::try_from(index).expect("a topic has far fewer than 2^31 partitions");
                    (PartitionKey { topic: topic.id, index }, topic, partition)
                },
            )
        })
    }

    /// Applies the entry at `id`. A refusal changes nothing but the applied position.
    pub fn apply(&mut self, id: LogId, command: &Command) -> Result<Outcome, Rejection> {
        assert!(id.index == self.applied.index + 1 && id.term >= self.applied.term, "entries are applied in order");
        self.applied = id;
        match command {
            Command::RegisterBroker { broker_id, host, port, rack, started_ms: _ } => {
                Ok(self.register_broker(id, *broker_id, host, *port, rack.as_deref()))
            }
            Command::CreateTopic { id, name, partitions, configs, created_ms } => {
                self.create_topic(*id, name, partitions, configs, *created_ms)
            }
            Command::AllocateProducerIds { broker_id, broker_epoch, count } => {
                self.allocate_producer_ids(*broker_id, *broker_epoch, *count)
            }
        }
    }

    fn register_broker(&mut self, at: LogId, id: i32, host: &str, port: u16, rack: Option<&str>) -> Outcome {
        let epoch = i64::try_from(at.index).expect("the metadata log has far fewer than 2^63 entries");
        let broker = Broker { id, epoch, host: host.to_owned(), port, rack: rack.map(str::to_owned) };
        self.brokers.insert(id, broker);
        for topic in self.topics.values_mut() {
            if topic.partitions.iter().any(|partition| partition.leader == id) {
                for partition in Arc::make_mut(topic).partitions.iter_mut().filter(|partition| partition.leader == id) {
                    partition.leader_epoch += 1;
                    partition.partition_epoch += 1;
                }
            }
        }
        Outcome::Registered { broker_epoch: epoch }
    }

    fn create_topic(
        &mut self,
        id: TopicId,
        name: &str,
        partitions: &[NewPartition],
        configs: &BTreeMap<String, String>,
        created_ms: i64,
    ) -> Result<Outcome, Rejection> {
        if self.topics.contains_key(name) {
            return Err(Rejection::TopicExists(name.to_owned()));
        }
        if let Some(existing) = self.colliding_topic(name) {
            return Err(Rejection::TopicCollides { name: name.to_owned(), existing: existing.to_owned() });
        }
        if self.ids.contains_key(&id) {
            return Err(Rejection::TopicIdTaken(id));
        }
        if partitions.is_empty() {
            return Err(Rejection::BadAssignment(0));
        }
        for (index, partition) in partitions.iter().enumerate() {
            let inside = |broker: &i32| partition.replicas.contains(broker);
            if !inside(&partition.leader)
                || !partition.isr.contains(&partition.leader)
                || !partition.isr.iter().all(inside)
            {
                return Err(Rejection::BadAssignment(index));
            }
            if let Some(unknown) = partition.replicas.iter().find(|broker| !self.brokers.contains_key(broker)) {
                return Err(Rejection::UnknownBroker(*unknown));
            }
        }
        let partitions = partitions
            .iter()
            .map(|new| Partition {
                leader: new.leader,
                leader_epoch: 0,
                partition_epoch: 0,
                replicas: new.replicas.clone(),
                isr: new.isr.clone(),
            })
            .collect();
        self.insert(Topic { id, name: name.to_owned(), partitions, configs: configs.clone(), created_ms });
        Ok(Outcome::TopicCreated)
    }

    /// Enters a topic in all three maps.
    pub(super) fn insert(&mut self, topic: Topic) {
        self.ids.insert(topic.id, topic.name.clone());
        self.collisions.insert(collision_key(&topic.name), topic.name.clone());
        self.topics.insert(topic.name.clone(), Arc::new(topic));
    }

    fn allocate_producer_ids(&mut self, broker_id: i32, given: i64, count: i32) -> Result<Outcome, Rejection> {
        let broker = self.brokers.get(&broker_id).ok_or(Rejection::UnknownBroker(broker_id))?;
        if broker.epoch != given {
            return Err(Rejection::StaleBrokerEpoch { broker_id, given, current: broker.epoch });
        }
        let first = self.next_producer_id;
        let next = first.checked_add(count.into()).filter(|_| count > 0).ok_or(Rejection::NoProducerIds(count))?;
        self.next_producer_id = next;
        Ok(Outcome::ProducerIds { first, count })
    }

    /// Asserts what must hold at every position.
    pub fn check(&self) {
        assert_eq!(self.ids.len(), self.topics.len(), "one id for each topic");
        assert_eq!(self.collisions.len(), self.topics.len(), "no two topics differ only in '.' and '_'");
        for topic in self.topics.values() {
            assert_eq!(self.ids.get(&topic.id), Some(&topic.name), "ids point at their topics");
            for partition in &topic.partitions {
                assert!(
                    partition.leader == -1 || partition.replicas.contains(&partition.leader),
                    "a leader is a replica"
                );
                assert!(partition.isr.iter().all(|broker| partition.replicas.contains(broker)), "the ISR are replicas");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(broker_id: i32) -> Command {
        Command::RegisterBroker { broker_id, host: "localhost".into(), port: 9092, rack: None, started_ms: 1 }
    }

    fn create(seed: u8, name: &str, leader: i32) -> Command {
        let partition = NewPartition { replicas: vec![leader], isr: vec![leader], leader };
        Command::CreateTopic {
            id: TopicId([seed; 16]),
            name: name.into(),
            partitions: vec![partition.clone(), partition],
            configs: BTreeMap::new(),
            created_ms: 5,
        }
    }

    struct Machine(ClusterImage);

    impl Machine {
        fn new() -> Self {
            Self(ClusterImage::default())
        }

        fn apply(&mut self, command: Command) -> Result<Outcome, Rejection> {
            let index = self.0.applied().index + 1;
            let outcome = self.0.apply(LogId { term: 1, index }, &command);
            self.0.check();
            outcome
        }
    }

    #[test]
    fn a_start_raises_the_leader_epoch_of_what_the_broker_leads() {
        let mut machine = Machine::new();
        machine.apply(register(1)).unwrap();
        machine.apply(register(2)).unwrap();
        machine.apply(create(1, "a", 1)).unwrap();
        machine.apply(create(2, "b", 2)).unwrap();
        assert_eq!(machine.apply(register(1)), Ok(Outcome::Registered { broker_epoch: 5 }));
        let epochs = |name: &str| {
            let topic = machine.0.topic(name).unwrap();
            topic
                .partitions
                .iter()
                .map(|partition| (partition.leader_epoch, partition.partition_epoch))
                .collect::<Vec<_>>()
        };
        assert_eq!(epochs("a"), [(1, 1), (1, 1)]);
        assert_eq!(epochs("b"), [(0, 0), (0, 0)]);
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let mut machine = Machine::new();
        machine.apply(register(1)).unwrap();
        machine.apply(create(1, "a.b", 1)).unwrap();
        let before = machine.0.clone();
        let cases = [
            (create(2, "a.b", 1), Rejection::TopicExists("a.b".into())),
            (create(2, "a_b", 1), Rejection::TopicCollides { name: "a_b".into(), existing: "a.b".into() }),
            (create(1, "c", 1), Rejection::TopicIdTaken(TopicId([1; 16]))),
            (create(2, "c", 9), Rejection::UnknownBroker(9)),
            (
                Command::AllocateProducerIds { broker_id: 1, broker_epoch: 7, count: 1 },
                Rejection::StaleBrokerEpoch { broker_id: 1, given: 7, current: 1 },
            ),
            (Command::AllocateProducerIds { broker_id: 4, broker_epoch: 7, count: 1 }, Rejection::UnknownBroker(4)),
            (Command::AllocateProducerIds { broker_id: 1, broker_epoch: 1, count: 0 }, Rejection::NoProducerIds(0)),
        ];
        for (command, refusal) in cases {
            assert_eq!(machine.apply(command), Err(refusal));
        }
        let after = ClusterImage { applied: before.applied, ..machine.0.clone() };
        assert_eq!(after, before);
    }

    #[test]
    fn producer_id_blocks_never_overlap() {
        let mut machine = Machine::new();
        machine.apply(register(1)).unwrap();
        let block = |count| Command::AllocateProducerIds { broker_id: 1, broker_epoch: 1, count };
        assert_eq!(machine.apply(block(10)), Ok(Outcome::ProducerIds { first: 0, count: 10 }));
        assert_eq!(machine.apply(block(5)), Ok(Outcome::ProducerIds { first: 10, count: 5 }));
        machine.0.next_producer_id = i64::MAX - 1;
        assert_eq!(machine.apply(block(5)), Err(Rejection::NoProducerIds(5)));
    }

    #[test]
    #[should_panic(expected = "in order")]
    fn a_gap_is_a_bug() {
        let _ = ClusterImage::default().apply(LogId { term: 1, index: 2 }, &register(1));
    }
}
