//! What a topic may be called. A name becomes a folder, so this is also the guard against path traversal.

/// The longest topic name, in bytes.
const NAME_LEN_MAX: usize = 249;

/// What is wrong with a topic name. The texts are Kafka's, since clients show them to people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameError {
    /// Nothing there.
    #[error("Topic name is invalid: the empty string is not allowed")]
    Empty,
    /// The names of the directories that every directory has.
    #[error("Topic name is invalid: '{0}' is not allowed")]
    Dots(String),
    /// More than 249 characters.
    #[error("Topic name is invalid: the length of '{0}' is longer than the max allowed length {NAME_LEN_MAX}")]
    TooLong(String),
    /// A character outside the allowed ones.
    #[error(
        "Topic name is invalid: '{0}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    )]
    Characters(String),
}

/// Checks a topic name.
pub fn validate_topic_name(name: &str) -> Result<(), TopicNameError> {
    if name.is_empty() {
        return Err(TopicNameError::Empty);
    }
    if name == "." || name == ".." {
        return Err(TopicNameError::Dots(name.to_owned()));
    }
    if name.chars().count() > NAME_LEN_MAX {
        return Err(TopicNameError::TooLong(name.to_owned()));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        return Err(TopicNameError::Characters(name.to_owned()));
    }
    Ok(())
}

/// Two names with the same key may not both exist: metrics cannot tell them apart, and Kafka refuses them too.
pub fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_refused() {
        let long = "x".repeat(250);
        for name in ["", ".", "..", "a b", "a/b", "a:b", "té", "a\n", "../../etc", "a\0", "a~b", long.as_str()] {
            assert!(validate_topic_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn names_that_are_taken() {
        let long = "x".repeat(249);
        for name in ["a", "A-b_c.9", "...", "__consumer_offsets", long.as_str()] {
            assert_eq!(validate_topic_name(name), Ok(()), "{name:?}");
        }
    }
}
