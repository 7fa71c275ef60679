//! What is to run: a scenario with a seed.

use crate::plan::Plan;
use crate::scenario::Scenario;
use crate::trace::TraceMode;

/// What to run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The scenario.
    pub scenario: Scenario,
    /// The seed.
    pub seed: u64,
    /// The seed of the scheduler, which picks among the tasks that are ready; the same as `seed` if `None`.
    pub scheduler: Option<u64>,
    /// The fault plan; drawn from the seed if `None`.
    pub plan: Option<Plan>,
    /// The arguments of `replay` that run precisely this again.
    pub replay: String,
    /// What becomes of the trace.
    pub trace: TraceMode,
    /// Whether a timeline is made.
    pub timeline: bool,
}
