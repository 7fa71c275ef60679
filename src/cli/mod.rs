//! Command line: flags, files and variables become a `Config`; the binaries are thin.

mod client_args;
pub mod consume;
pub mod produce;
mod text;

#[cfg(test)]
mod client_tests;
