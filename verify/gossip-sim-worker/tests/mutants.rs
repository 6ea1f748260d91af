//! Simulated worlds find every planted bug of the worker's loop.
#![cfg(planted_bugs)]

use gossip_scanner_runtime::planted_bugs::{Bug, with};
use gossip_sim_worker::sim::first_violation;

/// Worlds in which a planted bug must be found.
const HUNT_MAX: u64 = 1_000;

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = with(*bug, || first_violation(HUNT_MAX));
        if let Some((seed, violation)) = &found {
            let (name, what, story, rule) = (bug.name(), bug.what(), bug.story(), violation.rule);
            println!("| {name} | {what} | {story} | {rule:?} | {} |", seed + 1);
        }
        assert!(found.is_some(), "{} is not found", bug.name());
    }
}
