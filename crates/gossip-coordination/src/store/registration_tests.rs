//! Registering and deleting more shards than one transaction takes.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::{
    Answer, CommitOutcome, Fault, Key, KeyKind, MapStore, Read, Store, StoreConfig,
    StoreCoordinator, StoreLimits, Txn,
};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([2; 32]);
const RUN: RunId = RunId::from_raw(3);
/// What a default etcd takes.
const SMALL: StoreLimits = StoreLimits { txn_ops: 128, txn_bytes: 1 << 20, page: 500 };

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

fn coordinator() -> StoreCoordinator<MapStore> {
    let mut coordinator =
        StoreCoordinator::new(MapStore::with_limits(SMALL), StoreConfig::new(7 << 32));
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    coordinator.create_run(at(1), TENANT, RUN, config).unwrap();
    coordinator
}

fn bounds(count: usize) -> Vec<[u8; 4]> {
    (0..=u32::try_from(count).unwrap()).map(|bound| (bound + 1).to_be_bytes()).collect()
}

fn roots(bounds: &[[u8; 4]]) -> Vec<InitialShardInput<'_>> {
    let pairs = bounds.windows(2).zip(0..);
    pairs
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect()
}

fn total(coordinator: &mut StoreCoordinator<MapStore>) -> u64 {
    coordinator.get_run_progress(at(5), TENANT, RUN).unwrap().total
}

/// Kinds of the keys that are left, each once.
fn kinds_left(coordinator: &StoreCoordinator<MapStore>) -> Vec<KeyKind> {
    let keys = coordinator.store().dump();
    let mut kinds: Vec<_> =
        keys.iter().map(|(key, _)| Key::parse(key).expect("a key of ours").kind()).collect();
    kinds.dedup();
    kinds.sort_unstable();
    kinds
}

#[test]
fn the_largest_registration_fits_small_transactions() {
    let mut coordinator = coordinator();
    let bounds = bounds(MAX_INITIAL_SHARDS);
    let roots = roots(&bounds);
    let registered = coordinator.register_shards(at(2), TENANT, RUN, &roots, op(1)).unwrap();
    assert!(registered.is_executed());
    assert_eq!(total(&mut coordinator), MAX_INITIAL_SHARDS as u64);
    let again = coordinator.register_shards(at(3), TENANT, RUN, &roots, op(2)).unwrap();
    assert_eq!(again.as_ref().into_inner(), registered.as_ref().into_inner());
    assert!(again.is_replay());
    let commits = coordinator.store().commit_count();
    assert!((244..260).contains(&commits), "{commits} commits");
    let run = coordinator.get_run(TENANT, RUN).unwrap();
    assert!(run.root_shards().iter().copied().eq((0..10_000).map(ShardId::from_raw)));
}

/// Between the pages of its roots the run is paused, then deleted.
struct Meddled {
    map: MapStore,
    /// Number of reads before the concurrent change.
    reads_left: u64,
    deleted: bool,
}

impl Store for Meddled {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        if self.reads_left == 0 {
            let map = self.map.another_handle();
            let mut other = StoreCoordinator::new(map, StoreConfig::new(8 << 32));
            if self.deleted {
                other.cancel_run(at(5), TENANT, RUN, op(11)).unwrap();
                other.delete_run(at(5), TENANT, RUN, op(12)).unwrap();
            } else {
                other.pause_run(at(4), TENANT, RUN, op(10)).unwrap();
            }
        }
        self.reads_left = self.reads_left.wrapping_sub(1);
        self.map.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.map.commit(txns)
    }

    fn wait(&mut self, ticks: u64) {
        self.map.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.map.limits()
    }
}

#[test]
fn a_run_of_many_pages_of_roots_is_read_as_of_one_instant() {
    let limits = StoreLimits { page: 3, txn_ops: 20, ..SMALL };
    for (deleted, reads_left) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let mut admin = StoreCoordinator::new(MapStore::with_limits(limits), StoreConfig::new(7));
        let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
        let bounds = bounds(40);
        admin.create_run_with_shards(at(1), TENANT, RUN, config, &roots(&bounds), op(1)).unwrap();
        let map = admin.store().another_handle();
        let meddled = Meddled { map, reads_left, deleted };
        let mut reader = StoreCoordinator::new(meddled, StoreConfig::new(9 << 32));
        match reader.get_run(TENANT, RUN) {
            Ok(run) => assert!(!deleted && run.is_paused() && run.root_shards().len() == 40),
            Err(error) => assert!(deleted && error == GetRunError::RunNotFound, "{error:?}"),
        }
    }
}

#[test]
fn an_interrupted_registration_continues() {
    let mut coordinator = coordinator();
    let (bounds, key) = (bounds(100), ShardKey::new(RUN, ShardId::from_raw(0)));
    let roots = roots(&bounds);
    coordinator.store_mut().inject(Fault::None);
    coordinator.store_mut().inject(Fault::Fail);
    let broken = coordinator.register_shards(at(2), TENANT, RUN, &roots, op(1));
    assert!(matches!(broken, Err(RegisterShardsError::BackendError(_))), "{broken:?}");

    let mut scratch = AcquireScratch::new();
    let worker = WorkerId::from_raw(1);
    let early = coordinator.acquire_and_restore_into(at(3), TENANT, key, worker, &mut scratch);
    assert!(matches!(early, Err(AcquireError::ShardNotFound { .. })), "{early:?}");
    assert_eq!(total(&mut coordinator), 0, "its shards are not found before the last one is there");
    let other = coordinator.register_shards(at(3), TENANT, RUN, &roots[1..], op(2));
    assert!(matches!(other, Err(RegisterShardsError::WrongStatus { .. })), "{other:?}");
    let conflict = coordinator.register_shards(at(3), TENANT, RUN, &roots[1..], op(1));
    assert!(matches!(conflict, Err(RegisterShardsError::OpIdConflict(_))), "{conflict:?}");

    let done = coordinator.register_shards(at(4), TENANT, RUN, &roots, op(1)).unwrap();
    assert!(done.is_executed());
    assert_eq!(total(&mut coordinator), 100);
    coordinator.acquire_and_restore_into(at(6), TENANT, key, worker, &mut scratch).unwrap();
}

#[test]
fn a_registration_meets_every_fault_at_every_commit() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Conflict] {
        let mut coordinator = coordinator();
        let bounds = bounds(100);
        // Every other commit, so that the budget of lost replies lasts.
        for _ in 0..6 {
            coordinator.store_mut().inject(fault);
            coordinator.store_mut().inject(Fault::None);
        }
        let done = coordinator.register_shards(at(2), TENANT, RUN, &roots(&bounds), op(1));
        assert!(done.unwrap().is_executed(), "{fault:?}");
        assert_eq!(total(&mut coordinator), 100, "{fault:?}");
    }
}

/// The budget is for one commit: a long operation that comes on does not use it up.
#[test]
fn lost_replies_of_many_commits_do_not_add_up() {
    let limits = StoreLimits { txn_ops: 20, ..SMALL };
    let mut coordinator =
        StoreCoordinator::new(MapStore::with_limits(limits), StoreConfig::new(7 << 32));
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    coordinator.create_run(at(1), TENANT, RUN, config).unwrap();
    coordinator.store_mut().inject_always(Some(Fault::LoseReply));
    let bounds = bounds(100);
    let done = coordinator.register_shards(at(2), TENANT, RUN, &roots(&bounds), op(1));
    assert!(done.unwrap().is_executed());
    assert_eq!(total(&mut coordinator), 100);
    coordinator.cancel_run(at(3), TENANT, RUN, op(2)).unwrap();
    let deleted = coordinator.delete_run(at(4), TENANT, RUN, op(3));
    assert_eq!(deleted, Ok(IdempotentOutcome::Executed(())));
}

#[test]
fn a_deleted_run_leaves_a_tombstone_and_counts_of_nothing() {
    for fault in [Fault::None, Fault::LoseReply, Fault::LoseRequest] {
        // A whole run, and one whose registration broke off.
        for whole in [true, false] {
            let mut coordinator = coordinator();
            let bounds = bounds(100);
            coordinator.store_mut().inject(Fault::None);
            coordinator.store_mut().inject(if whole { Fault::None } else { Fault::Fail });
            let registered =
                coordinator.register_shards(at(2), TENANT, RUN, &roots(&bounds), op(1));
            assert_eq!(registered.is_ok(), whole);
            coordinator.cancel_run(at(3), TENANT, RUN, op(2)).unwrap();
            (0..3).for_each(|_| coordinator.store_mut().inject(fault));
            let deleted = coordinator.delete_run(at(4), TENANT, RUN, op(3));
            assert_eq!(deleted, Ok(IdempotentOutcome::Executed(())), "{fault:?}");
            let again = coordinator.delete_run(at(5), TENANT, RUN, op(3));
            assert_eq!(again, Ok(IdempotentOutcome::Replayed(())));
            let left = [KeyKind::TenantCounter, KeyKind::Tombstone];
            assert_eq!(kinds_left(&coordinator), left, "{fault:?}");
            let count = Read::Get(Key::TenantCounter { tenant: TENANT });
            let values = coordinator.store_mut().read(vec![count]).unwrap();
            let [Answer::Value(Some(value))] = &values[..] else { panic!("{values:?}") };
            assert_eq!(super::decode_count(TENANT, &value.bytes), Ok(0));
        }
    }
}

#[test]
fn too_many_lost_races_are_a_transient_failure() {
    let mut coordinator = coordinator();
    coordinator.store_mut().inject_always(Some(Fault::Conflict));
    let bounds = bounds(2);
    let lost = coordinator.register_shards(at(2), TENANT, RUN, &roots(&bounds), op(1));
    let Err(RegisterShardsError::BackendError(error)) = lost else { panic!("{lost:?}") };
    assert!(error.is_retryable(), "{error}");
    assert_eq!(coordinator.store().commit_count(), 1 + u64::from(super::retry::TRIES_MAX));
    assert!(coordinator.store().waited() > 0);
    coordinator.store_mut().inject_always(None);
    coordinator.register_shards(at(2), TENANT, RUN, &roots(&bounds), op(1)).unwrap();
}
