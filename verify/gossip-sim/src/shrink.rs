//! Making a world that breaks a rule as small as it can be while it breaks the same rule.
//!
//! Kinds of faults are dropped first, then tenants, workers and operations, and in the end single
//! faults, by halves. Every candidate is played to its end, so whatever is left is a plan of its
//! own that one line plays again.

use super::Simulator;
use super::faults::FaultKind;
use super::oracle::Rule;
use super::plan::Plan;

/// Worlds that are played to shrink one, at most.
const RUNS_MAX: usize = 400;

/// A smaller plan that breaks the rule that `plan` breaks, if there is one; `plan` itself if not.
#[must_use]
pub fn shrink(simulator: &Simulator, plan: Plan) -> Plan {
    let Err(failure) = simulator.run(&plan) else { return plan };
    let rule = failure.violation.rule;
    let mut search = Search { simulator, rule, best: plan, runs: 0 };
    search.try_shorter(failure.operations);
    for kind in FaultKind::ALL {
        let faults = search.best.faults.without(*kind);
        search.try_plan(Plan { faults, ..search.best.clone() });
    }
    while search.best.tenants > 1 {
        let tenants = search.best.tenants - 1;
        if !search.try_plan(Plan { tenants, ..search.best.clone() }) {
            break;
        }
    }
    while search.best.workers > 1 {
        let workers = search.best.workers - 1;
        if !search.try_plan(Plan { workers, ..search.best.clone() }) {
            break;
        }
    }
    search.drop_faults();
    search.best
}

struct Search<'s> {
    simulator: &'s Simulator,
    rule: Rule,
    best: Plan,
    runs: usize,
}

impl Search<'_> {
    /// Takes `plan` if it breaks the rule; whether it does.
    fn try_plan(&mut self, plan: Plan) -> bool {
        if self.runs == RUNS_MAX {
            return false;
        }
        self.runs += 1;
        match self.simulator.run(&plan) {
            Err(failure) if failure.violation.rule == self.rule => {
                self.best = plan;
                self.try_shorter(failure.operations);
                true
            }
            Err(_) | Ok(_) => false,
        }
    }

    /// Mostly nothing after the operation that broke the rule matters. Yet a shorter world is calm
    /// sooner, so it is played before it is believed.
    fn try_shorter(&mut self, operations: u64) {
        let operations = operations + 1;
        if operations < self.best.operations {
            self.try_plan(Plan { operations, ..self.best.clone() });
        }
    }

    /// Drops single faults: halves of what is left, then quarters, and so on.
    fn drop_faults(&mut self) {
        let Err(failure) = self.simulator.run(&self.best) else { return };
        let mut left = failure.injected;
        if !self.try_plan(Plan { only: Some(left.clone()), ..self.best.clone() }) {
            return;
        }
        let mut size = left.len().div_ceil(2);
        while size > 0 && self.runs < RUNS_MAX {
            let mut from = 0;
            while from < left.len() {
                let to = (from + size).min(left.len());
                let mut fewer = left.clone();
                fewer.drain(from..to);
                if self.try_plan(Plan { only: Some(fewer.clone()), ..self.best.clone() }) {
                    left = fewer;
                } else {
                    from = to;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}
