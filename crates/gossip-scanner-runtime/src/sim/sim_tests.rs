//! Worlds of the worker: none is broken, each is the same again, and a planted bug is found.

use gossip_sim::RoughDisk;

use super::{Bug, Plan, Totals, hunt, play};

/// Worlds of the short form.
const WORLDS: u64 = 120;

/// Worlds in which a planted bug must be found.
const HUNT_MAX: u64 = 1_000;

#[test]
fn no_world_breaks_a_rule() {
    let mut totals = Totals::default();
    for seed in 0..WORLDS {
        let outcome = play(Plan::of_seed(seed));
        assert_eq!(outcome.broken, None, "{}", Plan::of_seed(seed).command());
        totals.add(&outcome);
    }
    let unseen: Vec<_> = RoughDisk::KINDS.iter().filter(|it| totals.faults(**it) == 0).collect();
    assert!(unseen.is_empty(), "{unseen:?} did not happen");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 0..20 {
        let (one, other) = (play(Plan::of_seed(seed)), play(Plan::of_seed(seed)));
        assert_eq!((one.trace, one.steps), (other.trace, other.steps), "seed {seed}");
    }
    assert_ne!(play(Plan::of_seed(1)).trace, play(Plan::of_seed(2)).trace);
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = hunt(*bug, HUNT_MAX);
        if let Some((seed, violation)) = &found {
            let (name, what, story, rule) = (bug.name(), bug.what(), bug.story(), violation.rule);
            println!("| {name} | {what} | {story} | {rule:?} | {} |", seed + 1);
        }
        assert!(found.is_some(), "{} is not found", bug.name());
    }
}
