//! Doctored histories of requests to lease holders.

use gossip_contracts::identity::{LogicalTime, OpId};
use gossip_coordination::{PendingRequest, ShardAction};
use rstest::rstest;

use super::op::{Ending, LeaseRef, Op, Verb};
use super::oracle::{Asked, Rule};
use super::oracle_tests::{History, NOW, at, key, rule};

/// Adds a request to the first shard: operation 9, with payload 1.
fn asked(history: &mut History, ended_at: Option<u64>) -> PendingRequest {
    let (op_id, until) = (OpId::from_raw(9), LogicalTime::from_raw(NOW + 50));
    let request = PendingRequest::new(op_id, 5, ShardAction::Release, until);
    let shard = &mut history.oracle.shards[0];
    shard.asked.push(Asked { op_id, payload: 1, stored_at: 1, ended_at });
    shard.request = Some(request.clone()).filter(|_| ended_at.is_none());
    request
}

fn request(op_id: u64, payload: u64, begun_at: u64) -> Op {
    let mut op = at(NOW + 1, Verb::RequestAction);
    (op.target, op.op_id) = (Some(LeaseRef::to(0, key(0))), OpId::from_raw(op_id));
    (op.payload, op.begun_at) = (payload, begun_at);
    op
}

#[rstest]
#[case::pending(9, 1, 1, None, None)]
#[case::ended_during_the_operation(9, 1, 1, Some(2), None)]
#[case::it_ended_before(9, 1, 2, Some(2), Some(Rule::Replay))]
#[case::another_was_asked(9, 2, 1, None, Some(Rule::Replay))]
#[case::by_another_operation(8, 1, 1, None, Some(Rule::Replay))]
fn a_request_is_replayed_only_if_it_was_pending(
    #[case] op_id: u64,
    #[case] payload: u64,
    #[case] begun_at: u64,
    #[case] ended_at: Option<u64>,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    asked(&mut history, ended_at);
    let op = request(op_id, payload, begun_at);
    assert_eq!(rule(history.ended(&op, Ending::Replayed, "Replayed")), expected);
}

#[rstest]
#[case::its_id_is_not_reused(9, 1, 1, "OpIdConflict", Some(Rule::Replay))]
#[case::its_id_is_new(8, 1, 1, "OpIdConflict", Some(Rule::Replay))]
#[case::its_id_is_reused(9, 2, 1, "OpIdConflict", None)]
#[case::pending(9, 1, 1, "RequestPending", Some(Rule::Replay))]
#[case::it_may_have_arrived_before_the_request(9, 1, 0, "RequestPending", None)]
#[case::another_is_pending_under_its_id(9, 2, 1, "RequestPending", Some(Rule::OpIdReused))]
#[case::another_is_pending(8, 1, 1, "RequestPending", None)]
fn a_request_id_is_rejected_only_if_it_is_reused(
    #[case] op_id: u64,
    #[case] payload: u64,
    #[case] begun_at: u64,
    #[case] name: &str,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    asked(&mut history, None);
    let op = request(op_id, payload, begun_at);
    assert_eq!(rule(history.ended(&op, Ending::Refused, name)), expected);
}

#[rstest]
#[case::pending_request(NOW + 1, true, None)]
#[case::nothing(NOW + 1, false, Some(Rule::Acknowledged))]
#[case::expired_request(NOW + 50, true, Some(Rule::Acknowledged))]
#[case::nothing_more(NOW + 50, false, None)]
fn a_renewal_shows_the_pending_request(
    #[case] now: u64,
    #[case] shown: bool,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let request = asked(&mut history, None);
    let renew = history.under(Verb::Renew, |op| op.now = LogicalTime::from_raw(now));
    history.applied(&renew, 0).expect("a holder renews");
    let result = Some(&request).filter(|_| shown);
    assert_eq!(rule(history.oracle.was_shown(&renew, result)), expected);
    let ended = history.oracle.shards[0].asked[0].ended_at;
    assert_eq!(ended.is_some(), now > NOW + 1, "a renewal ends an expired request");
}
