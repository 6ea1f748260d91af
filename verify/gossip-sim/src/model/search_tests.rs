//! The short form of the model check: every configuration to its end. `mutants_tests.rs` has the
//! bugs.

use std::collections::BTreeSet;

use super::configurations::{Config, Scale, configuration, configurations};
use super::{Op, Report, Rule, Strictness, coverage, search};

/// Issue 5 requires this many distinct states within the tests.
const STATES_MIN: usize = 1_000_000;

fn short(name: &str) -> Config {
    configuration(name, Scale::Short).expect("a configuration of that name")
}

fn search_to_the_end(config: Config) -> Report {
    let report = search(config, Strictness::Records, usize::MAX);
    let name = report.name;
    if let Some(finding) = report.finding {
        panic!("{name}: {:?}\n{}", finding.violation, finding.trace.join("\n"));
    }
    assert!(report.exhausted, "{name}: the queue is empty");
    report
}

#[test]
fn every_short_configuration_keeps_the_rules() {
    let mut reached: BTreeSet<(Op, String)> = BTreeSet::new();
    let mut states = 0;
    for config in configurations(Scale::Short) {
        let report = search_to_the_end(config);
        states += report.states;
        reached.extend(report.reached);
    }
    assert!(states >= STATES_MIN, "{states} states are too few");
    let table = coverage(&reached);
    assert_eq!(table.missing, [], "every outcome of every operation is met");
    assert_eq!(table.surprising, [], "every outcome that is met is known");
}

#[test]
fn a_search_gives_the_same_counts_every_time() {
    let counts = || {
        let Report { states, moves, depth, sizes, .. } = search_to_the_end(short("lease"));
        (states, moves, depth, sizes)
    };
    assert_eq!(counts(), counts());
}

#[test]
fn a_search_that_is_cut_short_says_so() {
    let report = search(short("lease"), Strictness::Records, 100);
    assert!(!report.exhausted);
    assert!(report.states >= 100);
    assert!(report.finding.is_none());
}

/// A sequence keeps out the late offer that the log does not recognize any more.
#[test]
fn a_handoff_of_sequenced_operations_redoes_nothing() {
    let forgotten = short("forgotten");
    search_to_the_end(Config { honest: true, sequenced: true, ..forgotten });
}

/// A known limitation of operations without a sequence: once sixteen operations have evicted a
/// withdrawal from the log, a late offer is opened again. A longer log would make this test fail.
#[test]
fn a_handoff_may_redo_keys_once_the_withdrawal_is_forgotten() {
    let config = Config { honest: true, ..short("forgotten") };
    let report = search(config, Strictness::Records, usize::MAX);
    let finding = report.finding.expect("the log evicts the withdrawal");
    assert_eq!(finding.violation.rule, Rule::MoveRedoesNothing);
}
