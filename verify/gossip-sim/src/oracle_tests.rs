//! Doctored histories: each breaks one rule, and the oracle must name it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{Key, Txn};
use gossip_coordination::{RunProgress, RunStatus, ShardStatus};
use rstest::rstest;

use super::answers::OpResult;
use super::effects::new_shard_facts;
use super::keyspace::Keyspace;
use super::op::{Ending, Granted, LeaseRef, Op, Said, Terms, Verb};
use super::oracle::{Holder, Limits, Oracle, Rule, RunFacts, Violation};
use super::sink::Taken;

pub(super) const TENANT: TenantId = TenantId::from_bytes([1; 32]);
const RUN: RunId = RunId::from_raw(1);
pub(super) const LEASE: u64 = 100;
pub(super) const NOW: u64 = 1_000;
const WORKER: u64 = 7;
pub(super) const OTHER: u64 = 8;
const OFFER: Terms = Terms { handoff: 5, destination: OTHER, until: NOW + 50 };

pub(super) const fn key(shard: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(shard))
}

/// A run of ten keys with two shards; [`WORKER`] holds the first.
pub(super) struct History {
    pub(super) oracle: Oracle,
    /// The lease of the first shard.
    pub(super) lease: LeaseRef,
}

impl History {
    pub(super) fn new() -> Self {
        let limits = Limits { per_tenant: 2 };
        let mut oracle = Oracle::new(Rc::new(Keyspace::new()), 1, limits);
        oracle.expect_run(run());
        for (shard, range) in [(0, (0, 5)), (1, (5, 10))] {
            oracle.add_shard(TENANT, new_shard_facts(key(shard), 0, range, 1, range.0));
        }
        oracle.live_shards[0] = 2;
        let lease = LeaseRef { grant: 1, fence: 2, token: 1, ..LeaseRef::to(0, key(0)) };
        let mut history = Self { oracle, lease };
        history.applied(&at(NOW, Verb::Acquire), 0).expect("a free shard is granted");
        history
    }

    /// Applies an effect of `op` on shard `shard`.
    pub(super) fn applied(&mut self, op: &Op, shard: u64) -> Result<(), Violation> {
        self.oracle.applied(op, TENANT, &change(shard))
    }

    pub(super) fn under(&self, verb: Verb, change: impl FnOnce(&mut Op)) -> Op {
        let mut op = at(NOW + 1, verb);
        (op.lease, op.op_id) = (Some(self.lease), OpId::from_raw(9));
        change(&mut op);
        op
    }

    /// Writes the results of `keys` to the sink.
    fn write(&mut self, keys: std::ops::Range<u32>) {
        for key in keys {
            assert_eq!(self.oracle.sink.write(0, key, 2, 1), Taken::Accepted);
        }
    }

    pub(super) fn ended(&mut self, op: &Op, ending: Ending, name: &str) -> Result<(), Violation> {
        self.oracle.ended(op, OpResult { ending, name, answer: None })
    }
}

pub(super) fn run() -> RunFacts {
    RunFacts {
        tenant: 0,
        id: RUN,
        status: Some(RunStatus::Active),
        deleted: false,
        paused: false,
        floor: 0,
        unprotected: false,
        lease: LEASE,
        retries: Some(2),
        semantics: CursorSemantics::Completed,
        key_count: 10,
        cuts: vec![5],
        roots_born: 2,
        chunks: vec![Some((0, 2))],
        deleted_by: None,
        unsettled: 2,
        logged: 0,
        shards: Vec::new(),
        changed_at: 0,
        touched_at: 0,
    }
}

/// The other worker holds a shard, and its clock is right.
pub(super) const fn held_by(grant: u32, deadline: u64) -> Holder {
    Holder { grant, worker: OTHER, deadline, true_end: deadline, clock_error: 0 }
}

pub(super) fn at(now: u64, verb: Verb) -> Op {
    Op {
        number: 1,
        process: 0,
        verb,
        now: LogicalTime::from_raw(now),
        begun_true: now,
        clock_error: 0,
        tenant: 0,
        run: None,
        worker: WORKER,
        lease: None,
        target: None,
        op_id: OpId::from_raw(0),
        payload: 1,
        said: Said::default(),
        begun_at: 0,
        good_until: 0,
        applied: Cell::new(0),
        begun: Cell::new(false),
        unsure: Cell::new(false),
        ended: Cell::new(None),
        misled: Cell::new(false),
        owner_key: Cell::new(false),
        stale: Cell::new(false),
        damaged: Cell::new(false),
        suspects: RefCell::default(),
        overwrote: Cell::new(false),
        found: Cell::new(None),
        granted: Cell::new(None),
        renewed: Cell::new(None),
        shown: RefCell::default(),
        born: RefCell::default(),
        batch: RefCell::default(),
    }
}

pub(super) fn change(shard: u64) -> Txn {
    let mut txn = Txn::new();
    txn.put(Key::ShardHot { tenant: TENANT, shard: key(shard) }, Vec::new());
    txn
}

pub(super) fn rule(result: Result<(), Violation>) -> Option<Rule> {
    result.err().map(|violation| violation.rule)
}

fn to(position: u32) -> impl FnOnce(&mut Op) {
    move |op| op.said.to = Some(position)
}

#[test]
fn an_honest_history_is_accepted() {
    let mut history = History::new();
    history.write(0..5);
    let checkpoint = history.under(Verb::Checkpoint, to(3));
    assert_eq!(rule(history.applied(&checkpoint, 0)), None);
    assert_eq!(rule(history.ended(&checkpoint, Ending::Executed, "Executed")), None);
    let complete = history.under(Verb::Complete, |op| {
        to(5)(op);
        op.op_id = OpId::from_raw(10);
    });
    assert_eq!(rule(history.applied(&complete, 0)), None);
    assert_eq!(history.oracle.shards[0].status, ShardStatus::Done);
}

#[rstest]
#[case::another_holder(1, Rule::StaleFence)]
#[case::no_holder(0, Rule::StaleFence)]
fn an_effect_of_a_stale_lease_is_refused(#[case] current: u32, #[case] expected: Rule) {
    let mut history = History::new();
    let checkpoint = history.under(Verb::Park, |_| ());
    let holder = &mut history.oracle.shards[0].holder;
    *holder = (current > 0).then(|| held_by(2, NOW + LEASE));
    assert_eq!(rule(history.applied(&checkpoint, 0)), Some(expected));
    assert_eq!(history.oracle.stale.operations_accepted, 1);
}

#[test]
fn a_stale_operation_is_counted_while_the_rule_is_in_force() {
    let mut history = History::new();
    let early = history.under(Verb::Renew, |_| ());
    history.oracle.count_stale(&early);
    history.oracle.shards[0].holder = None;
    history.oracle.count_stale(&early);
    assert_eq!(history.oracle.stale.operations, 0, "it is the last grant");
    history.oracle.shards[0].fence += 1;
    history.oracle.count_stale(&early);
    history.oracle.count_stale(&early);
    assert_eq!(history.oracle.stale.operations, 1, "each is counted once");
    history.oracle.suspend(&[Rule::StaleFence]);
    let late = history.under(Verb::Renew, |_| ());
    history.oracle.count_stale(&late);
    let stale = history.oracle.stale;
    assert_eq!((stale.operations, stale.operations_unjudged), (1, 1));
}

/// Two renewals under an open offer write the same bytes, so the second may be resolved by the late
/// commit of the first.
#[rstest]
#[case::in_doubt(true, None)]
#[case::without_a_doubt(false, Some(Rule::Acknowledged))]
fn a_renewal_that_another_had_made_is_acknowledged_only_in_doubt(
    #[case] unsure: bool,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let (late, own) = (history.under(Verb::Renew, |_| ()), history.under(Verb::Renew, |_| ()));
    own.unsure.set(unsure);
    assert_eq!(rule(history.applied(&late, 0)), None);
    assert_eq!(rule(history.ended(&own, Ending::Executed, "Executed")), expected);
}

#[rstest]
#[case::just_in_time(NOW + LEASE - 1, None)]
#[case::at_the_deadline(NOW + LEASE, Some(Rule::Expired))]
fn an_effect_after_the_deadline_is_refused(#[case] now: u64, #[case] expected: Option<Rule>) {
    let mut history = History::new();
    let late = history.under(Verb::Park, |op| op.begun_true = now);
    assert_eq!(rule(history.applied(&late, 0)), expected);
}

#[rstest]
#[case::early(NOW + LEASE - 1, Some(Rule::TwoOwners))]
#[case::in_time(NOW + LEASE, None)]
fn a_grant_of_a_live_lease_is_refused(#[case] now: u64, #[case] expected: Option<Rule>) {
    let mut history = History::new();
    assert_eq!(rule(history.applied(&at(now, Verb::Claim), 0)), expected);
}

#[rstest]
#[case::all_right(OTHER, NOW + 49, 5, None)]
#[case::not_the_destination(WORKER, NOW + 49, 5, Some(Rule::Handoff))]
#[case::too_late(OTHER, NOW + 50, 5, Some(Rule::Handoff))]
#[case::another_move(OTHER, NOW + 49, 6, Some(Rule::Handoff))]
fn a_wrong_acceptance_is_refused(
    #[case] worker: u64,
    #[case] now: u64,
    #[case] handoff: u64,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    history.oracle.shards[0].offer = Some(OFFER);
    let mut accept = at(now, Verb::Accept);
    (accept.worker, accept.said.terms) = (worker, Some(Terms { handoff, ..OFFER }));
    assert_eq!(rule(history.applied(&accept, 0)), expected);
}

#[test]
fn a_move_that_redoes_keys_is_refused() {
    let mut history = History::new();
    history.oracle.shards[0].offer = Some(OFFER);
    history.oracle.worked[1] = 3;
    let mut accept = at(NOW + 1, Verb::Accept);
    (accept.worker, accept.said.terms) = (OTHER, Some(OFFER));
    assert_eq!(rule(history.applied(&accept, 0)), Some(Rule::MoveRedoesNothing));
}

#[rstest]
#[case::parks(Verb::Park, Some(Rule::FrozenSource))]
#[case::renews(Verb::Renew, None)]
#[case::withdraws(Verb::Withdraw, None)]
fn an_effect_of_a_frozen_source_is_rejected(#[case] verb: Verb, #[case] expected: Option<Rule>) {
    let mut history = History::new();
    history.oracle.shards[0].offer = Some(OFFER);
    let act = history.under(verb, |op| op.said.terms = Some(OFFER));
    assert_eq!(rule(history.applied(&act, 0)), expected);
}

#[rstest]
#[case::the_same(1, Rule::Replay)]
#[case::other_parameters(2, Rule::OpIdReused)]
fn an_operation_that_is_done_twice_is_refused(#[case] payload: u64, #[case] expected: Rule) {
    let mut history = History::new();
    history.write(0..5);
    let first = history.under(Verb::Checkpoint, to(1));
    history.applied(&first, 0).expect("the first time is fine");
    let again = history.under(Verb::Checkpoint, |op| {
        to(2)(op);
        op.payload = payload;
    });
    assert_eq!(rule(history.applied(&again, 0)), Some(expected));
}

#[rstest]
#[case::a_retry_that_is_refused(1, Ending::Refused, "StaleFence", Some(Rule::Replay))]
#[case::a_reuse_that_is_refused_for_something_else(
    2,
    Ending::Refused,
    "StaleFence",
    Some(Rule::OpIdReused)
)]
#[case::a_reuse_that_is_refused(2, Ending::Refused, "OpIdConflict", None)]
#[case::a_conflict_out_of_nothing(1, Ending::Refused, "OpIdConflict", Some(Rule::Replay))]
#[case::a_retry_that_is_replayed(1, Ending::Replayed, "Replayed", None)]
#[case::a_reuse_that_is_replayed(2, Ending::Replayed, "Replayed", Some(Rule::Replay))]
fn a_wrong_answer_to_a_retry_is_refused(
    #[case] payload: u64,
    #[case] ending: Ending,
    #[case] name: &str,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    history.write(0..5);
    let first = history.under(Verb::Checkpoint, to(1));
    history.applied(&first, 0).expect("the first time is fine");
    let retry = history.under(Verb::Checkpoint, |op| {
        to(1)(op);
        (op.payload, op.begun_at) = (payload, 10);
    });
    assert_eq!(rule(history.ended(&retry, ending, name)), expected);
}

#[rstest]
#[case::never_written(0..0, 2, Some(Rule::LostKey))]
#[case::one_is_missing(0..1, 2, Some(Rule::LostKey))]
#[case::all_were_written(0..2, 2, None)]
#[case::outside(0..5, 6, Some(Rule::ProgressFell))]
fn a_cursor_that_passes_a_lost_key_is_refused(
    #[case] written: std::ops::Range<u32>,
    #[case] position: u32,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    history.write(written);
    let checkpoint = history.under(Verb::Checkpoint, to(position));
    assert_eq!(rule(history.applied(&checkpoint, 0)), expected);
}

#[test]
fn a_cursor_that_goes_back_is_refused() {
    let mut history = History::new();
    history.write(0..5);
    history.oracle.shards[0].done = 3;
    let checkpoint = history.under(Verb::Checkpoint, to(2));
    assert_eq!(rule(history.applied(&checkpoint, 0)), Some(Rule::ProgressFell));
}

#[test]
fn a_completion_with_keys_left_is_rejected() {
    let mut history = History::new();
    history.write(0..4);
    let complete = history.under(Verb::Complete, to(4));
    assert_eq!(rule(history.applied(&complete, 0)), Some(Rule::DoneUncovered));
}

#[test]
fn a_sink_orders_fences() {
    let mut history = History::new();
    history.write(0..1);
    let sink = &mut history.oracle.sink;
    assert_eq!(sink.write(0, 0, 1, 9), Taken::Stale);
    assert_eq!(sink.write(0, 0, 2, 9), Taken::Crossed);
    assert_eq!(sink.write(0, 0, 3, 9), Taken::Accepted);
}

#[test]
fn a_split_that_loses_its_parts_is_refused() {
    let mut history = History::new();
    for verb in [Verb::SplitReplace, Verb::SplitResidual] {
        let split = history.under(verb, |op| op.said.cuts = vec![3]);
        assert_eq!(rule(history.applied(&split, 0)), Some(Rule::Tiling));
    }
}

#[test]
fn a_shard_too_many_is_refused() {
    let mut history = History::new();
    let op = at(NOW, Verb::SplitResidual);
    let born = new_shard_facts(key(2), 0, (3, 5), 1, 3);
    assert_eq!(rule(history.oracle.add_new_shard(&op, TENANT, born)), Some(Rule::Limit));
}

#[rstest]
#[case::right(2, 0, 1, None)]
#[case::an_old_fence(1, 0, 1, Some(Rule::FenceFell))]
#[case::an_old_position(2, 1, 1, Some(Rule::Acknowledged))]
#[case::attempts_that_were_not_made(2, 0, 3, Some(Rule::Attempts))]
fn a_grant_with_wrong_values_is_rejected(
    #[case] fence: u64,
    #[case] done: u32,
    #[case] attempts: u32,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let claim = at(NOW, Verb::Claim);
    history.applied(&claim, 1).expect("the second shard is free");
    let known = claim.granted.get().expect("it was granted");
    let result = Granted { fence, done: known.done + done, attempts, ..known };
    assert_eq!(rule(history.oracle.granted(&claim, result)), expected);
}

#[test]
fn an_operation_without_effect_cannot_be_acknowledged() {
    let mut history = History::new();
    let checkpoint = history.under(Verb::Checkpoint, to(1));
    let result = history.ended(&checkpoint, Ending::Executed, "Executed");
    assert_eq!(rule(result), Some(Rule::Acknowledged));
    let lease = history.lease;
    let result = Some(NOW + LEASE + 1);
    assert_eq!(
        rule(history.oracle.renewed(lease, result, NOW + LEASE + 1)),
        Some(Rule::Acknowledged)
    );
}

#[test]
fn an_operation_that_took_effect_cannot_be_rejected() {
    let mut history = History::new();
    let park = history.under(Verb::Park, |_| ());
    history.applied(&park, 0).expect("its holder may park it");
    let result = history.ended(&park, Ending::Refused, "LeaseExpired");
    assert_eq!(rule(result), Some(Rule::RefusedHappened));
    let failed = Ending::Failed { doubtful: false, corrupt: false };
    assert_eq!(rule(history.ended(&park, failed, "BackendError")), Some(Rule::RefusedHappened));
    let doubtful = Ending::Failed { doubtful: true, corrupt: false };
    assert_eq!(rule(history.ended(&park, doubtful, "BackendError")), None);
}

#[test]
fn a_rejected_operation_cannot_take_effect_later() {
    let mut history = History::new();
    let park = history.under(Verb::Park, |_| ());
    history.ended(&park, Ending::Refused, "StaleFence").expect("nothing happened yet");
    assert_eq!(rule(history.applied(&park, 0)), Some(Rule::RefusedHappened));
}

#[rstest]
#[case::without_a_doubt(false, Some(Rule::RefusedHappened))]
#[case::in_doubt(true, None)]
fn an_operation_that_failed_for_certain_cannot_take_effect_later(
    #[case] doubtful: bool,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let park = history.under(Verb::Park, |_| ());
    park.unsure.set(doubtful);
    let failed = Ending::Failed { doubtful, corrupt: false };
    history.ended(&park, failed, "Transient").expect("nothing happened yet");
    assert_eq!(rule(history.applied(&park, 0)), expected);
}

#[test]
fn one_claim_cannot_be_granted_two_shards() {
    let mut history = History::new();
    let claim = at(NOW + 2 * LEASE, Verb::Claim);
    history.applied(&claim, 0).expect("the lease of the first has run out");
    assert_eq!(rule(history.applied(&claim, 1)), Some(Rule::Acknowledged));
}

#[rstest]
#[case::to_its_owner(Terms { destination: WORKER, ..OFFER })]
#[case::for_no_time(Terms { until: NOW + 1, ..OFFER })]
#[case::for_too_long(Terms { until: NOW + 2 + 4 * LEASE, ..OFFER })]
fn an_offer_beyond_its_bounds_is_refused(#[case] terms: Terms) {
    let mut history = History::new();
    let offer = history.under(Verb::Offer, |op| op.said.terms = Some(terms));
    assert_eq!(rule(history.applied(&offer, 0)), Some(Rule::Handoff));
}

#[rstest]
#[case::its_own(5, None)]
#[case::another(6, Some(Rule::Handoff))]
fn an_offer_is_withdrawn_by_its_name(#[case] handoff: u64, #[case] expected: Option<Rule>) {
    let mut history = History::new();
    let offer = history.under(Verb::Offer, |op| op.said.terms = Some(OFFER));
    history.applied(&offer, 0).expect("an offer within its bounds");
    let withdraw = history.under(Verb::Withdraw, |op| {
        (op.said.terms, op.op_id) = (Some(Terms { handoff, ..OFFER }), OpId::from_raw(10));
    });
    assert_eq!(rule(history.applied(&withdraw, 0)), expected);
}

#[test]
fn the_holder_of_a_live_lease_cannot_be_shut_out() {
    let mut history = History::new();
    let renew = history.under(Verb::Renew, |op| op.good_until = NOW + LEASE);
    let result = history.ended(&renew, Ending::Refused, "StaleFence");
    assert_eq!(rule(result), Some(Rule::OwnerShutOut));
}

#[test]
fn a_free_shard_cannot_be_withheld() {
    let mut history = History::new();
    let mut acquire = at(NOW, Verb::Acquire);
    acquire.target = Some(LeaseRef::to(1, key(1)));
    let result = history.ended(&acquire, Ending::Refused, "AlreadyLeased");
    assert_eq!(rule(result), Some(Rule::FreeShardWithheld));
}

#[rstest]
#[case::too_early(2, Some(Rule::Attempts))]
#[case::used_up(3, None)]
fn a_shard_that_is_given_up_too_early_is_refused(
    #[case] attempts: u32,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    history.oracle.shards[1].attempts = attempts;
    history.oracle.shards[1].received = attempts - 1;
    let mut parks = change(1);
    parks.put(Key::ParkedIndex { tenant: TENANT, shard: key(1) }, Vec::new());
    let claim = at(NOW, Verb::Claim);
    assert_eq!(rule(history.oracle.applied(&claim, TENANT, &parks)), expected);
}

/// A parked shard can be revived by an unpark; a completed or split one cannot.
#[rstest]
#[case::done(ShardStatus::Done, Some(Rule::Acknowledged))]
#[case::split(ShardStatus::Split, Some(Rule::Acknowledged))]
#[case::parked(ShardStatus::Parked, None)]
fn a_terminal_shard_is_not_revived(#[case] status: ShardStatus, #[case] unparked: Option<Rule>) {
    for (verb, expected) in [
        (Verb::Acquire, Some(Rule::StaleFence)),
        (Verb::Claim, Some(Rule::StaleFence)),
        (Verb::Unpark, unparked),
    ] {
        let mut history = History::new();
        history.oracle.shards[1].status = status;
        assert_eq!(rule(history.applied(&at(NOW, verb), 1)), expected, "{verb:?}");
    }
}

#[test]
fn a_run_that_is_over_or_paused_grows_nothing() {
    let mut history = History::new();
    history.oracle.runs[0].paused = true;
    assert_eq!(rule(history.applied(&at(NOW, Verb::Claim), 1)), Some(Rule::RunOver));
    history.oracle.runs[0].status = Some(RunStatus::Failed);
    let renew = history.under(Verb::Renew, |_| ());
    assert_eq!(rule(history.applied(&renew, 0)), Some(Rule::RunOver));
}

#[rstest]
#[case::completes(Verb::CompleteRun, Some(RunStatus::Active), Some(Rule::RunUnsettled))]
#[case::fails(Verb::FailRun, Some(RunStatus::Active), None)]
#[case::ends_twice(Verb::CancelRun, Some(RunStatus::Done), Some(Rule::RunOver))]
#[case::is_made_twice(Verb::CreateRun, Some(RunStatus::Active), Some(Rule::RunReborn))]
#[case::is_made(Verb::CreateRun, None, None)]
fn a_wrong_step_of_a_run_is_refused(
    #[case] verb: Verb,
    #[case] status: Option<RunStatus>,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    history.oracle.runs[0].status = status;
    let mut txn = Txn::new();
    txn.put(Key::RunHead { tenant: TENANT, run: RUN }, Vec::new());
    let mut op = at(NOW, verb);
    op.run = Some(0);
    assert_eq!(rule(history.oracle.applied(&op, TENANT, &txn)), expected);
}

#[test]
fn a_deleted_run_cannot_come_back() {
    let mut history = History::new();
    history.oracle.runs[0].deleted = true;
    let park = history.under(Verb::Park, |_| ());
    assert_eq!(rule(history.applied(&park, 0)), Some(Rule::RunReborn));
}

#[rstest]
#[case::of_shards(true, false, 0, Some(Rule::Acknowledged))]
#[case::of_names(false, true, 0, Some(Rule::Acknowledged))]
#[case::deleted_during_the_collection(true, true, 1, None)]
#[case::nothing(false, false, 0, None)]
fn a_collection_leaves_nothing_of_a_run_that_was_gone_before(
    #[case] shards: bool,
    #[case] names: bool,
    #[case] deleted_at: u64,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let run = &mut history.oracle.runs[0];
    (run.deleted, run.changed_at) = (true, deleted_at);
    run.chunks.iter_mut().filter(|_| !names).for_each(|chunk| *chunk = None);
    history.oracle.shards.iter_mut().for_each(|shard| shard.swept = !shards);
    let collect = Op { begun_at: 0, ..at(NOW, Verb::CollectRuns) };
    assert_eq!(rule(history.oracle.check_collection(&collect)), expected);
    collect.misled.set(true);
    assert_eq!(
        rule(history.oracle.check_collection(&collect)),
        None,
        "the store showed old versions"
    );
}

#[test]
fn another_tenants_shard_cannot_be_changed() {
    let mut history = History::new();
    let park = history.under(Verb::Park, |_| ());
    let stranger = TenantId::from_bytes([2; 32]);
    let result = history.oracle.applied(&park, stranger, &change(0));
    assert_eq!(rule(result), Some(Rule::Tenants));
}

#[test]
fn damaged_bytes_cannot_be_decided_about() {
    let mut history = History::new();
    let renew = history.under(Verb::Renew, |_| ());
    renew.damaged.set(true);
    renew.suspects.borrow_mut().push((Key::ShardHot { tenant: TENANT, shard: key(0) }, true));
    let result = history.ended(&renew, Ending::Refused, "LeaseExpired");
    assert_eq!(rule(result), Some(Rule::Undetected));
}

#[test]
fn a_suspended_rule_is_not_enforced() {
    let limits = Limits { per_tenant: 1 };
    let keys = Rc::new(Keyspace::new());
    let mut oracle = Oracle::new(keys, 1, limits);
    let before = oracle.require(false, Rule::OwnerShutOut, "not yet");
    assert_eq!(rule(before), Some(Rule::OwnerShutOut));
    oracle.suspend(&[Rule::OwnerShutOut]);
    assert_eq!(rule(oracle.require(false, Rule::OwnerShutOut, "excused")), None);
    assert_eq!(rule(oracle.require(false, Rule::StaleFence, "not")), Some(Rule::StaleFence));
}

#[rstest]
#[case::free(|_: &mut History| (), NOW, Some(Rule::FreeShardWithheld))]
#[case::paused(|history: &mut History| history.oracle.runs[0].paused = true, NOW, None)]
#[case::run_changed(|history: &mut History| history.oracle.runs[0].changed_at = 9, NOW, None)]
#[case::taken(|history: &mut History| hold(history, NOW + 1), NOW, None)]
#[case::late(|history: &mut History| hold(history, NOW - 40), NOW, Some(Rule::FreeShardWithheld))]
#[case::within_the_skew(|history: &mut History| hold(history, NOW - 39), NOW, None)]
#[case::changed_since(|history: &mut History| history.oracle.shards[1].changed_at = 9, NOW, None)]
fn a_claim_cannot_overlook_a_free_shard(
    #[case] change: impl FnOnce(&mut History),
    #[case] now: u64,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    change(&mut history);
    let mut op = at(now, Verb::Claim);
    (op.run, op.begun_at) = (Some(0), history.oracle.commits);
    assert_eq!(rule(history.ended(&op, Ending::Refused, "NoneAvailable")), expected);
}

/// Gives the second shard to another holder until `deadline`.
fn hold(history: &mut History, deadline: u64) {
    history.oracle.shards[1].holder = Some(held_by(7, deadline));
}

#[rstest]
#[case::of_a_commit_without_a_reply(true, false, None)]
#[case::partly_done(false, true, None)]
#[case::of_nothing(false, false, Some(Rule::Unfounded))]
fn a_doubt_has_a_reason(#[case] unsure: bool, #[case] begun: bool, #[case] expected: Option<Rule>) {
    let mut history = History::new();
    let park = history.under(Verb::Park, |_| ());
    park.unsure.set(unsure);
    park.begun.set(begun);
    let failed = Ending::Failed { doubtful: true, corrupt: false };
    assert_eq!(rule(history.ended(&park, failed, "Transient")), expected);
}

/// Rejections of operations of the holder of the first shard, and whether each is allowed.
#[rstest]
#[case(Verb::Checkpoint, "CursorRegression", false)]
#[case(Verb::Checkpoint, "CursorOutOfBounds", false)]
#[case(Verb::Checkpoint, "Offered", false)]
#[case(Verb::Checkpoint, "ShardNotFound", false)]
#[case(Verb::Checkpoint, "TenantMismatch", false)]
#[case(Verb::Checkpoint, "ResourceExhausted", false)]
#[case(Verb::SplitResidual, "SplitInvalid", true)]
#[case(Verb::Withdraw, "NoOffer", false)]
#[case(Verb::Offer, "Withdrawn", false)]
#[case(Verb::Offer, "InvalidDestination", false)]
#[case(Verb::Offer, "InvalidOfferDeadline", false)]
#[case(Verb::Offer, "RunTerminal", false)]
#[case(Verb::RevokeLease, "NotLeased", false)]
#[case(Verb::RequestAction, "RequestPending", false)]
#[case(Verb::Unpark, "NotParked", true)]
#[case(Verb::Accept, "NoOffer", true)]
fn a_refusal_has_a_reason(#[case] verb: Verb, #[case] name: &str, #[case] is_so: bool) {
    let mut history = History::new();
    let op = history.under(verb, |op| {
        (op.said.to, op.said.terms, op.said.cuts) = (Some(3), Some(OFFER), vec![3]);
        op.begun_at = 1;
    });
    let expected = (!is_so).then_some(Rule::Unfounded);
    assert_eq!(rule(history.ended(&op, Ending::Refused, name)), expected);
    history.oracle.shards[0].changed_at = 2;
    assert_eq!(rule(history.oracle.judge_reason(&op, name)), None, "it may have been so meanwhile");
}

#[rstest]
#[case(Verb::CompleteRun, "NotSettled", true)]
#[case(Verb::CompleteRun, "WrongStatus", false)]
#[case(Verb::CancelRun, "RunTerminal", false)]
#[case(Verb::DeleteRun, "NotTerminal", true)]
#[case(Verb::RegisterShards, "WrongStatus", true)]
#[case(Verb::RegisterShards, "ManifestInvalid", false)]
#[case(Verb::CreateRun, "RunAlreadyExists", true)]
#[case(Verb::Claim, "RunPaused", false)]
#[case(Verb::Progress, "RunNotFound", false)]
fn a_refusal_about_a_run_has_a_reason(#[case] verb: Verb, #[case] name: &str, #[case] is_so: bool) {
    let mut history = History::new();
    history.oracle.runs[0].unsettled = 2;
    let mut op = at(NOW + 1, verb);
    (op.run, op.begun_at) = (Some(0), 1);
    let expected = (!is_so).then_some(Rule::Unfounded);
    assert_eq!(rule(history.ended(&op, Ending::Refused, name)), expected);
}

#[test]
fn an_offer_is_replayed_only_while_it_is_open() {
    let mut history = History::new();
    let offer = history.under(Verb::Offer, |op| (op.said.terms, op.begun_at) = (Some(OFFER), 1));
    let replayed =
        |history: &mut History| rule(history.ended(&offer, Ending::Replayed, "Replayed"));
    assert_eq!(replayed(&mut history), Some(Rule::Replay));
    history.oracle.shards[0].offer = Some(OFFER);
    assert_eq!(replayed(&mut history), None);
}

#[test]
fn a_renewal_returns_its_deadline() {
    let mut history = History::new();
    let renew = history.under(Verb::Renew, |_| ());
    history.applied(&renew, 0).expect("a holder renews");
    let (lease, until) = (history.lease, renew.renewed.get());
    assert_eq!(rule(history.oracle.renewed(lease, until, NOW + 1 + LEASE)), None);
    assert_eq!(rule(history.oracle.renewed(lease, until, NOW + LEASE)), Some(Rule::Acknowledged));
}

#[test]
fn progress_is_returned_exactly() {
    let mut history = History::new();
    history.oracle.shards[1].status = ShardStatus::Done;
    let mut op = at(NOW + 1, Verb::Progress);
    (op.run, op.begun_at) = (Some(0), 1);
    let result = RunProgress { total: 2, active: 1, done: 1, leased: 1, ..RunProgress::default() };
    assert_eq!(rule(history.oracle.check_progress_query(&op, &result)), None);
    let twice = RunProgress { done: 2, ..result.clone() };
    assert_eq!(rule(history.oracle.check_progress_query(&op, &twice)), Some(Rule::Acknowledged));
    history.oracle.shards[0].changed_at = 2;
    let near = RunProgress { done: 2, active: 0, leased: 0, ..result };
    assert_eq!(rule(history.oracle.check_progress_query(&op, &near)), None, "it changed meanwhile");
    let far = RunProgress { done: 3, ..near };
    assert_eq!(rule(history.oracle.check_progress_query(&op, &far)), Some(Rule::Acknowledged));
}

#[rstest]
#[case::again(3, Some(Rule::Replay))]
#[case::overtaken(2, Some(Rule::Replay))]
#[case::next(4, None)]
#[case::without_a_sequence(0, None)]
fn an_operation_takes_effect_in_the_order_of_its_sequence(
    #[case] sequence: u64,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    history.write(0..5);
    let numbered = |history: &History, op_id, sequence| {
        history.under(Verb::Checkpoint, |op| {
            (op.said.to, op.op_id) = (Some(3), OpId::from_raw(op_id));
            op.lease = op.lease.map(|lease| LeaseRef { sequence, ..lease });
        })
    };
    let first = numbered(&history, 21, 3);
    assert_eq!(rule(history.applied(&first, 0)), None);
    let second = numbered(&history, 22, sequence);
    assert_eq!(rule(history.applied(&second, 0)), expected);
}
