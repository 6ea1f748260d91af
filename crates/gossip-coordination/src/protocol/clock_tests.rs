//! What the kernel makes of clocks: zero is a bug of the caller, and what ran out stays gone.

use gossip_contracts::coordination::CursorUpdate;
use rstest::rstest;

use crate::test_fixtures::{TENANT, acquire, at, key, op, two_shards, worker};
use crate::{
    AcquireScratch, CoordinationBackend, InMemoryCoordinator, Lease, RunManagement, ShardAction,
};

/// Shard 0 is leased at 10, and an administrator asks for it back until 20.
fn asked_until_20() -> (InMemoryCoordinator, Lease) {
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

/// The next owner's clock may be slower: for it the request would be pending again.
#[rstest]
#[case::renew(renew)]
#[case::checkpoint(checkpoint)]
fn a_request_that_ran_out_is_taken_off_the_record(
    #[case] act: fn(&mut InMemoryCoordinator, &Lease, u64),
) {
    let (mut coordinator, lease) = asked_until_20();
    act(&mut coordinator, &lease, 19);
    assert!(coordinator.shard(TENANT, key(0)).unwrap().record().request().is_some());

    let (mut coordinator, lease) = asked_until_20();
    act(&mut coordinator, &lease, 20);
    assert!(coordinator.shard(TENANT, key(0)).unwrap().record().request().is_none());
}

#[test]
#[should_panic(expected = "time zero means a broken clock")]
fn no_shard_is_granted_at_time_zero() {
    let mut scratch = Box::new(AcquireScratch::new());
    let _ = two_shards().acquire_and_restore_into(at(0), TENANT, key(0), worker(1), &mut scratch);
}
