//! What all partition logs of a broker share.

use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::config::LogManagerConfig;
use super::space::SpaceGuard;
use super::wal_floor::WalFloor;
use crate::io::Env;
use crate::storage::SegmentContext;
use crate::storage::wal::Wal;

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
    pub(super) stopping: watch::Sender<bool>,
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

    pub(super) fn writers_max(&self) -> usize {
        self.config.write_behind_parallelism.max(1)
    }

    /// Waits, but no longer than until the background tasks are to end; says whether they are not.
    pub(super) async fn pause(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.subscribe();
        tokio::select! { biased;
            _ = stopping.wait_for(|stopping| *stopping) => false,
            () = self.env.sleep(time) => true,
        }
    }
}
