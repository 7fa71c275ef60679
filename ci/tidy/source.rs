//! A file of the tree: its path from the root, its text and, if it is Rust, its tokens.

use std::path::Path;
use std::sync::OnceLock;

use crate::tokens::{self, Token};

/// A text file.
pub struct Source {
    /// From the root of the tree.
    pub path: String,
    /// All of it.
    pub text: String,
    tokens: OnceLock<Vec<Token>>,
    code: OnceLock<Vec<Token>>,
}

impl Source {
    /// A file of that text.
    pub fn new(path: &str, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), text: text.into(), tokens: OnceLock::new(), code: OnceLock::new() }
    }

    /// All tokens of a Rust file.
    pub fn tokens(&self) -> &[Token] {
        self.tokens.get_or_init(|| tokens::parse(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.path)))
    }

    /// Its tokens without those that are compiled for tests alone.
    pub fn code(&self) -> &[Token] {
        self.code.get_or_init(|| tokens::without_tests(self.tokens()))
    }

    /// Whether it holds nothing but tests: `tests.rs`, `…_tests.rs`, and what lies in a folder `tests`.
    pub fn is_test(&self) -> bool {
        Path::new(&self.path).with_extension("").iter().any(|part| {
            let part = part.to_string_lossy();
            part == "tests" || part.ends_with("_tests")
        })
    }

    /// A problem at a line of this file.
    pub fn problem(&self, line: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tests_are_known_by_their_names() {
        let is_test = |path| Source::new(path, "").is_test();
        assert!(
            is_test("src/log/tests.rs") && is_test("src/log/tests/damage.rs") && is_test("src/cli/client_tests.rs")
        );
        assert!(!is_test("src/log/contests.rs") && !is_test("src/log/open.rs"));
    }
}
