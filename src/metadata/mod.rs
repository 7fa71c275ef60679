//! The cluster image: a pure state machine behind a durable, checksummed log.
