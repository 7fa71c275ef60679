//! `[low, high]`, both included.

use serde::{Deserialize, Deserializer};

/// A range that a seed draws from. In a file: `[low, high]`, or one number for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range<T>(pub T, pub T);

impl Range<u32> {
    /// Draws a number.
    pub fn draw(self, rng: &mut fastrand::Rng) -> u32 {
        rng.u32(self.0..=self.1)
    }
}

impl Range<i32> {
    /// Draws a number.
    pub fn draw(self, rng: &mut fastrand::Rng) -> i32 {
        rng.i32(self.0..=self.1)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Form<T> {
    Both([T; 2]),
    One(T),
}

impl<'de, T: Deserialize<'de> + PartialOrd + Copy> Deserialize<'de> for Range<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Self(low, high) = match Form::deserialize(deserializer)? {
            Form::Both([low, high]) => Self(low, high),
            Form::One(value) => Self(value, value),
        };
        if low > high {
            return Err(serde::de::Error::custom("a range is [low, high], with low at most high"));
        }
        Ok(Self(low, high))
    }
}
