//! The write-ahead log: one per broker, shared by all partitions, group commit.
