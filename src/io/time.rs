//! Time as values: monotonic instants and wall-clock milliseconds. Arithmetic only; nothing here reads a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

use super::future::BoxFuture;

/// A point on the monotonic clock: nanoseconds since an arbitrary start of this incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// Milliseconds since this incarnation's arbitrary start.
    pub fn as_millis(self) -> i64 {
        i64::try_from(self.0 / 1_000_000).expect("2^64 nanoseconds are fewer than 2^63 milliseconds")
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Monotonic {
    type Output = Duration;
    /// The time from `rhs` to `self`; zero if `rhs` is later.
    fn sub(self, rhs: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(rhs.0))
    }
}

/// Wall-clock time: milliseconds since the Unix epoch, as Kafka's timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallMs(pub i64);

/// The two clocks.
pub trait Clock: Send + Sync {
    /// Monotonic time.
    fn now(&self) -> Monotonic;
    /// Wall-clock time.
    fn wall(&self) -> WallMs;
    /// Resolves at `deadline`.
    fn sleep_until(&self, deadline: Monotonic) -> BoxFuture<'static, ()>;
}
