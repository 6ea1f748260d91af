//! Worlds of the worker: none breaks a rule, and the same seed gives the same world.

use gossip_sim::FaultyDisk;

use super::{Plan, Totals, run};

/// Worlds of the short form.
const WORLDS: u64 = 120;

#[test]
fn no_world_breaks_a_rule() {
    let mut totals = Totals::default();
    for seed in 0..WORLDS {
        let outcome = run(Plan::of_seed(seed));
        assert_eq!(outcome.broken, None, "{}", Plan::of_seed(seed).command());
        totals.add(&outcome);
    }
    let unseen: Vec<_> = FaultyDisk::KINDS.iter().filter(|it| totals.faults(**it) == 0).collect();
    assert!(unseen.is_empty(), "{unseen:?} did not happen");
    assert!(totals.seen().replaced > 0, "no shard was replaced");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 0..20 {
        let (one, other) = (run(Plan::of_seed(seed)), run(Plan::of_seed(seed)));
        assert_eq!((one.trace, one.steps), (other.trace, other.steps), "seed {seed}");
    }
    assert_ne!(run(Plan::of_seed(1)).trace, run(Plan::of_seed(2)).trace);
}
