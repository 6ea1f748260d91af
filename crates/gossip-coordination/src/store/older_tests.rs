//! A store that returns a lower revision than the handle has read before is read again; if it
//! persists, the operation fails with a corruption error.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use rstest::rstest;

use super::{
    Answer, CommitOutcome, Key, MapStore, OLDER, Read, Store, StoreConfig, StoreCoordinator,
    StoreLimits, Txn, Versioned,
};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([8; 32]);
const RUN: RunId = RunId::from_raw(9);
const SHARD: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));
const HOT: Key = Key::ShardHot { tenant: TENANT, shard: SHARD };
const HEAD: Key = Key::RunHead { tenant: TENANT, run: RUN };

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

fn cursor(key: &[u8]) -> CursorUpdate<'_> {
    CursorUpdate::try_from_parts(Some(key), None).unwrap()
}

/// A store that returns stale values for some keys.
struct Lagging {
    store: MapStore,
    shown: Vec<(Key, Option<Versioned>)>,
    /// Number of waits until it returns current values.
    wakes_after: usize,
}

impl Lagging {
    /// Returns the present value of `key` from now on.
    fn freeze(&mut self, key: Key) {
        let Ok(answers) = self.store.read(vec![Read::Get(key)]) else { panic!("it is read") };
        let [Answer::Value(value)] = &answers[..] else { panic!("one value was read") };
        self.shown.push((key, value.clone()));
    }
}

impl Store for Lagging {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let mut answers = self.store.read(reads.clone())?;
        for (read, answer) in reads.iter().zip(&mut answers) {
            if let Read::Get(key) = read
                && let Some((_, value)) = self.shown.iter().find(|(other, _)| other == key)
            {
                *answer = Answer::Value(value.clone());
            }
        }
        Ok(answers)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.store.commit(txns)
    }

    fn wait(&mut self, ticks: u64) {
        self.wakes_after = self.wakes_after.saturating_sub(1);
        if self.wakes_after == 0 {
            self.shown.clear();
        }
        self.store.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }
}

/// An administrator of a run with one shard, and another handle that holds it.
fn set_up() -> (StoreCoordinator<MapStore>, StoreCoordinator<Lagging>, Lease) {
    let mut admin = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    let root = InitialShardInput {
        shard_id: SHARD.shard(),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    };
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    admin.create_run_with_shards(at(1), TENANT, RUN, config, &[root], op(1)).unwrap();
    let asleep = usize::MAX;
    let store =
        Lagging { store: admin.store().another_handle(), shown: Vec::new(), wakes_after: asleep };
    let mut owner = StoreCoordinator::new(store, StoreConfig::new(2 << 32));
    let (mut scratch, worker) = (AcquireScratch::new(), WorkerId::from_raw(1));
    let acquired = owner.acquire_and_restore_into(at(2), TENANT, SHARD, worker, &mut scratch);
    let lease = acquired.unwrap().lease;
    (admin, owner, lease)
}

fn is_older<T>(result: &Result<T, CheckpointError>) -> bool {
    let Err(CheckpointError::BackendError(error)) = result else { return false };
    matches!(error.cause(), InfraError::Corruption { operation, .. } if *operation == OLDER)
}

/// Checkpoints backwards; the refusal is decided on a fresh load.
fn step_back(owner: &mut StoreCoordinator<Lagging>, lease: &Lease) -> Result<(), CheckpointError> {
    owner.checkpoint(at(5), TENANT, lease, cursor(b"b"), op(9)).map(drop)
}

#[test]
fn older_shard_is_corruption_once_and_then_accepted() {
    let (_, mut owner, lease) = set_up();
    owner.store_mut().freeze(HOT);
    owner.checkpoint(at(4), TENANT, &lease, cursor(b"f"), op(2)).unwrap();
    let result = step_back(&mut owner, &lease);
    assert!(is_older(&result), "{result:?}");
    owner.store_mut().shown.clear();
    let result = step_back(&mut owner, &lease);
    assert!(matches!(result, Err(CheckpointError::CursorRegression { .. })), "{result:?}");
}

#[test]
fn temporarily_stale_store_is_read_again() {
    let (_, mut owner, lease) = set_up();
    owner.store_mut().freeze(HOT);
    owner.checkpoint(at(4), TENANT, &lease, cursor(b"f"), op(2)).unwrap();
    owner.store_mut().wakes_after = 3;
    let result = step_back(&mut owner, &lease);
    assert!(matches!(result, Err(CheckpointError::CursorRegression { .. })), "{result:?}");
    assert_eq!(owner.store_mut().wakes_after, 0, "it was read until it was current");
}

#[test]
fn older_run_head_is_corruption_once() {
    let (mut admin, mut owner, lease) = set_up();
    owner.store_mut().freeze(HEAD);
    let running = std::mem::take(&mut owner.store_mut().shown);
    admin.pause_run(at(3), TENANT, RUN, op(3)).unwrap();
    // The handle reads the paused head.
    owner.checkpoint(at(4), TENANT, &lease, cursor(b"f"), op(2)).unwrap();
    owner.store_mut().shown = running;
    let result = step_back(&mut owner, &lease);
    assert!(is_older(&result), "{result:?}");
    // The store persists, and is accepted then.
    let result = step_back(&mut owner, &lease);
    assert!(matches!(result, Err(CheckpointError::CursorRegression { .. })), "{result:?}");
}

#[rstest]
#[case::the_same(true)]
#[case::a_newer_one(false)]
fn equal_or_newer_revision_is_accepted(#[case] same: bool) {
    let (mut admin, mut owner, lease) = set_up();
    owner.checkpoint(at(4), TENANT, &lease, cursor(b"f"), op(2)).unwrap();
    if !same {
        let until = at(50);
        admin.request_action(at(4), TENANT, SHARD, &ShardAction::Release, until, op(4)).unwrap();
    }
    let result = step_back(&mut owner, &lease);
    assert!(matches!(result, Err(CheckpointError::CursorRegression { .. })), "{result:?}");
}

#[test]
fn deleted_run_is_not_corruption() {
    let (mut admin, mut owner, lease) = set_up();
    owner.checkpoint(at(4), TENANT, &lease, cursor(b"f"), op(2)).unwrap();
    admin.cancel_run(at(5), TENANT, RUN, op(5)).unwrap();
    admin.delete_run(at(5), TENANT, RUN, op(6)).unwrap();
    let result = step_back(&mut owner, &lease);
    assert!(matches!(result, Err(CheckpointError::ShardNotFound { .. })), "{result:?}");
}
