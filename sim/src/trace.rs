//! The trace of a run: one line of text per network, disk and lifecycle event, in the order in which they happened.
//!
//! Two runs with one seed must give the same bytes (S-82). The hash is always kept; the text only where it is asked for.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::hash::Hasher as _;

use kilo::io::probe::Position;

/// What becomes of the lines of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceMode {
    /// Hash them, keep the last few hundred for a report.
    #[default]
    Hash,
    /// Hash and keep all of them.
    Keep,
}

/// Simulated time, given in nanoseconds, in seconds with microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

/// How many lines [`TraceMode::Hash`] keeps.
const TAIL_LINES: usize = 400;

/// An append-only list of events.
pub struct Trace {
    mode: TraceMode,
    // `DefaultHasher::new` has fixed keys.
    hasher: std::hash::DefaultHasher,
    lines: u64,
    text: String,
    tail: VecDeque<String>,
    line: String,
    positions: Option<Vec<PositionAt>>,
}

/// A position that the broker noted, with the time in nanoseconds.
#[derive(Clone, Debug)]
pub struct PositionAt {
    /// When.
    pub at_ns: u64,
    /// Which, of what, and where it was.
    pub position: Position,
}

impl Trace {
    /// An empty trace.
    pub fn new(mode: TraceMode) -> Self {
        Self {
            mode,
            hasher: std::hash::DefaultHasher::new(),
            lines: 0,
            text: String::new(),
            tail: VecDeque::new(),
            line: String::new(),
            positions: None,
        }
    }

    /// From now on the positions that the broker notes are kept. They do not belong to the trace's text.
    pub fn keep_positions(&mut self) {
        kilo::io::probe::note_positions();
        self.positions = Some(Vec::new());
    }

    /// The positions kept.
    pub fn positions(&self) -> &[PositionAt] {
        self.positions.as_deref().unwrap_or_default()
    }

    /// Appends a line: the time in seconds, who, and what.
    pub fn line(&mut self, now_ns: u64, who: &str, what: fmt::Arguments<'_>) {
        if let Some(positions) = &mut self.positions {
            let noted = kilo::io::probe::take_positions().into_iter();
            positions.extend(noted.map(|position| PositionAt { at_ns: now_ns, position }));
        }
        self.line.clear();
        // Writing to a string cannot fail.
        let (s, ns) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000);
        let _ = writeln!(self.line, "{s}.{ns:09} {who} {what}");
        self.hasher.write(self.line.as_bytes());
        self.lines += 1;
        match self.mode {
            TraceMode::Keep => self.text.push_str(&self.line),
            TraceMode::Hash => {
                let mut line = if self.tail.len() == TAIL_LINES {
                    self.tail.pop_front().unwrap_or_default()
                } else {
                    String::new()
                };
                line.clear();
                line.push_str(&self.line);
                self.tail.push_back(line);
            }
        }
    }

    /// A hash of all lines so far. Equal traces have equal hashes in one build of the simulator.
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// How many lines there are.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// What was kept: everything, or the last few hundred lines.
    pub fn text(&self) -> String {
        match self.mode {
            TraceMode::Keep => self.text.clone(),
            TraceMode::Hash => self.tail.iter().map(String::as_str).collect(),
        }
    }
}
