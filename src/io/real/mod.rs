//! The implementation of the seam on tokio and the file system.
