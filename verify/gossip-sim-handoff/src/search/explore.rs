//! Breadth-first search: visits each state once and finds a shortest path to a violation.

use std::collections::{BTreeSet, VecDeque};

use super::bugs::Bug;
use super::world::{Action, Broken, Budget, World, is_live};

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Distinct states.
    pub states: u64,
    /// Transitions, including those to known states.
    pub steps: u64,
    /// Final states. Each was continued without faults until it settled.
    pub ends: u64,
    /// States in which the destination is live.
    pub live: u64,
    /// Length of the longest path.
    pub depth: usize,
    /// Whether every state within the budget was visited.
    pub is_complete: bool,
    /// The first violation, if any.
    pub finding: Option<Finding>,
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The violated property.
    pub broken: Broken,
    /// A shortest path to it.
    pub way: Vec<Action>,
}

/// The transition that reached a state.
struct Step {
    parent: usize,
    action: Action,
}

/// Searches all states within `budget`, until a violation is found or `states_max` are visited.
#[must_use]
pub fn explore(budget: Budget, bug: Option<Bug>, states_max: u64) -> Report {
    let (first, mut kernels) = World::new(budget, bug);
    let mut report = Report { states: 1, ..Report::default() };
    let mut seen = BTreeSet::from([first.fingerprint()]);
    let mut steps = vec![Step { parent: 0, action: Action::Tick }];
    let mut open = VecDeque::from([(0_usize, 0_usize, first)]);
    while let Some((index, depth, world)) = open.pop_front() {
        report.depth = report.depth.max(depth);
        report.live += u64::from(is_live(&world));
        let mut is_end = true;
        for action in world.actions() {
            let Some(next) = world.after(action, &mut kernels) else { continue };
            report.steps += 1;
            is_end = false;
            if !seen.insert(next.fingerprint()) {
                continue;
            }
            report.states += 1;
            steps.push(Step { parent: index, action });
            if let Err(broken) = next.check(&mut kernels) {
                let way = way_to(&steps, steps.len() - 1);
                return Report { finding: Some(Finding { broken, way }), ..report };
            }
            open.push_back((steps.len() - 1, depth + 1, next));
        }
        if is_end {
            report.ends += 1;
            if let Err(broken) = world.settles(&mut kernels) {
                let way = way_to(&steps, index);
                return Report { finding: Some(Finding { broken, way }), ..report };
            }
        }
        if report.states >= states_max {
            return report;
        }
    }
    Report { is_complete: true, ..report }
}

fn way_to(steps: &[Step], mut index: usize) -> Vec<Action> {
    let mut way = Vec::new();
    while index > 0 {
        way.push(steps[index].action);
        index = steps[index].parent;
    }
    way.reverse();
    way
}
