//! Strings in messages.

use crate::types::KafkaString;

/// The most that a text for people takes in an answer, in bytes. What it quotes may be as long as a string can be.
const TEXT_BYTES_MAX: usize = 4096;

/// A text for people, cut if it quotes something very long.
pub fn text(text: &str) -> KafkaString {
    if text.len() <= TEXT_BYTES_MAX {
        return string(text);
    }
    string(&format!("{}…", &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]))
}

/// A string for a message field.
pub fn string(text: &str) -> KafkaString {
    KafkaString::from(text.to_owned())
}
