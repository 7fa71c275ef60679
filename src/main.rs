//! The `kilo` binary: a thin wrapper around [`kilo::cli`].
fn main() {}
