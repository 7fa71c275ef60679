//! Tests of the log as a whole on real files, and of its pure parts.

mod core;
mod cycles;
mod damage;
mod format;
mod grouping;
mod support;
