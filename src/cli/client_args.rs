//! What the commands that are clients have in common: where the broker is.

use std::time::Duration;

use clap::Args;

use crate::client::{Cluster, ClusterError, ConnectionConfig};
use crate::io::Env;
use crate::wire::error_code::ErrorCode;

/// Where the broker is.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Brokers to ask first
    #[arg(short, long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092", value_delimiter = ',', value_parser = host_port)]
    pub bootstrap_server: Vec<String>,
}

fn host_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, such as localhost:9092".to_owned()),
    }
}

impl ClientArgs {
    /// Connects. `request_timeout` must be longer than the broker is asked to wait.
    pub(super) async fn connect(&self, env: &Env, request_timeout: Duration) -> Result<Cluster, ClusterError> {
        let config = ConnectionConfig { request_timeout, ..ConnectionConfig::default() };
        Cluster::connect(env, &self.bootstrap_server, config).await
    }
}

/// Whether trying again can help.
pub(super) fn is_retriable(error: &ClusterError) -> bool {
    match error {
        ClusterError::NoBroker { .. } | ClusterError::Leader { .. } | ClusterError::NoLeader { .. } => true,
        ClusterError::Call(_) => true,
        // A topic that is missing stays missing.
        ClusterError::Topic { error, .. } => error.is_retriable() && *error != ErrorCode::UnknownTopicOrPartition,
    }
}
