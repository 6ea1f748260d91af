//! The fence floor after a restore from a backup (DESIGN Q32).

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::FenceEpoch;
use rstest::rstest;

use crate::protocol::{FENCE_FLOOR_MAX, FENCE_FLOOR_STEP, ReleaseMode, fence_floor_at};
use crate::store::{
    Answer, CommitOutcome, MapBackup, MapStore, Read, Store, StoreConfig, StoreCoordinator,
    StoreLimits, Txn,
};
use crate::test_fixtures::{
    LEASE, RUN, TENANT, acquire, at, fence, key, op, register_two_shards, two_shards, worker,
};
use crate::{
    AcquireScratch, CheckpointError, CoordinationBackend, InfraError, Lease, ReleaseError,
    RenewError, RunManagement,
};

type OverMap = StoreCoordinator<MapStore>;

fn over_map(store: MapStore, handle: u64) -> OverMap {
    StoreCoordinator::new(store, StoreConfig::new(handle << 32))
}

fn granted(backend: &mut impl CoordinationBackend, now: u64, by: u64) -> Lease {
    let mut scratch = AcquireScratch::new();
    let acquired =
        backend.acquire_and_restore_into(at(now), TENANT, key(0), worker(by), &mut scratch);
    acquired.unwrap().lease
}

#[rstest]
#[case::first(&[0], FENCE_FLOOR_STEP)]
#[case::by_the_clock(&[5 * FENCE_FLOOR_STEP], 5 * FENCE_FLOOR_STEP)]
#[case::twice(&[5 * FENCE_FLOOR_STEP, 0], 6 * FENCE_FLOOR_STEP)]
#[case::clock_was_set_back(&[9 * FENCE_FLOOR_STEP, 5 * FENCE_FLOOR_STEP], 10 * FENCE_FLOOR_STEP)]
#[case::at_most(&[u64::MAX], FENCE_FLOOR_MAX.as_raw())]
#[case::and_no_further(&[u64::MAX, u64::MAX], FENCE_FLOOR_MAX.as_raw())]
fn floor_rises_by_a_step_or_to_the_given_fence(#[case] raises: &[u64], #[case] expected: u64) {
    let mut coordinator = two_shards();
    let mut last = FenceEpoch::ZERO;
    for at_least in raises {
        last = coordinator.raise_fence_floor(at(2), TENANT, RUN, fence(*at_least)).unwrap();
    }
    assert_eq!(last, fence(expected));
    assert_eq!(coordinator.get_run(TENANT, RUN).unwrap().fence_floor(), fence(expected));
}

#[test]
fn floor_of_a_time_is_exact_in_json_and_rises_with_it() {
    assert_eq!(fence_floor_at(1).as_raw(), FENCE_FLOOR_STEP);
    let now = fence_floor_at(1_800_000_000);
    assert!(now < FENCE_FLOOR_MAX && fence_floor_at(1_800_000_001) > now);
    assert_eq!(fence_floor_at(u64::MAX), FENCE_FLOOR_MAX);
}

#[test]
fn lease_from_before_the_restore_is_refused_and_the_next_grant_uses_the_floor() {
    let mut coordinator = two_shards();
    let old = acquire(&mut coordinator, 10, 0, 1);
    let floor = coordinator.raise_fence_floor(at(11), TENANT, RUN, fence(0)).unwrap();
    let cursor = CursorUpdate::with_last_key(b"c");
    let late = coordinator.checkpoint(at(12), TENANT, &old, cursor, op(1));
    let (presented, current) = (old.fence(), floor);
    assert_eq!(late, Err(CheckpointError::StaleFence { presented, current }));
    let late = coordinator.renew(at(12), TENANT, &old);
    assert_eq!(late, Err(RenewError::StaleFence { presented, current }));
    let late = coordinator.release(at(12), TENANT, &old, ReleaseMode::Clean, op(2));
    assert_eq!(late, Err(ReleaseError::StaleFence { presented, current }));
    // The refused lease still keeps other workers out until it expires.
    let new = granted(&mut coordinator, 10 + LEASE, 2);
    assert_eq!(new.fence(), floor);
    coordinator.checkpoint(at(11 + LEASE), TENANT, &new, cursor, op(3)).unwrap();
    coordinator.release(at(12 + LEASE), TENANT, &new, ReleaseMode::Clean, op(4)).unwrap();
    assert_eq!(granted(&mut coordinator, 13 + LEASE, 1).fence(), floor.increment());
}

#[test]
fn replay_of_a_logged_operation_is_answered_below_the_floor() {
    let mut coordinator = two_shards();
    let old = acquire(&mut coordinator, 10, 0, 1);
    let cursor = CursorUpdate::with_last_key(b"c");
    coordinator.checkpoint(at(11), TENANT, &old, cursor, op(1)).unwrap();
    coordinator.raise_fence_floor(at(12), TENANT, RUN, fence(0)).unwrap();
    let again = coordinator.checkpoint(at(13), TENANT, &old, cursor, op(1)).unwrap();
    assert!(again.is_replay());
}

/// Worker 1 holds a lease that the backup does not have. After the restore, the head and the shard
/// get the very revisions that its handle has cached, with other values.
#[test]
fn cached_revisions_that_repeat_after_a_restore_do_not_commit() {
    let mut first = over_map(MapStore::new(), 1);
    register_two_shards(&mut first);
    let backup = first.store().backup();
    first.pause_run(at(2), TENANT, RUN, op(20)).unwrap();
    first.resume_run(at(3), TENANT, RUN, op(21)).unwrap();
    let old = granted(&mut first, 10, 1);

    let mut store = first.store().another_handle();
    store.restore(&backup);
    let mut second = over_map(store, 2);
    second.raise_fence_floor(at(11), TENANT, RUN, fence(0)).unwrap();
    let floor = second.raise_fence_floor(at(11), TENANT, RUN, fence(0)).unwrap();
    let new = granted(&mut second, 12, 2);
    assert_eq!((old.fence(), new.fence()), (fence(2), floor));

    let cursor = CursorUpdate::with_last_key(b"c");
    let late = first.checkpoint(at(13), TENANT, &old, cursor, op(1));
    assert!(matches!(late, Err(CheckpointError::StaleFence { .. })), "{late:?}");
    second.checkpoint(at(14), TENANT, &new, cursor, op(2)).unwrap();
}

/// A store that is restored, and whose floors are raised, between the load of an operation and its
/// commit.
struct RestoredMeanwhile {
    inner: MapStore,
    /// Restored before the next commit.
    backup: Option<MapBackup>,
}

impl Store for RestoredMeanwhile {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.inner.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        if let Some(backup) = self.backup.take() {
            self.inner.restore(&backup);
            let mut operator = over_map(self.inner.another_handle(), 9);
            // Twice, so that the head has the revision again that the operation has loaded.
            operator.raise_fence_floor(at(11), TENANT, RUN, fence(0)).unwrap();
            operator.raise_fence_floor(at(11), TENANT, RUN, fence(0)).unwrap();
        }
        self.inner.commit(txns)
    }

    fn wait(&mut self, ticks: u64) {
        self.inner.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }
}

#[test]
fn pause_that_was_in_flight_during_a_restore_keeps_the_raised_floor() {
    let mut first = over_map(MapStore::new(), 1);
    register_two_shards(&mut first);
    let backup = first.store().backup();
    first.pause_run(at(2), TENANT, RUN, op(20)).unwrap();
    first.resume_run(at(3), TENANT, RUN, op(21)).unwrap();
    let inner = first.store().another_handle();
    let store = RestoredMeanwhile { inner, backup: Some(backup) };
    let mut late = StoreCoordinator::new(store, StoreConfig::new(3 << 32));
    late.pause_run(at(12), TENANT, RUN, op(22)).unwrap();
    let run = late.get_run(TENANT, RUN).unwrap();
    assert!(run.is_paused() && run.fence_floor() == fence(2 * FENCE_FLOOR_STEP), "{run:?}");
}

#[test]
fn missing_run_has_no_floor() {
    let mut coordinator = over_map(MapStore::new(), 1);
    let raised = coordinator.raise_fence_floor(at(1), TENANT, RUN, fence(0));
    assert!(matches!(raised, Err(crate::GetRunError::RunNotFound)), "{raised:?}");
}
