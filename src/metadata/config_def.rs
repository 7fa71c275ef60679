//! How configuration values are typed and checked, for topics and brokers alike. Texts follow Kafka's, since its tools
//! show them to people.

/// The type of a configuration value and what it may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A 32-bit number.
    Int {
        /// The least value.
        min: i32,
        /// The largest value.
        max: i32,
    },
    /// A 64-bit number.
    Long {
        /// The least value.
        min: i64,
        /// The largest value.
        max: i64,
    },
    /// A fraction between two bounds.
    Double {
        /// The least value.
        min: f64,
        /// The largest value.
        max: f64,
    },
    /// Any text.
    Text,
    /// One of some words.
    Word(&'static [&'static str]),
    /// Words separated by commas; any words if none are listed here.
    List(&'static [&'static str]),
}

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid value {value} for configuration {name}: {why}")]
pub struct ValueError {
    /// The key.
    pub name: String,
    /// The value.
    pub value: String,
    /// What is wrong.
    pub why: String,
}

impl Kind {
    /// The number that DescribeConfigs answers for this type.
    pub fn code(&self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::Text | Self::Word(_) => 2,
            Self::Int { .. } => 3,
            Self::Long { .. } => 5,
            Self::Double { .. } => 6,
            Self::List(_) => 7,
        }
    }

    /// The name of this type in documentation.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Text | Self::Word(_) => "string",
            Self::Int { .. } => "int",
            Self::Long { .. } => "long",
            Self::Double { .. } => "double",
            Self::List(_) => "list",
        }
    }

    /// Checks a value as written by a person.
    pub fn check(&self, name: &str, value: &str) -> Result<(), ValueError> {
        let value = value.trim();
        let why = match self {
            Self::Boolean if matches!(value.to_ascii_lowercase().as_str(), "true" | "false") => None,
            Self::Boolean => Some("Expected value to be either true or false".to_owned()),
            Self::Int { min, max } => match value.parse::<i32>() {
                Ok(number) => range(number, *min, *max),
                Err(_) => Some("Not a number of type INT".to_owned()),
            },
            Self::Long { min, max } => match value.parse::<i64>() {
                Ok(number) => range(number, *min, *max),
                Err(_) => Some("Not a number of type LONG".to_owned()),
            },
            Self::Double { min, max } => match value.parse::<f64>() {
                Ok(number) if number.is_finite() => range(number, *min, *max),
                _ => Some("Not a number of type DOUBLE".to_owned()),
            },
            Self::Text => None,
            Self::Word(words) => (!words.contains(&value)).then(|| one_of(words)),
            Self::List(words) => {
                split_list(value).any(|item| !words.is_empty() && !words.contains(&item)).then(|| one_of(words))
            }
        };
        match why {
            None => Ok(()),
            Some(why) => Err(ValueError { name: name.to_owned(), value: value.to_owned(), why }),
        }
    }
}

/// The items of a comma-separated list.
pub fn split_list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn one_of(words: &[&str]) -> String {
    format!("String must be one of: {}", words.join(", "))
}

fn range<T: PartialOrd + std::fmt::Display>(number: T, min: T, max: T) -> Option<String> {
    if number < min {
        Some(format!("Value must be at least {min}"))
    } else if number > max {
        Some(format!("Value must be no more than {max}"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_is_wrong() {
        let check = |kind: Kind, value: &str| kind.check("k", value).err().map(|error| error.to_string());
        let long = Kind::Long { min: -1, max: i64::MAX };
        assert_eq!(check(long, "soon").unwrap(), "Invalid value soon for configuration k: Not a number of type LONG");
        assert_eq!(check(long, "-2").unwrap(), "Invalid value -2 for configuration k: Value must be at least -1");
        assert_eq!(
            check(Kind::Word(&["a", "b"]), "c").unwrap(),
            "Invalid value c for configuration k: String must be one of: a, b"
        );
        assert_eq!(
            check(Kind::Boolean, "yes").unwrap(),
            "Invalid value yes for configuration k: Expected value to be either true or false"
        );
        assert!(check(Kind::Double { min: 0.0, max: 1.0 }, "NaN").is_some());
        assert!(check(Kind::Int { min: 0, max: 9 }, "4294967296").is_some());
    }

    #[test]
    fn good_values_pass() {
        for (kind, value) in [
            (Kind::Boolean, "TRUE"),
            (Kind::Long { min: -1, max: i64::MAX }, " 7 "),
            (Kind::List(&["compact", "delete"]), "compact, delete"),
            (Kind::List(&[]), ""),
            (Kind::Double { min: 0.0, max: 1.0 }, "0.5"),
            (Kind::Text, "anything"),
        ] {
            assert_eq!(kind.check("k", value), Ok(()), "{value}");
        }
    }
}
