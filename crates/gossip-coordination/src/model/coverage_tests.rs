//! The list of outcomes is the list of what the enums have.

use std::collections::BTreeSet;

use super::Op;
use super::coverage::{coverage, outcomes, unreachable_pairs};
use crate::error_samples_tests as samples;

/// What an operation can come to beside its errors.
const SUCCESSES: [&str; 3] = ["Executed", "Replayed", "Parks"];

/// The variants of an operation's error: the samples of an enum do not compile without all of them.
fn variants(op: Op) -> Vec<&'static str> {
    match op {
        Op::Acquire => names(samples::acquire_errors()),
        Op::Renew => names(samples::renew_errors()),
        Op::Checkpoint => names(samples::checkpoint_errors()),
        Op::Complete => names(samples::complete_errors()),
        Op::Park => names(samples::park_errors()),
        Op::SplitReplace | Op::SplitResidual => names(samples::split_errors()),
        Op::Release => names(samples::release_errors()),
        Op::Offer => names(samples::offer_errors()),
        Op::Accept => names(samples::accept_errors()),
        Op::Withdraw => names(samples::withdraw_errors()),
        Op::Unpark => names(samples::unpark_errors()),
        Op::RequestAction => names(samples::request_action_errors()),
        Op::RevokeLease => names(samples::revoke_lease_errors()),
        Op::CreateRun => names(samples::create_run_errors()),
        Op::RegisterShards => names(samples::register_errors()),
        Op::CompleteRun | Op::FailRun | Op::CancelRun | Op::PauseRun | Op::ResumeRun => {
            names(samples::run_transition_errors())
        }
        Op::DeleteRun => names(samples::delete_run_errors()),
        Op::CollectRun => names(samples::not_collected()),
    }
}

fn names<E>(samples: Vec<(&'static str, E)>) -> Vec<&'static str> {
    samples.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn every_variant_of_an_error_is_listed_once_as_met_or_as_unreachable() {
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
fn what_was_not_met_and_what_is_not_listed_is_told() {
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
