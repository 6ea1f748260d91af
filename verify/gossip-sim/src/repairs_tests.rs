//! Doctored answers about damaged shards, which the oracle must find.

use gossip_coordination::store::{Key, Read, Txn};
use gossip_coordination::{RunProgress, ShardDamage, ShardFilter};
use rstest::rstest;

use super::damage::Evidence;
use super::op::{Ending, Granted, LeaseRef, Op, Verb};
use super::oracle::Rule;
use super::oracle_tests::{History, NOW, TENANT, at, held_by, key, rule};
use super::queries_tests::rows_of_three;

/// An operation that has read the hot part of this shard damaged.
fn misread(verb: Verb, shard: u64) -> Op {
    let mut op = at(NOW, verb);
    op.run = Some(0);
    op.damaged.set(true);
    op.suspects.borrow_mut().push((Key::ShardHot { tenant: TENANT, shard: key(shard) }, true));
    op
}

#[rstest]
#[case::marked(0, true, ShardFilter::all(), None)]
#[case::healthy(0, false, ShardFilter::all(), Some(Rule::Undetected))]
#[case::another_is_marked(1, true, ShardFilter::all(), Some(Rule::Undetected))]
#[case::not_asked_for(1, false, ShardFilter::one(key(1).shard()), None)]
fn a_listing_marks_the_damaged_shard(
    #[case] listed: usize,
    #[case] marks: bool,
    #[case] filter: ShardFilter,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let mut row = rows_of_three(&mut history).swap_remove(listed);
    row.damage = marks.then_some(ShardDamage::Hot);
    let op = misread(Verb::ListShards, 0);
    assert_eq!(rule(history.oracle.check_marks(&op, filter, &[row])), expected);
}

#[test]
fn an_intact_shard_is_not_marked() {
    let mut history = History::new();
    let mut row = rows_of_three(&mut history).swap_remove(1);
    row.damage = Some(ShardDamage::Cold);
    let op = at(NOW, Verb::ListShards);
    let result = history.oracle.check_marks(&op, ShardFilter::all(), &[row]);
    assert_eq!(rule(result), Some(Rule::Unfounded));
}

#[rstest]
#[case(1, None)]
#[case(0, Some(Rule::Undetected))]
#[case(2, Some(Rule::Unfounded))]
fn progress_counts_the_damaged_shards(#[case] damaged: u64, #[case] expected: Option<Rule>) {
    let history = History::new();
    let progress = RunProgress { damaged, ..RunProgress::default() };
    let op = misread(Verb::Progress, 0);
    assert_eq!(rule(history.oracle.check_damaged_count(&op, &progress)), expected);
}

/// A claim that was granted shard 0 and has read the hot part of `damaged` damaged.
fn granted_beside_damage(damaged: u64) -> Op {
    let op = misread(Verb::Claim, damaged);
    op.applied.set(1);
    op.granted.set(Some(Granted {
        shard: 0,
        key: key(0),
        grant: 1,
        fence: 2,
        deadline: NOW,
        range: (0, 5),
        done: 0,
        attempts: 1,
        carried: 0,
    }));
    op
}

#[rstest]
#[case::another_shard(1, None)]
#[case::the_damaged_one(0, Some(Rule::Undetected))]
fn a_claim_skips_the_damaged_shard(#[case] damaged: u64, #[case] expected: Option<Rule>) {
    let mut history = History::new();
    let op = granted_beside_damage(damaged);
    assert_eq!(rule(history.ended(&op, Ending::Executed, "Executed")), expected);
}

/// The reply of the grant was lost, and the record was damaged before the claim read it again.
#[rstest]
#[case::superseded(2, None)]
#[case::still_held(1, Some(Rule::RefusedHappened))]
fn a_claim_skips_the_shard_of_a_superseded_grant(
    #[case] holder: u32,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    history.oracle.shards[0].holder = Some(held_by(holder, NOW + 1));
    let op = granted_beside_damage(0);
    assert_eq!(rule(history.ended(&op, Ending::Refused, "NoneAvailable")), expected);
}

#[test]
fn a_claim_does_not_skip_a_damaged_run() {
    let mut history = History::new();
    let op = misread(Verb::Claim, 0);
    let head = Key::RunHead { tenant: TENANT, run: key(0).run() };
    op.suspects.replace(vec![(head, true)]);
    let result = history.ended(&op, Ending::Refused, "NoneAvailable");
    assert_eq!(rule(result), Some(Rule::Undetected));
}

#[test]
fn an_intact_shard_is_not_repaired() {
    let mut history = History::new();
    let mut op = at(NOW, Verb::RepairShard);
    op.target = Some(LeaseRef::to(0, key(0)));
    assert_eq!(rule(history.applied(&op, 0)), Some(Rule::ProgressFell));
}

#[rstest]
#[case::it_is_damaged(0, Some(Rule::Unfounded))]
#[case::another_one_is(1, None)]
fn a_repair_of_a_damaged_shard_is_not_refused_as_intact(
    #[case] damaged: u64,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let mut op = misread(Verb::RepairShard, damaged);
    (op.target, op.run) = (Some(LeaseRef::to(0, key(0))), None);
    assert_eq!(rule(history.ended(&op, Ending::Refused, "NotDamaged")), expected);
}

/// A repair has replaced the damaged bytes before the operation reads them again.
#[test]
fn bytes_that_are_read_again_intact_are_not_relied_on() {
    let op = misread(Verb::Checkpoint, 0);
    assert!(op.relies_on_damage());
    let hot = Key::ShardHot { tenant: TENANT, shard: key(0) };
    let again = Evidence { reads: vec![Read::Get(hot)], damaged: Vec::new(), must: false };
    again.note(&op);
    assert!(!op.relies_on_damage());
}

/// An operation that writes over damaged bytes reads its own bytes afterwards.
#[test]
fn bytes_that_are_overwritten_stay_relied_on() {
    let op = misread(Verb::Checkpoint, 0);
    let hot = Key::ShardHot { tenant: TENANT, shard: key(0) };
    let mut txn = Txn::new();
    txn.put(hot, Vec::new());
    op.note_overwritten(&txn);
    let again = Evidence { reads: vec![Read::Get(hot)], damaged: Vec::new(), must: false };
    again.note(&op);
    assert!(op.relies_on_damage());
}
