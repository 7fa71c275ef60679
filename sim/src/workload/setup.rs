//! What happens before the load: the topics are created.

use std::sync::Arc;
use std::time::Duration;

use kilo::io::Env;
use kilo::wire::ErrorCode;

use super::link::Link;
use super::producer::is_passing;
use super::world::World;

/// Creates the topics; returns when all are there.
pub async fn create_topics(world: Arc<World>, env: Env, topics: Vec<(String, i32)>) {
    loop {
        if let Some(link) = Link::open(&world, &env).await
            && let Ok(errors) = link.create_topics(&topics).await
        {
            link.abort();
            let there = |error: &ErrorCode| matches!(error, ErrorCode::None | ErrorCode::TopicAlreadyExists);
            if errors.len() == topics.len() && errors.iter().all(there) {
                return;
            }
            for error in errors.into_iter().filter(|error| !there(error) && !is_passing(*error)) {
                world.complain(format!("CreateTopics is refused: {error}"));
            }
        }
        env.sleep(Duration::from_millis(20)).await;
    }
}
