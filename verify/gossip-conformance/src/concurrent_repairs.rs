//! Repairs of a damaged shard whose reply is lost, or that run beside a lease holder.
//!
//! The operator's handle reads and commits through `Interposed`, which shows one stored value
//! with a flipped bit, as a disk does that damaged it in place, and which acts at the operator's
//! first commit. The lease holder has a handle of its own, and its cached record is intact.

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{FenceEpoch, OpId, WorkerId};
use gossip_coordination::protocol::{FENCE_FLOOR_STEP, RepairedShard};
use gossip_coordination::store::{
    Answer, CommitOutcome, Key, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{
    AcquireScratch, CheckpointError, CoordinationBackend, InfraError, Lease, RepairShardError,
    RunManagement, ShardDamage, ShardStatus,
};

use crate::damage::{
    AT, BOUNDS, Change, RUN, TENANT, VICTIM, acquire, at, checkpoint, damage, key, make_run, row,
};

/// A worker that claims the repaired shard.
const NEXT: WorkerId = WorkerId::from_raw(2);

/// What happens to the operator's first commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is applied, and its reply arrives.
    Applied,
    /// It is applied, and its reply is lost.
    ReplyLost,
    /// It never arrives.
    RequestLost,
}

/// When the concurrent operations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    BeforeCommit,
    AfterCommit,
}

/// The operator's store.
struct Interposed<'h, S> {
    inner: S,
    /// A value that is shown damaged while it has this revision.
    damaged: Option<(Key, u64)>,
    fate: Fate,
    when: When,
    /// Runs once, at the first commit.
    action: Option<Box<dyn FnOnce() + 'h>>,
}

impl<S: Store> Interposed<'_, S> {
    fn act(&mut self, when: When) {
        if let Some(action) = self.action.take_if(|_| self.when == when) {
            action();
        }
    }
}

impl<S: Store> Store for Interposed<'_, S> {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let mut answers = self.inner.read(reads.clone())?;
        for (read, answer) in reads.iter().zip(&mut answers) {
            if let (Read::Get(key), Answer::Value(Some(value))) = (read, answer)
                && self.damaged == Some((*key, value.revision))
            {
                value.bytes[9] ^= 1;
            }
        }
        Ok(answers)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.act(When::BeforeCommit);
        let unknown = (0..txns.len()).map(|_| Ok(CommitOutcome::Unknown));
        let fate = std::mem::replace(&mut self.fate, Fate::Applied);
        let outcomes = match fate {
            Fate::Applied => self.inner.commit(txns),
            Fate::ReplyLost => {
                self.inner.commit(txns);
                unknown.collect()
            }
            Fate::RequestLost => unknown.collect(),
        };
        self.act(When::AfterCommit);
        outcomes
    }

    fn wait(&mut self, ticks: u64) {
        self.inner.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }

    fn binding(&self) -> Option<u64> {
        self.inner.binding()
    }
}

/// Checks repairs whose reply is lost, and repairs beside a live lease holder.
///
/// `fresh` returns two handles on one empty store.
///
/// # Panics
///
/// Panics if a check fails.
pub fn check_concurrent_repairs<S: Store>(mut fresh: impl FnMut() -> [S; 2]) {
    for part in [ShardDamage::Hot, ShardDamage::Cold] {
        repair_whose_reply_is_lost_happens_once(fresh(), part);
        repair_whose_reply_is_lost_succeeds_though_a_worker_claims_the_shard(fresh(), part);
        repair_whose_reply_is_lost_succeeds_though_the_run_ends(fresh(), part);
        repair_whose_request_is_lost_is_sent_again(fresh(), part);
        lease_holder_is_refused_after_the_repair(fresh(), part);
    }
    lease_holder_that_writes_first_keeps_its_shard(fresh(), Fate::Applied);
    lease_holder_that_writes_first_keeps_its_shard(fresh(), Fate::RequestLost);
}

/// A run with a damaged shard, whose lease holder has saved progress up to `g`.
struct World<S> {
    holder: StoreCoordinator<S>,
    lease: Lease,
    other: Lease,
}

impl<S: Store> World<S> {
    fn new(store: S) -> Self {
        let mut holder = StoreCoordinator::new(store, StoreConfig::new(1 << 40));
        make_run(&mut holder);
        let (lease, other) = (acquire(&mut holder, VICTIM), acquire(&mut holder, 2));
        checkpoint(&mut holder, &lease, b"g", 5);
        Self { holder, lease, other }
    }

    fn save(&mut self, reached: &[u8]) -> Result<(), CheckpointError> {
        let cursor = CursorUpdate::new(reached, b"");
        let saved = self.holder.checkpoint(at(20), TENANT, &self.lease, cursor, OpId::from_raw(7));
        saved.map(|_| ())
    }

    fn complete(&mut self, lease: &Lease) {
        let cursor = CursorUpdate::new(b"k", b"");
        let done = self.holder.complete(at(21), TENANT, lease, cursor, OpId::from_raw(8));
        done.expect("a live lease");
    }

    /// The shard is claimable from its first key or its last checkpoint, the lease of another shard
    /// is valid, and the old one is not.
    fn assert_repaired(&mut self, part: ShardDamage) {
        let row = row(&mut self.holder, key(VICTIM).shard());
        let kept = (part == ShardDamage::Cold).then_some(&b"g"[..]);
        assert_eq!((row.last_key.as_deref(), row.damage), (kept, None), "nothing is skipped");
        assert_eq!((&*row.start, &*row.end), (BOUNDS[1], BOUNDS[2]));
        let stale = self.save(b"h").expect_err("the fence has risen");
        assert!(matches!(stale, CheckpointError::StaleFence { .. }), "{stale:?}");
        self.holder.renew(at(20), TENANT, &self.other).expect("the lease of another shard");
    }
}

fn operator<S: Store>(store: Interposed<'_, S>) -> StoreCoordinator<Interposed<'_, S>> {
    StoreCoordinator::new(store, StoreConfig::new(2 << 40))
}

fn repair<S: Store>(handle: &mut StoreCoordinator<S>) -> Result<RepairedShard, RepairShardError> {
    handle.repair_shard(TENANT, key(VICTIM), AT, None)
}

/// Repairs the shard while `action` runs at the operator's first commit.
fn repair_beside<S: Store>(
    store: S,
    (fate, when): (Fate, When),
    action: impl FnOnce(),
) -> Result<RepairedShard, RepairShardError> {
    let action: Option<Box<dyn FnOnce()>> = Some(Box::new(action));
    repair(&mut operator(Interposed { inner: store, damaged: None, fate, when, action }))
}

fn expected(part: ShardDamage) -> RepairedShard {
    RepairedShard { damage: part, status: ShardStatus::Active, fence: AT }
}

fn repair_whose_reply_is_lost_happens_once<S: Store>(stores: [S; 2], part: ShardDamage) {
    let [one, two] = stores;
    let mut world = World::new(one);
    damage(&mut world.holder, VICTIM, part, Change::FlipBit(60));
    let repaired = repair_beside(two, (Fate::ReplyLost, When::AfterCommit), || ());
    assert_eq!(repaired, Ok(expected(part)));
    let row = row(&mut world.holder, key(VICTIM).shard());
    assert_eq!(row.fence_epoch, AT, "the fence has risen once");
    world.assert_repaired(part);
}

/// The record is not the one that the repair wrote any more, and it is intact.
fn repair_whose_reply_is_lost_succeeds_though_a_worker_claims_the_shard<S: Store>(
    stores: [S; 2],
    part: ShardDamage,
) {
    let [one, two] = stores;
    let mut world = World::new(one);
    damage(&mut world.holder, VICTIM, part, Change::FlipBit(60));
    let mut next = None;
    let repaired = repair_beside(two, (Fate::ReplyLost, When::AfterCommit), || {
        let mut scratch = Box::new(AcquireScratch::new());
        let holder = &mut world.holder;
        let view = holder.acquire_and_restore_into(at(6), TENANT, key(VICTIM), NEXT, &mut scratch);
        next = Some(view.expect("a repaired shard is free").lease);
    });
    assert_eq!(repaired, Ok(expected(part)));
    world.assert_repaired(part);
    world.complete(&next.expect("the worker claimed it"));
}

fn repair_whose_reply_is_lost_succeeds_though_the_run_ends<S: Store>(
    stores: [S; 2],
    part: ShardDamage,
) {
    let [one, two] = stores;
    let mut world = World::new(one);
    damage(&mut world.holder, VICTIM, part, Change::FlipBit(60));
    let repaired = repair_beside(two, (Fate::ReplyLost, When::AfterCommit), || {
        world.holder.cancel_run(at(7), TENANT, RUN, OpId::from_raw(98)).expect("an active run");
    });
    assert_eq!(repaired, Ok(expected(part)));
}

fn repair_whose_request_is_lost_is_sent_again<S: Store>(stores: [S; 2], part: ShardDamage) {
    let [one, two] = stores;
    let mut world = World::new(one);
    damage(&mut world.holder, VICTIM, part, Change::FlipBit(60));
    let repaired = repair_beside(two, (Fate::RequestLost, When::AfterCommit), || ());
    // The lost one could still arrive, so its fence is not used again.
    let fence = FenceEpoch::from_raw(AT.as_raw() + FENCE_FLOOR_STEP);
    assert_eq!(repaired, Ok(RepairedShard { fence, ..expected(part) }));
    world.assert_repaired(part);
}

/// The holder has cached the record of before the damage.
fn lease_holder_is_refused_after_the_repair<S: Store>(stores: [S; 2], part: ShardDamage) {
    let [one, two] = stores;
    let mut world = World::new(one);
    let damaged = Some(stored(&mut world.holder, part));
    let (fate, when, action) = (Fate::Applied, When::AfterCommit, None);
    let store = Interposed { inner: two, damaged, fate, when, action };
    assert_eq!(repair(&mut operator(store)), Ok(expected(part)));
    world.assert_repaired(part);
}

/// The holder's write replaces the damaged value, so there is nothing to repair.
fn lease_holder_that_writes_first_keeps_its_shard<S: Store>(stores: [S; 2], fate: Fate) {
    let [one, two] = stores;
    let mut world = World::new(one);
    let damaged = Some(stored(&mut world.holder, ShardDamage::Hot));
    let when = if fate == Fate::Applied { When::BeforeCommit } else { When::AfterCommit };
    let action: Option<Box<dyn FnOnce()>> =
        Some(Box::new(|| world.save(b"h").expect("a live lease")));
    let store = Interposed { inner: two, damaged, fate, when, action };
    assert_eq!(repair(&mut operator(store)), Err(RepairShardError::NotDamaged));
    let row = row(&mut world.holder, key(VICTIM).shard());
    assert_eq!((row.last_key.as_deref(), row.leased), (Some(&b"h"[..]), true));
    let lease = world.lease.clone();
    world.complete(&lease);
}

/// Returns the key and the revision of a part of the shard's record.
fn stored<S: Store>(handle: &mut StoreCoordinator<S>, part: ShardDamage) -> (Key, u64) {
    let (tenant, shard) = (TENANT, key(VICTIM));
    let key = match part {
        ShardDamage::Cold => Key::ShardCold { tenant, shard },
        ShardDamage::Hot | ShardDamage::Both => Key::ShardHot { tenant, shard },
    };
    let answers = handle.store_mut().read(vec![Read::Get(key)]).expect("a store that answers");
    match &answers[..] {
        [Answer::Value(Some(value))] => (key, value.revision),
        other => panic!("{other:?}"),
    }
}
