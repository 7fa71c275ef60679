//! Producer ids: handed out one by one from a block that the cluster's metadata gave this broker. What is left of a block
//! at a restart is never used.

use tokio::sync::Mutex;

use crate::metadata::{Command, MetadataStore, Outcome, ProposeError};

/// Ids in a block, as in Kafka.
const BLOCK_LEN: i32 = 1000;

pub(super) struct ProducerIds {
    metadata: MetadataStore,
    node_id: i32,
    /// The next id and the end of the block.
    block: Mutex<(i64, i64)>,
}

impl ProducerIds {
    pub(super) fn new(metadata: MetadataStore, node_id: i32) -> Self {
        Self { metadata, node_id, block: Mutex::new((0, 0)) }
    }

    /// An id that no producer has had.
    pub(super) async fn next(&self) -> Result<i64, ProposeError> {
        let mut block = self.block.lock().await;
        if block.0 == block.1 {
            let broker_epoch = self.metadata.image().broker(self.node_id).map_or(-1, |broker| broker.epoch);
            let command = Command::AllocateProducerIds { broker_id: self.node_id, broker_epoch, count: BLOCK_LEN };
            let Outcome::ProducerIds { first, count } = self.metadata.propose(command).await?.outcome else {
                unreachable!("allocating producer ids has this outcome only");
            };
            *block = (first, first + i64::from(count));
        }
        block.0 += 1;
        Ok(block.0 - 1)
    }
}
