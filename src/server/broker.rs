//! A broker from start to stop. `kilo serve` and the simulator start it in the same way.
//!
//! Order of a start: lock the data folder; read the metadata; recover the logs, which makes durable whatever a crash left in
//! the page cache; register, which raises the leader epochs; only then listen. A start that is refused for what it finds in
//! the folder has changed no file there but the lock.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::budget::Budget;
use super::config::{Config, Endpoint, ProduceValidation, SyncMode};
use super::connection::{self, ConnectionContext};
use super::descriptors::{self, Shares};
use super::registry::Registry;
use crate::handlers::{Advertised, BrokerEntry, Context, Settings, partition_specs};
use crate::io::{Env, Listener, Task, is_no_space, is_too_many_open_files};
use crate::log::{LogManager, LogManagerConfig, OpenError, PartitionSpec};
use crate::metadata::{ClusterImage, Command, DataFolder, FolderError, LogError, MetadataStore, ProposeError};
use crate::storage::wal::{WalConfig, WalSync};
use crate::wire::batch::Validation;
use crate::wire::frame::{FrameLimits, REQUEST_FRAME_BYTES_MAX};
use crate::wire::messages::KafkaUuid;

/// The metadata's place in the data folder. No partition's directory has a name without a number at its end.
const METADATA_DIR: &str = "metadata";
/// How long to wait when no connection can be accepted, for lack of descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The metadata cannot be read.
    #[error(transparent)]
    Metadata(#[from] LogError),
    /// The start could not be made known.
    #[error("cannot register with the cluster: {0}")]
    Register(#[from] ProposeError),
    /// A log cannot be opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The address cannot be listened on.
    #[error("cannot listen on {endpoint}: {source}{}", listen_hint(source))]
    Listen {
        /// The configured address.
        endpoint: Endpoint,
        /// Why not.
        source: io::Error,
    },
}

/// What to do when the address cannot be listened on.
fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ". Another program listens there: stop it, or choose another port (--set listeners=127.0.0.1:9093)"
        }
        io::ErrorKind::PermissionDenied => {
            ". Ports below 1024 need privileges: choose a higher one (--set listeners=127.0.0.1:9092)"
        }
        io::ErrorKind::AddrNotAvailable => {
            ". It is no address of this machine: --set listeners=HOST:PORT names one, advertised.listeners what clients are told"
        }
        _ => "",
    }
}

impl StartError {
    /// What helps, where the system's answer alone does not say it.
    pub fn advice(&self, config: &Config) -> Option<String> {
        let causes = std::iter::successors(Some(self as &dyn std::error::Error), |error| error.source());
        let io: Vec<&io::Error> = causes.filter_map(|error| error.downcast_ref()).collect();
        if io.iter().any(|error| is_no_space(error)) {
            return Some(format!(
                "the disk is full: free some space on the disk of {}, and start again",
                config.log_dirs
            ));
        }
        io.iter().any(|error| is_too_many_open_files(error)).then(|| {
            "too many files are open: raise the limit (ulimit -n, or LimitNOFILE= in a systemd unit), and start again"
                .to_owned()
        })
    }
}

/// A running broker.
pub struct Broker {
    pub(super) shared: Arc<ConnectionContext>,
    stop: watch::Sender<bool>,
    accepting: Task,
    local: SocketAddr,
    cluster_id: String,
    folder: Mutex<Option<DataFolder>>,
}

impl Broker {
    /// Starts a broker: when this returns, it serves.
    pub async fn start(env: Env, config: Config) -> Result<Self, StartError> {
        let began = env.now();
        let dir = PathBuf::from(&config.log_dirs);
        let mut rng = env.rng("cluster-id");
        let new_cluster_id = move || KafkaUuid::from_parts(rng.u64(..), rng.u64(..)).to_string();
        let mut folder = DataFolder::open(&env, &dir, config.node_id, new_cluster_id).await?;
        let snapshot_after = u64::try_from(config.metadata_log_snapshot_bytes).unwrap_or(u64::MAX);
        let found = MetadataStore::look(&env, &dir.join(METADATA_DIR), folder.formatted()).await?;
        folder.check(found.holds())?;
        let metadata = found.open(&env, snapshot_after).await?;
        if let Err(error) = folder.format(&env).await {
            metadata.close().await;
            return Err(error.into());
        }
        let shares = shares(&env, &config);
        let (shared, stop, listener) = match Self::open(&env, &config, shares, &folder, &metadata).await {
            Ok(parts) => parts,
            Err(error) => {
                metadata.close().await;
                return Err(error);
            }
        };
        let local = listener.local_addr();
        let accepting = env.spawn_core("accept", accept(Arc::clone(&shared), listener, shares.connections));
        let cluster_id = folder.cluster_id().to_owned();
        tracing::info!(
            "broker {} of cluster {cluster_id} serves on {local} after {:?}",
            config.node_id,
            env.now() - began
        );
        Ok(Self { shared, stop, accepting, local, cluster_id, folder: Mutex::new(Some(folder)) })
    }

    /// What needs the metadata: registration, logs, listener.
    async fn open(
        env: &Env,
        config: &Config,
        shares: Shares,
        folder: &DataFolder,
        metadata: &MetadataStore,
    ) -> Result<(Arc<ConnectionContext>, watch::Sender<bool>, Box<dyn Listener>), StartError> {
        let advertised = config.advertised_listeners.as_ref().unwrap_or(&config.listeners);
        // With the leader epochs of the start before, until nothing refuses this one.
        let defaults = config.topic_defaults();
        let specs = |image: &ClusterImage| -> Vec<PartitionSpec> {
            image.topics().flat_map(|topic| partition_specs(&defaults, topic, config.node_id)).collect()
        };
        let before = specs(&metadata.image());
        let recovered = LogManager::recover(env, log_config(config, shares, folder.path()), before).await?;
        let command = Command::RegisterBroker {
            broker_id: config.node_id,
            host: advertised.host.clone(),
            port: advertised.port,
            rack: (!config.rack.is_empty()).then(|| config.rack.clone()),
            started_ms: env.wall().0,
        };
        match metadata.propose(command).await {
            // It has been known since an earlier start: on a full disk its data can still be read. Nothing is appended while
            // the disk is full; what comes once there is space carries the leader epochs of the start before.
            Err(ProposeError::Storage(why)) if metadata.image().broker(config.node_id).is_some() => {
                tracing::warn!("this start cannot be noted in the metadata, going on as the start before it: {why}");
            }
            Err(error) => {
                recovered.abandon().await;
                return Err(error.into());
            }
            Ok(_) => {}
        }
        let logs = recovered.lead(&specs(&metadata.image())).await;
        let listener = match listen(env, &config.listeners).await {
            Ok(listener) => listener,
            Err(source) => {
                logs.close().await;
                return Err(StartError::Listen { endpoint: config.listeners.clone(), source });
            }
        };
        let settings = settings(config, folder.cluster_id(), listener.local_addr());
        let (stop, stopping) = watch::channel(false);
        let ctx = Context::new(env.clone(), settings, metadata.clone(), logs, stopping.clone());
        Ok((Arc::new(shared(config, ctx, stopping)), stop, listener))
    }

    /// The address that it listens on, with the port that the system chose where the configuration says 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Stops: no new connections or requests, answers that are under way leave within `shutdown.timeout.ms`, everything
    /// is flushed, the data folder is released. Calling it again does nothing more.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        self.accepting.join().await;
        let env = &self.shared.ctx.env;
        tokio::select! { biased;
            () = self.shared.registry.empty() => {}
            // Connections end themselves within this time; the rest is for those that panicked.
            () = env.sleep(self.shared.drain + Duration::from_secs(1)) => self.shared.registry.abort_all(),
        }
        env.sum_up_log_now();
        self.shared.ctx.logs.close().await;
        self.shared.ctx.metadata.close().await;
        drop(self.folder.lock().expect("taking a value out does not panic").take());
    }
}

async fn listen(env: &Env, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
    let addresses = env.net().resolve(&endpoint.to_resolve()).await?;
    let address = addresses.first().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    env.net().listen(*address).await
}

/// Accepts connections until the broker stops.
async fn accept(shared: Arc<ConnectionContext>, listener: Box<dyn Listener>, connections_max: u64) {
    let env = shared.ctx.env.clone();
    let mut stopping = shared.stopping.clone();
    let mut summing_up = std::pin::pin!(env.sum_up_log());
    for id in 0_u64.. {
        let accepted = tokio::select! { biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            accepted = listener.accept() => accepted,
            () = &mut summing_up => return,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                if env.may_log("connections that cannot be accepted", None) {
                    tracing::error!("connections cannot be accepted, trying again until they can: {error}");
                }
                env.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if shared.registry.len() as u64 >= connections_max {
            if env.may_log("connections closed for being too many", Some(stream.peer.ip())) {
                tracing::warn!(
                    "closing the connection from {}: {connections_max} are open, which is the limit (max.connections, or what the limit of open files leaves for it)",
                    stream.peer
                );
            }
            stream.abort.abort();
            continue;
        }
        tracing::debug!("connection {id} from {}", stream.peer);
        shared.registry.insert(id, stream.abort.clone());
        env.spawn("connection", connection::serve(Arc::clone(&shared), id, stream));
    }
}

fn shared(config: &Config, ctx: Context, stopping: watch::Receiver<bool>) -> ConnectionContext {
    let millis = |value: i64| Duration::from_millis(u64::try_from(value).unwrap_or_default());
    let size = |value: i64| usize::try_from(value).unwrap_or_default();
    let produce_bytes_max = size(config.socket_request_max_bytes.into());
    ConnectionContext {
        budget: Budget::new(size(config.queued_max_request_bytes)),
        registry: Registry::new(&ctx.env),
        ctx: Arc::new(ctx),
        limits: FrameLimits::Requests {
            produce_bytes_max,
            other_bytes_max: produce_bytes_max.min(REQUEST_FRAME_BYTES_MAX),
        },
        in_flight_max: size(config.max_requests_in_flight_per_connection.into()),
        idle: (config.connections_max_idle_ms > 0).then(|| millis(config.connections_max_idle_ms)),
        stall: millis(config.socket_request_timeout_ms),
        drain: millis(config.shutdown_timeout_ms),
        stopping,
    }
}

/// Shares out the descriptors, and says so if connections get fewer than the configuration says.
fn shares(env: &Env, config: &Config) -> Shares {
    let limit = env.descriptors_max();
    let wanted = u64::try_from(config.max_connections).unwrap_or_default();
    let io_threads = u64::try_from(config.num_io_threads).unwrap_or_default();
    let shares = descriptors::share(limit, io_threads, &wal_config(config), wanted.max(1));
    if shares.connections < wanted {
        tracing::warn!(
            "max.connections={wanted} is lowered to {}: the limit of {limit} open files (ulimit -n) leaves no more",
            shares.connections
        );
    }
    shares
}

fn wal_config(config: &Config) -> WalConfig {
    let size = |value: i64| u64::try_from(value).unwrap_or_default();
    let interval = Duration::from_millis(size(config.wal_sync_interval_ms));
    WalConfig {
        file_bytes: size(config.wal_file_bytes),
        max_bytes: size(config.wal_max_bytes),
        sync: match config.wal_sync {
            SyncMode::Always => WalSync::Always,
            SyncMode::Interval => WalSync::Interval(interval),
            SyncMode::Os => WalSync::Os,
        },
        ..WalConfig::default()
    }
}

fn log_config(config: &Config, shares: Shares, dir: &Path) -> LogManagerConfig {
    let count = |share: u64| usize::try_from(share).unwrap_or(usize::MAX);
    LogManagerConfig {
        queue_bytes: usize::try_from(config.queue_size).unwrap_or_default(),
        hot_segments_max: count(shares.sealed),
        open_segments_max: count(shares.active),
        producer_id_expiration_ms: config.producer_id_expiration_ms,
        ..LogManagerConfig::new(dir.to_owned(), wal_config(config))
    }
}

fn settings(config: &Config, cluster_id: &str, local: SocketAddr) -> Settings {
    let entries = config
        .entries()
        .into_iter()
        .map(|(key, value)| BrokerEntry {
            name: key.name,
            value,
            kind: key.kind,
            default: key.default,
            set: config.is_set(key.name),
            doc: key.doc,
        })
        .collect();
    Settings {
        node_id: config.node_id,
        cluster_id: cluster_id.to_owned(),
        advertised: advertised(config, local),
        auto_create: config.auto_create_topics_enable,
        num_partitions: config.num_partitions,
        replication_factor: i16::try_from(config.default_replication_factor).unwrap_or(i16::MAX),
        fetch_bytes_max: usize::try_from(config.fetch_max_bytes).unwrap_or_default(),
        fetch_memory_bytes: usize::try_from(config.queued_max_response_bytes).unwrap_or_default(),
        validation: match config.produce_validation {
            ProduceValidation::Strict => Validation::Strict,
            ProduceValidation::Relaxed => Validation::Relaxed,
        },
        topic_defaults: config.topic_defaults(),
        broker_entries: entries,
    }
}

fn advertised(config: &Config, local: SocketAddr) -> Advertised {
    let fixed = |endpoint: &Endpoint| Advertised::Fixed {
        host: endpoint.host.clone(),
        port: if endpoint.port == 0 { local.port() } else { endpoint.port },
    };
    match &config.advertised_listeners {
        None if config.listeners.is_wildcard() => {
            tracing::warn!(
                "listening on all addresses and advertised.listeners is not set: each client is told the address that it reached, which is a guess"
            );
            Advertised::Reached
        }
        None => fixed(&config.listeners),
        Some(endpoint) => {
            if endpoint.is_loopback() && !local.ip().is_loopback() {
                tracing::warn!(
                    "advertised.listeners={endpoint} reaches this broker from this machine alone, though it listens on {local}"
                );
            }
            fixed(endpoint)
        }
    }
}
