//! The `kilo` binary: a thin wrapper around [`kilo::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    kilo::cli::main()
}
