//! Whole stories of leases and runs, told through the blocking traits.

use gossip_contracts::coordination::CursorUpdate;

use crate::test_fixtures::RUN;
use crate::test_fixtures::{TENANT, acquire, at, key, op, two_shards, worker};
use crate::{
    AcquireScratch, CheckpointError, CoordinationBackend, IdempotentOutcome, RunManagement,
    RunStatus, ShardClaiming,
};

#[test]
fn a_zombie_is_fenced_out_and_its_successor_goes_on_where_it_stopped() {
    let mut coordinator = two_shards();
    let zombie = acquire(&mut coordinator, 10, 0, 1);
    let cursor = CursorUpdate::with_last_key(b"c");
    coordinator.checkpoint(at(11), TENANT, &zombie, cursor, op(1)).unwrap();

    let mut scratch = AcquireScratch::new();
    let taken =
        coordinator.acquire_and_restore_into(at(110), TENANT, key(0), worker(2), &mut scratch);
    let taken = taken.unwrap();
    assert_eq!(taken.snapshot.cursor().last_key(), Some(b"c".as_slice()));

    let late = CursorUpdate::with_last_key(b"d");
    let refused = coordinator.checkpoint(at(111), TENANT, &zombie, late, op(2));
    assert!(matches!(refused, Err(CheckpointError::StaleFence { .. })));
    let replayed = coordinator.checkpoint(at(111), TENANT, &zombie, cursor, op(1)).unwrap();
    assert!(replayed.is_replay());
}

#[test]
fn claims_drain_a_run_and_the_run_completes() {
    let mut coordinator = two_shards();
    let mut scratch = AcquireScratch::new();
    for number in 0..2 {
        let claimed = coordinator
            .claim_next_available(at(5), TENANT, RUN, worker(number), &mut scratch)
            .unwrap();
        let lease = claimed.lease.clone();
        let start = claimed.snapshot.spec().start.to_vec();
        let end = CursorUpdate::with_last_key(&start);
        let done = coordinator.complete(at(6), TENANT, &lease, end, op(number)).unwrap();
        assert_eq!(done, IdempotentOutcome::Executed(()));
    }
    coordinator.complete_run(at(7), TENANT, RUN, op(9)).unwrap();
    assert_eq!(coordinator.get_run(TENANT, RUN).unwrap().status(), RunStatus::Done);
}
