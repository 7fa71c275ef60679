//! Accepting connections, ordered answers, start and stop of a broker.
