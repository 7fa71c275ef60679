//! The command line: flags, configuration file and environment become a [`Config`](crate::server::Config); the commands
//! run on the real world. The binaries are thin.

mod client_args;
mod config;
mod config_args;
pub mod consume;
pub mod produce;
mod serve;
mod settings;
mod text;

#[cfg(test)]
mod client_tests;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::io::Env;
use crate::io::real::{RealConfig, RealEnv, print_to_stderr};
use config_args::ConfigArgs;

/// What a command that is a client needs: one connection, and threads for the standard streams.
const CLIENT_THREADS: RealConfig = RealConfig { network_threads: 1, io_threads: 2 };

/// What `--help` shows in front of the commands.
#[derive(Parser, Debug)]
#[command(name = "kilo", version, about, long_about = None, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ConfigArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a broker (also what kilo does without a command)
    Serve(ConfigArgs),
    /// Send lines of standard input as records
    Produce(produce::ProduceArgs),
    /// Print the records of a topic
    Consume(consume::ConsumeArgs),
    /// Show every configuration key with its value, default and meaning
    Config(ConfigArgs),
}

/// Runs the command that the process's arguments ask for.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => serve::run(&cli.serve),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Produce(args)) => client(|env| produce::run(env, args)),
        Some(Command::Consume(args)) => client(|env| consume::run(env, args)),
        Some(Command::Config(args)) => config::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            print_to_stderr(&format!("kilo: {message}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Runs a client.
fn client<F, E>(run: impl FnOnce(Env) -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let real = RealEnv::new(CLIENT_THREADS).map_err(|error| format!("cannot start threads: {error}"))?;
    real.block_on(run(real.env())).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_means_serve() {
        let cli = Cli::parse_from(["kilo", "--set", "a=b", "--set", "c=d"]);
        assert!(cli.command.is_none());
        assert_eq!(cli.serve.set, ["a=b", "c=d"]);
        assert!(
            matches!(Cli::parse_from(["kilo", "serve", "--config", "f"]).command, Some(Command::Serve(args)) if args.config.is_some())
        );
    }
}
