//! The sample worker of the documentation: the oracle finds its bug, and accepts it without the
//! bug.

use gossip_contracts::identity::{FenceEpoch, RunId};
use gossip_sim::command::Options;
use gossip_sim::oracle::Rule;
use gossip_sim::{Failure, FaultSet, Plan, ResultSink, SimWorker, Simulator, Trial, shrink};
use sample::Manner;

#[path = "../examples/your_worker.rs"]
#[expect(dead_code, reason = "the program around the worker is not called here")]
mod sample;

/// Operations of each simulation.
const OPERATIONS: u64 = 1_500;

/// Simulations in which a failure must appear.
const SEEDS: u64 = 6;

fn simulator(manner: Manner) -> Simulator {
    Simulator::of(Trial::of(move |me| sample::live(me, manner)), "your_worker")
}

/// Returns the first simulation of `simulator` that breaks a rule.
fn first_failure(simulator: &Simulator) -> Option<(Plan, Failure)> {
    (1..=SEEDS).find_map(|seed| {
        let plan = Plan::of_seed(seed, OPERATIONS, Some(FaultSet::usual()));
        Some((plan.clone(), simulator.run(&plan).err()?))
    })
}

#[test]
fn a_careful_worker_keeps_the_rules() {
    if let Some((plan, failure)) = first_failure(&simulator(Manner::Careful)) {
        panic!("{:?}\n{}", failure.violation, plan.words());
    }
}

#[test]
fn a_hasty_worker_is_found_and_its_reproduction_fails_alike() {
    let simulator = simulator(Manner::Hasty);
    let (plan, failure) = first_failure(&simulator).expect("it moves its cursor past lost keys");
    assert_eq!(failure.violation.rule, Rule::LostKey, "{}", failure.violation.why);
    let small = shrink(&simulator, plan);
    let line = simulator.replay(&small);
    let words: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
    let options = Options::parse(&words).expect("a reproduction is a command");
    let again = simulator.run(&options.plan(small.seed)).expect_err("the reproduction fails, too");
    assert_eq!(again.violation.rule, Rule::LostKey);
    assert!(!again.trace.is_empty(), "a reproduction has a trace");
}

#[test]
fn a_user_worker_is_deterministic() {
    let plan = Plan::of_seed(3, OPERATIONS, None);
    let hash = || simulator(Manner::Careful).run(&plan).map(|report| report.trace_hash).ok();
    assert!(hash().is_some());
    assert_eq!(hash(), hash());
}

/// A sink that does not compare fences.
struct Unfenced;

impl ResultSink for Unfenced {
    fn write(&mut self, _: RunId, _: &[u8], _: FenceEpoch) -> bool {
        true
    }
}

#[test]
fn a_sink_that_ignores_fences_is_found() {
    let trial = Trial::of(|me| sample::live(me, Manner::Careful)).with_sink(|| Unfenced);
    let found = first_failure(&Simulator::of(trial, "your_worker"));
    let rule = found.map(|(_, failure)| failure.violation.rule);
    assert_eq!(rule, Some(Rule::SinkOrder));
}

#[test]
fn a_worker_that_awaits_a_foreign_future_is_found() {
    let trial = Trial::of(|_: SimWorker| std::future::pending());
    let plan = Plan::of_seed(1, OPERATIONS, None);
    let failure =
        Simulator::of(trial, "your_worker").run(&plan).expect_err("the future is never ready");
    assert_eq!(failure.violation.rule, Rule::Panicked);
}
