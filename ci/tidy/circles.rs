//! Files depend on one another in no circle. A file depends on the file that defines what it names.
//!
//! A `mod.rs` that only declares and re-exports depends on nothing. One that uses what its children define must not
//! define what they use: that is a circle of parent and child. Tests are left out, and so are methods and fields, which
//! are reached without a path.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Meaning, Modules};
use crate::names::{Names, Path, Use};
use crate::source::Source;

/// For each file the files it depends on, with the names that tie it to them.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The circles, each with the names that tie it.
pub fn problems(sources: &[&Source]) -> Vec<String> {
    let graph = graph(sources);
    circles(&graph).iter().map(|circle| describe(&graph, circle)).collect()
}

fn describe(graph: &Graph, circle: &BTreeSet<&str>) -> String {
    let mut text = format!("a circle of {} files:", circle.len());
    for from in circle {
        for (to, names) in graph[*from].iter().filter(|(to, _)| circle.contains(to.as_str())) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            text += &format!("\n    {from} -> {to}: {}", names.join(", "));
        }
    }
    text
}

/// The groups of files of which each reaches each.
fn circles(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reach(graph, file))).collect();
    let both = |file: &str| reached[file].iter().copied().filter(|other| reached[other].contains(file)).collect();
    let circles: BTreeSet<BTreeSet<&str>> = graph.keys().map(|file| both(file)).collect();
    circles.into_iter().filter(|circle| !circle.is_empty()).collect()
}

/// The files that a file depends on, directly or not.
fn reach<'a>(graph: &'a Graph, file: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![file];
    while let Some(from) = open.pop() {
        open.extend(graph[from].keys().map(String::as_str).filter(|to| reached.insert(*to)));
    }
    reached
}

fn graph(sources: &[&Source]) -> Graph {
    let modules = Modules::new(sources);
    let mut graph: Graph = modules.file_names().into_iter().map(|file| (file.to_owned(), BTreeMap::new())).collect();
    for (file, (path, names)) in &modules.files {
        let ties = graph.entry((*file).to_owned()).or_default();
        for (to, name) in ties_of(&modules, path, names) {
            if to != *file {
                ties.entry(to).or_default().insert(name);
            }
        }
    }
    graph
}

/// The files and names that one file names, its own among them.
fn ties_of(modules: &Modules, path: &Path, names: &Names) -> Vec<(String, String)> {
    let is_parent = modules.is_parent(path);
    let imported = names.uses.iter().filter_map(|one| {
        let meaning = modules.meaning(&one.path, &one.module);
        meaning.filter(|meaning| is_used(one, meaning, names, is_parent))
    });
    let spelled = names.mentions.iter().filter_map(|mention| {
        // A single name means something of another file only by an import, which is looked at above, or by a glob.
        let is_glob = |name| !modules.globs(&mention.module).is_empty() && !is_imported(names, name);
        let is_looked_up = mention.path.len() > 1 || is_glob(&mention.path[0]);
        modules.meaning(&mention.path, &mention.module).filter(|_| is_looked_up)
    });
    let items = imported.chain(spelled).filter_map(|meaning| match meaning {
        Meaning::Item { file, name, .. } => Some((file, name)),
        Meaning::Module(_) => None,
    });
    let called = names.mentions.iter().filter(|mention| mention.is_macro && mention.path.len() == 1);
    let from_above = called.filter_map(|mention| {
        let name = &mention.path[0];
        let is_own = modules.meaning(&mention.path, &mention.module).is_some();
        let file = modules.macro_above(name, &mention.module).filter(|_| !is_own)?;
        Some((file.to_owned(), format!("{name}!")))
    });
    items.chain(from_above).collect()
}

fn is_imported(names: &Names, name: &str) -> bool {
    names.uses.iter().any(|one| one.alias.as_deref() == Some(name))
}

/// Whether the file itself uses what it imports, rather than handing it on. A private import can be one for the children
/// only where there are children; a trait may be imported for its methods.
fn is_used(one: &Use, meaning: &Meaning, names: &Names, is_parent: bool) -> bool {
    let Some(alias) = &one.alias else { return !one.is_public };
    let is_trait = matches!(meaning, Meaning::Item { keyword, .. } if keyword == "trait");
    let is_private_use = !one.is_public && (is_trait || !is_parent || alias == "_");
    is_private_use || names.mentions.iter().any(|mention| mention.path[0] == *alias)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Problems of a tree of files, which are given as name and text; `sim/src/lib.rs` is their root.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(name, text)| Source::new(&format!("sim/src/{name}"), *text)).collect();
        problems(&sources.iter().collect::<Vec<_>>())
    }

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        assert_eq!(found(files).join("\n").replace("sim/src/", "").replace("    ", ""), expected.join("\n"));
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a; mod b;");

    #[test]
    fn one_way_is_no_circle() {
        check(&[ROOT, ("a.rs", "use crate::b::B; struct A(B);"), ("b.rs", "pub struct B; // super::a::A")], &[]);
        check(
            &[ROOT, ("a.rs", "use crate::b::B; struct A(B);"), ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; }")],
            &[],
        );
    }

    #[test]
    fn two_files_that_name_one_another_are_a_circle() {
        let expected = ["a circle of 2 files:", "a.rs -> b.rs: B, make", "b.rs -> a.rs: A"];
        let b = ("b.rs", "pub struct B; fn make() -> super::a::A { todo!() }");
        check(&[ROOT, ("a.rs", "use crate::b::{self, B}; struct A(B); fn f() { b::make() }"), b], &expected);
        check(&[ROOT, ("a.rs", "use crate::b::*; struct A(B); fn f() { make() }"), b], &expected);
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines() {
        let parent = ("a/mod.rs", "mod c; mod d; pub use c::C; pub(crate) use self::d::D as E;");
        let root = ("lib.rs", "mod a; pub use a::C;");
        let c = ("a/c.rs", "use super::E; pub struct C(E);");
        check(&[root, parent, c, ("a/d.rs", "pub struct D;")], &[]);
        let expected = ["a circle of 2 files:", "a/c.rs -> a/d.rs: D", "a/d.rs -> a/c.rs: C"];
        check(&[root, parent, c, ("a/d.rs", "pub struct D; fn f() -> crate::C { todo!() }")], &expected);
    }

    #[test]
    fn a_parent_that_defines_what_its_child_uses_must_not_use_the_child() {
        let root = ("lib.rs", "mod a;");
        let child = ("a/c.rs", "use super::Shared; pub fn run(_: Shared) {}");
        check(&[root, ("a/mod.rs", "mod c; pub use c::run; pub struct Shared;"), child], &[]);
        let expected = ["a circle of 2 files:", "a/c.rs -> a/mod.rs: Shared", "a/mod.rs -> a/c.rs: run"];
        check(&[root, ("a/mod.rs", "mod c; pub struct Shared; fn f() { c::run(Shared) }"), child], &expected);
        check(
            &[root, ("a/mod.rs", "mod c; pub use c::run; pub struct Shared; fn f() { run(Shared) }"), child],
            &expected,
        );
    }

    #[test]
    fn macros_are_followed_too() {
        let root = ("lib.rs", "mod a; mod b;");
        let a = ("a.rs", "#[macro_export] macro_rules! m { () => { $crate::b::f() } }");
        check(&[root, a, ("b.rs", "pub fn f() {}")], &[]);
        check(
            &[root, a, ("b.rs", "pub fn f() { crate::m!() }")],
            &["a circle of 2 files:", "a.rs -> b.rs: f", "b.rs -> a.rs: m"],
        );
    }
}
