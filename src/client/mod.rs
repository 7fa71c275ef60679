//! Clients of the protocol: the pipelined connection and what is built on it. Uses `io` and `wire` only.
