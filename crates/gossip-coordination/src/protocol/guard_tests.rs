//! Each guard rejects a change that does not fit its record. The changes are built by hand, because
//! no decision produces them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gossip_contracts::coordination::{CursorSemantics, CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{FenceEpoch, ShardId, WorkerId};
use rstest::rstest;

use super::guard::{Before, assert_after};
use super::{ShardChange, evolve};
use crate::handoff::{HandoffId, Offer};
use crate::lease::{GrantToken, LeaseHolder, OpKind, OpLogEntry, OpSequence};
use crate::park_context::ParkContext;
use crate::pool::RecordPool;
use crate::record::{Lineage, NewShard, ParkReason, ShardRecord};
use crate::request::ShardAction;
use crate::test_fixtures::{RUN, TENANT, at, fence, op};

const OWNER: WorkerId = WorkerId::from_raw(1);
const OTHER: WorkerId = WorkerId::from_raw(2);

fn entry(kind: OpKind) -> OpLogEntry {
    OpLogEntry::new(op(7), kind, 77, at(5))
}

fn holder(owner: WorkerId, deadline: u64, token: u64) -> LeaseHolder {
    LeaseHolder::new(owner, at(deadline), GrantToken::from_raw(token))
}

fn offer(destination: WorkerId) -> Offer {
    Offer { handoff: HandoffId::from_raw(3), destination, deadline: at(20), payload_hash: 9 }
}

fn derived(spec: ShardSpecRef<'static>, number: u64, first: FenceEpoch) -> NewShard<'static> {
    NewShard {
        shard: ShardId::from_raw(ShardId::DERIVED_BIT | number),
        spec,
        cursor: CursorUpdate::initial(),
        fence: first,
        attempts: 0,
        cursor_semantics: CursorSemantics::Completed,
        lineage: Some(Lineage { parent: ShardId::from_raw(4), split_hash: 8 }),
    }
}

fn range(start: &'static [u8], end: &'static [u8]) -> ShardSpecRef<'static> {
    ShardSpecRef::new(start, end, b"")
}

/// The initial state of the shard of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Free,
    Held,
    Offered,
    Parked,
}

/// A shard of `b..y`, at cursor `f` if it was ever held.
fn shard(start: Start, pool: &mut RecordPool) -> ShardRecord {
    let birth = NewShard {
        shard: ShardId::from_raw(4),
        spec: range(b"b", b"y"),
        cursor: CursorUpdate::initial(),
        fence: FenceEpoch::INITIAL,
        attempts: 0,
        cursor_semantics: CursorSemantics::Completed,
        lineage: None,
    };
    let mut record = ShardRecord::new(Arc::new(TENANT), RUN, &birth, pool).unwrap();
    let mut change = |change: ShardChange<'_>| evolve(&mut record, pool, &change).unwrap();
    if start != Start::Free {
        let (holder, fence) = (holder(OWNER, 10, 1), fence(2));
        change(ShardChange::Grant { holder, fence, attempts: 1, handoff: None });
        let (cursor, entry) = (CursorUpdate::with_last_key(b"f"), first_entry());
        let sequence = sequence(4);
        change(ShardChange::Advance { cursor, attempts: 0, drop_request: false, sequence, entry });
    }
    if start == Start::Offered {
        let (offer, entry) = (offer(OTHER), OpLogEntry::new(op(2), OpKind::Offer, 9, at(4)));
        change(ShardChange::Offer {
            offer,
            cursor: None,
            attempts: 0,
            drop_request: false,
            sequence: OpSequence::NONE,
            entry,
        });
    }
    if start == Start::Parked {
        let (reason, context) = (ParkReason::Other, ParkContext::NONE);
        let sequence = OpSequence::NONE;
        change(ShardChange::Park { reason, context, sequence, entry: None });
    }
    record
}

fn first_entry() -> OpLogEntry {
    OpLogEntry::new(op(1), OpKind::Checkpoint, 11, at(3))
}

fn sequence(raw: u64) -> OpSequence {
    OpSequence::try_from_raw(raw).unwrap()
}

fn checkpoint(key: &'static [u8], kind: OpKind) -> ShardChange<'static> {
    let (cursor, entry) = (CursorUpdate::with_last_key(key), entry(kind));
    let sequence = sequence(5);
    ShardChange::Advance { cursor, attempts: 0, drop_request: false, sequence, entry }
}

/// A checkpoint whose sequence is `raw`; the shard has executed 4.
fn numbered(raw: u64) -> ShardChange<'static> {
    let (cursor, entry) = (CursorUpdate::with_last_key(b"g"), entry(OpKind::Checkpoint));
    let sequence = sequence(raw);
    ShardChange::Advance { cursor, attempts: 0, drop_request: false, sequence, entry }
}

fn grant(number: u64) -> ShardChange<'static> {
    let holder = holder(OTHER, 30, 2);
    ShardChange::Grant { holder, fence: fence(number), attempts: 1, handoff: None }
}

/// The grant of an accept: of `handoff`, to `owner`.
fn accepted(owner: WorkerId, handoff: u64) -> ShardChange<'static> {
    let (holder, handoff) = (holder(owner, 30, 2), Some(HandoffId::from_raw(handoff)));
    ShardChange::Grant { holder, fence: fence(3), attempts: 0, handoff }
}

fn renew(owner: WorkerId, deadline: u64, token: u64) -> ShardChange<'static> {
    ShardChange::Renew { holder: holder(owner, deadline, token), drop_request: false }
}

fn cut(left: ShardSpecRef<'static>, residual: NewShard<'static>) -> ShardChange<'static> {
    let entry = entry(OpKind::SplitResidual);
    let sequence = OpSequence::NONE;
    ShardChange::Shrink { spec: left, residual, drop_request: false, sequence, entry }
}

/// The right part of a cut at `m`, whose fence begins at `first`.
fn right(first: u64) -> NewShard<'static> {
    derived(range(b"m", b"y"), 1, fence(first))
}

/// A cut at `end`, with a residual from `start` to `last`.
fn cut_at(end: &'static [u8], start: &'static [u8], last: &'static [u8]) -> ShardChange<'static> {
    cut(range(b"b", end), derived(range(start, last), 1, fence(2)))
}

fn unpark(number: u64) -> ShardChange<'static> {
    ShardChange::Unpark { fence: fence(number), entry: entry(OpKind::Unpark) }
}

fn revoke(number: u64) -> ShardChange<'static> {
    ShardChange::Revoke { fence: fence(number), entry: entry(OpKind::RevokeLease) }
}

fn release(attempts: u32) -> ShardChange<'static> {
    let sequence = OpSequence::NONE;
    ShardChange::Release { attempts, sequence, entry: entry(OpKind::Release) }
}

fn work(key: &'static [u8]) -> ShardChange<'static> {
    checkpoint(key, OpKind::Checkpoint)
}

fn offered_to(destination: WorkerId) -> ShardChange<'static> {
    let (offer, entry) = (offer(destination), entry(OpKind::Offer));
    let sequence = OpSequence::NONE;
    ShardChange::Offer { offer, cursor: None, attempts: 0, drop_request: false, sequence, entry }
}

fn withdrawn(handoff: u64) -> ShardChange<'static> {
    let (handoff, entry) = (HandoffId::from_raw(handoff), entry(OpKind::Withdraw));
    ShardChange::Withdraw { handoff, drop_request: false, sequence: OpSequence::NONE, entry }
}

fn completed(key: &'static [u8]) -> ShardChange<'static> {
    let (cursor, entry) = (CursorUpdate::with_last_key(key), entry(OpKind::Complete));
    ShardChange::Complete { cursor, sequence: OpSequence::NONE, entry }
}

fn parked(entry: Option<OpLogEntry>) -> ShardChange<'static> {
    let (reason, context) = (ParkReason::Other, ParkContext::NONE);
    ShardChange::Park { reason, context, sequence: OpSequence::NONE, entry }
}

fn offered_at(key: &'static [u8]) -> ShardChange<'static> {
    let (offer, entry) = (offer(OTHER), entry(OpKind::Offer));
    let cursor = Some(CursorUpdate::with_last_key(key));
    let sequence = OpSequence::NONE;
    ShardChange::Offer { offer, cursor, attempts: 0, drop_request: false, sequence, entry }
}

fn requested() -> ShardChange<'static> {
    let (action, expires_at) = (&ShardAction::Release, at(20));
    ShardChange::Request { op_id: op(7), payload_hash: 77, action, expires_at }
}

#[rstest]
#[case::stale_grant(Start::Held, grant(2), "a grant raises the fence")]
#[case::grant_of_what_ended(Start::Parked, grant(3), "only an active shard can be granted")]
#[case::renewal_by_another(Start::Held, renew(OTHER, 20, 1), "a renewal keeps the lease holder")]
#[case::renewal_of_another_grant(Start::Held, renew(OWNER, 20, 2), "a renewal is not a grant")]
#[case::renewal_that_shortens(Start::Held, renew(OWNER, 9, 1), "a renewal never shortens a lease")]
#[case::work_without_a_lease(Start::Free, work(b"g"), "only a lease holder can change a shard")]
#[case::work_while_offered(Start::Offered, work(b"g"), "a pending offer freezes its source")]
#[case::work_on_what_ended(Start::Parked, work(b"g"), "only an active shard accepts work")]
#[case::another_kind(Start::Held, checkpoint(b"g", OpKind::Park), "its operation's kind")]
#[case::progress_that_falls(Start::Held, work(b"e"), "a cursor never moves backwards")]
#[case::progress_outside(Start::Held, work(b"z"), "a cursor stays within the range")]
#[case::a_gap(Start::Held, cut_at(b"m", b"n", b"y"), "the parts are adjacent")]
#[case::a_lost_end(Start::Held, cut_at(b"m", b"m", b"x"), "ends where the parent ended")]
#[case::a_lost_start(Start::Held, cut(range(b"c", b"m"), right(2)), "keeps the left part")]
#[case::a_child_behind(Start::Held, cut(range(b"b", b"m"), right(1)), "at its parent's fence")]
#[case::a_cut_before_the_cursor(
    Start::Held,
    cut_at(b"d", b"d", b"y"),
    "the cursor stays in the parent's part"
)]
#[case::accepted_unoffered(Start::Held, accepted(OTHER, 3), "an accepted shard was offered")]
#[case::accepted_another(Start::Offered, accepted(OTHER, 4), "names the pending offer")]
#[case::accepted_by_another(Start::Offered, accepted(OWNER, 3), "the destination receives")]
#[case::unparked_alive(Start::Held, unpark(3), "only a parked shard can be unparked")]
#[case::unparked_at_its_fence(Start::Parked, unpark(2), "a fence increases by one")]
#[case::released_with_an_attempt(Start::Held, release(1), "does not count as an attempt")]
#[case::offered_to_oneself(Start::Held, offered_to(OWNER), "the destination is another worker")]
#[case::offered_twice(Start::Offered, offered_to(OTHER), "a pending offer freezes its source")]
#[case::another_offer_withdrawn(
    Start::Offered,
    withdrawn(4),
    "a withdrawal names the pending offer"
)]
#[case::executed_again(Start::Held, numbered(4), "an executed sequence rises within a lease")]
#[case::overtaken(Start::Held, numbered(3), "an executed sequence rises within a lease")]
#[case::revoked_at_its_fence(Start::Held, revoke(2), "a fence increases by one")]
#[case::completed_free(Start::Free, completed(b"g"), "only a lease holder can change a shard")]
#[case::completed_before(Start::Held, completed(b"e"), "a cursor never moves backwards")]
#[case::cut_free(Start::Free, cut_at(b"m", b"m", b"y"), "only a lease holder can change")]
#[case::released_free(Start::Free, release(0), "only a lease holder can change a shard")]
#[case::withdrawn_free(Start::Free, withdrawn(3), "only a lease holder can change a shard")]
#[case::revoked_free(Start::Free, revoke(2), "only a lease holder can change a shard")]
#[case::parked_free(Start::Free, parked(Some(entry(OpKind::Park))), "only a lease holder can")]
#[case::parked_again(Start::Parked, parked(None), "only an active shard can be parked")]
#[case::offered_before(Start::Held, offered_at(b"e"), "a cursor never moves backwards")]
fn change_that_does_not_fit_its_record_panics(
    #[case] start: Start,
    #[case] change: ShardChange<'static>,
    #[case] because: &str,
) {
    let mut pool = RecordPool::new(1 << 16);
    let mut record = shard(start, &mut pool);
    let stopped = catch_unwind(AssertUnwindSafe(|| evolve(&mut record, &mut pool, &change)));
    // The pool panics on drop if the rejected change leaked an allocation.
    record.free(&mut pool);
    let words = words_of(&stopped.expect_err("the guard accepts the change"));
    assert!(words.contains(because), "{words}");
}

fn words_of(panic: &Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

/// Returns the panic of the guards after `change` on a shard in the state `now` that was `before`.
fn after(before: Start, now: Start, change: &ShardChange<'_>) -> String {
    let mut pool = RecordPool::new(1 << 16);
    let (old, new) = (shard(before, &mut pool), shard(now, &mut pool));
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        assert_after(Before::of(&old), &new, &pool, change);
    }));
    old.free(&mut pool);
    new.free(&mut pool);
    words_of(&stopped.expect_err("the guard accepts the record"))
}

/// The change was not applied, or more than the change.
#[rstest]
#[case::grant(Start::Held, Start::Held, grant(2), "a fence increases")]
#[case::checkpoint(Start::Free, Start::Held, work(b"g"), "a step keeps the fence")]
#[case::confirmation(
    Start::Free,
    Start::Held,
    ShardChange::Confirm { attempts: 0 },
    "a step keeps the fence"
)]
#[case::withdrawal(Start::Free, Start::Held, withdrawn(3), "a step keeps the fence")]
#[case::request(Start::Free, Start::Held, requested(), "a step keeps the fence")]
#[case::offer(Start::Free, Start::Offered, offered_to(OTHER), "a step keeps the fence")]
#[case::cut(Start::Held, Start::Held, cut_at(b"m", b"m", b"y"), "a split creates one residual")]
#[case::completion(Start::Held, Start::Held, completed(b"g"), "the shard has the decided status")]
#[case::park(Start::Held, Start::Held, parked(None), "the shard has the decided status")]
#[case::release(Start::Held, Start::Held, release(0), "a released shard has no lease")]
#[case::unpark(Start::Parked, Start::Parked, unpark(3), "a fence increases")]
#[case::revocation(Start::Held, Start::Held, revoke(3), "a fence increases")]
fn record_that_is_not_the_result_of_its_change_panics(
    #[case] before: Start,
    #[case] now: Start,
    #[case] change: ShardChange<'static>,
    #[case] because: &str,
) {
    assert_eq!(after(before, now, &change), because);
}

#[test]
fn log_without_the_operation_panics() {
    // The shard has executed sequence 4 with `first_entry`.
    let checkpoint = |sequence, entry| {
        let cursor = CursorUpdate::with_last_key(b"f");
        ShardChange::Advance { cursor, attempts: 0, drop_request: false, sequence, entry }
    };
    let other = checkpoint(sequence(4), entry(OpKind::Checkpoint));
    let because = "the newest log entry is this operation's";
    assert_eq!(after(Start::Held, Start::Held, &other), because);
    let later = checkpoint(sequence(5), first_entry());
    let because = "the record keeps the highest executed sequence";
    assert_eq!(after(Start::Held, Start::Held, &later), because);
}
