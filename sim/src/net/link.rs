//! Links between nodes, one per direction, as data and with their state.

use serde::{Deserialize, Serialize};

/// How a link behaves, in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    /// Microseconds that every segment takes.
    pub latency_us: u64,
    /// Microseconds that come on top, drawn evenly from zero to this.
    pub jitter_us: u64,
    /// Bytes per second, shared by all connections.
    pub bytes_per_s: u64,
    /// Chance that a segment is lost and sent again, which costs `resend_ms`.
    #[serde(deserialize_with = "crate::valid::chance")]
    pub loss: f64,
    /// Milliseconds.
    pub resend_ms: u64,
    /// Chance per segment that the connection is reset, both ways.
    #[serde(deserialize_with = "crate::valid::chance")]
    pub reset: f64,
    /// Bytes of the largest segment. Segments are often smaller.
    pub segment_bytes_max: usize,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            latency_us: 100,
            jitter_us: 200,
            bytes_per_s: 1_000_000_000 / 8,
            loss: 0.0,
            resend_ms: 200,
            reset: 0.0,
            segment_bytes_max: 64 * 1024,
        }
    }
}

/// The link from a node to itself.
pub(super) fn loopback() -> LinkConfig {
    LinkConfig { latency_us: 5, jitter_us: 20, bytes_per_s: 5_000_000_000, ..LinkConfig::default() }
}

/// A direction between two nodes.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) config: LinkConfig,
    /// Nothing passes.
    pub(super) blocked: bool,
    /// When what was sent will have left, in nanoseconds.
    free_at: u64,
}

impl Link {
    pub(super) fn new(config: LinkConfig) -> Self {
        Self { config, blocked: false, free_at: 0 }
    }

    /// Nanoseconds that a small packet takes.
    pub(super) fn latency_ns(&self, rng: &mut fastrand::Rng) -> u64 {
        (self.config.latency_us + rng.u64(0..=self.config.jitter_us)) * 1000
    }

    /// When a segment that is sent now arrives.
    pub(super) fn arrival(&mut self, now: u64, bytes: usize, rng: &mut fastrand::Rng) -> u64 {
        self.free_at = self.free_at.max(now) + bytes as u64 * 1_000_000_000 / self.config.bytes_per_s.max(1);
        let lost = self.config.loss > 0.0 && rng.f64() < self.config.loss;
        let resend = if lost { self.config.resend_ms * 1_000_000 } else { 0 };
        self.free_at + self.latency_ns(rng) + resend
    }
}
