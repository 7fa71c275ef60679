//! Command line: flags, files and variables become a `Config`; the binaries are thin.
