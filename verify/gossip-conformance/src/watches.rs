//! Leases whose deadline lies hours ahead, on any store (DESIGN Q7, ADR 84).
//!
//! The check gives its handles a monotonic clock, so it is not part of
//! [`run_all`](crate::run_all): a store's crate calls [`check_void_deadlines`] with handles of its
//! store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{ProcessState, Store, StoreCoordinator};
use gossip_coordination::{
    AcquireError, AcquireScratch, CheckpointError, ClaimError, CoordinationBackend, Lease,
    RunConfig, RunManagement, ShardClaiming,
};

const TENANT: TenantId = TenantId::from_bytes([0x5e; 32]);
const RUN: RunId = RunId::from_raw(0x12);
const SHARD: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));
const FAST: WorkerId = WorkerId::from_raw(1);
const RIGHT: WorkerId = WorkerId::from_raw(2);
const LEASE: u64 = 100;
/// The wall time of the worker whose clock is ahead, and that of the other one.
const AHEAD: LogicalTime = LogicalTime::from_raw(100_000_000);
const NOW: LogicalTime = LogicalTime::from_raw(1_000);

/// Checks that a shard whose deadline lies hours ahead is claimed once its record was not written
/// for a lease and the clock skew, and never while its lease is renewed. `open` opens a handle of
/// another process on one empty store.
///
/// # Panics
///
/// If a statement does not hold.
pub fn check_void_deadlines<S: Store>(mut open: impl FnMut(&ProcessState) -> StoreCoordinator<S>) {
    let ticks = Arc::new(AtomicU64::new(1));
    let clock = Arc::clone(&ticks);
    let watching = ProcessState::default().watching(move || clock.load(Ordering::Relaxed));
    let (mut fast, mut right) = (open(&ProcessState::default()), open(&watching));
    let mut blind = open(&ProcessState::default());
    let window = LEASE + right.config().max_clock_skew;
    register(&mut fast);
    let lease = claim(&mut fast, AHEAD, FAST).expect("a free shard");

    // Renewals of a clock that was set back keep the deadline, and still count.
    for _ in 0..10 {
        let renewed = fast.renew(NOW, TENANT, &lease).expect("live");
        assert_eq!(renewed.new_deadline, lease.deadline(), "a renewal never shortens a lease");
        assert!(matches!(claim(&mut right, NOW, RIGHT), Err(ClaimError::NoneAvailable { .. })));
        assert!(matches!(acquire(&mut right, RIGHT), Err(AcquireError::AlreadyLeased { .. })));
        ticks.fetch_add(window / 2, Ordering::Relaxed);
    }
    fast.renew(NOW, TENANT, &lease).expect("live");
    // From here on the lease holder writes nothing.
    assert!(claim(&mut right, NOW, RIGHT).is_err(), "the watch begins with the last renewal");
    assert!(acquire(&mut right, RIGHT).is_err());
    ticks.fetch_add(window - 1, Ordering::Relaxed);
    assert!(acquire(&mut right, RIGHT).is_err(), "one tick too early");
    ticks.fetch_add(window, Ordering::Relaxed);
    assert!(claim(&mut blind, NOW, RIGHT).is_err(), "nothing is void without a monotonic clock");
    let taken = claim(&mut right, NOW, RIGHT).expect("a void deadline");
    assert!(taken.fence() > lease.fence(), "every grant raises the fence");
    assert_eq!(taken.deadline(), NOW.saturating_add(LEASE), "by the right clock");

    let cursor = CursorUpdate::with_last_key(b"b");
    let stale = fast.checkpoint(AHEAD, TENANT, &lease, cursor, OpId::from_raw(2));
    assert!(matches!(stale, Err(CheckpointError::StaleFence { .. })), "{stale:?}");
    right.checkpoint(NOW, TENANT, &taken, cursor, OpId::from_raw(3)).expect("the new holder");
}

fn register<S: Store>(handle: &mut StoreCoordinator<S>) {
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).expect("valid");
    let shards = [InitialShardInput {
        shard_id: SHARD.shard(),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    }];
    let op = OpId::from_raw(1);
    handle.create_run_with_shards(NOW, TENANT, RUN, config, &shards, op).expect("an empty store");
}

fn claim<S: Store>(
    handle: &mut StoreCoordinator<S>,
    now: LogicalTime,
    worker: WorkerId,
) -> Result<Lease, ClaimError> {
    let mut scratch = Box::<AcquireScratch>::default();
    handle.claim_next_available(now, TENANT, RUN, worker, &mut scratch).map(|view| view.lease)
}

fn acquire<S: Store>(
    handle: &mut StoreCoordinator<S>,
    worker: WorkerId,
) -> Result<Lease, AcquireError> {
    let mut scratch = Box::<AcquireScratch>::default();
    let granted = handle.acquire_and_restore_into(NOW, TENANT, SHARD, worker, &mut scratch);
    granted.map(|view| view.lease)
}
