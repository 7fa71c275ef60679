//! Liveness: after healing, new traffic flows to every partition.

use std::sync::Arc;
use std::time::Duration;

use kilo::io::Env;
use kilo::wire::ErrorCode;
use kilo::wire::batch::BatchBuilder;
use kilo::wire::codec::Codec;

use super::link::{Link, Lost, attempt_end};
use super::record;
use super::world::World;
use crate::history::{Batch, Outcome, Partition};

/// The producer number of the prober.
const PRODUCER: u32 = u32::MAX;

/// Sends a record to each partition until it is acknowledged; returns when all are.
pub async fn probe(world: Arc<World>, env: Env) {
    let mut connections = 0;
    let mut open: Vec<Partition> = (0..world.partitions.len() as u32).map(Partition).collect();
    while !open.is_empty() {
        let session = world.next_session();
        if let Some(link) = Link::open(&world, &env).await {
            connections += 1;
            let mut still = Vec::new();
            for partition in open {
                if !send(&world, &env, (&link, connections), partition, session).await {
                    still.push(partition);
                }
            }
            open = still;
            link.abort();
        }
        env.sleep(Duration::from_millis(20)).await;
    }
}

/// Sends a record over a connection, which has a number.
async fn send(world: &World, env: &Env, (link, connection): (&Link, u32), partition: Partition, session: u32) -> bool {
    let mut builder = BatchBuilder::new(Codec::None);
    let (id, attempt) = {
        let mut history = world.history();
        let timestamp = env.wall().0;
        let digest = record::push(&mut builder, history.next_value(), 100, timestamp);
        let batch = Batch { producer: PRODUCER, session, partition, timestamp, digests: &[digest] };
        let id = history.begin_send(batch, world.now_ns());
        (id, history.begin_attempt(id, connection, link.incarnation, world.now_ns()))
    };
    let batch = builder.build().expect("one small record always fits");
    let response = link.produce(partition, &batch, -1, 9).await;
    let outcome = match &response {
        Ok(response) if response.error == ErrorCode::None => Outcome::Acked { base_offset: response.base_offset },
        Ok(_) | Err(Lost::Unknown | Lost::TimedOut) => Outcome::Maybe,
        Err(Lost::NeverSent) => Outcome::Failed,
    };
    let now_ns = world.now_ns();
    let mut history = world.history();
    history.end_attempt(id, attempt, attempt_end(&response, -1), now_ns);
    history.end_send(id, outcome, now_ns);
    drop(history);
    matches!(outcome, Outcome::Acked { .. })
}
