//! InitProducerId (22): an id for an idempotent producer.

use super::context::Context;
use crate::wire::ErrorCode;
use crate::wire::messages::{InitProducerIdRequestData, InitProducerIdResponseData};

pub(super) async fn handle(ctx: &Context, request: &InitProducerIdRequestData) -> InitProducerIdResponseData {
    let failed = |error: ErrorCode| InitProducerIdResponseData {
        error_code: error.code(),
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponseData::default()
    };
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return failed(ErrorCode::InvalidRequest);
    }
    match &request.transactional_id {
        Some(id) if id.as_str().is_empty() => return failed(ErrorCode::InvalidRequest),
        // Final for every client: transactions are not built yet.
        Some(_) => return failed(ErrorCode::UnsupportedVersion),
        None => {}
    }
    // An idempotent producer that already has an id gets a new one all the same, as in Kafka.
    match ctx.producer_ids.next().await {
        Ok(producer_id) => {
            InitProducerIdResponseData { producer_id, producer_epoch: 0, ..InitProducerIdResponseData::default() }
        }
        Err(error) => {
            if ctx.env.may_log("producer ids that could not be given out", None) {
                tracing::warn!("no producer id could be given out: {error}");
            }
            failed(ErrorCode::CoordinatorLoadInProgress)
        }
    }
}
