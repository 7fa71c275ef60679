//! The scenarios that come with the repository.

use std::fs;
use std::path::{Path, PathBuf};

use super::suggest::nearest;
use super::{Scenario, ScenarioError};

/// The folder `scenarios/`: of the checkout that the simulator was built from, or below the current directory.
pub fn folder() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    if built.is_dir() { built } else { PathBuf::from("scenarios") }
}

/// All names, sorted.
pub fn names() -> Result<Vec<String>, ScenarioError> {
    let path = folder();
    let failed = |error| ScenarioError::Read { path: path.clone(), error };
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let (Some("toml"), Some(stem)) = (path.extension().and_then(|it| it.to_str()), path.file_stem()) {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Reads a scenario by its name, or from a file by its path.
pub fn find(name: &str) -> Result<Scenario, ScenarioError> {
    let path = if name.ends_with(".toml") { PathBuf::from(name) } else { folder().join(format!("{name}.toml")) };
    if !path.exists() {
        let names = names()?;
        let nearest = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
        return Err(ScenarioError::Unknown { name: name.to_owned(), nearest });
    }
    let text = fs::read_to_string(&path).map_err(|error| ScenarioError::Read { path: path.clone(), error })?;
    let stem = path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    Scenario::parse(&stem, &text)
}
