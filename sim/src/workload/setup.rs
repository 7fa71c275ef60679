//! What happens before the load: the topics are created.

use std::sync::Arc;
use std::time::Duration;

use kilo::io::Env;
use kilo::wire::ErrorCode;

use super::admin::NO_ADMIN;
use super::link::{CreateResponse, Link, NewTopic};
use super::producer::is_passing;
use super::world::World;
use crate::history::Created;

/// Creates the topics; returns when all are there.
pub async fn create_topics(world: Arc<World>, env: Env, topics: Vec<(String, i32)>) {
    let begin = |name: &str| world.history().begin_creation(NO_ADMIN, name, false, world.now_ns());
    let begun: Vec<_> = topics.iter().map(|(name, _)| begin(name)).collect();
    let new = |(name, partitions)| NewTopic { name, partitions, validate_only: false };
    let topics: Vec<_> = topics.into_iter().map(new).collect();
    loop {
        if let Some(link) = Link::open(&world, &env).await
            && let Ok(responses) = link.create_topics(&topics).await
        {
            link.abort();
            let there =
                |response: &CreateResponse| matches!(response.error, ErrorCode::None | ErrorCode::TopicAlreadyExists);
            if responses.iter().all(there) {
                for (creation, response) in begun.iter().zip(responses) {
                    let described = (response.error == ErrorCode::None).then_some(response.topic);
                    let now_ns = world.now_ns();
                    world.history().end_creation(*creation, Created::Done(described), now_ns);
                }
                return;
            }
            for CreateResponse { error, .. } in responses.iter().filter(|one| !there(one) && !is_passing(one.error)) {
                world.complain(format!("CreateTopics is refused: {error}"));
            }
        }
        env.sleep(Duration::from_millis(20)).await;
    }
}
