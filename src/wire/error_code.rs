//! Error codes of the protocol, by Kafka's names, and whether a client may try again.
//!
//! The list holds the codes that brokers and clients of the APIs built here, and of those planned, can meet.

use std::fmt;

use Retry::{Final, Retriable};

/// Whether the same request can succeed later.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    Final,
    Retriable,
}

macro_rules! error_codes {
    ($($name:ident = $code:literal, $kafka:literal, $retry:ident;)*) => {
        /// An error code in an answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $(
                #[doc = concat!("`", $kafka, "` (", $code, ")")]
                $name,
            )*
            /// A code that is not in this list.
            Unknown(i16),
        }

        impl ErrorCode {
            /// The number on the wire.
            pub const fn code(self) -> i16 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Kafka's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $kafka,)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }

            /// Whether the same request can succeed later: the clients' own list, which decides whether they try again.
            pub fn is_retriable(self) -> bool {
                match self {
                    $(Self::$name => $retry == Retriable,)*
                    Self::Unknown(_) => false,
                }
            }
        }

        impl From<i16> for ErrorCode {
            fn from(code: i16) -> Self {
                match code {
                    $($code => Self::$name,)*
                    code => Self::Unknown(code),
                }
            }
        }
    };
}

error_codes! {
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR", Final;
    None = 0, "NONE", Final;
    OffsetOutOfRange = 1, "OFFSET_OUT_OF_RANGE", Final;
    CorruptMessage = 2, "CORRUPT_MESSAGE", Retriable;
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION", Retriable;
    InvalidFetchSize = 4, "INVALID_FETCH_SIZE", Final;
    LeaderNotAvailable = 5, "LEADER_NOT_AVAILABLE", Retriable;
    NotLeaderOrFollower = 6, "NOT_LEADER_OR_FOLLOWER", Retriable;
    RequestTimedOut = 7, "REQUEST_TIMED_OUT", Retriable;
    BrokerNotAvailable = 8, "BROKER_NOT_AVAILABLE", Final;
    ReplicaNotAvailable = 9, "REPLICA_NOT_AVAILABLE", Retriable;
    MessageTooLarge = 10, "MESSAGE_TOO_LARGE", Final;
    StaleControllerEpoch = 11, "STALE_CONTROLLER_EPOCH", Final;
    OffsetMetadataTooLarge = 12, "OFFSET_METADATA_TOO_LARGE", Final;
    NetworkException = 13, "NETWORK_EXCEPTION", Retriable;
    CoordinatorLoadInProgress = 14, "COORDINATOR_LOAD_IN_PROGRESS", Retriable;
    CoordinatorNotAvailable = 15, "COORDINATOR_NOT_AVAILABLE", Retriable;
    NotCoordinator = 16, "NOT_COORDINATOR", Retriable;
    InvalidTopic = 17, "INVALID_TOPIC_EXCEPTION", Final;
    RecordListTooLarge = 18, "RECORD_LIST_TOO_LARGE", Final;
    NotEnoughReplicas = 19, "NOT_ENOUGH_REPLICAS", Retriable;
    NotEnoughReplicasAfterAppend = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Retriable;
    InvalidRequiredAcks = 21, "INVALID_REQUIRED_ACKS", Final;
    IllegalGeneration = 22, "ILLEGAL_GENERATION", Final;
    InconsistentGroupProtocol = 23, "INCONSISTENT_GROUP_PROTOCOL", Final;
    InvalidGroupId = 24, "INVALID_GROUP_ID", Final;
    UnknownMemberId = 25, "UNKNOWN_MEMBER_ID", Final;
    InvalidSessionTimeout = 26, "INVALID_SESSION_TIMEOUT", Final;
    RebalanceInProgress = 27, "REBALANCE_IN_PROGRESS", Final;
    InvalidCommitOffsetSize = 28, "INVALID_COMMIT_OFFSET_SIZE", Final;
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED", Final;
    GroupAuthorizationFailed = 30, "GROUP_AUTHORIZATION_FAILED", Final;
    ClusterAuthorizationFailed = 31, "CLUSTER_AUTHORIZATION_FAILED", Final;
    InvalidTimestamp = 32, "INVALID_TIMESTAMP", Final;
    UnsupportedSaslMechanism = 33, "UNSUPPORTED_SASL_MECHANISM", Final;
    IllegalSaslState = 34, "ILLEGAL_SASL_STATE", Final;
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION", Final;
    TopicAlreadyExists = 36, "TOPIC_ALREADY_EXISTS", Final;
    InvalidPartitions = 37, "INVALID_PARTITIONS", Final;
    InvalidReplicationFactor = 38, "INVALID_REPLICATION_FACTOR", Final;
    InvalidReplicaAssignment = 39, "INVALID_REPLICA_ASSIGNMENT", Final;
    InvalidConfig = 40, "INVALID_CONFIG", Final;
    NotController = 41, "NOT_CONTROLLER", Retriable;
    InvalidRequest = 42, "INVALID_REQUEST", Final;
    UnsupportedForMessageFormat = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", Final;
    PolicyViolation = 44, "POLICY_VIOLATION", Final;
    OutOfOrderSequenceNumber = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER", Final;
    DuplicateSequenceNumber = 46, "DUPLICATE_SEQUENCE_NUMBER", Final;
    InvalidProducerEpoch = 47, "INVALID_PRODUCER_EPOCH", Final;
    InvalidTxnState = 48, "INVALID_TXN_STATE", Final;
    InvalidProducerIdMapping = 49, "INVALID_PRODUCER_ID_MAPPING", Final;
    InvalidTransactionTimeout = 50, "INVALID_TRANSACTION_TIMEOUT", Final;
    ConcurrentTransactions = 51, "CONCURRENT_TRANSACTIONS", Retriable;
    TransactionCoordinatorFenced = 52, "TRANSACTION_COORDINATOR_FENCED", Final;
    TransactionalIdAuthorizationFailed = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Final;
    SecurityDisabled = 54, "SECURITY_DISABLED", Final;
    OperationNotAttempted = 55, "OPERATION_NOT_ATTEMPTED", Final;
    KafkaStorageError = 56, "KAFKA_STORAGE_ERROR", Retriable;
    LogDirNotFound = 57, "LOG_DIR_NOT_FOUND", Final;
    SaslAuthenticationFailed = 58, "SASL_AUTHENTICATION_FAILED", Final;
    UnknownProducerId = 59, "UNKNOWN_PRODUCER_ID", Final;
    ReassignmentInProgress = 60, "REASSIGNMENT_IN_PROGRESS", Final;
    DelegationTokenAuthDisabled = 61, "DELEGATION_TOKEN_AUTH_DISABLED", Final;
    DelegationTokenNotFound = 62, "DELEGATION_TOKEN_NOT_FOUND", Final;
    DelegationTokenOwnerMismatch = 63, "DELEGATION_TOKEN_OWNER_MISMATCH", Final;
    DelegationTokenRequestNotAllowed = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", Final;
    DelegationTokenAuthorizationFailed = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", Final;
    DelegationTokenExpired = 66, "DELEGATION_TOKEN_EXPIRED", Final;
    InvalidPrincipalType = 67, "INVALID_PRINCIPAL_TYPE", Final;
    NonEmptyGroup = 68, "NON_EMPTY_GROUP", Final;
    GroupIdNotFound = 69, "GROUP_ID_NOT_FOUND", Final;
    FetchSessionIdNotFound = 70, "FETCH_SESSION_ID_NOT_FOUND", Retriable;
    InvalidFetchSessionEpoch = 71, "INVALID_FETCH_SESSION_EPOCH", Retriable;
    ListenerNotFound = 72, "LISTENER_NOT_FOUND", Retriable;
    TopicDeletionDisabled = 73, "TOPIC_DELETION_DISABLED", Final;
    FencedLeaderEpoch = 74, "FENCED_LEADER_EPOCH", Retriable;
    UnknownLeaderEpoch = 75, "UNKNOWN_LEADER_EPOCH", Retriable;
    UnsupportedCompressionType = 76, "UNSUPPORTED_COMPRESSION_TYPE", Final;
    StaleBrokerEpoch = 77, "STALE_BROKER_EPOCH", Final;
    OffsetNotAvailable = 78, "OFFSET_NOT_AVAILABLE", Retriable;
    MemberIdRequired = 79, "MEMBER_ID_REQUIRED", Final;
    PreferredLeaderNotAvailable = 80, "PREFERRED_LEADER_NOT_AVAILABLE", Retriable;
    GroupMaxSizeReached = 81, "GROUP_MAX_SIZE_REACHED", Final;
    FencedInstanceId = 82, "FENCED_INSTANCE_ID", Final;
    EligibleLeadersNotAvailable = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", Retriable;
    ElectionNotNeeded = 84, "ELECTION_NOT_NEEDED", Retriable;
    NoReassignmentInProgress = 85, "NO_REASSIGNMENT_IN_PROGRESS", Final;
    GroupSubscribedToTopic = 86, "GROUP_SUBSCRIBED_TO_TOPIC", Final;
    InvalidRecord = 87, "INVALID_RECORD", Final;
    UnstableOffsetCommit = 88, "UNSTABLE_OFFSET_COMMIT", Retriable;
    ThrottlingQuotaExceeded = 89, "THROTTLING_QUOTA_EXCEEDED", Retriable;
    ProducerFenced = 90, "PRODUCER_FENCED", Final;
    ResourceNotFound = 91, "RESOURCE_NOT_FOUND", Final;
    DuplicateResource = 92, "DUPLICATE_RESOURCE", Final;
    UnacceptableCredential = 93, "UNACCEPTABLE_CREDENTIAL", Final;
    InconsistentVoterSet = 94, "INCONSISTENT_VOTER_SET", Final;
    InvalidUpdateVersion = 95, "INVALID_UPDATE_VERSION", Final;
    FeatureUpdateFailed = 96, "FEATURE_UPDATE_FAILED", Final;
    PrincipalDeserializationFailure = 97, "PRINCIPAL_DESERIALIZATION_FAILURE", Final;
    SnapshotNotFound = 98, "SNAPSHOT_NOT_FOUND", Final;
    PositionOutOfRange = 99, "POSITION_OUT_OF_RANGE", Final;
    UnknownTopicId = 100, "UNKNOWN_TOPIC_ID", Retriable;
    DuplicateBrokerRegistration = 101, "DUPLICATE_BROKER_REGISTRATION", Final;
    BrokerIdNotRegistered = 102, "BROKER_ID_NOT_REGISTERED", Final;
    InconsistentTopicId = 103, "INCONSISTENT_TOPIC_ID", Retriable;
    InconsistentClusterId = 104, "INCONSISTENT_CLUSTER_ID", Final;
    TransactionalIdNotFound = 105, "TRANSACTIONAL_ID_NOT_FOUND", Final;
    FetchSessionTopicIdError = 106, "FETCH_SESSION_TOPIC_ID_ERROR", Retriable;
    IneligibleReplica = 107, "INELIGIBLE_REPLICA", Final;
    NewLeaderElected = 108, "NEW_LEADER_ELECTED", Final;
    OffsetMovedToTieredStorage = 109, "OFFSET_MOVED_TO_TIERED_STORAGE", Final;
    FencedMemberEpoch = 110, "FENCED_MEMBER_EPOCH", Final;
    UnreleasedInstanceId = 111, "UNRELEASED_INSTANCE_ID", Final;
    UnsupportedAssignor = 112, "UNSUPPORTED_ASSIGNOR", Final;
    StaleMemberEpoch = 113, "STALE_MEMBER_EPOCH", Final;
}

impl ErrorCode {
    /// Whether this is a code other than `NONE`.
    pub fn is_error(self) -> bool {
        self != Self::None
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.code()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::ResponseError;

    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_another_implementation() {
        for code in -1..=113 {
            let ours = ErrorCode::from(code);
            assert_eq!(ours.code(), code);
            if code != 0 {
                let theirs = ResponseError::try_from_code(code).map(|error| error.to_string());
                assert!(theirs.is_some_and(|text| text.contains(&camel(ours))), "{ours}");
            }
        }
        assert_eq!(ErrorCode::from(999), ErrorCode::Unknown(999));
    }

    fn camel(code: ErrorCode) -> String {
        format!("{code:?}")
    }
}
