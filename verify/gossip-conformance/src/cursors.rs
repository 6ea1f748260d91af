//! Cursors: progress never decreases, stays within the shard, and survives its owner.

use gossip_contracts::coordination::{CursorUpdate, MAX_KEY_SIZE, MAX_TOKEN_SIZE};
use gossip_coordination::{CheckpointError, CompleteError, CoordinationBackend, ShardStatus};

use super::world::{World, at, key, op, shard};
use super::{ConformanceTarget, refused, topic};

topic!("cursors":
    progress_survives_its_owner,
    progress_survives_every_owner,
    progress_never_falls,
    an_equal_key_is_no_regression,
    progress_stays_within_the_shard,
    the_start_of_a_shard_is_inside_and_its_end_outside,
    a_checkpoint_and_a_completion_need_a_key,
    oversized_keys_and_tokens_are_refused_before_anything_else,
    a_regression_speaks_before_the_bounds,
    the_largest_key_and_token_are_kept_whole,
    an_empty_shard_completes_at_its_start_key,
    a_completion_obeys_the_rules_of_cursors,
    a_shard_may_be_registered_with_progress,
);

/// The next owner receives key and token unchanged.
pub fn progress_survives_its_owner<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    assert_eq!((&held.start[..], &held.end[..]), (b"a".as_slice(), b"m".as_slice()));
    assert_eq!((&held.last_key, &held.metadata[..]), (&None, b"meta".as_slice()));
    let cursor = CursorUpdate::new(b"c", b"page 3");
    world.backend.checkpoint(at(11), world.tenant, &held.lease, cursor, op(1)).expect("live");
    let next = world.acquire(110, key(0), 2);
    assert_eq!(next.last_key.as_deref(), Some(b"c".as_slice()));
    assert_eq!(next.token.as_deref(), Some(b"page 3".as_slice()));
}

/// A cursor also outlives owners that never checkpoint.
pub fn progress_survives_every_owner<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    for (now, worker) in [(110, 2), (210, 3), (310, 4)] {
        let next = world.acquire(now, key(0), worker);
        assert_eq!(next.last_key.as_deref(), Some(b"c".as_slice()), "worker {worker}");
    }
}

/// Neither the owner nor its successor can move the cursor backwards.
pub fn progress_never_falls<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"ff", 1).expect("live");
    let back = world.checkpoint(12, &held.lease, b"f", 2);
    refused!(back, CheckpointError::CursorRegression { old_key: Some(2), new_key: Some(1) });
    let next = world.acquire(111, key(0), 2);
    refused!(world.checkpoint(112, &next.lease, b"b", 3), CheckpointError::CursorRegression { .. });
}

/// A worker may checkpoint without new progress.
pub fn an_equal_key_is_no_regression<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    assert!(world.checkpoint(12, &held.lease, b"c", 2).expect("live").is_executed());
}

/// Keys of other shards are refused, on both sides.
pub fn progress_stays_within_the_shard<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(1), 1);
    for outside in [b"c".as_slice(), b"zz", b"~"] {
        let refusal = world.checkpoint(11, &held.lease, outside, 1);
        refused!(refusal, CheckpointError::CursorOutOfBounds(detail)
            if detail.last_key == outside.len()
                && detail.spec_start == 1 && detail.spec_end == 1);
    }
    assert_eq!(world.row(12, shard(1)).last_key, None);
}

/// Half-open: `[start, end)`.
pub fn the_start_of_a_shard_is_inside_and_its_end_outside<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"a", 1).expect("the start is inside");
    refused!(world.checkpoint(12, &held.lease, b"m", 2), CheckpointError::CursorOutOfBounds(_));
    world.checkpoint(13, &held.lease, b"l\xFF\xFF", 3).expect("right before the end");
}

/// A checkpoint without a key is refused.
pub fn a_checkpoint_and_a_completion_need_a_key<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    for progress in [false, true] {
        if progress {
            world.checkpoint(11, &held.lease, b"c", 1).expect("live");
        }
        let none = CursorUpdate::initial();
        let (tenant, lease) = (world.tenant, &held.lease);
        let refusal = world.backend.checkpoint(at(12), tenant, lease, none, op(2));
        refused!(refusal, CheckpointError::CheckpointMissingKey);
        let refusal = world.backend.complete(at(12), tenant, lease, none, op(3));
        refused!(refusal, CompleteError::CheckpointMissingKey);
    }
}

/// A key that is too long is refused for its size, although it is also out of bounds.
pub fn oversized_keys_and_tokens_are_refused_before_anything_else<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let long_key = vec![b'~'; MAX_KEY_SIZE + 1];
    let long_token = vec![0; MAX_TOKEN_SIZE + 1];
    let (tenant, lease) = (world.tenant, &held.lease);
    let both = CursorUpdate::new(&long_key, &long_token);
    let refusal = world.backend.checkpoint(at(11), tenant, lease, both, op(1));
    refused!(refusal, CheckpointError::CursorKeyTooLarge { size, max }
        if size == MAX_KEY_SIZE + 1 && max == MAX_KEY_SIZE);
    let token = CursorUpdate::new(b"~", &long_token);
    let refusal = world.backend.complete(at(11), tenant, lease, token, op(1));
    refused!(refusal, CompleteError::CursorTokenTooLarge { size, max }
        if size == MAX_TOKEN_SIZE + 1 && max == MAX_TOKEN_SIZE);
}

/// A key that is below both the cursor and the shard is a regression.
pub fn a_regression_speaks_before_the_bounds<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(1), 1);
    world.checkpoint(11, &held.lease, b"p", 1).expect("live");
    refused!(world.checkpoint(12, &held.lease, b"b", 2), CheckpointError::CursorRegression { .. });
}

/// The limits are inclusive, and nothing is truncated.
pub fn the_largest_key_and_token_are_kept_whole<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (long_key, long_token) = (vec![b'c'; MAX_KEY_SIZE], vec![7; MAX_TOKEN_SIZE]);
    let cursor = CursorUpdate::new(&long_key, &long_token);
    world.backend.checkpoint(at(11), world.tenant, &held.lease, cursor, op(1)).expect("it fits");
    let next = world.acquire(110, key(0), 2);
    assert_eq!(next.last_key.as_deref(), Some(&long_key[..]));
    assert_eq!(next.token.as_deref(), Some(&long_token[..]));
}

/// The start key is in bounds, so an empty shard needs no special case.
pub fn an_empty_shard_completes_at_its_start_key<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    assert_eq!(world.row(11, shard(0)).status, ShardStatus::Done);
}

/// The final cursor obeys the same rules.
pub fn a_completion_obeys_the_rules_of_cursors<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"f", 1).expect("live");
    refused!(world.complete(12, &held.lease, b"b", 2), CompleteError::CursorRegression { .. });
    refused!(world.complete(12, &held.lease, b"q", 2), CompleteError::CursorOutOfBounds(_));
    world.complete(13, &held.lease, b"g", 2).expect("live");
    let row = world.row(14, shard(0));
    assert_eq!(row.last_key.as_deref(), Some(b"g".as_slice()));
}

/// A root may start with a cursor.
pub fn a_shard_may_be_registered_with_progress<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, super::Settings::default());
    let mut started = super::world::root(0, b"a", b"m");
    started.cursor = CursorUpdate::new(b"c", b"page 3");
    world.make_run(super::world::config(None), &[started], 1).expect("a valid manifest");
    let held = world.acquire(10, key(0), 1);
    assert_eq!(held.last_key.as_deref(), Some(b"c".as_slice()));
    assert_eq!(held.token.as_deref(), Some(b"page 3".as_slice()));
    refused!(world.checkpoint(11, &held.lease, b"b", 1), CheckpointError::CursorRegression { .. });
}
