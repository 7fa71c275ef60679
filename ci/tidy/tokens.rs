//! Rust source as a tree of tokens, without comments, lifetimes and the texts of literals. What a token means is for the
//! rules to say.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token.
#[derive(Clone, Debug)]
pub struct Token {
    /// Counted from 1.
    pub line: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Word(String),
    Sign(char),
    Literal,
    Group(char, Vec<Token>),
}

/// The tokens of a source text.
pub fn parse(text: &str) -> Result<Vec<Token>, String> {
    let stream: TokenStream = text.parse().map_err(|error| format!("no Rust: {error}"))?;
    Ok(convert(stream))
}

fn convert(stream: TokenStream) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut stream = stream.into_iter();
    while let Some(tree) = stream.next() {
        let line = tree.span().start().line;
        let kind = match tree {
            // A lifetime, whose name would look like a word of the code.
            TokenTree::Punct(punct) if punct.as_char() == '\'' => {
                stream.next();
                continue;
            }
            TokenTree::Punct(punct) => Kind::Sign(punct.as_char()),
            TokenTree::Ident(ident) => Kind::Word(ident.to_string()),
            TokenTree::Literal(_) => Kind::Literal,
            TokenTree::Group(group) => {
                let opening = match group.delimiter() {
                    Delimiter::Parenthesis => '(',
                    Delimiter::Brace => '{',
                    Delimiter::Bracket => '[',
                    Delimiter::None => ' ',
                };
                Kind::Group(opening, convert(group.stream()))
            }
        };
        tokens.push(Token { line, kind });
    }
    tokens
}

impl Token {
    /// The word, if it is one: an identifier or keyword.
    pub fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Whether it is this word.
    pub fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    /// Whether it is this sign.
    pub fn is_sign(&self, sign: char) -> bool {
        matches!(self.kind, Kind::Sign(own) if own == sign)
    }

    /// What stands between brackets of any kind.
    pub fn inner(&self) -> Option<&[Token]> {
        match &self.kind {
            Kind::Group(_, inner) => Some(inner),
            _ => None,
        }
    }

    /// What stands between brackets that open with this one.
    pub fn group(&self, opening: char) -> Option<&[Token]> {
        match &self.kind {
            Kind::Group(own, inner) if *own == opening => Some(inner),
            _ => None,
        }
    }
}

/// Calls `look` with the tokens, and with those of every group in them.
pub fn each_group<'a>(tokens: &'a [Token], look: &mut impl FnMut(&'a [Token])) {
    look(tokens);
    for inner in tokens.iter().filter_map(Token::inner) {
        each_group(inner, look);
    }
}

/// Whether any token at any depth is a word for which `is` holds.
pub fn any_word(tokens: &[Token], is: &impl Fn(&str) -> bool) -> bool {
    tokens.iter().any(|token| token.word().is_some_and(is) || token.inner().is_some_and(|inner| any_word(inner, is)))
}

/// The tokens without those that are compiled for tests alone: what `#[cfg(test)]` stands on.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_attribute(&tokens[at..]) && is_for_tests(&tokens[at + 1]) {
            at = end_of_item(tokens, at);
            continue;
        }
        let Token { line, kind } = &tokens[at];
        let kind = match kind {
            Kind::Group(opening, inner) => Kind::Group(*opening, without_tests(inner)),
            other => other.clone(),
        };
        kept.push(Token { line: *line, kind });
        at += 1;
    }
    kept
}

/// Whether an attribute `#[…]` begins here.
fn is_attribute(tokens: &[Token]) -> bool {
    tokens[0].is_sign('#') && tokens.get(1).is_some_and(|token| token.group('[').is_some())
}

/// Whether a bracket is `[cfg(test)]` or `[cfg(all(test, …))]`.
fn is_for_tests(bracket: &Token) -> bool {
    let Some([cfg, condition]) = bracket.group('[') else { return false };
    let Some(condition) = condition.inner().filter(|_| cfg.is_word("cfg")) else { return false };
    match condition {
        [test] => test.is_word("test"),
        [all, parts] if all.is_word("all") => {
            parts.inner().is_some_and(|parts| parts.iter().any(|part| part.is_word("test")))
        }
        _ => false,
    }
}

/// The place behind the item, statement, field or arm that begins at `at` with its attributes.
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    while at < tokens.len() && is_attribute(&tokens[at..]) {
        at += 2;
    }
    let of = |words: &[&str]| {
        tokens[at..].iter().take(4).any(|token| token.word().is_some_and(|word| words.contains(&word)))
    };
    let has_body = of(&["fn", "impl", "struct", "enum", "union", "trait", "mod", "macro_rules"]);
    let has_end = !has_body && of(&["use", "const", "static", "let", "type"]);
    while at < tokens.len() {
        let token = &tokens[at];
        at += 1;
        let is_body = !has_end && token.group('{').is_some();
        if token.is_sign(';') || is_body || (token.is_sign(',') && !has_body && !has_end) {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        let tokens = without_tests(&parse(text).unwrap());
        each_group(&tokens, &mut |group| words.extend(group.iter().filter_map(Token::word).map(str::to_owned)));
        words
    }

    #[test]
    fn comments_strings_and_lifetimes_are_no_words() {
        let text = "// one\n/* two */ fn f(a: &'three str) { \"four\"; 'c'; }";
        assert_eq!(kept(text), ["fn", "f", "a", "str"]);
        assert_eq!(parse("a\n\nb").unwrap()[1].line, 3);
    }

    #[test]
    fn what_is_for_tests_alone_is_left_out() {
        assert_eq!(kept("#[cfg(test)] mod tests { fn t() {} } fn f() {}"), ["fn", "f"]);
        assert_eq!(kept("#[cfg(all(test, unix))] #[expect(x)] use a::{b, c}; use d;"), ["use", "d"]);
        assert_eq!(kept("struct S { #[cfg(test)] a: A, b: B }"), ["struct", "S", "b", "B"]);
        assert_eq!(kept("#[cfg(test)] pub(crate) fn f<A, B>(a: A) {} fn g() {}"), ["fn", "g"]);
        assert_eq!(kept("#[cfg(test)] const A: S = S { a: 1 }; fn g() {}"), ["fn", "g"]);
    }

    #[test]
    fn what_is_not_for_tests_alone_stays() {
        assert!(kept("#[cfg(not(test))] fn f() {}").contains(&"f".to_owned()));
        assert!(kept("#[cfg(any(test, unix))] fn f() {}").contains(&"f".to_owned()));
    }
}
