//! Producers: plain ones, whose every attempt is a send of its own, and idempotent ones, which send the same bytes
//! again until they know the outcome.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use kilo::io::{Env, Monotonic};
use kilo::wire::ErrorCode;
use kilo::wire::batch::BatchBuilder;
use kilo::wire::codec::Codec;
use tokio::sync::mpsc;

use super::link::{Link, Lost, Produced, Versions, attempt_end};
use super::record;
use super::window::{Item, Window};
use super::world::{Phase, World};
use crate::history::{Batch, Outcome, Partition, SendId};
use crate::scenario::Range;

/// What a producer does, drawn by the seed.
#[derive(Clone, Debug)]
pub struct ProducerPlan {
    /// Its number among the producers.
    pub id: u32,
    /// Whether it is idempotent.
    pub idempotent: bool,
    /// 0, 1 or −1.
    pub acks: i16,
    /// Batches in flight.
    pub in_flight: usize,
    /// Records of a batch.
    pub records: Range<u32>,
    /// Bytes of a value.
    pub value_bytes: Range<u32>,
    /// Milliseconds between two batches.
    pub pause_ms: Range<u32>,
    /// Codecs of batches.
    pub codecs: Vec<Codec>,
    /// Where it writes.
    pub partitions: Vec<Partition>,
    /// Versions it speaks.
    pub versions: Versions,
}

/// A producer at work.
pub struct Producer {
    world: Arc<World>,
    env: Env,
    plan: ProducerPlan,
    rng: fastrand::Rng,
    window: Window,
    /// Producer id and epoch, once known.
    identity: Option<(i64, i16)>,
    /// The next sequence number by partition of the plan.
    sequences: Vec<i32>,
    session: u32,
    /// Connections that came about so far.
    connections: u32,
    /// When the next batch is due. What could not be sent in time follows at once: the load does not wait for the broker.
    next_at: Monotonic,
}

type Answered = (SendId, Result<Produced, Lost>);

/// How long a producer waits before it tries again, in milliseconds.
const BACKOFF_MS: Range<u32> = Range(5, 150);

/// Runs a producer until it is told to stop, or has drained.
pub async fn run(world: Arc<World>, env: Env, plan: ProducerPlan) {
    let rng = env.rng("producer");
    let sequences = vec![0; plan.partitions.len()];
    let session = world.next_session();
    let (window, identity, next_at) = (Window::default(), None, env.now());
    let connections = 0;
    let mut producer = Producer { world, env, plan, rng, window, identity, sequences, session, connections, next_at };
    while !producer.is_done() {
        if let Some(link) = Link::open(&producer.world, &producer.env).await {
            producer.connections += 1;
            if !producer.plan.idempotent {
                producer.session = producer.world.next_session();
            }
            producer.serve(&Arc::new(link)).await;
        }
        producer.back_off().await;
    }
}

impl Producer {
    fn phase(&self) -> Phase {
        *self.world.phase().borrow()
    }

    fn is_done(&self) -> bool {
        match self.phase() {
            Phase::Run => false,
            Phase::Drain => self.window.len() == 0,
            Phase::Stop => true,
        }
    }

    fn may_begin(&self) -> bool {
        self.phase() == Phase::Run && self.window.len() < self.plan.in_flight && !self.window.is_held()
    }

    async fn back_off(&mut self) {
        let pause = BACKOFF_MS.draw(&mut self.rng);
        self.env.sleep(Duration::from_millis(pause.into())).await;
    }

    /// Works on one connection until it fails or nothing is left to do.
    async fn serve(&mut self, link: &Arc<Link>) {
        if self.plan.idempotent && self.identity.is_none() && !self.identify(link).await {
            return;
        }
        self.window.all_again();
        let (responses, mut answered) = mpsc::unbounded_channel();
        let mut phase = self.world.phase();
        while !self.is_done() {
            if self.may_begin() && self.env.now() >= self.next_at {
                self.begin();
                let pause = self.plan.pause_ms.draw(&mut self.rng);
                self.next_at = self.next_at + Duration::from_millis(pause.into());
            }
            while let Some(item) = self.window.next_to_send() {
                self.submit(link, item, &responses).await;
            }
            let wait = if self.may_begin() { self.next_at } else { self.env.now() + Duration::from_secs(1) };
            tokio::select! {
                biased;
                Some((send, response)) = answered.recv() => {
                    if self.take(send, response) {
                        break;
                    }
                    if self.window.is_held() || !self.window.is_in_flight() && self.window.len() > 0 {
                        self.back_off().await;
                    }
                }
                _ = phase.changed() => {}
                () = self.env.sleep_until(wait) => {}
            }
        }
        self.give_up(link, responses, answered).await;
    }

    /// The connection is over: what was answered before counts, the rest is unknown.
    async fn give_up(
        &mut self,
        link: &Link,
        responses: mpsc::UnboundedSender<Answered>,
        mut answered: mpsc::UnboundedReceiver<Answered>,
    ) {
        link.abort();
        drop(responses);
        while let Some((send, response)) = answered.recv().await {
            self.take(send, response);
        }
        if !self.plan.idempotent {
            for item in self.window.take_all() {
                self.end(item.send, Outcome::Maybe);
            }
        }
    }

    async fn identify(&mut self, link: &Link) -> bool {
        match link.producer_id().await {
            Ok((ErrorCode::None, id, epoch)) => self.identity = Some((id, epoch)),
            Ok((error, ..)) if !is_passing(error) => {
                self.world.complain(format!("InitProducerId is refused: {error}"));
            }
            Ok(_) | Err(_) => {}
        }
        self.identity.is_some()
    }

    /// Begins a new batch.
    fn begin(&mut self) {
        let at = self.rng.usize(..self.plan.partitions.len());
        let partition = self.plan.partitions[at];
        let codec = self.plan.codecs[self.rng.usize(..self.plan.codecs.len())];
        let count = self.plan.records.draw(&mut self.rng).max(1);
        let mut builder = BatchBuilder::new(codec);
        if let Some((id, epoch)) = self.identity {
            builder = builder.producer(id, epoch, self.sequences[at]);
            self.sequences[at] = self.sequences[at].wrapping_add(count as i32) & i32::MAX;
        }
        let timestamp = self.env.wall().0;
        let mut history = self.world.history();
        let first = history.next_value();
        let mut digests = Vec::with_capacity(count as usize);
        for record in 0..u64::from(count) {
            let bytes = self.plan.value_bytes.draw(&mut self.rng) as usize;
            digests.push(record::push(&mut builder, first + record, bytes, timestamp));
        }
        let (producer, session) = (self.plan.id, self.session);
        let send = history
            .begin_send(Batch { producer, session, partition, timestamp, digests: &digests }, self.world.now_ns());
        drop(history);
        match builder.build() {
            Ok(batch) => self.window.push(send, partition, batch),
            Err(error) => self.world.complain(format!("a batch cannot be built: {error}")),
        }
    }

    /// Sends an item. Its place on the connection is taken when this returns; its answer comes through `responses`.
    async fn submit(&self, link: &Arc<Link>, item: Item, responses: &mpsc::UnboundedSender<Answered>) {
        let Item { send, partition, batch, .. } = item;
        let (acks, version) = (self.plan.acks, self.plan.versions.produce);
        let (link, responses, world) = (link.clone(), responses.clone(), self.world.clone());
        let attempt = world.history().begin_attempt(send, self.connections, link.incarnation, world.now_ns());
        let mut call = Box::pin(async move {
            let response = link.produce(partition, &batch, acks, version).await;
            // Told here, since a producer that waits before it tries again takes the answer later.
            let now_ns = world.now_ns();
            world.history().end_attempt(send, attempt, attempt_end(&response, acks), now_ns);
            (send, response)
        });
        // The first poll queues the request, so that requests leave in the order of these calls.
        let first = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        if let Poll::Ready(response) = first {
            let _ = responses.send(response);
            return;
        }
        self.env.spawn("produce", async move {
            let _ = responses.send(call.await);
        });
    }

    /// Takes an answer; says whether the connection is over.
    fn take(&mut self, send: SendId, response: Result<Produced, Lost>) -> bool {
        match response {
            Err(lost) => {
                let outcome = if lost == Lost::NeverSent { Outcome::Failed } else { Outcome::Maybe };
                self.unless_retried(send, outcome);
                true
            }
            Ok(Produced { error: ErrorCode::None, .. }) if self.plan.acks == 0 => {
                self.window.remove(send);
                self.end(send, Outcome::Maybe);
                false
            }
            Ok(Produced { error: ErrorCode::None, base_offset }) => {
                self.window.remove(send);
                self.end(send, Outcome::Acked { base_offset });
                false
            }
            Ok(Produced { error: ErrorCode::DuplicateSequenceNumber, .. }) if self.plan.idempotent => {
                self.window.remove(send);
                self.end(send, Outcome::AckedSomewhere);
                false
            }
            Ok(Produced { error, .. }) => {
                self.refused(send, error);
                false
            }
        }
    }

    fn refused(&mut self, send: SendId, error: ErrorCode) {
        let out_of_order = error == ErrorCode::OutOfOrderSequenceNumber && self.plan.idempotent;
        if out_of_order && !self.window.is_oldest(send) || is_passing(error) {
            self.unless_retried(send, Outcome::Maybe);
            return;
        }
        let line = self.world.history().describe_send(send);
        let sequence = self.window.sequence(send).map_or_else(String::new, |what| format!(" ({what})"));
        self.world.complain(format!("a good request is refused with {error}: {line}{sequence}"));
        if out_of_order {
            // Tried again forever, so that the run shows whether it heals.
            self.unless_retried(send, Outcome::Maybe);
        } else {
            self.window.remove(send);
            self.end(send, Outcome::Failed);
        }
    }

    /// An idempotent producer will send it again; a plain one is done with it.
    fn unless_retried(&mut self, send: SendId, outcome: Outcome) {
        if self.plan.idempotent {
            self.window.again(send);
        } else {
            self.window.remove(send);
            self.end(send, outcome);
        }
    }

    fn end(&self, send: SendId, outcome: Outcome) {
        let now_ns = self.world.now_ns();
        self.world.history().end_send(send, outcome, now_ns);
    }
}

/// Whether an error may pass by itself while the broker is in trouble.
pub fn is_passing(error: ErrorCode) -> bool {
    // Retriable in general, but this broker leads all there is and has created the topics for good.
    let never = matches!(error, ErrorCode::UnknownTopicOrPartition | ErrorCode::CorruptMessage);
    error.is_retriable() && !never
}
