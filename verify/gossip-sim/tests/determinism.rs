//! The same seed gives the same simulation, in this build and in every other.
//!
//! `cargo xtask test` runs this file in debug and again in release, where debug assertions are off
//! and optimizations are on. It is a file of its own so that the second build is small.

use gossip_sim::{FINGERPRINT, FaultSet, Plan, Report, Simulator, fingerprint};

fn run(plan: &Plan) -> Report {
    Simulator::new().run(plan).unwrap_or_else(|failure| panic!("{:?}", failure.violation))
}

#[test]
fn the_fingerprint_is_the_same_in_debug_and_in_release() {
    let found = fingerprint(&Simulator::new()).expect("the simulation breaks no rule");
    assert_eq!(found, FINGERPRINT, "{found:016x}");
}

#[test]
fn the_same_plan_gives_the_same_report() {
    for seed in [3, 8, 21] {
        let plan = Plan::of_seed(seed, 1_000, Some(FaultSet::usual()));
        let first = run(&plan);
        assert_eq!(first.to_line(), run(&plan).to_line());
        let other = run(&Plan { seed: seed + 1, ..plan });
        assert_ne!(first.trace_hash, other.trace_hash, "another seed gives another hash");
    }
}
