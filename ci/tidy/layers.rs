//! Imports run downward: a folder of `src/` is a layer, and names only the layers below it.

use std::collections::BTreeSet;

use crate::names::{self, Path, absolute};
use crate::source::Source;

/// Top to bottom.
const LAYERS: &[&str] =
    &["cli", "server", "handlers", "groups", "metadata", "replication", "log", "storage", "client", "wire", "io"];
/// Layers that stand on less than all that is below them.
const STAND_ON: &[(&str, &[&str])] = &[("client", &["wire", "io"]), ("wire", &[])];
/// Layers that are packages, with `lib.rs` in their folder.
const PACKAGES: &[&str] = &["client", "io", "wire"];

/// What is wrong with the imports of one file of `src/`.
pub fn problems(source: &Source) -> Vec<String> {
    let path = source.path.strip_prefix("src/").unwrap_or(&source.path);
    if matches!(path, "lib.rs" | "main.rs") {
        return Vec::new();
    }
    let Some((from, within)) = path.split_once('/') else {
        return vec![format!("{}: src/ holds one folder for each layer", source.path)];
    };
    if !LAYERS.contains(&from) {
        return vec![format!("{}: '{from}' is no layer", source.path)];
    }
    let mut problems = BTreeSet::new();
    let names = names::names(source.tokens(), &module(from, within));
    let uses = names.uses.iter().map(|one| (&one.path, &one.module, one.line));
    let mentions = names.mentions.iter().map(|mention| (&mention.path, &mention.module, mention.line));
    for (path, module, line) in uses.chain(mentions) {
        let Some(to) = absolute(path, module).and_then(|path| layer(&path)) else { continue };
        if let Some(problem) = judge(from, to) {
            problems.insert((line, problem));
        }
    }
    problems.into_iter().map(|(line, problem)| source.problem(line, problem)).collect()
}

/// The name of a file as a module.
fn module(layer: &str, within: &str) -> Path {
    let parts = within.trim_end_matches(".rs").split('/').filter(|part| !matches!(*part, "lib" | "mod"));
    let base = if PACKAGES.contains(&layer) {
        vec![format!("kilo_{layer}")]
    } else {
        vec!["kilo".to_owned(), layer.to_owned()]
    };
    base.into_iter().chain(parts.map(str::to_owned)).collect()
}

/// The layer that an absolute path is in. `None` for the root of the package, and what is no layer.
fn layer(path: &[String]) -> Option<&'static str> {
    let name = match path[0].strip_prefix("kilo_") {
        Some(package) => package,
        None => path.get(1)?,
    };
    LAYERS.iter().copied().find(|layer| *layer == name)
}

fn judge(from: &str, to: &str) -> Option<String> {
    let rank = |layer| LAYERS.iter().position(|other| *other == layer);
    if from == to {
        return None;
    }
    if rank(to) < rank(from) {
        return Some(format!("'{from}' imports '{to}', which is a layer above it"));
    }
    let (_, below) = STAND_ON.iter().find(|(layer, _)| *layer == from)?;
    let on = if below.is_empty() { "no other layer".to_owned() } else { format!("{} alone", below.join(" and ")) };
    (!below.contains(&to)).then(|| format!("'{from}' stands on {on}, and imports '{to}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        problems(&Source::new(path, text))
    }

    #[test]
    fn downward_passes() {
        let text = "use crate::{io::Env, storage::{Lsn, log}}; use super::manager; fn f() { kilo_wire::f(); crate::sometimes!(1) }";
        assert!(found("src/log/open.rs", text).is_empty());
        assert!(
            found("src/client/connection.rs", "use kilo_io::Env; use kilo_wire::Api; use crate::cluster::C;")
                .is_empty()
        );
        assert!(found("src/io/net.rs", "use super::log; use crate::server; mod tests { use super::*; }").is_empty());
    }

    #[test]
    fn upward_is_refused() {
        let upward = ["src/log/open.rs:2: 'log' imports 'server', which is a layer above it"];
        assert_eq!(found("src/log/open.rs", "\nuse crate::{io::Env, server::Broker};"), upward);
        assert_eq!(found("src/log/open.rs", "\nfn f() -> crate::server::Broker { g() }"), upward);
        assert_eq!(found("src/log/open.rs", "\nuse super::super::server::Broker;"), upward);
        assert_eq!(found("src/log/mod.rs", "use super::server::Broker;").len(), 1);
        assert_eq!(found("src/io/net.rs", "use kilo_client::C;").len(), 1);
    }

    #[test]
    fn client_stands_on_wire_and_io_and_wire_on_nothing() {
        let expected = ["src/wire/frame.rs:1: 'wire' stands on no other layer, and imports 'io'"];
        assert_eq!(found("src/wire/frame.rs", "use kilo_io::Env;"), expected);
        assert_eq!(found("src/client/cluster.rs", "use kilo::storage::Lsn;").len(), 1);
    }

    #[test]
    fn every_file_has_a_layer() {
        assert_eq!(found("src/util.rs", ""), ["src/util.rs: src/ holds one folder for each layer"]);
        assert_eq!(found("src/util/mod.rs", ""), ["src/util/mod.rs: 'util' is no layer"]);
    }
}
