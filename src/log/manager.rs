//! All partition logs of a broker over one write-ahead log: opening, creating, and the tasks that write behind,
//! checkpoint and watch the free space.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::config::{LogConfig, LogManagerConfig};
use super::error::OpenError;
use super::partition::{PartitionLog, Recovered};
use super::recovery;
use super::segments::Segments;
use super::space::SpaceGuard;
use super::wal_floor::WalFloor;
use crate::io::{Env, Task};
use crate::storage::wal::Wal;
use crate::storage::{Lsn, PartitionKey, SegmentContext};

/// How often the free space is measured when nothing asks for it.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait between two attempts to relieve the write-ahead log.
const PRESSURE_PAUSE: Duration = Duration::from_millis(10);

/// What all partition logs share.
pub(super) struct LogContext {
    pub(super) env: Env,
    pub(super) config: LogManagerConfig,
    pub(super) wal: Wal,
    pub(super) segments: SegmentContext,
    pub(super) wal_floor: WalFloor,
    pub(super) space: SpaceGuard,
    /// Bounds the partitions written behind at the same time. Closed when the logs are.
    pub(super) writers: Semaphore,
    /// Asks the background tasks to end. They are never cancelled: one that was in the middle of an append or a roll
    /// would leave files and memory apart.
    stopping: watch::Sender<bool>,
}

/// The clock by which producers are idle, in milliseconds: monotonic, for the wall clock may be set by years at any time.
pub(super) fn producer_clock(env: &Env) -> i64 {
    env.now().as_millis()
}

impl LogContext {
    /// See [`producer_clock`].
    pub(super) fn producer_clock(&self) -> i64 {
        producer_clock(&self.env)
    }

    fn writers_max(&self) -> usize {
        self.config.write_behind_parallelism.max(1)
    }

    /// Waits, but no longer than until the background tasks are to end; says whether they are not.
    async fn pause(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.subscribe();
        tokio::select! { biased;
            _ = stopping.wait_for(|stopping| *stopping) => false,
            () = self.env.sleep(time) => true,
        }
    }
}

/// A partition as the cluster's metadata describes it.
#[derive(Clone, Debug)]
pub struct PartitionSpec {
    /// Which partition.
    pub key: PartitionKey,
    /// The topic's name: directories and files are named after it.
    pub topic: String,
    /// The epoch in which this broker leads it.
    pub leader_epoch: i32,
    /// The topic's settings.
    pub config: LogConfig,
}

/// All partition logs of a broker.
pub struct LogManager {
    shared: Arc<LogContext>,
    partitions: Arc<RwLock<BTreeMap<PartitionKey, Arc<PartitionLog>>>>,
    background: Vec<Task>,
}

impl LogManager {
    /// Opens the write-ahead log and all partitions. When it answers, everything that was recovered is durable, outside
    /// the write-ahead log if there is space: a power cut right after loses nothing that is served.
    pub async fn open(env: &Env, config: LogManagerConfig, partitions: Vec<PartitionSpec>) -> Result<Self, OpenError> {
        let context = SegmentContext::new(env.clone(), config.hot_segments_max, config.open_segments_max);
        let recovered = recovery::recover(env, &context, &config, partitions).await?;
        let space = SpaceGuard::new(env.clone(), config.data_dir.clone(), config.free_space_reserve);
        let shared = Arc::new(LogContext {
            env: env.clone(),
            wal: recovered.wal,
            segments: context,
            wal_floor: WalFloor::default(),
            space,
            writers: Semaphore::new(config.write_behind_parallelism.max(1)),
            stopping: watch::Sender::new(false),
            config,
        });
        let logs = recovered.partitions.into_iter().map(|(spec, state)| {
            let log = PartitionLog::new(spec.key, Arc::clone(&shared), spec.config, spec.leader_epoch, state);
            (spec.key, log)
        });
        let logs: BTreeMap<_, _> = logs.collect();
        shared.space.measure_at_start(logs.values().map(|log| log.unwritten_bytes()).sum()).await;
        // Nothing that was replayed is needed but what the partitions still need.
        shared.wal_floor.seen(shared.wal.next_lsn());
        shared.wal.release(shared.wal_floor.floor());
        let partitions = Arc::new(RwLock::new(logs));
        let mut manager = Self { shared, partitions, background: Vec::new() };
        manager.start_background();
        Ok(manager)
    }

    /// A partition's log.
    pub fn partition(&self, key: &PartitionKey) -> Option<Arc<PartitionLog>> {
        self.partitions.read().expect("no holder of the lock panics").get(key).cloned()
    }

    /// All partition logs, in the order of their keys.
    pub fn all(&self) -> Vec<Arc<PartitionLog>> {
        snapshot(&self.partitions)
    }

    /// Adds an empty partition, which must be durable in the metadata already. Its directory is made when its first
    /// records are written behind; until then the write-ahead log alone holds them. Existing is fine.
    pub fn create(&self, spec: PartitionSpec) -> Result<Arc<PartitionLog>, OpenError> {
        let segments = Segments::empty(&self.shared.env, &self.shared.segments, &self.shared.config.data_dir, &spec)?;
        let mut partitions = self.partitions.write().expect("no holder of the lock panics");
        let log = partitions.entry(spec.key).or_insert_with(|| {
            let nothing = Recovered::nothing(segments);
            PartitionLog::new(spec.key, Arc::clone(&self.shared), spec.config, spec.leader_epoch, nothing)
        });
        Ok(Arc::clone(log))
    }

    /// Takes no more appends, writes and flushes everything, and ends the background tasks.
    pub async fn close(&self) {
        let logs = self.all();
        for log in &logs {
            log.close();
        }
        self.shared.wal.close().await;
        self.shared.stopping.send_replace(true);
        for task in &self.background {
            task.join().await;
        }
        for log in logs {
            // What cannot be written now is in the write-ahead log at the next start.
            let _ = log.checkpoint_all().await;
        }
        // Who still writes behind comes to an end, and nobody begins: the folder is about to be another's.
        let all = u32::try_from(self.shared.writers_max()).unwrap_or(u32::MAX);
        let _all_writers = self.shared.writers.acquire_many(all).await;
        self.shared.writers.close();
    }

    fn start_background(&mut self) {
        let (shared, partitions) = (Arc::clone(&self.shared), Arc::clone(&self.partitions));
        self.background.push(self.shared.env.spawn_core("log-sweep", async move {
            let mut pressure = shared.wal.pressure();
            loop {
                let is_wanted = tokio::select! { biased;
                    () = wanting(&mut pressure) => true,
                    goes_on = shared.pause(shared.config.write_behind_delay) => {
                        if !goes_on {
                            break;
                        }
                        false
                    }
                };
                if is_wanted && !relieve(&shared, &partitions).await {
                    break;
                }
                sweep(&shared, &partitions);
            }
        }));
        let (shared, partitions) = (Arc::clone(&self.shared), Arc::clone(&self.partitions));
        self.background.push(self.shared.env.spawn_core("log-space", async move {
            loop {
                let goes_on = tokio::select! { biased;
                    () = shared.space.look_asked() => shared.pause(SPACE_INTERVAL / 10).await,
                    goes_on = shared.pause(SPACE_INTERVAL) => goes_on,
                };
                if !goes_on {
                    break;
                }
                let unwritten = holding_the_floor(&shared, &partitions).iter().map(|log| log.unwritten_bytes()).sum();
                shared.space.measure(unwritten).await;
            }
        }));
    }
}

/// Resolves when the write-ahead log asks for a release.
async fn wanting(pressure: &mut tokio::sync::watch::Receiver<Lsn>) {
    // Its sender lives as long as the log that this task holds.
    let _ = pressure.wait_for(|&below| below > Lsn::default()).await;
}

fn snapshot(partitions: &RwLock<BTreeMap<PartitionKey, Arc<PartitionLog>>>) -> Vec<Arc<PartitionLog>> {
    partitions.read().expect("no holder of the lock panics").values().cloned().collect()
}

/// Partitions with data that only the write-ahead log holds for sure, oldest first.
fn holding_the_floor(
    shared: &LogContext,
    partitions: &RwLock<BTreeMap<PartitionKey, Arc<PartitionLog>>>,
) -> Vec<Arc<PartitionLog>> {
    let partitions = partitions.read().expect("no holder of the lock panics");
    shared.wal_floor.oldest().iter().filter_map(|(key, _)| partitions.get(key).cloned()).collect()
}

/// Starts writing what has waited long enough.
fn sweep(shared: &LogContext, partitions: &RwLock<BTreeMap<PartitionKey, Arc<PartitionLog>>>) {
    for log in holding_the_floor(shared, partitions) {
        log.start_writing_if_due();
    }
}

/// The write-ahead log is near its limit: checkpoint the partitions that keep most of it until it has what it asks for.
/// Says whether to go on: not if the background tasks are to end.
async fn relieve(shared: &LogContext, partitions: &RwLock<BTreeMap<PartitionKey, Arc<PartitionLog>>>) -> bool {
    crate::sometimes!("log.wal_pressure");
    for log in holding_the_floor(shared, partitions) {
        let wanted = *shared.wal.pressure().borrow();
        if wanted <= shared.wal_floor.floor() || *shared.stopping.borrow() {
            break;
        }
        // The next one would fare no better.
        if log.checkpoint_all().await.is_err() {
            if !shared.pause(SPACE_INTERVAL).await {
                return false;
            }
            break;
        }
    }
    // What is being reported at this moment keeps the floor for a while: do not spin on it.
    shared.wal.release(shared.wal_floor.floor());
    shared.pause(PRESSURE_PAUSE).await
}
