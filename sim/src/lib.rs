//! The deterministic simulator: the broker's own code on a virtual clock, network and disk, and the checkers that
//! judge every run.

#[cfg(not(madsim))]
compile_error!(
    "kilo-sim needs `--cfg madsim`, which `.cargo/config.toml` sets. A RUSTFLAGS variable overrides that file: unset it, \
     or add `--cfg madsim` to it."
);

mod cpu_time;
pub mod disk;
pub mod history;
pub mod host;
pub mod net;
pub mod oracle;
pub mod plan;
pub mod planted;
pub mod probes;
pub mod runner;
pub mod scenario;
pub mod seed_process;
pub mod shrink;
pub mod timeline;
pub mod trace;
mod valid;
pub mod workload;
