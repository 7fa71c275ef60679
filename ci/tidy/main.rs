//! The layout is the layer diagram, and this test keeps it so: imports run downward, files depend on one another in no
//! circle, and the rules of the house hold. It reads the sources as tokens, as the compiler does, so that comments and
//! strings are never taken for code.
//!
//! Each rule is a module with a function from sources to problems, and tests that show what it lets pass and what it
//! refuses. The tests in this file apply the rules to the tree.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it reads the sources and asks git for their names"
)]

mod bans;
mod circles;
mod house;
mod layers;
mod modules;
mod names;
mod seam;
mod source;
mod tokens;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use source::Source;

/// All text files that git knows of or would take, in the order of their names.
static TEXTS: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = git.output().expect("git lists the files of the tree");
    assert!(listed.status.success(), "git: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).expect("names of files are UTF-8");
    let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    // A file that is deleted and not yet committed is still listed; what is no text is no concern of these rules.
    let text = |path: &&str| Some(Source::new(path, fs::read_to_string(root.join(path)).ok()?));
    paths.iter().filter_map(text).collect()
});

/// The Rust files among them.
fn rust() -> impl Iterator<Item = &'static Source> {
    TEXTS.iter().filter(|source| source.path.ends_with(".rs"))
}

/// The broker's Rust files.
fn broker() -> impl Iterator<Item = &'static Source> {
    rust().filter(|source| source.path.starts_with("src/"))
}

/// Fails with everything that is wrong.
#[track_caller]
fn check(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_tree_is_read() {
    assert!(broker().count() > 100 && rust().any(|source| source.path == "sim/src/lib.rs"), "sources are missing");
}

#[test]
fn imports_run_downward() {
    check(broker().flat_map(layers::problems).collect());
}

#[test]
fn no_circles_of_files() {
    let files: Vec<&Source> = rust().collect();
    check(circles::problems(&files));
}

#[test]
fn files_are_headed_and_short() {
    check(rust().flat_map(house::problems).collect());
}

#[test]
fn no_path_of_one_machine() {
    check(TEXTS.iter().filter(|source| source.path != "LICENSE").flat_map(house::machine_paths).collect());
}

#[test]
fn nothing_reaches_around_the_seam() {
    check(broker().flat_map(seam::problems).collect());
}

#[test]
fn every_select_is_biased() {
    check(rust().flat_map(seam::unbiased).collect());
}

#[test]
fn nothing_prints_but_the_command_line() {
    check(seam::prints(broker()));
}

#[test]
fn every_ban_says_why() {
    let list = TEXTS.iter().find(|source| source.path == ".clippy.toml").expect("there is a list of bans");
    check(bans::problems(&list.text));
}
