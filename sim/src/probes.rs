//! The names of all probes and planted faults in the sources of broker and simulator.

/// The names, in their order, without those of situations that cannot be (`never.`).
pub fn names() -> impl Iterator<Item = &'static str> {
    include_str!(concat!(env!("OUT_DIR"), "/probes.txt")).lines()
}

/// The names of the planted faults that this build has.
pub fn mutants() -> impl Iterator<Item = &'static str> {
    include_str!(concat!(env!("OUT_DIR"), "/mutants.txt")).lines()
}

#[cfg(test)]
mod tests {
    #[test]
    fn probes_of_broker_and_simulator_are_listed() {
        let names: Vec<&str> = super::names().collect();
        for one in ["wal.torn_tail", "oracle.beyond_promise", "storage.directory_flush_waits"] {
            assert!(names.contains(&one), "{one}");
        }
        assert!(names.iter().all(|name| !name.starts_with("never.") && !name.starts_with("test.")));
    }
}
