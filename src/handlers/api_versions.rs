//! ApiVersions (18): what this broker offers. Clients ask before they know which versions both sides share.

use crate::wire::frame::Pieces;
use crate::wire::messages::api_versions::ApiVersion;
use crate::wire::messages::{ApiVersionsRequestData, ApiVersionsResponseData, encode_response};
use crate::wire::{APIS, Api, ApiKey, ErrorCode};

use super::call::ConnectionError;

pub(super) fn handle(request: &ApiVersionsRequestData) -> ApiVersionsResponseData {
    let versions_3_up = !request.client_software_name.is_empty() || !request.client_software_version.is_empty();
    let named = is_software_name(request.client_software_name.as_str())
        && is_software_name(request.client_software_version.as_str());
    if versions_3_up && !named {
        return ApiVersionsResponseData {
            error_code: ErrorCode::InvalidRequest.code(),
            ..ApiVersionsResponseData::default()
        };
    }
    ApiVersionsResponseData { api_keys: APIS.iter().map(offer).collect(), ..ApiVersionsResponseData::default() }
}

/// The answer to a version that is not known here: in the oldest form, with what a client needs to ask again.
pub(super) fn unsupported(correlation_id: i32) -> Result<Pieces, ConnectionError> {
    let response = ApiVersionsResponseData {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: vec![offer(ApiKey::ApiVersions.api())],
        ..ApiVersionsResponseData::default()
    };
    Ok(encode_response(&response, 0, correlation_id)?.into())
}

fn offer(api: &Api) -> ApiVersion {
    ApiVersion {
        api_key: api.key.code(),
        min_version: api.advertised_min,
        max_version: api.max,
        ..ApiVersion::default()
    }
}

/// Letters, digits, `-` and `.`, the last two not at the ends.
fn is_software_name(name: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names() {
        for (name, good) in [("kcat", true), ("a-b.1", true), ("", false), ("-a", false), ("a.", false), ("a b", false)]
        {
            assert_eq!(is_software_name(name), good, "{name:?}");
        }
    }
}
