//! Lists the names of all probes in the sources, so that a campaign can tell which were never hit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let mut names = BTreeSet::new();
    for folder in ["../src", "src"] {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut names)?;
    }
    let list: String = names.iter().map(|name| format!("{name}\n")).collect();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets it"));
    fs::write(out.join("probes.txt"), list)
}

/// Not an example of a comment or test, nor what can never be hit.
fn is_probe(name: &str) -> bool {
    let is_name = name.chars().all(|char| char.is_ascii_lowercase() || "._".contains(char));
    is_name && !name.starts_with("test.") && !name.starts_with("never.")
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let probes = text.split("sometimes!(").skip(1).filter_map(|call| call.trim_start().strip_prefix('"'));
            let found = probes.filter_map(|call| call.split_once('"')).map(|(name, _)| name);
            names.extend(found.filter(|name| is_probe(name)).map(str::to_owned));
        }
    }
    Ok(())
}
