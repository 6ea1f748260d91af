//! The short form of `cargo xtask check-handoff`.

use rstest::rstest;

use crate::search::{Broken, Budget, Bug, Report, explore};

/// More states than any of these worlds has.
const STATES_MAX: u64 = 3_000_000;

/// Up to one tick after the end of the offer, so that every fault occurs in every phase.
fn budget(faults: u8, crashes: u8) -> Budget {
    Budget { faults, crashes, renewals: 0, takeovers: 0, ticks: 3 }
}

/// Up to the end of the lease and a takeover.
const LONG: Budget = Budget { faults: 0, crashes: 1, renewals: 0, takeovers: 1, ticks: 4 };

fn assert_sound(name: &str, report: &Report) {
    println!("{name}: {report:?}");
    assert_eq!(report.finding, None);
    assert!(report.is_complete && report.live > 0 && report.ends > 0);
}

#[test]
fn one_fault_anywhere_leaves_one_owner() {
    assert_sound("one fault", &explore(budget(1, 0), None, STATES_MAX));
}

#[test]
fn one_crash_anywhere_leaves_one_owner() {
    assert_sound("one crash", &explore(budget(0, 1), None, STATES_MAX));
}

#[test]
fn the_same_world_is_searched_the_same_way() {
    let [one, other] = [(); 2].map(|()| explore(budget(0, 0), None, STATES_MAX));
    assert_eq!(one, other);
    assert_sound("nothing goes wrong", &one);
}

#[rstest]
#[case(Bug::ResumesWithoutWithdrawing, &[Broken::OfferedWhileResumed, Broken::TwoOwners])]
#[case(Bug::RollsBackAfterAccept, &[Broken::TwoOwners, Broken::RolledBackAfterAccept])]
#[case(Bug::ForwardOnForeignId, &[Broken::ForwardWithoutTheMove])]
#[case(Bug::RollsBackWithoutWithdrawing, &[Broken::RolledBackAfterAccept])]
fn a_mutant_is_found(#[case] bug: Bug, #[case] as_one_of: &[Broken]) {
    let report = explore(LONG, Some(bug), STATES_MAX);
    println!("{bug:?}: {report:?}");
    let found = report.finding.expect("the mutant is found");
    assert!(as_one_of.contains(&found.broken), "{found:?}");
}
