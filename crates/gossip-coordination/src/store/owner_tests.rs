//! Owner keys: when they are written, what they delay, and that they outlive no lease.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::{
    Answer, CommitOutcome, Key, KeyKind, MapStore, OwnerBinding, Read, Store, StoreConfig,
    StoreCoordinator, StoreLimits, Txn, Versioned, decode_owner, encode_owner,
};
use crate::protocol::{OfferTerms, ReleaseMode};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([5; 32]);
const RUN: RunId = RunId::from_raw(6);
const SHARD: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));
const OWNER_KEY: Key = Key::Owner { tenant: TENANT, shard: SHARD };
const ONE: WorkerId = WorkerId::from_raw(1);
const OTHER: WorkerId = WorkerId::from_raw(2);
const LEASE: u64 = 100;
const SKEW: u64 = 7;

type Handle = StoreCoordinator<MapStore>;

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

fn cursor(key: &[u8]) -> CursorUpdate<'_> {
    CursorUpdate::try_from_parts(Some(key), None).unwrap()
}

/// A handle on `store`, which has a run of one shard that may be tried twice.
fn first(store: MapStore) -> Handle {
    let mut handle = handle(store, 1);
    let spec = ShardSpecRef::new(b"a", b"z", b"");
    let root = InitialShardInput { shard_id: SHARD.shard(), spec, cursor: CursorUpdate::initial() };
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(1)).unwrap();
    handle.create_run_with_shards(at(1), TENANT, RUN, config, &[root], op(1)).unwrap();
    handle
}

fn handle(store: MapStore, number: u64) -> Handle {
    let config = StoreConfig { max_clock_skew: SKEW, ..StoreConfig::new(number << 32) };
    StoreCoordinator::new(store, config)
}

/// A process of its own on the same store.
fn another(one: &Handle, number: u64) -> Handle {
    handle(one.store().another_handle(), number)
}

fn acquire(handle: &mut Handle, now: u64, worker: WorkerId) -> Result<Lease, AcquireError> {
    let mut scratch = AcquireScratch::new();
    let granted = handle.acquire_and_restore_into(at(now), TENANT, SHARD, worker, &mut scratch);
    granted.map(|granted| granted.lease)
}

fn stored(handle: &mut Handle, key: Key) -> Option<Versioned> {
    let mut answers = handle.store_mut().read(vec![Read::Get(key)]).unwrap();
    let Some(Answer::Value(value)) = answers.pop() else { panic!("a value") };
    value
}

fn owner_key(handle: &mut Handle) -> Option<OwnerBinding> {
    stored(handle, OWNER_KEY).map(|value| decode_owner(TENANT, SHARD, &value.bytes).unwrap())
}

fn binding_of(lease: &Lease) -> OwnerBinding {
    OwnerBinding { owner: lease.owner(), fence: lease.fence(), token: lease.token() }
}

fn halves() -> [ShardSpecRef<'static>; 2] {
    [ShardSpecRef::new(b"a", b"m", b""), ShardSpecRef::new(b"m", b"z", b"")]
}

#[test]
fn store_without_bindings_has_no_owner_keys() {
    let mut one = first(MapStore::new());
    let lease = acquire(&mut one, 10, ONE).unwrap();
    one.checkpoint(at(11), TENANT, &lease, cursor(b"b"), op(2)).unwrap();
    assert_eq!(owner_key(&mut one), None);
}

type Ending = fn(&mut Handle, &Lease);

/// Operations that end a lease.
const ENDINGS: [Ending; 6] = [
    |one, lease| {
        one.release(at(11), TENANT, lease, ReleaseMode::Clean, op(2)).unwrap();
    },
    |one, lease| {
        one.complete(at(11), TENANT, lease, cursor(b"b"), op(2)).unwrap();
    },
    |one, lease| {
        one.park_shard(at(11), TENANT, lease, ParkReason::Other, op(2)).unwrap();
    },
    |one, lease| {
        let plan = SplitReplacePlan::try_new(
            halves().map(|spec| SplitChild::new(spec, CursorUpdate::initial())),
        );
        one.split_replace(at(11), TENANT, lease, &plan.unwrap(), op(2)).unwrap();
    },
    |one, _| {
        another(one, 8).revoke_lease(at(11), TENANT, SHARD, None, op(2)).unwrap();
    },
    |one, lease| {
        // Two attempts are used up, so the third acquire parks the shard.
        one.release(at(11), TENANT, lease, ReleaseMode::Failed, op(2)).unwrap();
        acquire(one, 12, ONE).unwrap();
        let result = acquire(&mut another(one, 8), 12 + LEASE + SKEW, OTHER);
        assert!(matches!(result, Err(AcquireError::ShardTerminal { .. })), "{result:?}");
    },
];

#[test]
fn every_grant_writes_the_owner_key_and_every_end_deletes_it() {
    for (number, end) in ENDINGS.iter().enumerate() {
        let mut one = first(MapStore::new().with_bindings());
        assert_eq!(owner_key(&mut one), None);
        let lease = acquire(&mut one, 10, ONE).unwrap();
        assert_eq!(owner_key(&mut one), Some(binding_of(&lease)));
        end(&mut one, &lease);
        assert_eq!(owner_key(&mut one), None, "ending {number}");
    }
}

#[test]
fn accept_ignores_and_rewrites_the_owner_key() {
    let mut one = first(MapStore::new().with_bindings());
    let mut other = another(&one, 2);
    let lease = acquire(&mut one, 10, ONE).unwrap();
    let handoff = HandoffId::from_raw(4);
    let terms = OfferTerms { handoff, destination: OTHER, deadline: at(40) };
    one.offer(at(11), TENANT, &lease, terms, CursorUpdate::initial(), op(2)).unwrap();
    assert_eq!(owner_key(&mut one), Some(binding_of(&lease)));
    let mut scratch = AcquireScratch::new();
    let accepted = other.accept(at(12), TENANT, SHARD, OTHER, handoff, &mut scratch).unwrap().lease;
    assert_eq!(owner_key(&mut one), Some(binding_of(&accepted)));
    // It is bound to the process of the new lease holder.
    one.store_mut().end_process();
    assert!(owner_key(&mut one).is_some());
    other.store_mut().end_process();
    assert!(owner_key(&mut one).is_none());
}

#[test]
fn expired_lease_of_a_live_process_is_honoured_for_the_skew() {
    let mut one = first(MapStore::new().with_bindings());
    let mut other = another(&one, 2);
    let deadline = acquire(&mut one, 10, ONE).unwrap().deadline();
    for now in [deadline.as_raw(), deadline.as_raw() + SKEW - 1] {
        let result = acquire(&mut other, now, OTHER);
        let Err(AcquireError::AlreadyLeased { lease_deadline, .. }) = result else {
            panic!("{result:?}")
        };
        assert_eq!(lease_deadline, deadline.saturating_add(SKEW), "the effective deadline");
    }
    acquire(&mut other, deadline.as_raw() + SKEW, OTHER).unwrap();
}

#[test]
fn own_owner_key_does_not_delay_a_worker() {
    let mut one = first(MapStore::new().with_bindings());
    let deadline = acquire(&mut one, 10, ONE).unwrap().deadline();
    acquire(&mut one, deadline.as_raw(), ONE).unwrap();
}

#[test]
fn lease_of_a_dead_process_is_honoured_until_its_deadline() {
    let mut one = first(MapStore::new().with_bindings());
    let mut other = another(&one, 2);
    let deadline = acquire(&mut one, 10, ONE).unwrap().deadline();
    one.store_mut().end_process();
    let result = acquire(&mut other, deadline.as_raw() - 1, OTHER);
    let Err(AcquireError::AlreadyLeased { lease_deadline, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(lease_deadline, deadline, "a vanished key does not shorten the lease");
    acquire(&mut other, deadline.as_raw(), OTHER).unwrap();
}

#[test]
fn owner_key_of_another_grant_is_no_evidence() {
    let mut one = first(MapStore::new().with_bindings());
    let lease = acquire(&mut one, 10, ONE).unwrap();
    let stale = OwnerBinding { token: GrantToken::from_raw(77), ..binding_of(&lease) };
    let mut bytes = Vec::new();
    encode_owner(TENANT, SHARD, &stale, &mut bytes);
    let mut txn = Txn::new();
    txn.put(OWNER_KEY, bytes);
    one.store_mut().commit(vec![txn]);
    acquire(&mut another(&one, 2), lease.deadline().as_raw(), OTHER).unwrap();
}

/// Stores `bytes` under the owner key, as if they had been damaged there.
fn damage_owner_key(handle: &mut Handle, bytes: &[u8]) {
    let mut txn = Txn::new();
    txn.put(OWNER_KEY, bytes.to_vec());
    assert!(matches!(handle.store_mut().commit(vec![txn])[0], Ok(CommitOutcome::Applied { .. })));
    let damaged = stored(handle, OWNER_KEY).unwrap();
    assert!(decode_owner(TENANT, SHARD, &damaged.bytes).is_err());
}

/// Damaged owner keys: empty, truncated, with a flipped bit, and of another shard.
fn damages(lease: &Lease) -> [Vec<u8>; 4] {
    let mut whole = Vec::new();
    encode_owner(TENANT, SHARD, &binding_of(lease), &mut whole);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let mut misplaced = Vec::new();
    let neighbour = ShardKey::new(RUN, ShardId::from_raw(1));
    encode_owner(TENANT, neighbour, &binding_of(lease), &mut misplaced);
    [Vec::new(), whole[..whole.len() - 1].to_vec(), flipped, misplaced]
}

#[test]
fn damaged_owner_key_counts_as_alive_and_the_next_grant_rewrites_it() {
    for number in 0..4 {
        let mut one = first(MapStore::new().with_bindings());
        let mut other = another(&one, 2);
        let lease = acquire(&mut one, 10, ONE).unwrap();
        damage_owner_key(&mut one, &damages(&lease)[number]);
        let (deadline, honoured) = (lease.deadline(), lease.deadline().saturating_add(SKEW));
        // Before the deadline only the lease counts; after it the lease holder may be alive.
        for now in [deadline.as_raw() - 1, deadline.as_raw(), honoured.as_raw() - 1] {
            let result = acquire(&mut other, now, OTHER);
            let refused = matches!(&result, Err(AcquireError::AlreadyLeased { lease_deadline, .. })
                if *lease_deadline == honoured);
            assert!(refused, "damage {number} at {now}: {result:?}");
        }
        let taken = acquire(&mut other, honoured.as_raw(), OTHER).unwrap();
        assert_eq!(owner_key(&mut one), Some(binding_of(&taken)), "damage {number}");
    }
}

#[test]
fn damaged_owner_key_does_not_block_its_worker_or_a_free_shard() {
    let mut one = first(MapStore::new().with_bindings());
    let lease = acquire(&mut one, 10, ONE).unwrap();
    damage_owner_key(&mut one, b"");
    one.checkpoint(at(11), TENANT, &lease, cursor(b"b"), op(2)).unwrap();
    let again = acquire(&mut one, lease.deadline().as_raw(), ONE).unwrap();
    one.release(at(200), TENANT, &again, ReleaseMode::Clean, op(3)).unwrap();
    damage_owner_key(&mut one, b"");
    acquire(&mut another(&one, 2), 201, OTHER).unwrap();
}

type Keeping = fn(&mut Handle, &Lease);

/// Operations that keep the lease.
const KEEPINGS: [Keeping; 4] = [
    |one, lease| {
        one.checkpoint(at(12), TENANT, lease, cursor(b"c"), op(5)).unwrap();
    },
    |one, lease| {
        one.renew(at(12), TENANT, lease).unwrap();
    },
    |one, lease| {
        let [left, right] = halves();
        let plan = SplitResidualPlan::try_new(left, right).unwrap();
        one.split_residual(at(12), TENANT, lease, &plan, op(5)).unwrap();
    },
    |one, lease| {
        one.withdraw(at(12), TENANT, lease, HandoffId::from_raw(1), op(5)).unwrap();
    },
];

#[test]
fn owner_key_is_rewritten_only_if_it_may_have_vanished() {
    for (number, keep) in KEEPINGS.iter().enumerate() {
        for vanished in [false, true] {
            let mut one = first(MapStore::new().with_bindings());
            let lease = acquire(&mut one, 10, ONE).unwrap();
            one.checkpoint(at(11), TENANT, &lease, cursor(b"b"), op(2)).unwrap();
            let before = stored(&mut one, OWNER_KEY).unwrap();
            if vanished {
                one.store_mut().revoke_bindings();
                assert_eq!(owner_key(&mut one), None);
            }
            keep(&mut one, &lease);
            let after = stored(&mut one, OWNER_KEY).expect("it is there");
            assert_eq!(after.bytes, before.bytes);
            assert_eq!(after.revision > before.revision, vanished, "keeping {number}");
        }
    }
}

/// Two processes use one lease: the last user keeps the key alive.
#[test]
fn owner_key_is_rewritten_after_another_process_used_the_lease() {
    let mut one = first(MapStore::new().with_bindings());
    let mut other = another(&one, 2);
    let lease = acquire(&mut one, 10, ONE).unwrap();
    other.checkpoint(at(11), TENANT, &lease, cursor(b"b"), op(2)).unwrap();
    one.checkpoint(at(12), TENANT, &lease, cursor(b"c"), op(3)).unwrap();
    other.store_mut().end_process();
    assert_eq!(owner_key(&mut one), Some(binding_of(&lease)));
}

/// The lease expired, but its process is alive: it is honoured, and claims return until when.
#[test]
fn claim_tries_an_honoured_lease_once_and_returns_its_end() {
    let mut one = first(MapStore::new().with_bindings());
    let mut other = another(&one, 2);
    let deadline = acquire(&mut one, 10, ONE).unwrap().deadline();
    let mut scratch = AcquireScratch::new();
    let result = other.claim_next_available(deadline, TENANT, RUN, OTHER, &mut scratch);
    let until = deadline.saturating_add(SKEW);
    let none = ClaimError::NoneAvailable { earliest_deadline: Some(until) };
    assert_eq!(result.map(|_| ()), Err(none));
    assert!(other.store().read_count() <= 10, "{} reads", other.store().read_count());
    other.claim_next_available(until, TENANT, RUN, OTHER, &mut scratch).unwrap();
}

#[test]
fn administrator_writes_no_owner_key() {
    let mut one = first(MapStore::new().with_bindings());
    acquire(&mut one, 10, ONE).unwrap();
    one.store_mut().end_process();
    let mut admin = another(&one, 2);
    let action = ShardAction::Release;
    admin.request_action(at(11), TENANT, SHARD, &action, at(50), op(2)).unwrap();
    assert_eq!(owner_key(&mut one), None);
}

#[test]
fn a_deleted_run_leaves_no_owner_key() {
    // The limit of a transaction that deletes two shards with all their keys.
    let limits = StoreLimits { txn_ops: 10, ..StoreLimits::GENEROUS };
    let mut one = first(MapStore::with_limits(limits).with_bindings());
    let lease = acquire(&mut one, 10, ONE).unwrap();
    let [left, right] = halves();
    let plan = SplitResidualPlan::try_new(left, right).unwrap();
    let split = one.split_residual(at(12), TENANT, &lease, &plan, op(5)).unwrap().into_inner();
    let residual = ShardKey::new(RUN, split.residual);
    let mut scratch = AcquireScratch::new();
    one.acquire_and_restore_into(at(12), TENANT, residual, ONE, &mut scratch).unwrap();
    one.cancel_run(at(13), TENANT, RUN, op(6)).unwrap();
    one.delete_run(at(14), TENANT, RUN, op(7)).unwrap();
    let kind = |(key, _): &(Vec<u8>, Vec<u8>)| Key::parse(key).unwrap().kind();
    let kinds: Vec<_> = one.store().dump().iter().map(kind).collect();
    assert_eq!(kinds, [KeyKind::TenantCounter, KeyKind::Tombstone]);
}

#[test]
fn the_largest_split_fits_with_its_owner_key() {
    // Six writes of the parent, and three for each of two children.
    let limits = StoreLimits { txn_ops: 12, ..StoreLimits::GENEROUS };
    let mut one = first(MapStore::with_limits(limits).with_bindings());
    assert_eq!(one.split_children_max(), 2);
    let lease = acquire(&mut one, 10, ONE).unwrap();
    ENDINGS[3](&mut one, &lease);
}
