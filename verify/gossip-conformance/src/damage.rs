//! Shards with a damaged record, on any store: the run's other shards are not affected.
//!
//! The checks read and write the store directly, so they are not part of
//! [`run_all`](crate::run_all): a store's crate calls [`check_damaged_shards`],
//! [`check_repairs`] and [`check_concurrent_repairs`](crate::concurrent_repairs) with its store.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, plan_split_replace,
    plan_split_residual,
};
use gossip_contracts::identity::{
    CanonicalHasher, Domain, FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId,
    WorkerId,
};
use gossip_coordination::protocol::{RepairedShard, fence_floor_at};
use gossip_coordination::store::{Answer, Key, KeyRange, Read, Store, StoreCoordinator, Txn};
use gossip_coordination::{
    AcquireError, AcquireScratch, CheckpointError, ClaimError, CoordinationBackend, Lease,
    ParkReason, RepairShardError, RunConfig, RunManagement, RunProgress, RunStatus,
    RunTerminalEvaluation, RunTransitionError, ShardClaiming, ShardDamage, ShardFilter,
    ShardStatus, ShardSummary, evaluate_run_terminal,
};

/// Returns a stored value as a newer program would write it: another version, and the checksum that
/// fits. Without the checksum it would be a damaged value.
///
/// # Panics
///
/// If `value` is shorter than an empty one.
#[must_use]
pub fn in_newer_format(key: &Key, value: &[u8], version: u8) -> Vec<u8> {
    // Version, kind and length; then the payload; then the checksum.
    let (head_len, payload_end) = (1 + 1 + 4, value.len() - 8);
    let mut hasher = CanonicalHasher::for_domain(Domain::RECORD_CHECKSUM_V1);
    hasher.write_bytes_prefixed(key.to_bytes().as_bytes());
    hasher.write_u8(version);
    hasher.write_u8(value[1]);
    let checksum = hasher.finalize_64_with(&value[head_len..payload_end]);
    let mut newer = value[..payload_end].to_vec();
    newer[0] = version;
    newer.extend_from_slice(&checksum.to_le_bytes());
    newer
}

pub(crate) const TENANT: TenantId = TenantId::from_bytes([0x5d; 32]);
pub(crate) const RUN: RunId = RunId::from_raw(0x11);
const WORKER: WorkerId = WorkerId::from_raw(1);
/// The bounds of the roots.
pub(crate) const BOUNDS: [&[u8]; 5] = [b"a", b"f", b"m", b"s", b"z"];
/// The shard whose record is damaged.
pub(crate) const VICTIM: u64 = 1;

/// The parts of a record that a case damages.
const PARTS: [ShardDamage; 3] = [ShardDamage::Hot, ShardDamage::Cold, ShardDamage::Both];

/// How a value is damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// One bit differs.
    FlipBit(usize),
    /// The key has no value.
    Remove,
}

pub(crate) const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

pub(crate) const fn key(shard: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(shard))
}

/// Checks that damage to the record of one shard affects no other shard, and is reported.
///
/// `fresh` returns a handle on an empty store.
///
/// # Panics
///
/// Panics if a check fails.
pub fn check_damaged_shards<S: Store>(mut fresh: impl FnMut() -> StoreCoordinator<S>) {
    for part in PARTS {
        // The version byte, the kind, the payload and the checksum.
        for change in [0, 9, 60, 150].map(Change::FlipBit).into_iter().chain([Change::Remove]) {
            // Without either part nothing shows that the shard exists.
            if matches!((part, change), (ShardDamage::Both, Change::Remove)) {
                continue;
            }
            other_shards_finish_and_the_run_stays_open(&mut fresh(), part, change);
        }
        terminal_shard_with_a_damaged_record_keeps_the_run_open(&mut fresh(), part);
        run_with_a_damaged_shard_is_deleted(&mut fresh(), part);
        renewals_of_other_leases_succeed(&mut fresh(), part);
    }
}

/// Checks that repairs restore damaged shards, and only those.
///
/// `fresh` returns a handle on an empty store.
///
/// # Panics
///
/// Panics if a check fails.
pub fn check_repairs<S: Store>(mut fresh: impl FnMut() -> StoreCoordinator<S>) {
    for change in [Change::FlipBit(60), Change::Remove] {
        repaired_hot_part_starts_at_the_beginning_under_a_new_fence(&mut fresh(), change);
        repaired_cold_part_keeps_the_progress(&mut fresh(), change);
        replaced_shard_stays_replaced(&mut fresh(), change);
        derived_shards_get_their_range_and_lineage_back(&mut fresh(), change);
        range_at_the_end_of_the_run_needs_its_bounds(&mut fresh(), change);
    }
    intact_and_missing_shards_are_refused(&mut fresh());
    parked_shard_becomes_claimable(&mut fresh());
    shard_without_both_parts_is_rebuilt(&mut fresh());
    two_lost_ranges_are_not_guessed(&mut fresh());
    terminal_run_gets_no_work(&mut fresh());
}

fn other_shards_finish_and_the_run_stays_open<S: Store>(
    handle: &mut StoreCoordinator<S>,
    part: ShardDamage,
    change: Change,
) {
    make_run(handle);
    damage(handle, VICTIM, part, change);
    let mut scratch = Box::new(AcquireScratch::new());
    let mut done = Vec::new();
    let end = loop {
        match handle.claim_next_available(at(10), TENANT, RUN, WORKER, &mut scratch) {
            Ok(claimed) => {
                let lease = claimed.lease.clone();
                done.push(lease.shard().as_raw());
                complete(handle, &lease);
            }
            Err(end) => break end,
        }
    };
    done.sort_unstable();
    assert_eq!(done, [0, 2, 3], "every other shard is claimed: {part:?} {change:?}");
    // No deadline: only an operator can make the damaged shard claimable.
    assert_eq!(end, ClaimError::NoneAvailable { earliest_deadline: None });
    let refused =
        handle.acquire_and_restore_into(at(11), TENANT, key(VICTIM), WORKER, &mut scratch);
    let refused = refused.map(|view| view.lease).expect_err("it is damaged");
    let AcquireError::BackendError(error) = refused else { panic!("{refused:?}") };
    assert!(error.is_of_shard(), "{error:?}: {part:?} {change:?}");
    assert_marked(handle, part);
    assert_not_complete(handle);
}

/// The damaged shard is listed and counted, and the others are as they were.
fn assert_marked<S: Store>(handle: &mut StoreCoordinator<S>, part: ShardDamage) {
    let rows = list(handle, ShardFilter::all());
    let damaged: Vec<_> = rows.iter().filter(|row| row.damage.is_some()).collect();
    assert_eq!(damaged.len(), 1);
    assert_eq!((damaged[0].shard, damaged[0].damage), (key(VICTIM).shard(), Some(part)));
    let range = (&*damaged[0].start, &*damaged[0].end);
    let known = (BOUNDS[VICTIM as usize], BOUNDS[VICTIM as usize + 1]);
    assert_eq!(range == known, part.has_range(), "{part:?}");
    assert_eq!(rows.iter().filter(|row| row.status == ShardStatus::Done).count(), 3);
    assert_eq!(list(handle, ShardFilter::damaged()).len(), 1);
    assert_eq!(list(handle, ShardFilter::one(key(VICTIM).shard())).len(), 1);
    for by_state in [ShardFilter::active(), ShardFilter::available(), ShardFilter::parked()] {
        let shown: Vec<_> = list(handle, by_state).iter().map(|row| row.shard).collect();
        assert_eq!(shown, [key(VICTIM).shard()], "its state is not known");
    }
    let progress = progress(handle);
    assert_eq!((progress.total, progress.done, progress.active), (4, 3, 0));
    assert_eq!((progress.damaged, progress.parked, progress.leased), (1, 0, 0));
    assert_eq!(evaluate_run_terminal(&progress), RunTerminalEvaluation::HasFailures);
    assert!(progress.is_settled() && !progress.is_success());
}

fn assert_not_complete<S: Store>(handle: &mut StoreCoordinator<S>) {
    let refused = handle.complete_run(at(20), TENANT, RUN, OpId::from_raw(99));
    match refused.expect_err("a run with a damaged shard is not complete") {
        RunTransitionError::NotSettled { active: 1, parked: 0 } => {}
        RunTransitionError::BackendError(error) => assert!(error.is_of_shard(), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(handle.get_run(TENANT, RUN).expect("a run").status(), RunStatus::Active);
}

/// A finished shard has no index entry, so only its record shows that it is damaged.
fn terminal_shard_with_a_damaged_record_keeps_the_run_open<S: Store>(
    handle: &mut StoreCoordinator<S>,
    part: ShardDamage,
) {
    make_run(handle);
    for shard in 0..4 {
        let lease = acquire(handle, shard);
        complete(handle, &lease);
    }
    damage(handle, VICTIM, part, Change::FlipBit(60));
    assert_not_complete(handle);
    let progress = progress(handle);
    assert_eq!((progress.total, progress.done, progress.damaged), (4, 3, 1));
}

fn run_with_a_damaged_shard_is_deleted<S: Store>(
    handle: &mut StoreCoordinator<S>,
    part: ShardDamage,
) {
    make_run(handle);
    damage(handle, VICTIM, part, Change::FlipBit(60));
    handle.cancel_run(at(20), TENANT, RUN, OpId::from_raw(98)).expect("a run can be cancelled");
    handle.delete_run(at(21), TENANT, RUN, OpId::from_raw(97)).expect("and deleted");
    assert!(handle.get_run(TENANT, RUN).is_err());
    // The tombstone and the tenant's count.
    assert_eq!(count(handle, KeyRange::tenant(TENANT)), 2, "no key of the run is left");
}

fn renewals_of_other_leases_succeed<S: Store>(handle: &mut StoreCoordinator<S>, part: ShardDamage) {
    make_run(handle);
    let leases: Vec<Lease> = (0..4).map(|shard| acquire(handle, shard)).collect();
    damage(handle, VICTIM, part, Change::FlipBit(60));
    let mut results = Vec::new();
    handle.renew_many(at(20), TENANT, &leases, &mut results);
    for (shard, result) in results.iter().enumerate().filter(|(shard, _)| *shard != 1) {
        assert!(result.is_ok(), "shard {shard}: {result:?}");
    }
    for lease in leases.iter().filter(|lease| lease.shard() != key(VICTIM).shard()) {
        complete(handle, lease);
    }
}

/// The fence of all repairs.
pub(crate) const AT: FenceEpoch = fence_floor_at(1_700_000_000);

fn repair<S: Store>(
    handle: &mut StoreCoordinator<S>,
    shard: ShardId,
) -> Result<RepairedShard, RepairShardError> {
    handle.repair_shard(TENANT, ShardKey::new(RUN, shard), AT, None)
}

fn repaired_hot_part_starts_at_the_beginning_under_a_new_fence<S: Store>(
    handle: &mut StoreCoordinator<S>,
    change: Change,
) {
    make_run(handle);
    let leases: Vec<Lease> = (0..3).map(|shard| acquire(handle, shard)).collect();
    checkpoint(handle, &leases[1], b"g", 5);
    damage(handle, VICTIM, ShardDamage::Hot, change);
    let repaired = repair(handle, key(VICTIM).shard()).expect("a damaged shard");
    let expected =
        RepairedShard { damage: ShardDamage::Hot, status: ShardStatus::Active, fence: AT };
    assert_eq!(repaired, expected);
    assert_eq!(list(handle, ShardFilter::damaged()), []);
    let row = row(handle, key(VICTIM).shard());
    assert_eq!((row.last_key, row.leased, row.attempts), (None, false, 0));
    assert_eq!((&*row.start, &*row.end), (BOUNDS[1], BOUNDS[2]));
    // One entry for each active shard, and an owner key at most for each lease.
    assert_eq!(count(handle, KeyRange::claims_of(TENANT, RUN)), 4);
    let owners = if handle.store().binding().is_some() { 2 } else { 0 };
    assert_eq!(count(handle, KeyRange::owners_of(TENANT, RUN)), owners);
    // The old lease holder is fenced out, the others are not.
    let cursor = CursorUpdate::new(b"h", b"");
    let stale = handle.checkpoint(at(20), TENANT, &leases[1], cursor, OpId::from_raw(7));
    let stale = stale.expect_err("the fence has risen");
    assert!(matches!(stale, CheckpointError::StaleFence { .. }), "{stale:?}");
    handle.renew(at(20), TENANT, &leases[2]).expect("the lease of another shard");
    assert_eq!(repair(handle, key(VICTIM).shard()), Err(RepairShardError::NotDamaged));
    // The shard is claimable like any other, and the run can be completed.
    let again = acquire(handle, VICTIM);
    assert!(again.fence() > AT, "a grant raises the fence");
    for lease in [&leases[0], &again, &leases[2], &acquire(handle, 3)] {
        complete(handle, lease);
    }
    handle.complete_run(at(30), TENANT, RUN, OpId::from_raw(99)).expect("all shards are done");
}

fn repaired_cold_part_keeps_the_progress<S: Store>(
    handle: &mut StoreCoordinator<S>,
    change: Change,
) {
    make_run(handle);
    let lease = acquire(handle, VICTIM);
    checkpoint(handle, &lease, b"g", 5);
    damage(handle, VICTIM, ShardDamage::Cold, change);
    let repaired = repair(handle, key(VICTIM).shard()).expect("a damaged shard");
    assert_eq!((repaired.damage, repaired.fence), (ShardDamage::Cold, AT));
    let row = row(handle, key(VICTIM).shard());
    assert_eq!((&*row.start, &*row.end, &*row.metadata), (BOUNDS[1], BOUNDS[2], &b"meta"[..]));
    assert_eq!((row.last_key.as_deref(), row.leased), (Some(&b"g"[..]), false));
    let stale =
        handle.checkpoint(at(20), TENANT, &lease, CursorUpdate::new(b"h", b""), OpId::from_raw(7));
    assert!(matches!(stale, Err(CheckpointError::StaleFence { .. })), "{stale:?}");
    acquire(handle, VICTIM);
}

/// A parent that became active again would cover the ranges of its children a second time.
fn replaced_shard_stays_replaced<S: Store>(handle: &mut StoreCoordinator<S>, change: Change) {
    for part in [ShardDamage::Hot, ShardDamage::Cold] {
        if handle.get_run(TENANT, RUN).is_err() {
            make_run(handle);
            let lease = acquire(handle, VICTIM);
            let whole = ShardSpecRef::new(BOUNDS[1], BOUNDS[2], b"meta");
            let parts =
                [ShardSpecRef::new(b"f", b"i", b"meta"), ShardSpecRef::new(b"i", b"m", b"meta")];
            let children = parts.map(|part| SplitChild::new(part, CursorUpdate::initial()));
            let plan = plan_split_replace(whole, children).expect("the parts tile it");
            handle.split_replace(at(11), TENANT, &lease, &plan, OpId::from_raw(8)).expect("live");
        }
        damage(handle, VICTIM, part, change);
        let repaired = repair(handle, key(VICTIM).shard()).expect("a damaged shard");
        assert_eq!((repaired.damage, repaired.status), (part, ShardStatus::Split));
        let row = row(handle, key(VICTIM).shard());
        assert_eq!((&*row.start, &*row.end, row.spawned_count), (BOUNDS[1], BOUNDS[2], 2));
        assert_eq!(count(handle, KeyRange::claims_of(TENANT, RUN)), 5, "it is not claimable");
    }
}

fn derived_shards_get_their_range_and_lineage_back<S: Store>(
    handle: &mut StoreCoordinator<S>,
    change: Change,
) {
    make_run(handle);
    let lease = acquire(handle, VICTIM);
    let whole = ShardSpecRef::new(BOUNDS[1], BOUNDS[2], b"meta");
    let (left, right) =
        (ShardSpecRef::new(b"f", b"i", b"meta"), ShardSpecRef::new(b"i", b"m", b"meta"));
    let plan = plan_split_residual(whole, left, right).expect("the parts tile it");
    let split = handle.split_residual(at(11), TENANT, &lease, &plan, OpId::from_raw(8));
    let child = split.expect("a live lease").into_inner().residual;
    for (shard, range, parent) in [
        (child, (b"i", b"m"), Some(key(VICTIM).shard())),
        (key(VICTIM).shard(), (b"f", b"i"), None),
    ] {
        let before = row(handle, shard);
        for part in [ShardDamage::Hot, ShardDamage::Cold] {
            damage(handle, shard.as_raw(), part, change);
            repair(handle, shard).expect("a damaged shard");
            let row = row(handle, shard);
            assert_eq!((&*row.start, &*row.end), (&range.0[..], &range.1[..]), "{part:?}");
            assert_eq!((row.parent, row.spawned_count), (parent, before.spawned_count));
            assert_eq!((row.status, row.damage), (ShardStatus::Active, None));
        }
    }
}

fn range_at_the_end_of_the_run_needs_its_bounds<S: Store>(
    handle: &mut StoreCoordinator<S>,
    change: Change,
) {
    make_run(handle);
    damage(handle, 3, ShardDamage::Cold, change);
    assert_eq!(repair(handle, key(3).shard()), Err(RepairShardError::RangeUnknown));
    let whole = Some((BOUNDS[0], BOUNDS[4]));
    handle.repair_shard(TENANT, key(3), AT, whole).expect("the bounds end the gap");
    let row = row(handle, key(3).shard());
    assert_eq!((&*row.start, &*row.end), (BOUNDS[3], BOUNDS[4]));
}

fn intact_and_missing_shards_are_refused<S: Store>(handle: &mut StoreCoordinator<S>) {
    assert_eq!(repair(handle, key(0).shard()), Err(RepairShardError::ShardNotFound));
    make_run(handle);
    assert_eq!(repair(handle, key(0).shard()), Err(RepairShardError::NotDamaged));
    assert_eq!(repair(handle, key(9).shard()), Err(RepairShardError::ShardNotFound));
}

fn parked_shard_becomes_claimable<S: Store>(handle: &mut StoreCoordinator<S>) {
    make_run(handle);
    let lease = acquire(handle, VICTIM);
    let parked = handle.park_shard(at(11), TENANT, &lease, ParkReason::Other, OpId::from_raw(8));
    parked.expect("a live lease");
    damage(handle, VICTIM, ShardDamage::Hot, Change::FlipBit(60));
    repair(handle, key(VICTIM).shard()).expect("a damaged shard");
    for shard in 0..4 {
        let lease = acquire(handle, shard);
        complete(handle, &lease);
    }
    // The index of parked shards has no entry left.
    handle.complete_run(at(30), TENANT, RUN, OpId::from_raw(99)).expect("all shards are done");
}

fn shard_without_both_parts_is_rebuilt<S: Store>(handle: &mut StoreCoordinator<S>) {
    make_run(handle);
    let lease = acquire(handle, VICTIM);
    checkpoint(handle, &lease, b"g", 5);
    damage(handle, VICTIM, ShardDamage::Both, Change::FlipBit(60));
    let repaired = repair(handle, key(VICTIM).shard()).expect("a damaged shard");
    assert_eq!((repaired.damage, repaired.status), (ShardDamage::Both, ShardStatus::Active));
    let row = row(handle, key(VICTIM).shard());
    assert_eq!((&*row.start, &*row.end, row.last_key), (BOUNDS[1], BOUNDS[2], None));
}

fn two_lost_ranges_are_not_guessed<S: Store>(handle: &mut StoreCoordinator<S>) {
    make_run(handle);
    for shard in [1, 2] {
        damage(handle, shard, ShardDamage::Cold, Change::FlipBit(60));
    }
    assert_eq!(repair(handle, key(1).shard()), Err(RepairShardError::RangeUnknown));
    assert_eq!(list(handle, ShardFilter::damaged()).len(), 2, "nothing was changed");
}

fn terminal_run_gets_no_work<S: Store>(handle: &mut StoreCoordinator<S>) {
    make_run(handle);
    damage(handle, VICTIM, ShardDamage::Hot, Change::FlipBit(60));
    handle.cancel_run(at(20), TENANT, RUN, OpId::from_raw(98)).expect("a run can be cancelled");
    let status = RunStatus::Cancelled;
    let refused = repair(handle, key(VICTIM).shard());
    assert_eq!(refused, Err(RepairShardError::RunTerminal { status }));
}

pub(crate) fn checkpoint<S: Store>(
    handle: &mut StoreCoordinator<S>,
    lease: &Lease,
    reached: &[u8],
    op_id: u64,
) {
    let cursor = CursorUpdate::new(reached, b"");
    let saved = handle.checkpoint(at(10), TENANT, lease, cursor, OpId::from_raw(op_id));
    saved.expect("a live lease");
}

pub(crate) fn row<S: Store>(handle: &mut StoreCoordinator<S>, shard: ShardId) -> ShardSummary {
    list(handle, ShardFilter::one(shard)).pop().expect("the shard exists")
}

fn count<S: Store>(handle: &mut StoreCoordinator<S>, range: KeyRange) -> u64 {
    match read(handle, Read::Count(range)) {
        Answer::Count(count) => count,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn make_run<S: Store>(handle: &mut StoreCoordinator<S>) {
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).expect("a lease");
    handle.create_run(at(1), TENANT, RUN, config).expect("a new run");
    let shards: Vec<_> = BOUNDS
        .windows(2)
        .zip(0..)
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(pair[0], pair[1], b"meta"),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let op_id = OpId::from_raw(1);
    handle.register_shards(at(2), TENANT, RUN, &shards, op_id).expect("room for the shards");
}

pub(crate) fn acquire<S: Store>(handle: &mut StoreCoordinator<S>, shard: u64) -> Lease {
    let mut scratch = Box::new(AcquireScratch::new());
    let acquired = handle.acquire_and_restore_into(at(5), TENANT, key(shard), WORKER, &mut scratch);
    acquired.expect("a free shard").lease
}

fn complete<S: Store>(handle: &mut StoreCoordinator<S>, lease: &Lease) {
    let shard = lease.shard().as_raw();
    let cursor = CursorUpdate::new(BOUNDS[shard as usize], b"");
    let op_id = OpId::from_raw(100 + shard);
    handle.complete(at(12), TENANT, lease, cursor, op_id).expect("a live lease");
}

fn list<S: Store>(handle: &mut StoreCoordinator<S>, filter: ShardFilter) -> Vec<ShardSummary> {
    let mut rows = Vec::new();
    handle.list_shards_into(at(15), TENANT, RUN, filter, &mut rows).expect("a listing");
    rows
}

fn progress<S: Store>(handle: &mut StoreCoordinator<S>) -> RunProgress {
    handle.get_run_progress(at(15), TENANT, RUN).expect("the progress")
}

fn read<S: Store>(handle: &mut StoreCoordinator<S>, what: Read) -> Answer {
    handle.store_mut().read(vec![what]).expect("a store that answers").remove(0)
}

/// Damages a part of a shard's record behind the back of the coordinators.
pub(crate) fn damage<S: Store>(
    handle: &mut StoreCoordinator<S>,
    shard: u64,
    part: ShardDamage,
    change: Change,
) {
    let (tenant, shard) = (TENANT, key(shard));
    let hot = (part != ShardDamage::Cold).then_some(Key::ShardHot { tenant, shard });
    let cold = (part != ShardDamage::Hot).then_some(Key::ShardCold { tenant, shard });
    for key in hot.into_iter().chain(cold) {
        let Answer::Value(Some(stored)) = read(handle, Read::Get(key)) else {
            panic!("the part is stored")
        };
        let mut txn = Txn::new();
        match change {
            Change::FlipBit(bit) => {
                let mut bytes = stored.bytes;
                let (byte, bit) = ((bit / 8) % bytes.len(), bit % 8);
                bytes[byte] ^= 1 << bit;
                txn.put(key, bytes);
            }
            Change::Remove => txn.delete(key),
        }
        handle.store_mut().commit(vec![txn]).remove(0).expect("a store that commits");
    }
}
