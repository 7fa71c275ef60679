//! Liveness: after healing, new traffic flows to every partition.

use std::sync::Arc;
use std::time::Duration;

use kilo::io::Env;
use kilo::wire::ErrorCode;
use kilo::wire::batch::BatchBuilder;
use kilo::wire::codec::Codec;

use super::link::{Link, Lost};
use super::record;
use super::world::World;
use crate::history::{Batch, Outcome, Partition};

/// The producer number of the prober.
const PRODUCER: u32 = u32::MAX;

/// Sends a record to each partition until it is acknowledged; returns when all are.
pub async fn probe(world: Arc<World>, env: Env) {
    let mut open: Vec<Partition> = (0..world.partitions.len() as u32).map(Partition).collect();
    while !open.is_empty() {
        let session = world.next_session();
        if let Some(link) = Link::open(&world, &env).await {
            let mut still = Vec::new();
            for partition in open {
                if !send(&world, &env, &link, partition, session).await {
                    still.push(partition);
                }
            }
            open = still;
            link.abort();
        }
        env.sleep(Duration::from_millis(20)).await;
    }
}

async fn send(world: &World, env: &Env, link: &Link, partition: Partition, session: u32) -> bool {
    let mut builder = BatchBuilder::new(Codec::None);
    let id = {
        let mut history = world.history();
        let timestamp = env.wall().0;
        let digest = record::push(&mut builder, history.next_value(), 100, timestamp);
        let batch = Batch { producer: PRODUCER, session, partition, timestamp, digests: &[digest] };
        history.begin_send(batch, world.now_ns())
    };
    let batch = builder.build().expect("one small record always fits");
    let outcome = match link.produce(partition, &batch, -1, 9).await {
        Ok(answer) if answer.error == ErrorCode::None => Outcome::Acked { base_offset: answer.base_offset },
        Ok(_) | Err(Lost::Unknown) => Outcome::Maybe,
        Err(Lost::NeverSent) => Outcome::Failed,
    };
    let now_ns = world.now_ns();
    world.history().end_send(id, outcome, now_ns);
    matches!(outcome, Outcome::Acked { .. })
}
