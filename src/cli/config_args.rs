//! The arguments of those commands that need the configuration.

use clap::Args;

/// Where the configuration comes from: --set goes before KILO_… variables, those before the file, that before defaults.
#[derive(Args, Debug, Default)]
pub(super) struct ConfigArgs {
    /// A configuration file (TOML; put keys in quotes: "log.dirs" = "data")
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<std::path::PathBuf>,
    /// One setting; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
}
