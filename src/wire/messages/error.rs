//! Why a message cannot be read or written.

use crate::api::ApiKey;

/// Why a message cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{message} version {version}: {reason}")]
pub struct MessageError {
    message: &'static str,
    version: i16,
    reason: String,
}

impl MessageError {
    pub(super) fn new(api: ApiKey, version: i16, reason: impl ToString) -> Self {
        Self { message: api.api().name, version, reason: reason.to_string() }
    }
}
