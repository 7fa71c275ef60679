//! A plan taken apart into single faults, and put together again from some of them.

use crate::plan::{Action, FaultKind, Plan};

/// A single fault: an action, and which part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    action: usize,
    part: usize,
}

/// All single faults of a plan, in order.
pub fn pieces(plan: &Plan) -> Vec<Piece> {
    let parts = |action: &Action| match &action.what {
        FaultKind::Crashes(crashes) => crashes.len(),
        FaultKind::SyncFailure { then: Some(_), .. } => 2,
        _ => 1,
    };
    plan.actions
        .iter()
        .enumerate()
        .flat_map(|(action, one)| (0..parts(one)).map(move |part| Piece { action, part }))
        .collect()
}

/// The plan with these of its single faults alone.
pub fn assemble(plan: &Plan, left: &[Piece]) -> Plan {
    let mut actions = Vec::new();
    for (index, action) in plan.actions.iter().enumerate() {
        let has = |part: usize| left.contains(&Piece { action: index, part });
        let what = match &action.what {
            FaultKind::Crashes(crashes) => {
                let some: Vec<_> =
                    crashes.iter().enumerate().filter(|(part, _)| has(*part)).map(|(_, one)| one.clone()).collect();
                (!some.is_empty()).then_some(FaultKind::Crashes(some))
            }
            FaultKind::SyncFailure { injection, down_ms, then } if has(0) => {
                let then = then.clone().filter(|_| has(1));
                Some(FaultKind::SyncFailure { injection: injection.clone(), down_ms: *down_ms, then })
            }
            // The crash that followed the failed flush, without it.
            FaultKind::SyncFailure { then: Some(crash), .. } if has(1) => Some(FaultKind::Crashes(vec![crash.clone()])),
            FaultKind::SyncFailure { .. } => None,
            whole => has(0).then(|| whole.clone()),
        };
        actions.extend(what.map(|what| Action { at_ms: action.at_ms, what }));
    }
    Plan { actions, ..plan.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn plan() -> Plan {
        let text = "[phases]\nfaults_ms = 20000\n[[faults]]\nevery_ms = 900\ncrash = { again = [0, 3] }\n[[faults]]\n\
                    every_ms = 900\nsync_failure = {}\n[[faults]]\nevery_ms = 900\npause = {}\n";
        Plan::draw(&Scenario::parse("s", text).unwrap(), 2, &mut fastrand::Rng::with_seed(5))
    }

    #[test]
    fn all_pieces_make_the_whole_and_none_make_nothing() {
        let plan = plan();
        let all = pieces(&plan);
        assert_eq!(all.len(), plan.faults());
        assert_eq!(assemble(&plan, &all), plan);
        assert!(assemble(&plan, &[]).actions.is_empty());
    }

    #[test]
    fn each_piece_alone_is_one_fault() {
        let plan = plan();
        for piece in pieces(&plan) {
            assert_eq!(assemble(&plan, &[piece]).faults(), 1, "{piece:?}");
        }
    }
}
