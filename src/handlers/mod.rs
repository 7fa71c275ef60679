//! One handler for each API: a request in, an answer out. The only place that maps errors to protocol codes.
//!
//! [`handle`] has two halves. The first runs in the order of the requests: whatever a request changes is decided in it,
//! and it is awaited before the next request of the connection is looked at. The second, in [`Response::Deferred`], only
//! waits: for a flush, for data, for a time-out. It is polled when the answers before it have been sent, so that one
//! connection never holds more than one large answer in memory.

mod api_versions;
mod call;
mod config_entries;
mod context;
mod create_topics;
mod describe_configs;
mod fetch;
mod find_coordinator;
mod init_producer_id;
mod list_offsets;
mod metadata;
mod peer;
mod produce;
mod producer_ids;
mod topics;

use std::sync::Arc;

pub use call::{ConnectionError, Incoming, Response, ResponseFrame};
pub use context::{Advertised, BrokerEntry, Context, Settings};
pub use peer::Peer;

use call::Call;
pub(crate) use topics::partition_specs;

use crate::wire::header::RequestHeader;
use crate::wire::{Api, ApiKey};

/// Handles one request.
pub async fn handle(ctx: &Arc<Context>, peer: &Peer, incoming: Incoming) -> Result<Response, ConnectionError> {
    let Incoming { mut frame, holds_up_others } = incoming;
    let frame_len = frame.len();
    let header = RequestHeader::decode(&mut frame)?;
    let Some(key) = ApiKey::from_code(header.api_key) else {
        return Err(ConnectionError::UnknownApi(header.api_key));
    };
    let api = key.api();
    if !api.accepts(header.api_version) {
        if key == ApiKey::ApiVersions {
            return Ok(Response::Ready(api_versions::unsupported(header.correlation_id)?.into()));
        }
        return Err(unknown_version(api, header.api_version));
    }
    let call = Call { version: header.api_version, correlation_id: header.correlation_id };
    match key {
        ApiKey::ApiVersions => call.response(&api_versions::handle(&call.decode(frame)?)),
        ApiKey::Metadata => call.response(&metadata::handle(ctx, peer, call.decode(frame)?, call.version).await),
        ApiKey::Produce => produce::handle(ctx, peer, call, frame, frame_len).await,
        ApiKey::Fetch => Ok(fetch::handle(ctx, call, frame, holds_up_others)),
        ApiKey::ListOffsets => Ok(list_offsets::handle(ctx, call, frame)),
        ApiKey::CreateTopics => call.response(&create_topics::handle(ctx, call.decode(frame)?).await),
        ApiKey::DescribeConfigs => call.response(&describe_configs::handle(ctx, &call.decode(frame)?)),
        ApiKey::FindCoordinator => call.response(&find_coordinator::handle(&call.decode(frame)?, call.version)?),
        ApiKey::InitProducerId => call.response(&init_producer_id::handle(ctx, &call.decode(frame)?).await),
    }
}

fn unknown_version(api: &Api, version: i16) -> ConnectionError {
    ConnectionError::UnknownVersion { api: api.name, version, min: api.advertised_min, max: api.max }
}
