//! The rules of the house for files: how they open, how long they are, and no path of one machine.

use crate::source::Source;

/// The most lines of a Rust file.
const LINES_MAX: usize = 600;
/// Folders at the root of a file system that differ from machine to machine.
const MACHINE_FOLDERS: &[&str] = &["home", "root", "tmp", "Users", "mnt"];

/// What is wrong with one Rust file.
pub fn problems(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    if !source.text.starts_with("//! ") {
        problems.push(source.problem(1, "opens without a '//!' line that says what lives here"));
    }
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        problems.push(source.problem(lines, format!("{lines} lines, more than {LINES_MAX}")));
    }
    problems
}

/// Absolute paths of somebody's machine in one text file. Everything is relative, in a temporary folder, or configured.
pub fn machine_paths(source: &Source) -> Vec<String> {
    let lines = source.text.lines().zip(1..);
    lines
        .filter(|(text, _)| names_machine(text))
        .map(|(_, line)| source.problem(line, "an absolute path of somebody's machine"))
        .collect()
}

/// Whether one of the folders stands at the beginning of a path.
fn names_machine(text: &str) -> bool {
    let goes_on = |before: &str| before.ends_with(|char: char| char.is_ascii_alphanumeric() || "_.".contains(char));
    MACHINE_FOLDERS.iter().any(|folder| text.match_indices(&format!("/{folder}/")).any(|(at, _)| !goes_on(&text[..at])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_opens_with_what_it_is_for() {
        assert!(problems(&Source::new("a.rs", "//! Rings.\n\nfn f() {}\n")).is_empty());
        assert_eq!(problems(&Source::new("a.rs", "use a;\n")).len(), 1);
    }

    #[test]
    fn a_file_is_short() {
        let of_lines = |lines: usize| problems(&Source::new("a.rs", format!("//! A.\n{}", "\n".repeat(lines - 1))));
        assert!(of_lines(600).is_empty());
        assert_eq!(of_lines(601), ["a.rs:601: 601 lines, more than 600"]);
    }

    #[test]
    fn paths_are_relative() {
        let found = |folder: &str, before: &str| machine_paths(&Source::new("a", format!("\n{before}/{folder}/x")));
        assert!(found("etc", "").is_empty());
        assert!(found("tmp", "target").is_empty() && found("home", "..").is_empty());
        assert_eq!(found("tmp", ""), ["a:2: an absolute path of somebody's machine"]);
        assert_eq!(found("Users", "in \"").len(), 1);
    }
}
