//! Doctored histories of `renew_many`: the oracle checks the result of each lease of the batch.

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::store::Key;
use rstest::rstest;

use super::answers::Renewal;
use super::op::{Ending, Label, Member, Op, Verb};
use super::oracle::Rule;
use super::oracle_tests::{History, LEASE, NOW, TENANT, at, key, rule};

/// Returns a batch that renews the lease of `history` only.
fn batch(history: &History) -> Op {
    let op = at(NOW + 1, Verb::RenewMany);
    let (lease, good_until) = (history.lease, history.oracle.good_until(history.lease));
    op.batch.replace(vec![Member {
        lease,
        good_until,
        applied: false,
        refused: false,
        until: None,
        shown: None,
    }]);
    op
}

const LEASE_EXPIRED: &str = "LeaseExpired";

fn refused() -> Renewal {
    Renewal::Not(Ending::Refused, Label::named(LEASE_EXPIRED))
}

fn failed(doubtful: bool) -> Renewal {
    let label = Label::named("BackendError");
    Renewal::Not(Ending::Failed { doubtful, corrupt: false }, label)
}

#[rstest]
#[case::renewed(true, Renewal::Until(NOW + 1 + LEASE, None), None)]
#[case::beyond(true, Renewal::Until(NOW + 2 + LEASE, None), Some(Rule::Acknowledged))]
#[case::never_happened(false, Renewal::Until(NOW + LEASE, None), Some(Rule::Acknowledged))]
#[case::refused_and_done(true, refused(), Some(Rule::RefusedHappened))]
#[case::refused_a_live_lease(false, refused(), Some(Rule::OwnerShutOut))]
#[case::failed_and_done(true, failed(false), Some(Rule::RefusedHappened))]
#[case::in_doubt(true, failed(true), None)]
fn a_wrong_answer_to_one_of_many_renewals_is_refused(
    #[case] applied: bool,
    #[case] answer: Renewal,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let op = batch(&history);
    if applied {
        history.applied(&op, 0).expect("the holder renews");
    }
    assert_eq!(rule(history.oracle.batch_ended(&op, &[answer])), expected);
}

#[test]
fn one_of_many_that_was_refused_cannot_be_renewed_later() {
    let mut history = History::new();
    let mut op = batch(&history);
    // By a clock for which the lease is expired, a rejection is right.
    op.now = LogicalTime::from_raw(NOW + LEASE);
    history.oracle.batch_ended(&op, &[refused()]).expect("the lease has run out");
    op.now = LogicalTime::from_raw(NOW + 1);
    assert_eq!(rule(history.applied(&op, 0)), Some(Rule::RefusedHappened));
}

#[test]
fn a_batch_cannot_be_decided_about_damaged_bytes() {
    let mut history = History::new();
    let op = batch(&history);
    history.applied(&op, 0).expect("the holder renews");
    op.damaged.set(true);
    op.suspects.borrow_mut().push((Key::ShardHot { tenant: TENANT, shard: key(0) }, true));
    let renewed = Renewal::Until(NOW + 1 + LEASE, None);
    assert_eq!(rule(history.oracle.batch_ended(&op, &[renewed])), Some(Rule::Undetected));
    assert_eq!(rule(history.oracle.batch_ended(&op, &[failed(true)])), None);
}

#[test]
fn a_batch_answers_for_every_lease() {
    let history = History::new();
    let op = batch(&history);
    assert_eq!(rule(history.oracle.batch_ended(&op, &[])), Some(Rule::Acknowledged));
}
