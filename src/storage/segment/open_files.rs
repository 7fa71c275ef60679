//! Which segments keep their file open, and their index in memory if they are sealed: those used last.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::lock::lock;

/// Segments (`S`) in use, in the order of their last use.
pub(super) struct OpenFileLru<S> {
    segments_max: usize,
    order: Mutex<Order<S>>,
    /// Where a segment keeps its place in this order; 0: it has none.
    place: fn(&S) -> &AtomicU64,
}

struct Order<S> {
    tick: u64,
    by_tick: BTreeMap<u64, Weak<S>>,
}

impl<S> OpenFileLru<S> {
    pub(super) fn new(segments_max: usize, place: fn(&S) -> &AtomicU64) -> Self {
        Self {
            segments_max: segments_max.max(1),
            order: Mutex::new(Order { tick: 0, by_tick: BTreeMap::new() }),
            place,
        }
    }

    /// Notes that a segment is used now. Returns those that were used longest ago and are too many now.
    pub(super) fn touch(&self, segment: &Arc<S>) -> Vec<Arc<S>> {
        let mut order = lock(&self.order);
        order.tick += 1;
        let tick = order.tick;
        let before = (self.place)(segment).swap(tick, Ordering::Relaxed);
        order.by_tick.remove(&before);
        order.by_tick.insert(tick, Arc::downgrade(segment));
        let mut cold = Vec::new();
        while order.by_tick.len() > self.segments_max {
            let Some((_, coldest)) = order.by_tick.pop_first() else { break };
            cold.extend(coldest.upgrade());
        }
        cold
    }
}
