//! The table of APIs and versions: written by hand, tested against what is implemented.

/// An API that is implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub enum ApiKey {
    Produce = 0,
    Fetch = 1,
    ListOffsets = 2,
    Metadata = 3,
    FindCoordinator = 10,
    ApiVersions = 18,
    CreateTopics = 19,
    InitProducerId = 22,
    DescribeConfigs = 32,
}

/// What is supported of an API.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    /// Which.
    pub key: ApiKey,
    /// Its name.
    pub name: &'static str,
    /// The lowest version in the answer to ApiVersions. May be below `implemented_min`.
    pub advertised_min: i16,
    /// The lowest version that does its job.
    pub implemented_min: i16,
    /// The highest version.
    pub max: i16,
    /// From this version on, headers and bodies have tagged fields.
    pub flexible_from: i16,
}

const fn api(key: ApiKey, name: &'static str, min: i16, max: i16, flexible_from: i16) -> Api {
    Api { key, name, advertised_min: min, implemented_min: min, max, flexible_from }
}

/// All APIs, by key.
pub const APIS: [Api; 9] = [
    // librdkafka before 2.11.1 compresses only where version 0 is offered; it then uses the highest. Versions below 3
    // carry record formats that are long gone, and are answered with UNSUPPORTED_VERSION.
    Api { advertised_min: 0, ..api(ApiKey::Produce, "Produce", 3, 9, 9) },
    api(ApiKey::Fetch, "Fetch", 4, 12, 12),
    api(ApiKey::ListOffsets, "ListOffsets", 1, 7, 6),
    api(ApiKey::Metadata, "Metadata", 0, 12, 9),
    api(ApiKey::FindCoordinator, "FindCoordinator", 0, 4, 3),
    api(ApiKey::ApiVersions, "ApiVersions", 0, 4, 3),
    api(ApiKey::CreateTopics, "CreateTopics", 2, 7, 5),
    api(ApiKey::InitProducerId, "InitProducerId", 0, 4, 2),
    api(ApiKey::DescribeConfigs, "DescribeConfigs", 1, 4, 4),
];

impl ApiKey {
    /// The API of a number on the wire, if it is implemented.
    pub fn from_code(code: i16) -> Option<Self> {
        APIS.iter().map(|api| api.key).find(|key| key.code() == code)
    }

    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// What is supported of it.
    pub fn api(self) -> &'static Api {
        APIS.iter().find(|api| api.key == self).expect("the table lists every API")
    }
}

impl Api {
    /// Whether a request of that version is understood: its answer may still be that the version is not supported.
    pub fn accepts(&self, version: i16) -> bool {
        (self.advertised_min..=self.max).contains(&version)
    }

    /// Whether that version has tagged fields.
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// The version of the header of answers. Clients read the answer to ApiVersions before they know what the broker
    /// can do, so its header never changed.
    pub fn response_header_version(&self, version: i16) -> i16 {
        i16::from(self.is_flexible(version) && self.key != ApiKey::ApiVersions)
    }

    /// The highest version that both sides can use; `min..=max` is what the broker advertises.
    pub fn negotiate(&self, min: i16, max: i16) -> Option<i16> {
        let version = self.max.min(max);
        (version >= self.implemented_min.max(min)).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiKey as Theirs;

    use super::*;

    #[test]
    fn header_versions_are_those_of_another_implementation() {
        for api in APIS {
            let theirs = Theirs::try_from(api.key.code()).expect("known to them");
            assert_eq!(format!("{theirs:?}"), api.name);
            assert_eq!(ApiKey::from_code(api.key.code()), Some(api.key));
            for version in api.implemented_min..=api.max {
                let flexible = theirs.request_header_version(version) == 2;
                assert_eq!(api.is_flexible(version), flexible, "{} v{version}", api.name);
                assert_eq!(api.response_header_version(version), theirs.response_header_version(version));
            }
        }
        assert!(APIS.is_sorted_by_key(|api| api.key));
    }

    #[test]
    fn negotiation_takes_the_highest_common_version() {
        let fetch = ApiKey::Fetch.api();
        assert_eq!(fetch.negotiate(4, 18), Some(12));
        assert_eq!(fetch.negotiate(0, 11), Some(11));
        assert_eq!(fetch.negotiate(13, 18), None);
        assert_eq!(fetch.negotiate(0, 3), None);
        assert_eq!(ApiKey::Produce.api().negotiate(0, 2), None, "advertised but not implemented");
    }
}
