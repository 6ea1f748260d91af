//! Doctored histories of grants and of effects around the end of a lease.

use gossip_coordination::store::Key;
use rstest::rstest;

use super::op::{Op, Verb};
use super::oracle::Rule;
use super::oracle_tests::{History, LEASE, NOW, OTHER, TENANT, at, change, key, rule};
use super::processes::CLOCK_SKEW_HONOURED;

/// The latest presented time at which a deadline of `NOW + LEASE` is too far ahead.
const FAR: u64 = NOW - CLOCK_SKEW_HONOURED - 1;
/// How long nothing must have been written.
const UNWRITTEN: u64 = LEASE + CLOCK_SKEW_HONOURED;

/// The previous lease ends at `NOW + LEASE` in true time, by a clock that is right.
#[rstest]
#[case::presented_time_does_not_count(LEASE - 1, 0, false, Some(Rule::TwoOwners))]
#[case::a_clock_ahead_takes_over_so_much_earlier(LEASE - 7, 7, false, None)]
#[case::and_no_earlier(LEASE - 8, 7, false, Some(Rule::TwoOwners))]
#[case::the_owner_key_defends_against_the_skew(LEASE - 7, 7, true, Some(Rule::TwoOwners))]
#[case::and_no_longer(LEASE - 7 + CLOCK_SKEW_HONOURED, 7, true, None)]
fn grants_are_judged_by_true_time(
    #[case] after: u64,
    #[case] clock_error: i64,
    #[case] owner_key: bool,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let presented = at(NOW + 10 * LEASE, Verb::Claim);
    let claim = Op { begun_true: NOW + after, clock_error, worker: OTHER, ..presented };
    claim.owner_key.set(owner_key);
    assert_eq!(rule(history.applied(&claim, 0)), expected);
}

/// A live lease is taken over if its deadline lies too far ahead of the caller's clock, and nothing
/// was written for a lease and the skew of true time, whatever the caller has measured.
#[rstest]
#[case::far_and_unwritten(FAR, UNWRITTEN, None)]
#[case::written_since(FAR, UNWRITTEN - 1, Some(Rule::TwoOwners))]
#[case::not_far_enough(FAR + 1, 10 * UNWRITTEN, Some(Rule::TwoOwners))]
fn void_deadlines_are_judged_by_true_time(
    #[case] presented: u64,
    #[case] unwritten_for: u64,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    history.oracle.now = 100 * LEASE;
    history.oracle.shards[0].written_true = history.oracle.now - unwritten_for;
    let claim = Op { begun_true: NOW, worker: OTHER, ..at(presented, Verb::Claim) };
    assert_eq!(rule(history.applied(&claim, 0)), expected);
}

/// A clock that was set back since the renewal lets its holder act so much longer.
#[rstest]
#[case::presented_time_does_not_count(LEASE, 0, Some(Rule::Expired))]
#[case::a_clock_set_back_acts_so_much_longer(LEASE + 6, -7, None)]
#[case::and_no_longer(LEASE + 7, -7, Some(Rule::Expired))]
fn effects_are_judged_by_true_time(
    #[case] after: u64,
    #[case] clock_error: i64,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let park = history.under(Verb::Park, |op| {
        (op.begun_true, op.clock_error) = (NOW + after, clock_error);
    });
    assert_eq!(rule(history.applied(&park, 0)), expected);
}

/// A shard is parked by the count only if workers have received it, whatever was counted.
#[test]
fn a_shard_that_no_worker_received_is_not_parked() {
    let mut history = History::new();
    history.oracle.shards[1].attempts = 3;
    let mut parks = change(1);
    parks.put(Key::ParkedIndex { tenant: TENANT, shard: key(1) }, Vec::new());
    let parked = history.oracle.applied(&at(NOW, Verb::Claim), TENANT, &parks);
    assert_eq!(rule(parked), Some(Rule::Attempts));
}
