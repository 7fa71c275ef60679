//! The partition log: offsets, append, read, producer state, epochs, recovery.
