//! Breadth first: each state once, and the shortest way to what is broken.

use std::collections::{BTreeSet, VecDeque};

use super::bugs::Bug;
use super::world::{Action, Broken, Budget, World, is_live};

/// What a search came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Different states.
    pub states: u64,
    /// Steps from one state to another, also to one that was seen before.
    pub steps: u64,
    /// States in which nothing can happen any more. Each was let come to rest without faults.
    pub ends: u64,
    /// States in which the destination is live.
    pub live: u64,
    /// Steps of the longest way that was needed.
    pub depth: usize,
    /// Whether every state within the budget was seen.
    pub is_complete: bool,
    /// What was found first, if anything.
    pub finding: Option<Finding>,
}

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub broken: Broken,
    /// The shortest way to it.
    pub way: Vec<Action>,
}

/// How a state was reached.
struct Step {
    parent: usize,
    action: Action,
}

/// Searches everything within `budget`, or until something is found, or `states_max` were seen.
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
