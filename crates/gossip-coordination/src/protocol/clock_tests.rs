//! Clock handling of the kernel: time zero panics, and an expired request stays expired.

use gossip_contracts::coordination::CursorUpdate;
use rstest::rstest;

use crate::test_fixtures::{TENANT, acquire, at, key, op, two_shards, worker};
use crate::{
    AcquireScratch, CoordinationBackend, InMemoryCoordinator, Lease, RunManagement, ShardAction,
};

/// Returns a coordinator whose shard 0 is leased at 10 and has a release request until 20.
fn requested_until_20() -> (InMemoryCoordinator, Lease) {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 10, 0, 1);
    coordinator
        .request_action(at(11), TENANT, key(0), &ShardAction::Release, at(20), op(1))
        .unwrap();
    (coordinator, lease)
}

fn renew(coordinator: &mut InMemoryCoordinator, lease: &Lease, now: u64) {
    coordinator.renew(at(now), TENANT, lease).unwrap();
}

fn checkpoint(coordinator: &mut InMemoryCoordinator, lease: &Lease, now: u64) {
    let cursor = CursorUpdate::with_last_key(b"b");
    coordinator.checkpoint(at(now), TENANT, lease, cursor, op(2)).unwrap();
}

/// The next lease holder's clock may be slower, and would see the request as pending again.
#[rstest]
#[case::renew(renew)]
#[case::checkpoint(checkpoint)]
fn expired_request_is_removed_from_the_record(
    #[case] act: fn(&mut InMemoryCoordinator, &Lease, u64),
) {
    let (mut coordinator, lease) = requested_until_20();
    act(&mut coordinator, &lease, 19);
    assert!(coordinator.shard(TENANT, key(0)).unwrap().record().request().is_some());

    let (mut coordinator, lease) = requested_until_20();
    act(&mut coordinator, &lease, 20);
    assert!(coordinator.shard(TENANT, key(0)).unwrap().record().request().is_none());
}

#[test]
#[should_panic(expected = "time zero means a broken clock")]
fn acquire_at_time_zero_panics() {
    let mut scratch = Box::new(AcquireScratch::new());
    let _ = two_shards().acquire_and_restore_into(at(0), TENANT, key(0), worker(1), &mut scratch);
}
