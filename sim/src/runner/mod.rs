//! Runs one seed of a scenario: a [`Run`] becomes a [`Report`].

mod broker;
mod clients;
mod execute;
pub(crate) mod report;
mod seed;
mod spec;

pub use report::{Failure, Report};
pub use seed::{CHECKS, clients, run};
pub use spec::Run;
