//! The public checks answer with the seeds' errors, each for its own reason.

use gossip_contracts::coordination::{
    CursorUpdate, MAX_KEY_SIZE, MAX_TOKEN_SIZE, PooledCursor, PooledShardSpec, ShardSpecRef,
};
use gossip_contracts::identity::TenantId;
use gossip_stdx::ByteSlab;
use rstest::rstest;

use crate::error::{CoordError, CursorOutOfBoundsDetail};
use crate::lease::{OpKind, OpLog, OpLogEntry};
use crate::test_fixtures::{LEASE, TENANT, acquire, at, key, op, two_shards};
use crate::traits::CoordinationBackend;
use crate::validation::{check_op_idempotency, validate_cursor_update_pooled, validate_lease};

#[test]
fn an_operation_is_new_known_or_in_conflict() {
    let mut log = OpLog::new();
    log.push(OpLogEntry::new(op(1), OpKind::Park, 7, at(5)));
    assert_eq!(check_op_idempotency(&log, op(2), 7), Ok(None));
    assert_eq!(check_op_idempotency(&log, op(1), 7).unwrap().unwrap().kind(), OpKind::Park);
    let conflict = check_op_idempotency(&log, op(1), 8);
    assert!(matches!(conflict, Err(CoordError::OpIdConflict { op_id, .. }) if op_id == op(1)));
}

#[test]
#[should_panic(expected = "a payload hash is never zero")]
fn a_hash_of_zero_is_never_looked_up() {
    let _ = check_op_idempotency(&OpLog::new(), op(1), 0);
}

#[test]
fn a_lease_is_held_to_the_ladder() {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 10, 0, 1);
    let record = |coordinator: &crate::InMemoryCoordinator, now, tenant| {
        let shard = coordinator.shard(TENANT, key(0)).unwrap();
        validate_lease(at(now), tenant, &lease, shard.record())
    };
    assert_eq!(record(&coordinator, 10 + LEASE - 1, TENANT), Ok(()));
    let expired = CoordError::LeaseExpired { deadline: at(10 + LEASE), now: at(10 + LEASE) };
    assert_eq!(record(&coordinator, 10 + LEASE, TENANT), Err(expired));
    let stranger = TenantId::from_bytes([9; 32]);
    let mismatch = CoordError::TenantMismatch { expected: stranger };
    assert_eq!(record(&coordinator, 500, stranger), Err(mismatch));

    acquire(&mut coordinator, 200, 0, 2);
    let stale = record(&coordinator, 201, TENANT);
    assert!(matches!(stale, Err(CoordError::StaleFence { presented, current })
        if presented < current));
    let last = CursorUpdate::with_last_key(b"a");
    let newer = acquire(&mut coordinator, 400, 0, 3);
    coordinator.complete(at(401), TENANT, &newer, last, op(1)).unwrap();
    assert!(matches!(record(&coordinator, 402, TENANT), Err(CoordError::ShardTerminal { .. })));
}

#[test]
#[should_panic(expected = "time zero means a broken clock")]
fn no_lease_is_judged_at_time_zero() {
    let mut coordinator = two_shards();
    let lease = acquire(&mut coordinator, 10, 0, 1);
    let shard = coordinator.shard(TENANT, key(0)).unwrap();
    let _ = validate_lease(at(0), TENANT, &lease, shard.record());
}

const OUTSIDE: CursorOutOfBoundsDetail =
    CursorOutOfBoundsDetail { last_key: 1, spec_start: 1, spec_end: 1 };

/// The shard is `[b, m)` and has come to `d`.
#[rstest]
#[case(CursorUpdate::with_last_key(b"d"), Ok(()))]
#[case(CursorUpdate::with_last_key(b"l"), Ok(()))]
#[case(CursorUpdate::initial(), Err(CoordError::CheckpointMissingKey))]
#[case(
    CursorUpdate::with_last_key(&[b'z'; MAX_KEY_SIZE + 1]),
    Err(CoordError::CursorKeyTooLarge { size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE })
)]
#[case(
    CursorUpdate::new(b"z", &[0; MAX_TOKEN_SIZE + 1]),
    Err(CoordError::CursorTokenTooLarge { size: MAX_TOKEN_SIZE + 1, max: MAX_TOKEN_SIZE })
)]
#[case(
    CursorUpdate::with_last_key(b"a"),
    Err(CoordError::CursorRegression { old_key: Some(1), new_key: Some(1) })
)]
#[case(CursorUpdate::with_last_key(b"m"), Err(CoordError::CursorOutOfBounds(OUTSIDE)))]
fn a_cursor_is_judged_in_the_order_of_its_rules(
    #[case] new: CursorUpdate<'_>,
    #[case] expected: Result<(), CoordError>,
) {
    let mut slab = ByteSlab::new(1 << 12);
    let spec = PooledShardSpec::from_ref(ShardSpecRef::new(b"b", b"m", b""), &mut slab).unwrap();
    let old = PooledCursor::from_update(CursorUpdate::with_last_key(b"d"), &mut slab).unwrap();
    assert_eq!(validate_cursor_update_pooled(new, &old, &spec, &slab), expected);
    spec.free(&mut slab);
    old.free(&mut slab);
}
