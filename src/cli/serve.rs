//! `kilo serve`: a broker until a signal ends it.

use std::io::IsTerminal as _;
use std::path::Path;

use super::config_args::ConfigArgs;
use super::settings;
use crate::io::real::{LogWriter, RealConfig, RealEnv, log_panics, print_to_stdout};
use crate::server::config::SyncMode;
use crate::server::{Broker, Config};

/// What is logged unless `KILO_LOG` says otherwise.
const LOG_DEFAULT: &str = "info";

pub(super) fn run(args: &ConfigArgs) -> Result<(), String> {
    let config = settings::resolve(args)?;
    let log = LogWriter::stderr().map_err(|error| format!("cannot start a thread for the log: {error}"))?;
    start_logging(log.clone())?;
    let ended = serve(config);
    log.flush_all();
    ended
}

fn serve(mut config: Config) -> Result<(), String> {
    if let Some(warning) = config.without_effect() {
        tracing::warn!("{warning}");
    }
    // Whatever the working directory becomes, and so that messages name a folder that can be found.
    let folder =
        std::path::absolute(&config.log_dirs).map_err(|error| format!("log.dirs={}: {error}", config.log_dirs))?;
    config.log_dirs = folder.to_str().ok_or_else(|| format!("log.dirs={} is not UTF-8", config.log_dirs))?.to_owned();
    let threads = |count: i32| usize::try_from(count).expect("the configuration has positive thread counts");
    let real = RealEnv::new(RealConfig {
        network_threads: threads(config.num_network_threads),
        io_threads: threads(config.num_io_threads),
    })
    .map_err(|error| format!("cannot start threads: {error}"))?;
    let signal = real.shutdown_signal().map_err(|error| format!("cannot listen for signals: {error}"))?;
    let env = real.env();
    real.block_on(async move {
        let broker = Broker::start(env, config.clone()).await.map_err(|error| match error.advice(&config) {
            Some(advice) => format!("{error}. What to do: {advice}"),
            None => error.to_string(),
        })?;
        banner(&config, &broker, &folder);
        let name = signal.await;
        tracing::info!("{name}: finishing requests, flushing, stopping");
        broker.stop().await;
        tracing::info!("stopped");
        Ok(())
    })
}

fn start_logging(log: LogWriter) -> Result<(), String> {
    use tracing_subscriber::EnvFilter;
    let wanted = std::env::var("KILO_LOG").unwrap_or_else(|_| LOG_DEFAULT.to_owned());
    check_filter(&wanted)?;
    let filter = EnvFilter::try_new(&wanted).map_err(|error| format!("KILO_LOG={wanted}: {error}"))?;
    log_panics(log.clone());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || log.clone())
        // It would tell of a line that it cannot make on standard error, by a call that panics where that is gone.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init()
        .map_err(|error| format!("cannot start logging: {error}"))
}

/// A word that is no level would be taken for the name of a module, and switch everything off.
fn check_filter(wanted: &str) -> Result<(), String> {
    let is_level = |word: &str| matches!(word, "off" | "error" | "warn" | "info" | "debug" | "trace");
    for part in wanted.split(',').map(str::trim) {
        let plain = !part.contains(['=', '[', ':']) && !part.starts_with("kilo");
        if plain && !part.is_empty() && !is_level(&part.to_ascii_lowercase()) {
            return Err(format!(
                "KILO_LOG={wanted}: {part} is no level; levels are off, error, warn, info, debug and trace, for one module kilo::log=trace"
            ));
        }
    }
    Ok(())
}

/// What a newcomer needs to know, in a few lines on standard output.
fn banner(config: &Config, broker: &Broker, folder: &Path) {
    let address = broker.local_addr();
    let durability = match config.wal_sync {
        SyncMode::Always => "an acknowledged message is on disk (wal.sync=always)".to_owned(),
        SyncMode::Interval => {
            format!("a power cut loses at most {} ms (wal.sync=interval)", config.wal_sync_interval_ms)
        }
        SyncMode::Os => "a power cut loses what the system had not written (wal.sync=os)".to_owned(),
    };
    let reach =
        if address.ip().is_unspecified() { format!("127.0.0.1:{}", address.port()) } else { address.to_string() };
    let text = format!(
        "Kilo {} listens on {address}\n  data      {}\n  durable   {durability}\n  try       echo hello | kcat -P -b {reach} -t test && kcat -C -b {reach} -t test -e\n",
        env!("CARGO_PKG_VERSION"),
        folder.display(),
    );
    // Nobody may be listening on standard output; the broker runs all the same.
    print_to_stdout(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_is_a_level_or_names_a_module() {
        for good in ["", "info", "DEBUG", "kilo", "kilo::log=trace,warn", "off", "mio=error"] {
            assert_eq!(check_filter(good), Ok(()), "{good}");
        }
        for bad in ["bogus", "info,verbose"] {
            assert!(check_filter(bad).is_err_and(|error| error.contains("levels are")), "{bad}");
        }
    }
}
