//! FindCoordinator (10). Consumer groups and transactions are not built yet: the answer says so in words, with the code
//! that clients take for "not now".

use super::call::ConnectionError;
use crate::wire::ErrorCode;
use crate::wire::messages::find_coordinator::Coordinator;
use crate::wire::messages::{FindCoordinatorRequestData, FindCoordinatorResponseData, KafkaString, string};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// From this version on, one request asks for many coordinators.
const MANY_FROM: i16 = 4;

/// Coordinators that one request may ask for.
const KEYS_MAX: usize = 10_000;

pub(super) fn handle(
    request: &FindCoordinatorRequestData,
    version: i16,
) -> Result<FindCoordinatorResponseData, ConnectionError> {
    let keys = request.coordinator_keys.len();
    if keys > KEYS_MAX {
        return Err(ConnectionError::TooMany(keys, KEYS_MAX));
    }
    let (error, message) = match request.key_type {
        GROUP => (
            ErrorCode::CoordinatorNotAvailable,
            "Consumer groups are not built in this version of Kilo; read by assignment instead.",
        ),
        TRANSACTION => (ErrorCode::CoordinatorNotAvailable, "Transactions are not built in this version of Kilo."),
        _ => (ErrorCode::InvalidRequest, "There is no coordinator of that type."),
    };
    let coordinator = |key: &KafkaString| Coordinator {
        key: key.clone(),
        node_id: -1,
        port: -1,
        error_code: error.code(),
        error_message: Some(string(message)),
        ..Coordinator::default()
    };
    if version >= MANY_FROM {
        let coordinators = request.coordinator_keys.iter().map(coordinator).collect();
        return Ok(FindCoordinatorResponseData { coordinators, ..FindCoordinatorResponseData::default() });
    }
    Ok(FindCoordinatorResponseData {
        error_code: error.code(),
        error_message: Some(string(message)),
        node_id: -1,
        port: -1,
        ..FindCoordinatorResponseData::default()
    })
}
