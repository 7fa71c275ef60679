//! Admins: create topics, and list all there are, all the time. Every topic has a name of its own.

use std::sync::Arc;
use std::time::Duration;

use kilo::io::Env;
use kilo::wire::ErrorCode;

use super::link::{Link, NewTopic};
use super::producer::is_passing;
use super::world::{Phase, World};
use crate::history::{Created, CreationId, TopicList};
use crate::scenario::Range;

/// In place of an admin's number: whoever prepares a run, and who judges its end.
pub const NO_ADMIN: u32 = u32::MAX;

/// Milliseconds that an admin waits before it tries again.
const BACKOFF_MS: Range<u32> = Range(5, 150);
/// Partitions of a topic.
const PARTITIONS: Range<u32> = Range(1, 3);
/// Chance that all topics are listed after an attempt.
const LIST: f64 = 0.3;
/// Chance that a creation is only to be checked.
const VALIDATE_ONLY: f64 = 0.15;
/// Chance that it cannot be.
const IMPOSSIBLE: f64 = 0.1;

/// What an admin does.
#[derive(Clone, Debug)]
pub struct AdminPlan {
    /// Its number among the admins.
    pub id: u32,
    /// Milliseconds between two creations.
    pub pause_ms: Range<u32>,
}

/// Works until it is told to finish. A creation that was begun is tried until its outcome is known.
pub async fn run(world: Arc<World>, env: Env, plan: AdminPlan) {
    let mut rng = env.rng("admin");
    let mut phase = world.phase();
    let mut open = None;
    while *phase.borrow_and_update() == Phase::Run {
        let link = Link::open(&world, &env).await;
        while let Some(link) = &link {
            let mut begun = match open.take() {
                Some(begun) => begun,
                None => begin(&world, &plan, &mut rng),
            };
            let done = create(&world, link, &mut begun).await;
            if !done {
                open = Some(begun);
            }
            let listed = rng.f64() > LIST || list_topics(&world, link, plan.id).await;
            let pause = if done { plan.pause_ms.draw(&mut rng) } else { BACKOFF_MS.draw(&mut rng) };
            let over = tokio::select! {
                biased;
                _ = phase.changed() => true,
                () = env.sleep(Duration::from_millis(pause.into())) => false,
            };
            if over || !listed {
                break;
            }
        }
        if let Some(link) = link {
            link.abort();
        }
        env.sleep(Duration::from_millis(BACKOFF_MS.draw(&mut rng).into())).await;
    }
}

/// A creation whose outcome is not known yet.
struct Begun {
    id: CreationId,
    topic: NewTopic,
    /// Whether an attempt may have succeeded without our being told.
    may_exist: bool,
}

fn begin(world: &World, plan: &AdminPlan, rng: &mut fastrand::Rng) -> Begun {
    let validate_only = rng.f64() < VALIDATE_ONLY;
    let partitions = if rng.f64() < IMPOSSIBLE { 0 } else { PARTITIONS.draw(rng) as i32 };
    let name = format!("made-{}-{}", plan.id, world.next_session());
    let id = world.history().begin_creation(plan.id, &name, validate_only, world.now_ns());
    Begun { id, topic: NewTopic { name, partitions, validate_only }, may_exist: false }
}

/// Tries once; says whether the outcome is known.
async fn create(world: &World, link: &Link, begun: &mut Begun) -> bool {
    let Begun { id, topic, may_exist } = begun;
    let response = match link.create_topics(std::slice::from_ref(topic)).await {
        Ok(mut responses) => responses.remove(0),
        Err(_) => {
            *may_exist = !topic.validate_only;
            return false;
        }
    };
    let outcome = match response.error {
        ErrorCode::None if topic.validate_only => Created::Failed,
        ErrorCode::None => Created::Done(Some(response.topic)),
        ErrorCode::TopicAlreadyExists if *may_exist => Created::Done(None),
        ErrorCode::InvalidPartitions if topic.partitions == 0 => Created::Failed,
        error if is_passing(error) => {
            *may_exist = !topic.validate_only;
            return false;
        }
        error => {
            world.complain(format!("the creation of {topic:?} is refused: {error}"));
            Created::Failed
        }
    };
    if response.error == ErrorCode::None && topic.partitions == 0 {
        world.complain(format!("a topic without partitions is accepted: {topic:?}"));
    }
    let now_ns = world.now_ns();
    world.history().end_creation(*id, outcome, now_ns);
    true
}

/// Lists all topics; says whether there was an answer.
pub async fn list_topics(world: &World, link: &Link, client: u32) -> bool {
    let began = {
        let now_ns = world.now_ns();
        world.history().stamp(now_ns)
    };
    let Ok(topics) = link.topics().await else { return false };
    let now_ns = world.now_ns();
    let mut history = world.history();
    let ended = history.stamp(now_ns);
    history.topic_lists.push(TopicList { client, began, ended, topics });
    true
}
