//! Which planted faults are switched on: a list in the environment, which every seed's process inherits.

/// Names of planted faults that are switched on, separated by commas.
pub const MUTANTS: &str = "KILO_MUTANTS";

/// The planted faults that the environment names. Only this program looks there, never the broker.
pub fn mutants() -> Vec<String> {
    let names = std::env::var(MUTANTS).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
