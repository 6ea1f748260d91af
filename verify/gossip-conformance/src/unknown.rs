//! Unknown outcomes: the reply is lost, and the caller retries.
//!
//! If the target can lose a reply, it does, and the first answer may be a transient failure.
//! Otherwise the cases still hold: a repeated operation is applied once.

use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{IdempotentOutcome, RunManagement, ShardFilter, ShardStatus};

use super::world::{Held, ROOTS, RUN, World, at, config, key, op, replace_at, residual_at, shard};
use super::{ConformanceTarget, Settings, topic};

topic!("unknown":
    a_checkpoint_whose_reply_was_lost_happened_once,
    an_end_whose_reply_was_lost_happened_once,
    a_split_whose_reply_was_lost_made_its_shards_once,
    a_grant_whose_reply_was_lost_is_one_grant,
    a_renewal_whose_reply_was_lost_can_be_repeated,
    a_move_whose_replies_were_lost_has_one_owner,
    a_registration_whose_reply_was_lost_can_be_repeated,
    a_transition_whose_reply_was_lost_can_be_repeated,
);

/// The retry returns the outcome of the first call.
pub fn a_checkpoint_whose_reply_was_lost_happened_once<T: ConformanceTarget>(target: &T) {
    let (mut world, held) = with_lease(target);
    world.lose_reply();
    let first = world.checkpoint(11, &held.lease, b"c", 1);
    let again = world.checkpoint(12, &held.lease, b"c", 1).expect("known");
    assert!(again.is_replay() || first.is_err());
    assert!(world.checkpoint(13, &held.lease, b"c", 1).expect("known").is_replay());
    assert_eq!(world.row(14, shard(0)).last_key.as_deref(), Some(b"c".as_slice()));
}

/// Complete, park and release.
pub fn an_end_whose_reply_was_lost_happened_once<T: ConformanceTarget>(target: &T) {
    let (mut world, held) = with_lease(target);
    world.lose_reply();
    let _ = world.complete(11, &held.lease, b"c", 1);
    world.complete(12, &held.lease, b"c", 1).expect("known");
    assert_eq!(world.row(13, shard(0)).status, ShardStatus::Done);

    let (mut world, held) = with_lease(target);
    world.lose_reply();
    let _ = world.park(11, &held.lease, 1);
    world.park(12, &held.lease, 1).expect("known");
    assert_eq!(world.row(13, shard(0)).status, ShardStatus::Parked);

    let (mut world, held) = with_lease(target);
    world.lose_reply();
    let _ = world.release(11, &held.lease, ReleaseMode::Clean, 1);
    world.release(12, &held.lease, ReleaseMode::Clean, 1).expect("known");
    assert_eq!(world.acquire(13, key(0), 2).attempts, 1, "given back once");
}

/// No shard is lost or created twice.
pub fn a_split_whose_reply_was_lost_made_its_shards_once<T: ConformanceTarget>(target: &T) {
    let (mut world, held) = with_lease(target);
    let cut = residual_at(b"a", b"f", b"m");
    world.lose_reply();
    let _ = world.shrink(11, &held.lease, &cut, 1);
    let residual = world.shrink(12, &held.lease, &cut, 1).expect("known").into_inner();
    let cuts = replace_at(&[b"a", b"c", b"f"]);
    world.lose_reply();
    let _ = world.replace(13, &held.lease, &cuts, 2);
    let children = world.replace(14, &held.lease, &cuts, 2).expect("known").into_inner();
    let ids = world.ids(15, ShardFilter::active());
    assert_eq!(ids, [children[0], children[1], residual, shard(1)]);
}

/// The backend returns its own grant or a failure; it never loses a grant.
pub fn a_grant_whose_reply_was_lost_is_one_grant<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.lose_reply();
    let first = world.try_acquire(10, key(0), 1);
    let row = world.row(11, shard(0));
    assert!(row.acquire_count <= 1, "at most one grant");
    if let Ok(held) = first {
        assert!(row.leased);
        world.checkpoint(12, &held.lease, b"c", 1).expect("the grant is valid");
    }
    world.lose_reply();
    let second = world.claim(500, 2).or_else(|_| world.claim(501, 2)).expect("a shard is free");
    world.renew(502, &second.lease).expect("the grant is valid");
}

/// Repeating a renewal has no other effect.
pub fn a_renewal_whose_reply_was_lost_can_be_repeated<T: ConformanceTarget>(target: &T) {
    let (mut world, held) = with_lease(target);
    world.lose_reply();
    let _ = world.renew(20, &held.lease);
    let renewed = world.renew(20, &held.lease).expect("live");
    assert_eq!(renewed.new_deadline, at(120));
}

/// The offer, the accept and the withdrawal.
pub fn a_move_whose_replies_were_lost_has_one_owner<T: ConformanceTarget>(target: &T) {
    let (mut world, source) = with_lease(target);
    world.lose_reply();
    let _ = world.offer(11, &source.lease, (1, 2, 50), 1);
    world.offer(12, &source.lease, (1, 2, 50), 1).expect("known");
    world.lose_reply();
    let moved = world.accept(13, key(0), 2, 1);
    let withdrawn = world.withdraw(14, &source.lease, 1, 2);
    if let Ok(moved) = moved {
        assert!(withdrawn.is_err(), "the source no longer owns the shard");
        assert_eq!(moved.fence(), source.fence() + 1);
        world.checkpoint(15, &moved.lease, b"c", 3).expect("the destination does");
    }
    let row = world.row(16, shard(0));
    assert!(row.leased && row.acquire_count == 2 || withdrawn.is_ok());
}

/// Making and registering.
pub fn a_registration_whose_reply_was_lost_can_be_repeated<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    world.lose_reply();
    let _ = world.make_run(config(None), &ROOTS, 1);
    world.lose_reply();
    let _ = world.make_run(config(None), &ROOTS, 1);
    world.make_run(config(None), &ROOTS, 1).expect("known or new");
    assert_eq!(world.progress(2).total, 2);
}

/// The end of a run, and its deletion.
pub fn a_transition_whose_reply_was_lost_can_be_repeated<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let tenant = world.tenant;
    world.lose_reply();
    let _ = world.backend.cancel_run(at(10), tenant, RUN, op(1));
    world.backend.cancel_run(at(11), tenant, RUN, op(1)).expect("known");
    world.lose_reply();
    let _ = world.backend.delete_run(at(12), tenant, RUN, op(2));
    let again = world.backend.delete_run(at(13), tenant, RUN, op(2));
    assert_eq!(again, Ok(IdempotentOutcome::Replayed(())));
}

fn with_lease<T: ConformanceTarget>(target: &T) -> (World<'_, T>, Held) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    (world, held)
}
