//! The modules of all packages of the tree, and which file defines what a path means.
//!
//! A path through a module that only re-exports ends at the file that defines the item. Files that no `mod` declares
//! outside tests are not there.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{self, Names, Path, absolute, joined};
use crate::source::Source;

/// The packages: each by name and root file. The names of binaries are such that nothing can import them.
const ROOTS: &[(&str, &str)] = &[
    ("kilo", "src/lib.rs"),
    ("kilo (binary)", "src/main.rs"),
    ("kilo_client", "src/client/lib.rs"),
    ("kilo_io", "src/io/lib.rs"),
    ("kilo_sim", "sim/src/lib.rs"),
    ("kilo_sim (binary)", "sim/src/main.rs"),
    ("kilo_wire", "src/wire/lib.rs"),
];
/// Re-exports that are followed one after the other.
const HOPS_MAX: usize = 16;

/// All modules.
#[derive(Default)]
pub struct Modules<'a> {
    by_path: BTreeMap<Path, Module>,
    /// What each file says, and the module that it is.
    pub files: BTreeMap<&'a str, (Path, Names)>,
}

#[derive(Default)]
struct Module {
    file: String,
    /// What is defined, with its keyword.
    items: BTreeMap<String, String>,
    /// What is imported, by the name that it gets.
    imports: BTreeMap<String, Path>,
    /// Modules of which everything is imported.
    globs: Vec<Path>,
}

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// An item, or something in it.
    Item {
        /// The file that defines it.
        file: String,
        /// What it is called there.
        name: String,
        /// The keyword that defines it; empty if it is not seen, as when a macro made it.
        keyword: String,
    },
    /// A module.
    Module(Path),
}

impl<'a> Modules<'a> {
    /// The modules that are declared in `sources`, from the roots on.
    pub fn new(sources: &[&'a Source]) -> Self {
        let mut modules = Self::default();
        let by_name: BTreeMap<&str, &'a Source> =
            sources.iter().map(|source| (source.path.as_str(), *source)).collect();
        for (package, file) in ROOTS {
            modules.load(&by_name, file, vec![(*package).to_owned()]);
        }
        for (path, names) in modules.files.values() {
            for one in &names.uses {
                let module = modules.by_path.entry(one.module.clone()).or_default();
                match &one.alias {
                    Some(alias) => {
                        module.imports.insert(alias.clone(), one.path.clone());
                    }
                    None => module.globs.push(one.path.clone()),
                }
            }
            // An exported macro is named by the root of its package, wherever it is.
            for item in names.items.iter().filter(|item| item.at_root) {
                let root = modules.by_path.entry(path[..1].to_vec()).or_default();
                root.imports.insert(item.name.clone(), joined(&item.module, &item.name));
            }
        }
        modules
    }

    fn load(&mut self, sources: &BTreeMap<&str, &'a Source>, file: &str, path: Path) {
        let Some(source) = sources.get(file).filter(|source| !source.is_test()) else { return };
        let names = names::names(source.code(), &path);
        let empty = || Module { file: file.to_owned(), ..Module::default() };
        self.by_path.insert(path.clone(), empty());
        for item in &names.items {
            if item.keyword == "mod" {
                self.by_path.insert(joined(&item.module, &item.name), empty());
            } else if let Some(module) = self.by_path.get_mut(&item.module) {
                module.items.insert(item.name.clone(), item.keyword.clone());
            }
        }
        let (folder, stem) = file.rsplit_once('/').unwrap_or(("", file));
        let folder = match stem.trim_end_matches(".rs") {
            "lib" | "main" | "mod" => folder.to_owned(),
            stem => format!("{folder}/{stem}"),
        };
        let children: Vec<String> = names.children.iter().map(|child| child.name.clone()).collect();
        self.files.insert(&source.path, (path.clone(), names));
        for child in children {
            self.load(sources, &format!("{folder}/{child}.rs"), joined(&path, &child));
            self.load(sources, &format!("{folder}/{child}/mod.rs"), joined(&path, &child));
        }
    }

    /// What a path means that is spelled out in `module`; `None` if it is nothing of ours.
    pub fn meaning(&self, path: &[String], module: &Path) -> Option<Meaning> {
        self.spelled(path, module, HOPS_MAX)
    }

    fn spelled(&self, path: &[String], module: &Path, hops: usize) -> Option<Meaning> {
        let hops = hops.checked_sub(1)?;
        if let Some(path) = absolute(path, module) {
            return self.find(&path, hops, true);
        }
        // What has a name in the module itself; else it is of another package, a local variable, ….
        self.find(&[module.as_slice(), path].concat(), hops, false)
    }

    /// `assume`: what is not found in a module of ours is an item of it all the same, made by a macro.
    fn find(&self, path: &[String], hops: usize, assume: bool) -> Option<Meaning> {
        let mut depth = 1;
        // The innermost module that the path goes through; its last part is an item rather than a module of that name.
        while depth + 1 < path.len() && self.by_path.contains_key(&path[..depth + 1]) {
            depth += 1;
        }
        let (path_of_module, rest) = path.split_at(depth);
        let module = self.by_path.get(path_of_module)?;
        let Some(name) = rest.first() else { return Some(Meaning::Module(path.to_vec())) };
        let item = |keyword: &str| {
            Some(Meaning::Item { file: module.file.clone(), name: name.clone(), keyword: keyword.to_owned() })
        };
        if let Some(keyword) = module.items.get(name) {
            return item(keyword);
        }
        let owner = path_of_module.to_vec();
        if let Some(target) = module.imports.get(name).filter(|target| self.leads_on(target, path)) {
            let onward = [target.as_slice(), &rest[1..]].concat();
            // What comes of another package is no item of this one.
            return self.spelled(&onward, &owner, hops);
        }
        if rest.len() == 1 && self.by_path.contains_key(path) {
            return Some(Meaning::Module(path.to_vec()));
        }
        let in_glob = |glob: &Path| match self.spelled(glob, &owner, hops)? {
            Meaning::Module(inner) if inner != owner => {
                self.find(&[&inner, rest].concat(), hops.checked_sub(1)?, false)
            }
            _ => None,
        };
        // Not made here either, if it may come of another package.
        let is_ours = || module.globs.iter().all(|glob| self.spelled(glob, &owner, hops).is_some());
        module.globs.iter().find_map(in_glob).or_else(|| item("").filter(|_| assume && is_ours()))
    }

    /// Whether an import is more than the name itself, as `use a;` beside `mod a;` would be.
    fn leads_on(&self, target: &[String], path: &[String]) -> bool {
        target.len() > 1 || target.first() != path.last() || target[0].starts_with("kilo_")
    }

    /// Whether a module has other files below it.
    pub fn is_parent(&self, module: &Path) -> bool {
        let below = self.by_path.range(module.clone()..).skip(1);
        below.take_while(|(path, _)| path.starts_with(module)).next().is_some()
    }

    /// What is imported as a whole into a module.
    pub fn globs(&self, module: &Path) -> &[Path] {
        self.by_path.get(module).map_or(&[], |module| &module.globs)
    }

    /// The file among those above `module` that defines a macro for those below it.
    pub fn macro_above(&self, name: &str, module: &Path) -> Option<&str> {
        let above = (1..module.len()).rev().filter_map(|depth| self.by_path.get(&module[..depth]));
        let has_macro = |module: &&Module| module.items.get(name).is_some_and(|keyword| keyword == "macro_rules");
        above.into_iter().find(has_macro).map(|module| module.file.as_str())
    }

    /// All files, without those of tests.
    pub fn file_names(&self) -> BTreeSet<&'a str> {
        self.files.keys().copied().collect()
    }
}
