//! Gathering settings: configuration file, then `KILO_…` variables, then `--set`. Later ones go first.

use std::path::Path;

use super::config_args::ConfigArgs;
use crate::io::real::print_to_stderr;
use crate::server::config::{Config, Origin, Setting, config_keys, remedy};

/// Variables of that prefix that are no configuration keys.
const OTHER_VARIABLES: &[&str] = &["KILO_LOG"];
const PREFIX: &str = "KILO_";

/// Resolves the configuration for this process. Errors are ready to be shown.
pub(super) fn resolve(args: &ConfigArgs) -> Result<Config, String> {
    let mut settings = Vec::new();
    if let Some(path) = &args.config {
        #[expect(
            clippy::disallowed_methods,
            reason = "the configuration is read before there is an Env to read it with"
        )]
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        settings.extend(from_file(path, &text)?);
    }
    let (known, strangers) = from_variables(
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    settings.extend(known);
    if !strangers.is_empty() {
        print_to_stderr(&format!("kilo: ignoring variables that are like no key: {}\n", strangers.join(", ")));
    }
    settings.extend(from_flags(&args.set)?);
    Config::resolve(settings).map_err(|error| error.to_string())
}

fn from_file(path: &Path, text: &str) -> Result<Vec<Setting>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // `wal.sync = "os"` makes a value of what `wal.sync.interval.ms = 50` needs as a table.
        let hint = if text.contains('.') { "hint: put keys in quotes: \"wal.sync\" = \"always\"" } else { "" };
        format!("{}: {error}{hint}", path.display())
    })?;
    let mut settings = Vec::new();
    flatten(&Origin::File(path.display().to_string()), String::new(), &toml::Value::Table(table), &mut settings)?;
    Ok(settings)
}

/// `[log] dirs = "x"`, `log.dirs = "x"` and `"log.dirs" = "x"` all mean the same.
fn flatten(origin: &Origin, key: String, value: &toml::Value, settings: &mut Vec<Setting>) -> Result<(), String> {
    let scalar = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(flag) => Ok(flag.to_string()),
        other => Err(format!("{origin}: {key} cannot be a {}", other.type_str())),
    };
    let value = match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(origin, key, value, settings)?;
            }
            return Ok(());
        }
        toml::Value::Array(items) => items.iter().map(scalar).collect::<Result<Vec<_>, _>>()?.join(","),
        value => scalar(value)?,
    };
    settings.push(Setting { key, value, origin: origin.clone() });
    Ok(())
}

/// `KILO_LOG_DIRS` means `log.dirs`. The second list names those that are not meant for the configuration at all: a
/// container beside a service named kilo gets `KILO_PORT`, `KILO_SERVICE_HOST` and others from Kubernetes.
fn from_variables(variables: impl Iterator<Item = (String, String)>) -> (Vec<Setting>, Vec<String>) {
    let settings = variables
        .filter(|(name, _)| name.starts_with(PREFIX) && !OTHER_VARIABLES.contains(&name.as_str()))
        .map(|(name, value)| {
            let key = name[PREFIX.len()..].to_ascii_lowercase().replace('_', ".");
            // A name that is no key stays as written, so that the error shows what to look for.
            let known = config_keys().iter().any(|known| known.name == key);
            Setting { key: if known { key } else { name.clone() }, value, origin: Origin::Variable(name) }
        })
        .collect::<Vec<_>>();
    let (mut strangers, mut settings): (Vec<_>, Vec<_>) =
        settings.into_iter().partition(|setting| remedy(&setting.key).is_none());
    settings.sort_by(|a, b| a.key.cmp(&b.key));
    strangers.sort_by(|a, b| a.key.cmp(&b.key));
    (settings, strangers.into_iter().map(|setting| setting.key).collect())
}

fn from_flags(flags: &[String]) -> Result<Vec<Setting>, String> {
    flags
        .iter()
        .map(|flag| {
            let (key, value) = flag.split_once('=').ok_or_else(|| format!("--set {flag}: expected KEY=VALUE"))?;
            Ok(Setting { key: key.trim().to_owned(), value: value.to_owned(), origin: Origin::Flag })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(settings: &[Setting]) -> Vec<(&str, &str)> {
        settings.iter().map(|setting| (setting.key.as_str(), setting.value.as_str())).collect()
    }

    #[test]
    fn a_file_may_nest_quote_or_dot_its_keys() {
        let text = "\"log.dirs\" = \"a\"\nnum.partitions = 3\n[auto.create.topics]\nenable = false\n";
        let settings = from_file(Path::new("kilo.toml"), text).expect("valid TOML");
        assert_eq!(
            pairs(&settings),
            [("auto.create.topics.enable", "false"), ("log.dirs", "a"), ("num.partitions", "3")]
        );
        let error = from_file(Path::new("kilo.toml"), "a = 1979-05-27").expect_err("no date is a setting");
        assert_eq!(error, "kilo.toml: a cannot be a datetime");
        assert!(from_file(Path::new("kilo.toml"), "a = ").expect_err("no TOML").starts_with("kilo.toml: "));
    }

    #[test]
    fn variables_are_keys_in_capitals() {
        let variables = [("KILO_LOG_DIRS", "a"), ("KILO_LOG", "debug"), ("PATH", "b"), ("KILO_NUM_PARTITION", "3")];
        let (settings, strangers) =
            from_variables(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        assert_eq!(pairs(&settings), [("KILO_NUM_PARTITION", "3"), ("log.dirs", "a")]);
        assert_eq!(strangers, [""; 0]);
    }

    #[test]
    fn variables_of_a_kubernetes_service_named_kilo_are_no_settings() {
        let names =
            ["KILO_PORT", "KILO_SERVICE_HOST", "KILO_SERVICE_PORT", "KILO_SERVICE_PORT_KAFKA"].into_iter().chain([
                "KILO_PORT_9092_TCP",
                "KILO_PORT_9092_TCP_ADDR",
                "KILO_PORT_9092_TCP_PORT",
                "KILO_PORT_9092_TCP_PROTO",
            ]);
        let (settings, strangers) = from_variables(names.map(|name| (name.to_owned(), "1".to_owned())));
        assert_eq!((pairs(&settings).len(), strangers.len()), (0, 8), "{settings:?}");
    }

    #[test]
    fn a_key_that_continues_another_wants_quotes() {
        let unquoted = "wal.sync = \"interval\"\nwal.sync.interval.ms = 50\n";
        let error = from_file(Path::new("kilo.toml"), unquoted).expect_err("a value is no table");
        assert!(error.ends_with("hint: put keys in quotes: \"wal.sync\" = \"always\""), "{error}");
        let quoted = "\"wal.sync\" = \"interval\"\n\"wal.sync.interval.ms\" = 50\n";
        assert_eq!(from_file(Path::new("kilo.toml"), quoted).expect("valid").len(), 2);
    }

    #[test]
    fn the_example_of_the_documentation_is_valid() {
        let page = include_str!("../../docs/configuration.md");
        let (_, rest) = page.split_once("```toml\n").expect("there is an example");
        let (example, _) = rest.split_once("```").expect("which ends");
        let settings = from_file(Path::new("kilo.toml"), example).expect("valid TOML");
        Config::resolve(settings).expect("valid settings");
    }

    #[test]
    fn flags_keep_what_is_behind_the_first_equals_sign() {
        let settings = from_flags(&["log.dirs=a=b".to_owned()]).expect("a setting");
        assert_eq!(pairs(&settings), [("log.dirs", "a=b")]);
        assert!(from_flags(&["log.dirs".to_owned()]).is_err());
    }
}
