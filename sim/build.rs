//! Lists the names of all probes and planted faults in the sources, so that a campaign can tell which probes were never
//! hit, and whether a planted fault is in this build.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let folders = ["../src", "src"];
    let mut sources = Vec::new();
    for folder in folders {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut sources)?;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets it"));
    fs::write(out.join("probes.txt"), names("sometimes!(", &sources))?;
    fs::write(out.join("mutants.txt"), names("mutant!(", &sources))
}

/// The texts of the sources, without their comments.
fn collect(folder: &Path, sources: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            sources
                .push(text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n"));
        }
    }
    Ok(())
}

/// The first arguments of all calls of a macro, one a line.
fn names(call: &str, sources: &[String]) -> String {
    let calls = sources.iter().flat_map(|text| text.split(call).skip(1));
    let names = calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split_once('"')).map(|(name, _)| name);
    let names: BTreeSet<&str> = names.filter(|name| is_name(name)).collect();
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// Not an example of a test, nor what can never be hit.
fn is_name(name: &str) -> bool {
    let is_name = name.chars().all(|char| char.is_ascii_lowercase() || "._".contains(char));
    is_name && !name.starts_with("test.") && !name.starts_with("never.")
}
