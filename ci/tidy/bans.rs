//! The ban list in `.clippy.toml`: there is one, and every line of it says why.

use toml::{Table, Value};

/// What is wrong with the text of the file.
pub fn problems(text: &str) -> Vec<String> {
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return vec![format!(".clippy.toml: {error}")],
    };
    let mut problems = Vec::new();
    for list in ["disallowed-methods", "disallowed-types"] {
        if table.get(list).and_then(Value::as_array).is_none_or(Vec::is_empty) {
            problems.push(format!(".clippy.toml: {list} is empty"));
        }
    }
    let lists = table.iter().filter(|(name, _)| name.starts_with("disallowed-"));
    let bans = lists.filter_map(|(_, list)| list.as_array()).flatten();
    let has_reason = |ban: &Value| ban.get("reason").and_then(Value::as_str).is_some_and(|reason| !reason.is_empty());
    problems.extend(bans.filter(|ban| !has_reason(ban)).map(|ban| format!(".clippy.toml: no reason: {ban}")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &str = "disallowed-types = [{ path = 'a::B', reason = 'use c::D' }]\n";

    #[test]
    fn bans_with_reasons_pass() {
        assert!(
            problems(&format!("{TYPES}disallowed-methods = [{{ path = 'a::b', reason = 'use c::d' }}]")).is_empty()
        );
    }

    #[test]
    fn a_ban_without_a_reason_is_refused() {
        assert_eq!(problems(&format!("{TYPES}disallowed-methods = [{{ path = 'a::b' }}, 'c::d']")).len(), 2);
        assert_eq!(problems(&format!("{TYPES}disallowed-methods = [{{ path = 'a::b', reason = '' }}]")).len(), 1);
        let macros = "disallowed-macros = ['a::b']\ndisallowed-methods = [{ path = 'a::b', reason = 'use c::d' }]";
        assert_eq!(problems(&format!("{TYPES}{macros}")).len(), 1);
    }

    #[test]
    fn a_list_is_not_empty() {
        assert_eq!(problems(TYPES), [".clippy.toml: disallowed-methods is empty"]);
    }
}
