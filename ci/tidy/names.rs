//! The names in a file: what it defines, what it imports, and the paths that its code spells out.

use crate::tokens::Token;

/// A module or item by its full name; the first part is the package.
pub type Path = Vec<String>;

/// What one file says.
#[derive(Debug, Default)]
pub struct Names {
    /// `mod name;`, which is another file.
    pub children: Vec<Item>,
    /// Items outside any function or `impl`, modules of this file included.
    pub items: Vec<Item>,
    /// What is imported, at any depth.
    pub uses: Vec<Use>,
    /// Paths outside imports.
    pub mentions: Vec<Mention>,
}

/// Something that is defined.
#[derive(Debug)]
pub struct Item {
    /// The module that it is in.
    pub module: Path,
    /// What it is called.
    pub name: String,
    /// The keyword: `fn`, `struct`, `macro_rules`, ….
    pub keyword: String,
    /// Whether it is a macro that is exported at the root of its package.
    pub at_root: bool,
}

/// One name that is imported.
#[derive(Debug)]
pub struct Use {
    /// The module in which it is.
    pub module: Path,
    /// As it is spelled, from `crate`, `super`, a package or whatever stands first.
    pub path: Path,
    /// The name that it gets here; `None` for all that is in there.
    pub alias: Option<String>,
    /// Whether it has a `pub` of any reach.
    pub is_public: bool,
    /// Where.
    pub line: usize,
}

/// A path in the code, at least one part long.
#[derive(Debug)]
pub struct Mention {
    /// The module in which it is.
    pub module: Path,
    /// As it is spelled.
    pub path: Path,
    /// Whether a macro is called by it.
    pub is_macro: bool,
    /// Where.
    pub line: usize,
}

const DEFINING: &[&str] = &["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
/// Keywords that never begin a path, and those behind which a name is made rather than used.
const NO_PATH: &[&str] =
    &["as", "fn", "for", "if", "impl", "in", "let", "match", "mod", "mut", "pub", "ref", "return", "use", "where"];
const MAKING: &[&str] = &["const", "enum", "fn", "let", "mod", "mut", "ref", "static", "struct", "trait", "type"];

/// The names in the tokens of a file whose own name as a module is `module`.
pub fn names(tokens: &[Token], module: &Path) -> Names {
    let mut names = Names::default();
    names.walk(tokens, module, true);
    names
}

impl Names {
    /// `is_open`: outside any function, `impl` or macro call.
    fn walk(&mut self, tokens: &[Token], module: &Path, is_open: bool) {
        let mut at = 0;
        while at < tokens.len() {
            at = match tokens[at].word() {
                Some("use") if !tokens.get(at + 1).is_some_and(|next| next.is_sign('<')) => {
                    self.import(tokens, at, module)
                }
                Some("mod") if is_open => self.module(tokens, at, module),
                Some("macro_rules") => self.macro_rules(tokens, at, module),
                Some(word) => {
                    if is_open && DEFINING.contains(&word) {
                        self.item(tokens, at, module);
                    }
                    self.mention(tokens, at, module)
                }
                None => {
                    if let Some(inner) = tokens[at].inner() {
                        self.walk(inner, module, false);
                    }
                    at + 1
                }
            };
        }
    }

    fn item(&mut self, tokens: &[Token], at: usize, module: &Path) {
        let Some(name) = tokens[at + 1..].iter().find(|token| !token.is_word("mut")).and_then(Token::word) else {
            return;
        };
        if name != "_" && !DEFINING.contains(&name) {
            self.define(module, name, tokens[at].word().unwrap_or_default(), false);
        }
    }

    fn define(&mut self, module: &Path, name: &str, keyword: &str, at_root: bool) {
        let (name, keyword) = (name.to_owned(), keyword.to_owned());
        self.items.push(Item { module: module.clone(), name, keyword, at_root });
    }

    fn module(&mut self, tokens: &[Token], at: usize, module: &Path) -> usize {
        let Some(name) = tokens.get(at + 1).and_then(Token::word) else { return at + 1 };
        match tokens.get(at + 2).and_then(|body| body.group('{')) {
            Some(body) => {
                self.define(module, name, "mod", false);
                self.walk(body, &joined(module, name), true);
            }
            None => self.children.push(Item {
                module: module.clone(),
                name: name.to_owned(),
                keyword: "mod".to_owned(),
                at_root: false,
            }),
        }
        at + 3
    }

    fn macro_rules(&mut self, tokens: &[Token], at: usize, module: &Path) -> usize {
        let (Some(name), Some(body)) =
            (tokens.get(at + 2).and_then(Token::word), tokens.get(at + 3).and_then(Token::inner))
        else {
            return at + 1;
        };
        let attributes = tokens[..at].rchunks(2).take_while(|chunk| chunk[0].is_sign('#'));
        let is_exported = |chunk: &[Token]| {
            chunk
                .last()
                .and_then(Token::inner)
                .is_some_and(|inner| inner.iter().any(|word| word.is_word("macro_export")))
        };
        let at_root = attributes.into_iter().any(is_exported);
        self.define(module, name, "macro_rules", at_root);
        self.walk(body, module, false);
        at + 4
    }

    fn import(&mut self, tokens: &[Token], at: usize, module: &Path) -> usize {
        let before = |back: usize| at.checked_sub(back).map(|at| &tokens[at]);
        let is_pub = |token: Option<&Token>| token.is_some_and(|token| token.is_word("pub"));
        let is_public =
            is_pub(before(1)) || (before(1).is_some_and(|token| token.group('(').is_some()) && is_pub(before(2)));
        let end = tokens[at..].iter().position(|token| token.is_sign(';')).map_or(tokens.len(), |len| at + len);
        let tree = Use { module: module.clone(), path: Path::new(), alias: None, is_public, line: tokens[at].line };
        self.import_tree(&tokens[at + 1..end], &tree);
        end + 1
    }

    /// The names of one tree of imports, which stands behind `stem`.
    fn import_tree(&mut self, tree: &[Token], stem: &Use) {
        let mut path = stem.path.clone();
        let mut alias = None;
        let mut is_glob = false;
        for (at, token) in tree.iter().enumerate() {
            if let Some(inner) = token.group('{') {
                let stem = Use { path, alias: None, module: stem.module.clone(), ..*stem };
                inner
                    .split(|token| token.is_sign(','))
                    .filter(|part| !part.is_empty())
                    .for_each(|part| self.import_tree(part, &stem));
                return;
            }
            if token.is_word("as") {
                alias = tree.get(at + 1).and_then(Token::word).map(str::to_owned);
                break;
            }
            is_glob |= token.is_sign('*');
            // `a::{self}` is `a`.
            path.extend(token.word().filter(|word| *word != "self" || path.is_empty()).map(str::to_owned));
        }
        let line = tree.first().map_or(stem.line, |token| token.line);
        let alias = alias.or_else(|| path.last().cloned()).filter(|_| !is_glob);
        self.uses.push(Use { module: stem.module.clone(), path, alias, line, ..*stem });
    }

    fn mention(&mut self, tokens: &[Token], at: usize, module: &Path) -> usize {
        let is = |at: usize, sign| tokens.get(at).is_some_and(|token: &Token| token.is_sign(sign));
        let mut path = Path::new();
        let mut next = at;
        while let Some(word) = tokens.get(next).and_then(Token::word) {
            path.push(word.to_owned());
            next += 1;
            if !(is(next, ':') && is(next + 1, ':')) || tokens.get(next + 2).is_none_or(|token| token.word().is_none())
            {
                break;
            }
            next += 2;
        }
        let before = at.checked_sub(1).map(|at| &tokens[at]);
        let is_part = at > 0
            && (is(at - 1, '.') && !(at > 1 && is(at - 2, '.')) || (is(at - 1, ':') && at > 1 && is(at - 2, ':')));
        let is_made = before.and_then(Token::word).is_some_and(|word| MAKING.contains(&word));
        // `name: …` is a field or a parameter, unless it is a type with its bounds.
        let is_label =
            path.len() == 1 && is(next, ':') && !is(next + 1, ':') && path[0].starts_with(char::is_lowercase);
        if !(is_part || is_made || is_label || NO_PATH.contains(&path[0].as_str())) {
            let is_macro = is(next, '!') && !is(next + 1, '=');
            self.mentions.push(Mention { module: module.clone(), path, is_macro, line: tokens[at].line });
        }
        next
    }
}

/// The path of a name in a module.
pub fn joined(module: &[String], name: &str) -> Path {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// What a path means that begins with `crate`, `self` or `super` in `module`, or with a package of ours. `None` if it
/// begins with anything else.
pub fn absolute(path: &[String], module: &[String]) -> Option<Path> {
    let (base, rest): (&[String], &[String]) = match path.first()?.as_str() {
        "crate" => (&module[..1], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            (&module[..module.len().saturating_sub(ups).max(1)], &path[ups..])
        }
        "kilo" | "kilo_io" | "kilo_wire" | "kilo_client" | "kilo_sim" => (&path[..1], &path[1..]),
        _ => return None,
    };
    Some([base, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::parse;

    fn read(text: &str) -> Names {
        names(&parse(text).unwrap(), &vec!["p".to_owned(), "m".to_owned()])
    }

    #[test]
    fn imports_are_taken_apart() {
        let names = read("pub(crate) use a::{self, b::{C as D, *}, e}; fn f() -> impl Fn() + use<> { use super::G; }");
        let uses: Vec<_> =
            names.uses.iter().map(|one| (one.path.join("::"), one.alias.as_deref(), one.is_public)).collect();
        let expected = [
            ("a", Some("a"), true),
            ("a::b::C", Some("D"), true),
            ("a::b", None, true),
            ("a::e", Some("e"), true),
            ("super::G", Some("G"), false),
        ];
        assert_eq!(uses, expected.map(|(path, alias, is_public)| (path.to_owned(), alias, is_public)));
    }

    #[test]
    fn items_are_found_and_those_within_functions_are_not() {
        let names = read(
            "#[macro_export] macro_rules! m { () => { fn no() {} } } const fn f() { struct No; } static mut S: u8 = 0; mod n { enum E {} } mod c;",
        );
        let items: Vec<_> =
            names.items.iter().map(|item| format!("{}::{}", item.module.join("::"), item.name)).collect();
        assert_eq!(items, ["p::m::m", "p::m::f", "p::m::S", "p::m::n", "p::m::n::E"]);
        assert!(names.items[0].at_root);
        assert_eq!(names.children[0].name, "c");
    }

    #[test]
    fn paths_are_found_where_they_begin() {
        let names = read("fn f(a: A) -> B { let c = d.e(); super::g::h::<I>(crate::J { k: l }); m!(..n) }");
        let mentions: Vec<_> = names.mentions.iter().map(|mention| mention.path.join("::")).collect();
        assert_eq!(mentions, ["A", "B", "d", "super::g::h", "I", "crate::J", "l", "m", "n"]);
    }

    #[test]
    fn paths_are_made_absolute() {
        let path = |text: &str| text.split("::").map(str::to_owned).collect::<Path>();
        let module = path("kilo::log::open");
        let check =
            |text, expected: Option<&str>| assert_eq!(absolute(&path(text), &module), expected.map(path), "{text}");
        check("crate::io::Env", Some("kilo::io::Env"));
        check("super::error::OpenError", Some("kilo::log::error::OpenError"));
        check("super::super::storage", Some("kilo::storage"));
        check("self::x", Some("kilo::log::open::x"));
        check("kilo_io::Env", Some("kilo_io::Env"));
        check("std::io", None);
    }
}
