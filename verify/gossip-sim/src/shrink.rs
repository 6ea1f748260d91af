//! Shrinks a failing simulation to a smaller one that breaks the same rule.
//!
//! Kinds of faults are dropped first, then tenants, workers and operations, and finally single
//! faults by bisection. Every candidate is run to its end, so the result is a complete plan that
//! one command reproduces.

use super::Simulator;
use super::faults::FaultKind;
use super::oracle::Rule;
use super::plan::Plan;

/// Maximum number of simulations to shrink one.
const RUNS_MAX: usize = 400;

/// Returns a smaller plan that breaks the rule that `plan` breaks; `plan` itself if none is found.
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
    /// Keeps `plan` if it breaks the rule. Returns whether it does.
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

    /// Operations after the violation rarely matter. But a shorter simulation enters its calm phase
    /// earlier, so the candidate is run before it is kept.
    fn try_shorter(&mut self, operations: u64) {
        let operations = operations + 1;
        if operations < self.best.operations {
            self.try_plan(Plan { operations, ..self.best.clone() });
        }
    }

    /// Drops single faults: halves of the rest, then quarters, and so on.
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
