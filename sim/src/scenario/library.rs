//! The scenarios that come with the repository.

use std::fs;
use std::path::{Path, PathBuf};

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

pub(super) fn nearest<'a>(wrong: &str, right: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = right.map(|name| (strsim::jaro_winkler(wrong, name), name));
    scored.filter(|(score, _)| *score > 0.7).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// Refuses names that are not among the right ones.
pub(super) fn all_known<'a>(
    key: &str,
    kind: &str,
    names: impl Iterator<Item = &'a String>,
    right: &[&str],
) -> Result<(), String> {
    let mut wrong = names.filter(|name| !right.contains(&name.as_str()));
    wrong.next().map_or(Ok(()), |wrong| {
        let near = nearest(wrong, right.iter().copied());
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Err(format!("`{key}` names `{wrong}`, which is no {kind}{near}"))
    })
}

/// Adds the nearest right key to the parser's message about a wrong one, which lists all right ones in backticks.
pub(super) fn with_suggestion(message: &str) -> String {
    let Some((_, unknown)) = message.split_once("unknown field").or_else(|| message.split_once("unknown variant"))
    else {
        return message.to_owned();
    };
    let mut quoted = unknown.split('`').skip(1).step_by(2);
    let Some(wrong) = quoted.next() else { return message.to_owned() };
    match nearest(wrong, quoted) {
        Some(right) => format!("{}\ndid you mean `{right}`?", message.trim_end()),
        None => message.to_owned(),
    }
}
