//! The short form of the model check: every world to its end, and every planted bug found.

use std::collections::BTreeSet;

use rstest::rstest;

use super::configurations::{Config, Scale, configuration, configurations};
use super::{Bug, Op, Report, Rule, Strictness, coverage, search};

/// Issue 5 asks for so many distinct states within the tests.
const STATES_MIN: usize = 1_000_000;

fn short(name: &str) -> Config {
    configuration(name, Scale::Short).expect("a configuration of that name")
}

fn search_to_the_end(config: Config) -> Report {
    let report = search(config, None, Strictness::Records, usize::MAX);
    let name = report.name;
    if let Some(finding) = report.finding {
        panic!("{name}: {:?}\n{}", finding.violation, finding.trace.join("\n"));
    }
    assert!(report.exhausted, "{name}: the queue is empty");
    report
}

#[test]
fn every_short_world_keeps_the_rules_to_its_end() {
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
    let report = search(short("lease"), None, Strictness::Records, 100);
    assert!(!report.exhausted);
    assert!(report.states >= 100);
    assert!(report.finding.is_none());
}

#[rstest]
#[case(Strictness::Records)]
#[case(Strictness::Effects)]
fn every_planted_bug_is_found(#[case] strictness: Strictness) {
    for bug in Bug::ALL {
        let report = search(short(bug.home()), Some(bug), strictness, usize::MAX);
        assert!(report.finding.is_some(), "{bug:?} stays hidden in {}", bug.home());
    }
}

/// The rule that finds a bug when only effects are looked at.
#[rstest]
#[case(Bug::FenceIgnored, Rule::StaleFence)]
#[case(Bug::ExpiryInclusive, Rule::Expired)]
#[case(Bug::EarlyTakeover, Rule::TwoOwners)]
#[case(Bug::ChildLost, Rule::Tiling)]
#[case(Bug::LimitIgnored, Rule::Limit)]
#[case(Bug::ReplayAfterLease, Rule::Replay)]
#[case(Bug::CursorFalls, Rule::ProgressFell)]
#[case(Bug::CursorReset, Rule::Acknowledged)]
#[case(Bug::RenewalLost, Rule::OwnerShutOut)]
#[case(Bug::FenceReusedAfterUnpark, Rule::FenceFell)]
#[case(Bug::AcceptedByAnybody, Rule::Handoff)]
#[case(Bug::SourceNotFrozen, Rule::FrozenSource)]
#[case(Bug::LateOfferStands, Rule::MoveRedoesNothing)]
#[case(Bug::DeadRunGrows, Rule::RunOver)]
#[case(Bug::RunEndsUnsettled, Rule::RunUnsettled)]
#[case(Bug::RunIdReused, Rule::RunReborn)]
#[case(Bug::WrongTenant, Rule::Tenants)]
fn a_bug_breaks_the_rule_it_is_about(#[case] bug: Bug, #[case] rule: Rule) {
    let report = search(short(bug.home()), Some(bug), Strictness::Effects, usize::MAX);
    let finding = report.finding.expect("it is found");
    assert_eq!(finding.violation.rule, rule, "{}", finding.trace.join("\n"));
}

/// The limit of a rule, stated so that a longer memory is noticed here: once sixteen operations
/// have pushed a withdrawal out of the log, a late offer stands again.
#[test]
fn a_planned_move_may_redo_keys_once_the_withdrawal_is_forgotten() {
    let config = Config { honest: true, ..short("forgotten") };
    let report = search(config, None, Strictness::Records, usize::MAX);
    let finding = report.finding.expect("the log forgets");
    assert_eq!(finding.violation.rule, Rule::MoveRedoesNothing);
}

#[test]
fn a_finding_tells_the_shortest_way_to_it() {
    let bug = Some(Bug::FenceIgnored);
    let report = search(short("lease"), bug, Strictness::Records, usize::MAX);
    let trace = report.finding.expect("it is found").trace;
    // One worker acquires and sends, its lease runs out, another acquires, the message arrives.
    assert_eq!(trace.len(), 6, "{}", trace.join("\n"));
    assert!(trace[5].contains("fence 2"), "{}", trace[5]);
}
