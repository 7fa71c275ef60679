//! What values in a file must be, so that one that says something impossible is refused with the place of it.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A chance: from 0 to 1.
pub(crate) fn chance<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let chance = f64::deserialize(deserializer)?;
    if (0.0..=1.0).contains(&chance) { Ok(chance) } else { Err(D::Error::custom("a chance is a number from 0 to 1")) }
}

/// A list of which one is picked.
pub(crate) fn not_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(deserializer)?;
    if list.is_empty() {
        Err(D::Error::custom("the list is empty: leave the key out for its default"))
    } else {
        Ok(list)
    }
}
