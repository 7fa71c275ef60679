//! `src/io` is the only door to time, network, disk, tasks and randomness. `.clippy.toml` bans the calls; these rules keep
//! the ban from being switched off, and look for what clippy cannot see.

use crate::source::Source;
use crate::tokens::{Token, any_word, each_group};

/// What is wrong with one file of `src/`.
pub fn problems(source: &Source) -> Vec<String> {
    let is_door = source.path.starts_with("src/io/real/");
    let may_except = source.path.starts_with("src/cli/") || source.path == "src/main.rs" || source.is_test();
    let mut problems = Vec::new();
    each_group(source.tokens(), &mut |tokens| {
        for (at, token) in tokens.iter().enumerate() {
            let rest = &tokens[at..];
            let mut complain = |what: &str| problems.push(source.problem(token.line, what));
            if conditional(rest).is_some_and(|condition| any_word(condition, &|word| word == "madsim")) {
                complain("knows of madsim: the simulator lives outside");
            }
            if is_door {
                continue;
            }
            if token.is_word("unsafe")
                || arguments(rest, &["allow", "expect"])
                    .is_some_and(|lints| any_word(lints, &|word| word == "unsafe_code"))
            {
                complain("unsafe code outside src/io/real");
            }
            if arguments(rest, &["allow"]).is_some_and(has_ban) {
                complain(
                    "switches the ban list off; a scoped #[expect(…, reason = \"…\")] may stand in cli, main and tests",
                );
            }
            if !may_except && is_exception(rest) && !stands_on_test(rest) {
                complain("an exception to the ban list outside cli, main and tests");
            }
        }
    });
    problems
}

/// The condition of a `cfg(…)`, `cfg!(…)` or `cfg_attr(…)` that begins here.
fn conditional(tokens: &[Token]) -> Option<&[Token]> {
    let at = if tokens.get(1)?.is_sign('!') { 2 } else { 1 };
    tokens.get(at)?.group('(').filter(|_| tokens[0].is_word("cfg") || tokens[0].is_word("cfg_attr"))
}

/// What stands in brackets behind one of the words, if it stands here.
fn arguments<'a>(tokens: &'a [Token], words: &[&str]) -> Option<&'a [Token]> {
    tokens.get(1)?.group('(').filter(|_| words.iter().any(|word| tokens[0].is_word(word)))
}

/// Whether lints of the ban list are named, or a group of lints that they are in.
fn has_ban(lints: &[Token]) -> bool {
    any_word(lints, &|word| word.starts_with("disallowed_") || matches!(word, "all" | "style"))
}

/// Whether an attribute with an `expect` for the ban list begins here.
fn is_exception(tokens: &[Token]) -> bool {
    let at = if tokens.get(1).is_some_and(|token| token.is_sign('!')) { 2 } else { 1 };
    let Some(attribute) = tokens.get(at).and_then(|token| token.group('[')).filter(|_| tokens[0].is_sign('#')) else {
        return false;
    };
    let mut is_exception = false;
    each_group(attribute, &mut |inner| {
        is_exception |= (0..inner.len()).any(|at| arguments(&inner[at..], &["expect"]).is_some_and(has_ban));
    });
    is_exception
}

/// Whether the attribute that begins here stands on a module or function of tests.
fn stands_on_test(tokens: &[Token]) -> bool {
    let mut rest = tokens;
    while let [sign, bracket, others @ ..] = rest
        && sign.is_sign('#')
        && bracket.group('[').is_some()
    {
        rest = others;
    }
    let mut rest =
        rest.iter().skip_while(|token| token.is_word("pub") || token.is_word("async") || token.group('(').is_some());
    let is_item = rest.next().is_some_and(|token| token.is_word("mod") || token.is_word("fn"));
    is_item && rest.next().and_then(Token::word).is_some_and(|name| name.ends_with("test") || name.ends_with("tests"))
}

/// Every `select!` of a Rust file without `biased;`: it draws its order from a random generator of the runtime.
pub fn unbiased(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    each_group(source.tokens(), &mut |tokens| {
        for window in tokens.windows(3).filter(|window| window[0].is_word("select") && window[1].is_sign('!')) {
            let Some(inner) = window[2].inner() else { continue };
            if !matches!(inner, [word, sign, ..] if word.is_word("biased") && sign.is_sign(';')) {
                problems.push(source.problem(window[0].line, "select! without 'biased;'"));
            }
        }
    });
    problems
}

/// Whatever prints in `src/` outside the command line and tests: what the broker has to say goes through its log.
pub fn prints<'a>(sources: impl Iterator<Item = &'a Source>) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        if source.path.starts_with("src/cli/") || source.path == "src/main.rs" || source.is_test() {
            continue;
        }
        let mut found = Vec::new();
        each_group(source.code(), &mut |tokens| {
            let is_print = |window: &&[Token]| window[1].is_sign('!') && window[0].word().is_some_and(is_printing);
            found.extend(
                tokens.windows(2).filter(is_print).map(|window| (window[0].line, window[0].word().unwrap_or_default())),
            );
        });
        problems.extend(
            found
                .iter()
                .map(|(line, name)| source.problem(*line, format!("{name}! outside the command line and tests"))),
        );
    }
    problems
}

fn is_printing(name: &str) -> bool {
    matches!(name, "print" | "println" | "eprint" | "eprintln" | "dbg")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[&str]) {
        let found = problems(&Source::new(path, text));
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(|(found, part)| found.contains(part)),
            "{text}: {found:?}"
        );
    }

    #[test]
    fn the_broker_does_not_know_that_it_is_simulated() {
        check("src/log/open.rs", "#[cfg(unix)] fn madsim() {} // cfg(madsim)", &[]);
        check("src/log/open.rs", "#[cfg(madsim)] fn f() {}", &["madsim"]);
        check("src/io/real/mod.rs", "fn f() { if cfg!(not(madsim)) {} }", &["madsim"]);
    }

    #[test]
    fn unsafe_code_stays_behind_the_seam() {
        check("src/io/real/disk.rs", "#![expect(unsafe_code)] fn f() { unsafe { g() } }", &[]);
        check("src/log/open.rs", "fn f() { g(\"unsafe {\") }", &[]);
        check("src/log/open.rs", "fn f() { unsafe { g() } }", &["unsafe"]);
        check("src/log/open.rs", "#![allow(unsafe_code)]", &["unsafe"]);
    }

    #[test]
    fn the_ban_list_is_not_switched_off() {
        check("src/io/real/mod.rs", "#![allow(clippy::disallowed_methods)]", &[]);
        check("src/log/open.rs", "#[allow(clippy::too_many_lines)] fn f() {}", &[]);
        check(
            "src/cli/serve.rs",
            "#[allow(clippy::disallowed_types, reason = \"x\")] fn f() {}",
            &["switches the ban list off"],
        );
        check("src/log/open.rs", "#![cfg_attr(unix, allow(clippy::style))]", &["switches the ban list off"]);
    }

    #[test]
    fn exceptions_stand_in_the_command_line_and_tests() {
        let excepted = |item: &str| format!("#[expect(clippy::disallowed_methods, reason = \"x\")] {item}");
        check("src/cli/serve.rs", &excepted("fn f() {}"), &[]);
        check("src/main.rs", &excepted("fn f() {}"), &[]);
        check("src/log/tests/damage.rs", &excepted("fn f() {}"), &[]);
        check("src/log/mod.rs", &excepted("#[cfg(test)] pub(crate) mod tests {}"), &[]);
        check("src/log/open.rs", &excepted("fn f() {}"), &["an exception"]);
        check("src/log/open.rs", "fn f() { #[expect(clippy::disallowed_types)] let x = 1; }", &["an exception"]);
        check("src/log/open.rs", "#![expect(clippy::disallowed_types)] mod tests;", &["an exception"]);
    }

    #[test]
    fn select_is_biased() {
        let found = |text: &str| unbiased(&Source::new("a.rs", text));
        assert!(found("fn f() { tokio::select! { biased; () = g() => {} } }").is_empty());
        assert_eq!(found("fn f() {\n select! { () = g() => {} } }"), ["a.rs:2: select! without 'biased;'"]);
        assert_eq!(found("fn f() { select! { biased = g() => {} } }").len(), 1);
    }

    #[test]
    fn only_the_command_line_prints() {
        let found = |path: &str, text: &str| prints([&Source::new(path, text)].into_iter());
        assert!(found("src/cli/serve.rs", "fn f() { println!(); }").is_empty());
        assert!(found("src/log/tests.rs", "fn f() { println!(); }").is_empty());
        assert!(found("src/log/open.rs", "#[cfg(test)] mod tests { fn f() { dbg!(1); } }").is_empty());
        assert!(found("src/log/open.rs", "fn f() { write!(f, \"println!()\") }").is_empty());
        let expected = ["src/log/open.rs:2: eprintln! outside the command line and tests"];
        assert_eq!(found("src/log/open.rs", "fn f() { g(||\n eprintln!()) }"), expected);
        assert_eq!(found("src/log/open.rs", "fn f() { dbg!(1); }").len(), 1);
    }
}
