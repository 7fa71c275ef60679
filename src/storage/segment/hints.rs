//! Where readers may want to go on.

use std::collections::VecDeque;

/// How many readers going through the segment at the same time find their place again at once.
const HINTS_MAX: usize = 32;

/// Where the last reads ended: the places that sequential readers want next.
#[derive(Debug, Default)]
pub(super) struct Hints(VecDeque<(i64, u64)>);

impl Hints {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn put(&mut self, offset: i64, position: u64) {
        self.0.retain(|(known, _)| *known != offset);
        if self.0.len() >= HINTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((offset, position));
    }

    pub(super) fn floor(&self, offset: i64) -> Option<(i64, u64)> {
        self.0.iter().filter(|(known, _)| *known <= offset).max().copied()
    }
}
