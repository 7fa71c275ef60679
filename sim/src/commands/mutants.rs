//! Planted faults: how many seeds each takes until the check that it names fails.
//!
//! They are patches with a header in plain words:
//!
//! ```text
//! Planted fault: wal.skip_crc
//! Source: Kafka implementation notes
//! Check: corrupt read
//! Scenario: power_loss
//! Seeds: 500
//! ```
//!
//! `Seeds` is within how many it must be found, 50 if not said. The build that runs this must have the patches in it:
//! `ci/mutants` makes one.

use std::fs;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::process::Command;

use kilo_sim::planted;
use kilo_sim::seed_process::{self, Request, Seed};
use kilo_sim::{probes, scenario};

use super::Done;
use crate::args::MutantsArgs;

/// Within how many seeds a planted fault is found, unless it says otherwise.
const SEEDS: u64 = 50;

/// What a patch's header says.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    name: String,
    check: String,
    scenario: String,
    seeds: u64,
}

impl Header {
    fn parse(file: &str, text: &str) -> Result<Self, String> {
        let head = text.split("\ndiff --git").next().unwrap_or_default();
        let find = |key: &str| head.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).map(str::trim);
        let must =
            |key: &str| find(key).map(str::to_owned).ok_or_else(|| format!("{file}: its header has no `{key}: `"));
        must("Source")?;
        let seeds = find("Seeds").map_or(Ok(SEEDS), str::parse).map_err(|error| format!("{file}: Seeds: {error}"))?;
        Ok(Self { name: must("Planted fault")?, check: must("Check")?, scenario: must("Scenario")?, seeds })
    }
}

/// Hunts the planted faults of a folder, or those named. False if one is not found in time.
pub fn hunt(args: &MutantsArgs) -> Done {
    let mut headers = read(&args.folder)?;
    for name in &args.names {
        if !headers.iter().any(|header| header.name == *name) {
            return Err(format!("{} has no planted fault `{name}`", args.folder.display()).into());
        }
    }
    if !args.names.is_empty() {
        headers.retain(|header| args.names.contains(&header.name));
    }
    if let Some(header) = headers.iter().find(|header| !probes::mutants().any(|name| name == header.name)) {
        return Err(super::no_mutant(&header.name).into());
    }
    if let Some(name) = &args.only {
        // In a process of its own, which has this fault planted.
        let header = headers.iter().find(|header| header.name == *name).ok_or("no such planted fault")?;
        return one(header, args.jobs);
    }
    let mut missed = Vec::new();
    for header in &headers {
        let mut again = Command::new(std::env::current_exe()?);
        again.arg("mutants").arg(&args.folder).args(["--only", &header.name, "--jobs", &args.jobs.to_string()]);
        if !again.env(planted::MUTANTS, &header.name).status()?.success() {
            missed.push(header.name.as_str());
        }
    }
    writeln!(
        stdout(),
        "planted faults: {} found, {} missed {}",
        headers.len() - missed.len(),
        missed.len(),
        missed.join(" ")
    )?;
    Ok(missed.is_empty())
}

fn read(folder: &Path) -> Result<Vec<Header>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut headers = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            let text = fs::read_to_string(&path).map_err(failed)?;
            let header = Header::parse(&path.display().to_string(), &text)?;
            scenario::find(&header.scenario).map_err(|error| format!("{}: {error}", path.display()))?;
            headers.push(header);
        }
    }
    headers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(headers)
}

/// Runs seeds until the named check fails.
fn one(header: &Header, jobs: usize) -> Done {
    let mut running: Vec<Seed> = Vec::new();
    let (mut next, mut done, mut reached, mut found) = (0, 0, 0, None);
    let mut others = std::collections::BTreeSet::new();
    loop {
        while running.len() < jobs && next < header.seeds && found.is_none() {
            running.push(Seed::start(&Request::new(&header.scenario, next))?);
            next += 1;
        }
        if running.is_empty() {
            break;
        }
        let mut index = 0;
        while index < running.len() {
            let Some(report) = running[index].poll()? else {
                index += 1;
                continue;
            };
            running.swap_remove(index);
            done += 1;
            reached += u64::from(report.probes.contains_key(&header.name));
            if report.checks().contains_key(header.check.as_str()) {
                found = found.min(Some(report.seed)).or(Some(report.seed));
            } else {
                others.extend(report.checks().into_keys().map(str::to_owned));
            }
        }
        std::thread::sleep(seed_process::LOOK_EVERY);
    }
    let Header { name, check, scenario, .. } = header;
    match found {
        Some(seed) => {
            writeln!(stdout(), "{name:36} found after {:4} seeds by `{check}` ({scenario} seed {seed})", seed + 1)?
        }
        None => {
            let others: Vec<String> = others.into_iter().collect();
            let others = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
            writeln!(
                stdout(),
                "{name:36} NOT FOUND in {done} seeds of {scenario} by `{check}`; reached in {reached}, other checks: {others}"
            )?;
        }
    }
    Ok(found.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_is_expected() {
        let text = "Planted fault: a.b\nSource: X-1\nCheck: lost write\nScenario: mixed\n\nWords.\n\ndiff --git a b\nSeeds: 7\n";
        let header = Header::parse("f", text).unwrap();
        assert_eq!((header.name.as_str(), header.check.as_str(), header.seeds), ("a.b", "lost write", SEEDS));
        let error = Header::parse("f", "Planted fault: a.b\nSource: X-1\nCheck: c\n").unwrap_err();
        assert_eq!(error, "f: its header has no `Scenario: `");
    }
}
