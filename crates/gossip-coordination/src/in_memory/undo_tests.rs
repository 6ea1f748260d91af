//! A change whose assertion fails leaves the record, the claim index and the pool as they were.
//!
//! No operation produces such a change, so each test decides an operation by the kernel, damages
//! the record so that an assertion fails, and applies the change.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gossip_contracts::coordination::{CursorUpdate, MAX_SPLIT_CHILDREN};
use gossip_contracts::identity::{OpId, ShardId};

use super::in_memory_tests::assert_index_agrees;
use super::{InMemoryCoordinator, Place};
use crate::lease::{GrantToken, OP_LOG_CAP, OpKind, OpLog, OpLogEntry};
use crate::protocol::*;
use crate::record::{Lineage, Rare};
use crate::shard_limits::ShardQuota;
use crate::test_fixtures::{
    RUN, TENANT, acquire, at, halves, key, op, residual, two_shards, worker,
};
use crate::{
    CoordinationBackend as _, HandoffId, Lease, ParkContext, ParkReason, RunManagement as _,
    ShardAction,
};

/// The operation id of every change under test.
const OP: OpId = op(500);

/// A violated assertion of `evolve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// Asserted while the change is applied: an operation is logged once.
    LoggedTwice,
    /// Asserted after the change, of a record with rare parts: a parent exactly when derived.
    ForeignParent,
    /// Asserted after the change, of a record that may have none: a reason exactly when parked.
    ForeignReason,
}

/// What the shard of a test has been through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Free,
    /// Leased, without an operation in its log.
    Granted,
    /// Leased, with a cursor and a full log.
    Held,
    /// As `Held`, with an offer, a request and a child.
    Offered,
    Parked,
}

fn start(start: Start) -> (InMemoryCoordinator, Lease) {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 2, 0, 1);
    if start == Start::Free {
        coordinator.release(at(3), TENANT, &lease, ReleaseMode::Clean, op(1)).unwrap();
    }
    if matches!(start, Start::Held | Start::Offered | Start::Parked) {
        for number in 1..=OP_LOG_CAP as u64 + 3 {
            let cursor = CursorUpdate::new(b"c", b"token");
            coordinator.checkpoint(at(3), TENANT, &lease, cursor, op(number)).unwrap();
        }
    }
    if start == Start::Offered {
        let cut = residual(b"a", b"k", b"m");
        coordinator.split_residual(at(4), TENANT, &lease, &cut, op(100)).unwrap();
        let action = ShardAction::Release;
        coordinator.request_action(at(4), TENANT, key(0), &action, at(90), op(101)).unwrap();
        let keep = CursorUpdate::initial();
        coordinator.offer(at(4), TENANT, &lease, terms(3), keep, op(102)).unwrap();
    }
    if start == Start::Parked {
        let (reason, context) = (ParkReason::Other, ParkContext::new("text"));
        let parked =
            coordinator.park_shard_with_context(at(4), TENANT, &lease, reason, context, op(100));
        parked.unwrap();
    }
    (coordinator, lease)
}

fn terms(handoff: u64) -> OfferTerms {
    OfferTerms { handoff: HandoffId::from_raw(handoff), destination: worker(2), deadline: at(50) }
}

/// Everything that a shard is, and the bytes that all shards use.
#[derive(PartialEq)]
struct Image {
    shown: String,
    offer: Option<crate::Offer>,
    request: Option<crate::PendingRequest>,
    spawned: Vec<ShardId>,
    cursor: (Vec<u8>, usize),
    spec: (Vec<u8>, [usize; 2]),
    log: OpLog,
    used: (usize, usize),
    shards: usize,
}

impl Image {
    fn of(coordinator: &InMemoryCoordinator) -> Self {
        let shard = coordinator.shard(TENANT, key(0)).unwrap();
        let record = shard.record();
        let (cursor, spec) = (shard.packed_cursor(), shard.packed_spec());
        Self {
            shown: format!(
                "{:?} {:?} {:?} {:?} {:?} {} {} {:?} {:?}",
                record.status(),
                record.park_reason(),
                record.park_context(),
                record.fence_epoch(),
                record.lease().map(|holder| (holder.token(), holder.deadline())),
                record.attempts(),
                record.acquire_count(),
                record.last_handoff(),
                record.lineage(),
            ),
            offer: record.offer().copied(),
            request: record.request().cloned(),
            spawned: shard.spawned().collect(),
            cursor: (cursor.0.to_vec(), cursor.1),
            spec: (spec.0.to_vec(), spec.1),
            log: shard.op_log().clone(),
            used: (coordinator.pool.bytes.used_bytes(), coordinator.pool.bytes.live_slots()),
            shards: coordinator.total_shards(),
        }
    }
}

/// Damages shard 0, and returns whether the damage concerns a change with this log entry.
fn damage(
    coordinator: &mut InMemoryCoordinator,
    place: Place,
    damage: Damage,
    entry: Option<&OpLogEntry>,
) -> bool {
    let record = &mut coordinator.records.get_mut(place.slot).record;
    match damage {
        Damage::LoggedTwice => {
            let Some(entry) = entry else { return false };
            let same = OpLogEntry::new(entry.op_id(), OpKind::Checkpoint, 9, at(1));
            coordinator.pool.logs.get_mut(&mut record.op_log).push_unchecked(same);
        }
        Damage::ForeignParent => {
            let lineage = Lineage { parent: ShardId::from_raw(7), split_hash: 7 };
            record.rare.get_or_insert_with(|| Box::new(Rare::default())).lineage = Some(lineage);
        }
        // A park sets the reason and an unpark clears it.
        Damage::ForeignReason if entry.is_some_and(|it| sets_reason(it.kind())) => return false,
        Damage::ForeignReason => record.park_reason = Some(ParkReason::NotFound),
    }
    true
}

fn sets_reason(kind: OpKind) -> bool {
    matches!(kind, OpKind::Park | OpKind::Unpark)
}

/// Checks `operation` with every damage. Grants are deterministic, so a lease of one start is a
/// lease of every start of the same kind.
fn check<T: ShardTransition>(begin: Start, operation: &T)
where
    T::Output: std::fmt::Debug,
    T::Error: std::fmt::Debug,
{
    let mut stopped = 0;
    for kind in [Damage::LoggedTwice, Damage::ForeignParent, Damage::ForeignReason] {
        let (mut coordinator, _) = start(begin);
        let place = coordinator.find(TENANT, key(0)).unwrap();
        let seen = ShardInputs {
            shard: coordinator.shard(TENANT, key(0)),
            run: Some(coordinator.run(place).record.head()),
            quota: ShardQuota::UNLIMITED,
            owner: OwnerEvidence::Gone,
            watch: LeaseWatch::NONE,
            split_hash_of: &|_| None,
        };
        let decided = operation.decide(at(5), &seen).unwrap();
        let Decision::Commit { change, .. } = decided else { panic!("a replay") };
        if !damage(&mut coordinator, place, kind, change.entry()) {
            continue;
        }
        let before = Image::of(&coordinator);
        let commit = || coordinator.commit::<T>(at(5), place, TENANT, change).map_err(|_| ());
        let panicked = catch_unwind(AssertUnwindSafe(commit)).is_err();
        assert!(panicked, "{begin:?} {kind:?}: no assertion failed");
        assert!(Image::of(&coordinator) == before, "{begin:?} {kind:?}: the shard has changed");
        assert_index_agrees(&coordinator);
        stopped += 1;
    }
    assert!(stopped >= 1, "no damage concerns the operation");
}

#[test]
fn grant_that_panics_leaves_the_shard_as_it_was() {
    let (tenant, token) = (TENANT, GrantToken::from_raw(77));
    check(
        Start::Free,
        &Acquire {
            tenant,
            key: key(0),
            worker: worker(2),
            token,
            reply: ReplyPath::CanBeLost,
            spares_last_attempt: false,
        },
    );
    let handoff = HandoffId::from_raw(3);
    let accept = Accept { tenant, key: key(0), worker: worker(2), handoff, token };
    check(Start::Offered, &accept);
}

#[test]
fn renewal_or_request_that_panics_leaves_the_shard_as_it_was() {
    let (tenant, key) = (TENANT, key(0));
    for begin in [Start::Granted, Start::Held, Start::Offered] {
        let (_, lease) = start(begin);
        check(begin, &Renew { tenant, lease: &lease });
        let (action, expires_at) = (ShardAction::HandOff(None), at(80));
        if begin != Start::Offered {
            check(
                begin,
                &RequestAction { tenant, key, action: action.clone(), expires_at, op_id: OP },
            );
        }
    }
}

#[test]
fn work_that_panics_leaves_the_shard_as_it_was() {
    let (tenant, op_id) = (TENANT, OP);
    for begin in [Start::Granted, Start::Held] {
        let (_, lease) = start(begin);
        let lease = &lease;
        for cursor in [CursorUpdate::with_last_key(b"d"), CursorUpdate::new(b"dd", &[7; 200])] {
            check(begin, &Checkpoint { tenant, lease, cursor, op_id });
            check(begin, &Complete { tenant, lease, cursor, op_id });
            check(begin, &OfferShard { tenant, lease, terms: terms(5), cursor, op_id });
        }
        let cursor = CursorUpdate::initial();
        check(begin, &OfferShard { tenant, lease, terms: terms(5), cursor, op_id });
        let context = ParkContext::new("no good");
        check(begin, &Park { tenant, lease, reason: ParkReason::Poisoned, context, op_id });
        check(begin, &Release { tenant, lease, mode: ReleaseMode::Clean, op_id });
        check(begin, &RevokeLease { tenant, key: key(0), expected_fence: None, op_id });
    }
}

#[test]
fn withdrawal_or_unpark_that_panics_leaves_the_shard_as_it_was() {
    let (tenant, op_id) = (TENANT, OP);
    let (_, lease) = start(Start::Offered);
    let handoff = HandoffId::from_raw(3);
    check(Start::Offered, &Withdraw { tenant, lease: &lease, handoff, op_id });
    check(Start::Parked, &Unpark { tenant, key: key(0), op_id });
}

#[test]
fn split_that_panics_leaves_the_shard_as_it_was_and_makes_none() {
    let (tenant, op_id, children_max) = (TENANT, OP, MAX_SPLIT_CHILDREN);
    let (cut, plan) = (residual(b"a", b"k", b"m"), halves(b"a", b"k", b"m"));
    for begin in [Start::Granted, Start::Held] {
        let (_, lease) = start(begin);
        check(begin, &SplitResidual { tenant, lease: &lease, plan: &cut, op_id });
        if begin == Start::Granted {
            let lease = &lease;
            check(begin, &SplitReplace { tenant, lease, plan: &plan, children_max, op_id });
        }
    }
}

/// The worker's answer to a panic is to park the shard.
#[test]
fn shard_can_be_parked_after_a_change_that_panicked() {
    let (mut coordinator, lease) = start(Start::Held);
    let place = coordinator.find(TENANT, key(0)).unwrap();
    coordinator.records.get_mut(place.slot).record.park_reason = Some(ParkReason::NotFound);
    let cursor = CursorUpdate::with_last_key(b"d");
    let checkpoint = || coordinator.checkpoint(at(5), TENANT, &lease, cursor, OP).is_ok();
    assert!(catch_unwind(AssertUnwindSafe(checkpoint)).is_err());
    coordinator.park_shard(at(6), TENANT, &lease, ParkReason::Poisoned, op(501)).unwrap();
    let shard = coordinator.shard(TENANT, key(0)).unwrap();
    assert_eq!(shard.cursor(), CursorUpdate::new(b"c", b"token"), "no progress was kept");
    assert!(shard.op_log().find(OP).is_none(), "the operation is not remembered");
}

#[test]
fn run_transition_that_panics_leaves_the_run_as_it_was() {
    let mut coordinator = two_shards();
    coordinator.pause_run(at(2), TENANT, RUN, op(1)).unwrap();
    // Two entries with one id, which is asserted when the change is logged.
    let slot = coordinator.find_run(TENANT, RUN).unwrap();
    let entry = crate::RunOpLogEntry::new(op(2), crate::RunOpKind::PauseRun, 9, at(2));
    let change = RunChange::Pause { paused: false, changed: true, entry };
    coordinator.commit_run(TENANT, Some(slot), &change).unwrap();
    let change = RunChange::Pause { paused: true, changed: true, entry };
    let commit = || coordinator.commit_run(TENANT, Some(slot), &change).is_ok();
    assert!(catch_unwind(AssertUnwindSafe(commit)).is_err());
    assert!(!coordinator.get_run(TENANT, RUN).unwrap().is_paused(), "the run is as before");
}
