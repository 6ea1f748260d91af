//! The list of outcomes agrees with the error enums.

use std::collections::BTreeSet;

use super::Op;
use super::coverage::{coverage, outcomes, unreachable_pairs};

/// A sample of every variant of every error. The list does not compile without all of them.
const SAMPLES: &str =
    include_str!("../../../../crates/gossip-coordination/src/error_samples_tests.rs");

/// Outcomes that are not errors.
const SUCCESSES: [&str; 3] = ["Executed", "Replayed", "Parks"];

/// Returns the variants of an operation's error, from the list of samples.
fn variants(op: Op) -> Vec<&'static str> {
    match op {
        Op::Acquire => names("acquire_errors"),
        Op::Renew => names("renew_errors"),
        Op::Checkpoint => names("checkpoint_errors"),
        Op::Complete => names("complete_errors"),
        Op::Park => names("park_errors"),
        Op::SplitReplace | Op::SplitResidual => names("split_errors"),
        Op::Release => names("release_errors"),
        Op::Offer => names("offer_errors"),
        Op::Accept => names("accept_errors"),
        Op::Withdraw => names("withdraw_errors"),
        Op::Unpark => names("unpark_errors"),
        Op::RequestAction => names("request_action_errors"),
        Op::RevokeLease => names("revoke_lease_errors"),
        Op::CreateRun => names("create_run_errors"),
        Op::RegisterShards => names("register_errors"),
        Op::CompleteRun | Op::FailRun | Op::CancelRun | Op::PauseRun | Op::ResumeRun => {
            names("run_transition_errors")
        }
        Op::DeleteRun => names("delete_run_errors"),
        Op::CollectRun => names("not_collected"),
    }
}

/// Returns the names of the samples in a list.
fn names(list: &str) -> Vec<&'static str> {
    let (_, rest) = SAMPLES.split_once(&format!("\n    {list}: ")).expect("the list is there");
    let (block, _) = rest.split_once("\n    }\n").expect("the list ends");
    // A sample begins a line below the name of its enum; continuation lines are indented further.
    let lines = block.lines().skip(1).filter_map(|line| line.strip_prefix("        "));
    let starts = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    let names: Vec<_> = starts.filter_map(|line| line.split([' ', '{', '(']).next()).collect();
    assert!(!names.is_empty(), "{list} has samples");
    names
}

#[test]
fn every_error_variant_is_listed_once_as_reachable_or_unreachable() {
    for op in Op::ALL {
        let met = outcomes(op).split_whitespace().filter(|name| !SUCCESSES.contains(name));
        let unreachable = unreachable_pairs();
        let of_op = unreachable.iter().filter(|(other, ..)| *other == op);
        let mut listed: Vec<&str> = met.chain(of_op.map(|(_, name, _)| *name)).collect();
        listed.sort_unstable();
        let mut of_enum = variants(op);
        of_enum.sort_unstable();
        assert_eq!(listed, of_enum, "{op:?}");
    }
}

#[test]
fn missing_and_unlisted_outcomes_are_reported() {
    let of = |op, name: &str| (op, name.to_owned());
    let reached = BTreeSet::from([
        of(Op::CreateRun, "Executed"),
        of(Op::CreateRun, "RunAlreadyExists, again"),
        of(Op::CreateRun, "Surprise"),
    ]);
    let table = coverage(&reached);
    assert!(table.missing.iter().all(|(op, _)| *op != Op::CreateRun), "{:?}", table.missing);
    assert!(table.missing.contains(&(Op::Acquire, "Executed")));
    assert_eq!(table.surprising, [of(Op::CreateRun, "Surprise")]);
}
