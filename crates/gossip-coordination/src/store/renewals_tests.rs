//! Many leases are renewed in few round trips, each with its own result.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::renewals::RENEW_BATCH_MAX;
use super::{Fault, MapStore, StoreConfig, StoreCoordinator, StoreLimits};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([9; 32]);
const RUN: RunId = RunId::from_raw(2);
const WORKER: WorkerId = WorkerId::from_raw(1);
/// Reads for the hint of one run.
const HINT_READS: u64 = 1;
/// Reads for the hint if all the leases that end first were renewed.
const FAR_HINT_READS: u64 = 2;

type Handle = StoreCoordinator<MapStore>;

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

/// A handle that holds `count` shards of a run.
fn set_up(store: MapStore, count: u32) -> (Handle, Vec<Lease>) {
    let mut handle = StoreCoordinator::new(store, StoreConfig::new(1 << 32));
    let bounds: Vec<_> = (1..=count + 1).map(u32::to_be_bytes).collect();
    let roots: Vec<_> = bounds
        .windows(2)
        .zip(0..)
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    handle.create_run_with_shards(at(1), TENANT, RUN, config, &roots, op(1)).unwrap();
    let mut scratch = AcquireScratch::new();
    let leases = (0..u64::from(count)).map(|id| {
        let key = ShardKey::new(RUN, ShardId::from_raw(id));
        handle.acquire_and_restore_into(at(2), TENANT, key, WORKER, &mut scratch).unwrap().lease
    });
    let leases = leases.collect();
    (handle, leases)
}

/// Renews at 50, and answers the deadlines with the round trips: reads and commits.
fn renew(handle: &mut Handle, leases: &[Lease]) -> (Vec<Option<u64>>, [u64; 2]) {
    let count = |handle: &Handle| [handle.store().read_count(), handle.store().batch_count()];
    let before = count(handle);
    let mut results = vec![Err(RenewError::from(InfraError::Transient {
        operation: "",
        message: String::new(),
    }))];
    handle.renew_many(at(50), TENANT, leases, &mut results);
    let after = count(handle);
    let deadline = |result: &Result<RenewResult, RenewError>| {
        result.as_ref().ok().map(|renewed| renewed.new_deadline.as_raw())
    };
    let deadlines = results.iter().map(deadline).collect();
    (deadlines, [after[0] - before[0], after[1] - before[1]])
}

#[test]
fn thousand_cached_leases_are_one_commit_without_shard_reads() {
    let (mut handle, leases) = set_up(MapStore::new(), 1_000);
    let (deadlines, cost) = renew(&mut handle, &leases);
    assert_eq!(deadlines, vec![Some(150); 1_000]);
    assert_eq!(cost, [FAR_HINT_READS, 1]);
}

#[test]
fn more_than_a_batch_are_several() {
    let count = u32::try_from(RENEW_BATCH_MAX).unwrap() + 1;
    let (mut handle, leases) = set_up(MapStore::new(), count);
    let (deadlines, cost) = renew(&mut handle, &leases);
    assert_eq!(deadlines, vec![Some(150); leases.len()]);
    assert_eq!(cost, [FAR_HINT_READS, 2]);
}

#[test]
fn leases_of_another_handle_are_loaded_as_many_as_the_store_answers() {
    // Three values for each shard.
    let limits = StoreLimits { txn_ops: 31, ..StoreLimits::GENEROUS };
    let (handle, leases) = set_up(MapStore::with_limits(limits), 25);
    let store = handle.store().another_handle();
    let mut other = StoreCoordinator::new(store, StoreConfig::new(2 << 32));
    let (deadlines, cost) = renew(&mut other, &leases);
    assert_eq!(deadlines, vec![Some(150); leases.len()]);
    assert_eq!(cost, [3 + HINT_READS, 1]);
    let (_, cost) = renew(&mut other, &leases);
    assert_eq!(cost, [HINT_READS, 1], "and cached");
}

#[test]
fn each_lease_has_its_own_result_in_order() {
    let (mut handle, leases) = set_up(MapStore::new(), 5);
    let store = handle.store().another_handle();
    let mut admin = StoreCoordinator::new(store, StoreConfig::new(2 << 32));
    admin.revoke_lease(at(40), TENANT, leases[1].key(), None, op(10)).unwrap();
    let action = ShardAction::Release;
    admin.request_action(at(40), TENANT, leases[3].key(), &action, at(90), op(11)).unwrap();
    let mut results = Vec::new();
    handle.renew_many(at(50), TENANT, &leases, &mut results);
    assert_eq!(
        results.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, true, true, true]
    );
    assert!(matches!(results[1], Err(RenewError::StaleFence { .. })), "{:?}", results[1]);
    let asked = |result: &Result<RenewResult, _>| {
        result.as_ref().is_ok_and(|result| result.request.is_some())
    };
    assert_eq!(results.iter().map(asked).collect::<Vec<_>>(), [false, false, false, true, false]);
}

#[test]
fn renewals_with_conflicts_or_lost_replies_are_retried_together() {
    let (mut handle, leases) = set_up(MapStore::new(), 4);
    for fault in [Fault::Conflict, Fault::LoseReply, Fault::LoseRequest, Fault::None] {
        handle.store_mut().inject(fault);
    }
    let (deadlines, cost) = renew(&mut handle, &leases);
    assert_eq!(deadlines, vec![Some(150); 4]);
    // Both unresolved renewals are loaded in one read.
    assert_eq!(cost, [1 + HINT_READS, 2]);
}

#[test]
fn failure_of_one_renewal_does_not_fail_another() {
    let (mut handle, leases) = set_up(MapStore::new(), 3);
    handle.store_mut().inject(Fault::None);
    handle.store_mut().inject(Fault::Fail);
    let (deadlines, _) = renew(&mut handle, &leases);
    assert_eq!(deadlines, [Some(150), None, Some(150)]);
}

#[test]
fn the_same_lease_twice_is_renewed_twice() {
    let (mut handle, leases) = set_up(MapStore::new(), 1);
    let twice = [leases[0].clone(), leases[0].clone()];
    let (deadlines, _) = renew(&mut handle, &twice);
    assert_eq!(deadlines, [Some(150), Some(150)]);
}
