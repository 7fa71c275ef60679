//! `kilo config`: every key with its value, default and meaning.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use super::config_args::ConfigArgs;
use super::settings;
use crate::metadata::config_def::Kind;
use crate::server::Config;

/// Columns of the meaning.
const WIDTH: usize = 100;

pub(super) fn run(args: &ConfigArgs) -> Result<(), String> {
    let text = table(&settings::resolve(args)?);
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Its reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| format!("writing to standard output failed: {error}")),
    }
}

fn table(config: &Config) -> String {
    let mut out = String::new();
    let mut entries = config.entries();
    entries.sort_by_key(|(key, _)| key.name);
    for (key, value) in entries {
        let set = if config.is_set(key.name) { format!("   (default: {})", shown(key.default)) } else { String::new() };
        let _ = writeln!(out, "{} = {}{set}", key.name, shown(&value));
        for line in wrap(&format!("{}: {}", kind(&key.kind), key.doc)) {
            let _ = writeln!(out, "    {line}");
        }
        out.push('\n');
    }
    out
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "\"\"" } else { value }
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Int { min, max } => bounds("int", (*min).into(), (*max).into(), i32::MAX.into()),
        Kind::Long { min, max } => bounds("long", *min, *max, i64::MAX),
        Kind::Word(words) => words.join("|"),
        other => other.name().to_owned(),
    }
}

fn bounds(name: &str, min: i64, max: i64, largest: i64) -> String {
    if max == largest { format!("{name} >= {min}") } else { format!("{name} {min}..{max}") }
}

fn wrap(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::config::config_keys;

    #[test]
    fn every_key_is_shown_and_no_line_is_too_long() {
        let table = table(&Config::default());
        for key in config_keys() {
            assert!(table.contains(&format!("{} = ", key.name)), "{}", key.name);
        }
        let shown: Vec<&str> = table.lines().filter(|line| line.contains(" = ") && !line.starts_with(' ')).collect();
        assert!(shown.is_sorted_by_key(|line| line.split(' ').next()));
        assert!(table.lines().all(|line| line.starts_with("    ") == line.starts_with(' ')));
        assert!(table.lines().filter(|line| line.starts_with(' ')).all(|line| line.len() <= WIDTH + 4));
    }
}
