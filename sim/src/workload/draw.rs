//! What a seed makes of a scenario's workload: which clients there are and what each does.

use std::sync::Arc;

use kilo::io::Env;
use kilo::wire::codec::Codec;

use super::admin::{self, AdminPlan};
use super::link::Versions;
use super::producer::{self, ProducerPlan};
use super::reader::{self, ReaderPlan};
use super::world::World;
use crate::history::Partition;
use crate::scenario::{CodecName, Scenario, Workload};

/// The clients of a run.
#[derive(Clone, Debug)]
pub struct Clients {
    /// Topics with their numbers of partitions.
    pub topics: Vec<(String, i32)>,
    /// Milliseconds after which a request counts as lost.
    pub request_timeout_ms: u64,
    producers: Vec<ProducerPlan>,
    readers: Vec<ReaderPlan>,
    admins: Vec<AdminPlan>,
}

/// Draws the clients.
pub fn draw(scenario: &Scenario, rng: &mut fastrand::Rng) -> Clients {
    let count = scenario.topics.count.draw(rng).max(1);
    let topics: Vec<(String, i32)> = (0..count)
        .map(|index| (format!("topic-{index}"), scenario.topics.partitions.draw(rng).max(1) as i32))
        .collect();
    let partitions: u32 = topics.iter().map(|(_, partitions)| *partitions as u32).sum();
    let workload = &scenario.workload;
    let codecs = draw_codecs(workload, rng);
    let (plain, idempotent) = (workload.plain.draw(rng), workload.idempotent.draw(rng));
    let producers =
        (0..plain + idempotent).map(|id| draw_producer(workload, &codecs, id, id >= plain, partitions, rng)).collect();
    let readers =
        (0..workload.readers.draw(rng)).map(|id| draw_reader(workload, &codecs, id, partitions, rng)).collect();
    let request_timeout_ms = workload.request_timeout_ms.draw(rng).into();
    let admins = (0..workload.admins.draw(rng)).map(|id| AdminPlan { id, pause_ms: workload.admin_pause_ms }).collect();
    Clients { topics, request_timeout_ms, producers, readers, admins }
}

/// A non-empty random subset, in order.
fn some_partitions(count: u32, rng: &mut fastrand::Rng) -> Vec<Partition> {
    let mut some: Vec<Partition> = (0..count).filter(|_| rng.u8(..3) > 0).map(Partition).collect();
    if some.is_empty() {
        some.push(Partition(rng.u32(..count)));
    }
    some
}

/// The codecs of a run: some of the scenario's.
fn draw_codecs(workload: &Workload, rng: &mut fastrand::Rng) -> Vec<Codec> {
    let codec = |name: &CodecName| match name {
        CodecName::None => Codec::None,
        CodecName::Gzip => Codec::Gzip,
        CodecName::Snappy => Codec::Snappy,
        CodecName::Lz4 => Codec::Lz4,
        CodecName::Zstd => Codec::Zstd,
    };
    let mut codecs: Vec<Codec> = workload.codecs.iter().filter(|_| rng.bool()).map(codec).collect();
    if codecs.is_empty() {
        codecs.push(Codec::None);
    }
    codecs
}

fn draw_producer(
    workload: &Workload,
    codecs: &[Codec],
    id: u32,
    idempotent: bool,
    partitions: u32,
    rng: &mut fastrand::Rng,
) -> ProducerPlan {
    let acks = if idempotent || rng.f64() < workload.acks_all { -1 } else { i16::from(rng.bool()) };
    ProducerPlan {
        id,
        idempotent,
        acks,
        in_flight: workload.in_flight.draw(rng).clamp(1, 5) as usize,
        records: workload.records,
        value_bytes: workload.value_bytes,
        pause_ms: workload.pause_ms,
        codecs: codecs.to_vec(),
        partitions: some_partitions(partitions, rng),
        versions: Versions::draw(codecs, rng),
    }
}

fn draw_reader(workload: &Workload, codecs: &[Codec], id: u32, partitions: u32, rng: &mut fastrand::Rng) -> ReaderPlan {
    let pick = |from: &[i32], rng: &mut fastrand::Rng| from[rng.usize(..from.len())];
    ReaderPlan {
        id,
        partitions: some_partitions(partitions, rng),
        max_bytes: pick(&[1, 2_000, 50_000, 1 << 20], rng),
        partition_bytes: pick(&[1, 1_000, 20_000, 1 << 20], rng),
        min_bytes: pick(&[0, 1, 1, 1, 5_000], rng),
        max_wait_ms: pick(&[0, 10, 100, 500], rng),
        isolation: rng.i8(0..=1),
        pause_ms: workload.poll_pause_ms,
        jump: pick(&[0, 0, 1, 5], rng) as f64 / 100.0,
        versions: Versions::draw(codecs, rng),
    }
}

impl Clients {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.producers.len() + self.readers.len() + self.admins.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs the client with this number until it is done or told to stop: producers come first, then readers, then
    /// admins.
    pub async fn run(self, index: usize, world: Arc<World>, env: Env) {
        if let Some(plan) = self.producers.get(index) {
            return producer::run(world, env, plan.clone()).await;
        }
        let index = index - self.producers.len();
        if let Some(plan) = self.readers.get(index) {
            return reader::run(world, env, plan.clone()).await;
        }
        if let Some(plan) = self.admins.get(index - self.readers.len()) {
            admin::run(world, env, plan.clone()).await;
        }
    }

    /// Numbers of the admins.
    pub fn admins(&self) -> std::ops::Range<usize> {
        self.producers.len() + self.readers.len()..self.len()
    }

    /// Numbers of the producers.
    pub fn producers(&self) -> std::ops::Range<usize> {
        0..self.producers.len()
    }
}
