//! Wrong names, and the right ones that may have been meant.

/// The right name that is most like a wrong one, if one is.
pub(super) fn nearest<'a>(wrong: &str, right: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = right.map(|name| (strsim::jaro_winkler(wrong, name), name));
    scored.filter(|(score, _)| *score > 0.7).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// Refuses names that are not among the right ones.
pub(super) fn all_known<'a>(
    key: &str,
    kind: &str,
    names: impl Iterator<Item = &'a String>,
    right: &[&str],
) -> Result<(), String> {
    let mut wrong = names.filter(|name| !right.contains(&name.as_str()));
    wrong.next().map_or(Ok(()), |wrong| {
        let near = nearest(wrong, right.iter().copied());
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Err(format!("`{key}` names `{wrong}`, which is no {kind}{near}"))
    })
}

/// Adds the nearest right key to the parser's message about a wrong one, which lists all right ones in backticks.
pub(super) fn with_suggestion(message: &str) -> String {
    let Some((_, unknown)) = message.split_once("unknown field").or_else(|| message.split_once("unknown variant"))
    else {
        return message.to_owned();
    };
    let mut quoted = unknown.split('`').skip(1).step_by(2);
    let Some(wrong) = quoted.next() else { return message.to_owned() };
    match nearest(wrong, quoted) {
        Some(right) => format!("{}\ndid you mean `{right}`?", message.trim_end()),
        None => message.to_owned(),
    }
}
