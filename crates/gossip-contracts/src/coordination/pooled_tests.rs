//! Pooled wrappers: round trips, and failures without side effects.

use gossip_stdx::{ByteSlab, SlabFull};
use proptest::prelude::*;

use super::{
    CursorUpdate, MAX_SPAWNED_PER_SHARD, PooledCursor, PooledShardSpec, PooledSpawned,
    PooledSpawnedError, ShardSpecRef,
};
use crate::identity::ShardId;

const SPEC: ShardSpecRef<'static> = ShardSpecRef::new(b"start", b"z", b"metadata");

/// Returns the externally visible state of a slab; a rollback restores all of it.
fn accounting(slab: &ByteSlab) -> (usize, usize, usize, usize) {
    let (live, used) = (slab.live_slots(), slab.used_bytes());
    (live, used, slab.free_bytes(), slab.virgin_bytes())
}

fn ids(range: std::ops::Range<u64>) -> Vec<ShardId> {
    range.map(ShardId::from_raw).collect()
}

#[test]
fn a_spec_is_stored_replaced_and_freed() {
    let mut slab = ByteSlab::new(256);
    let fresh = accounting(&slab);
    let mut pooled = PooledShardSpec::from_ref(SPEC, &mut slab).unwrap();
    assert_eq!(pooled.view(&slab), SPEC);
    let other = ShardSpecRef::new(b"", b"", b"other metadata, longer than sixteen");
    pooled.replace(other, &mut slab).unwrap();
    assert_eq!(pooled.view(&slab), other);
    pooled.free(&mut slab);
    assert_eq!(accounting(&slab), fresh);
}

#[test]
fn a_spec_that_does_not_fit_leaves_the_slab_unchanged() {
    let mut slab = ByteSlab::new(0);
    let fresh = accounting(&slab);
    let full = PooledShardSpec::from_ref(SPEC, &mut slab).unwrap_err();
    assert_eq!((full.requested, full.available), (16, 0));
    assert_eq!(accounting(&slab), fresh);
}

#[test]
fn a_spec_is_one_block() {
    let mut slab = ByteSlab::new(64);
    let pooled = PooledShardSpec::from_ref(SPEC, &mut slab).unwrap();
    assert_eq!((slab.live_slots(), slab.used_bytes()), (1, 16));
    pooled.free(&mut slab);
}

/// Key lengths are stored in two bytes each, which is enough for every valid key.
#[test]
fn a_key_beyond_all_limits_returns_slab_full() {
    let mut slab = ByteSlab::new(1 << 20);
    let fresh = accounting(&slab);
    let longest = vec![b'k'; usize::from(u16::MAX)];
    let longer = vec![b'k'; usize::from(u16::MAX) + 1];
    for (start, end) in [(&longer, &longest), (&longest, &longer)] {
        let spec = ShardSpecRef::new(start, end, b"");
        let full = PooledShardSpec::from_ref(spec, &mut slab).unwrap_err();
        assert_eq!(full, SlabFull { requested: u32::MAX, available: 1 << 20 });
        assert_eq!(accounting(&slab), fresh);
    }
    let spec = ShardSpecRef::new(&longest, &longest, b"metadata");
    let mut pooled = PooledShardSpec::from_ref(spec, &mut slab).unwrap();
    assert_eq!(pooled.view(&slab), spec);
    assert!(pooled.replace(ShardSpecRef::new(&longer, b"", b""), &mut slab).is_err());
    assert_eq!(pooled.view(&slab), spec);
    pooled.free(&mut slab);
}

#[test]
fn a_spec_replacement_that_does_not_fit_keeps_the_old_one() {
    let mut slab = ByteSlab::new(2 * ByteSlab::MIN_BLOCK);
    let mut pooled = PooledShardSpec::from_ref(SPEC, &mut slab).unwrap();
    let before = accounting(&slab);
    // One free block: the new bytes are stored before the old ones are freed, and need two.
    let refused = pooled.replace(ShardSpecRef::new(b"a", b"b", &[b'm'; 17]), &mut slab);
    assert!(refused.is_err());
    assert_eq!(pooled.view(&slab), SPEC);
    assert_eq!(accounting(&slab), before);
    // Bytes that fit the old block are stored in place.
    let other = ShardSpecRef::new(b"a", b"b", b"c");
    pooled.replace(other, &mut slab).unwrap();
    assert_eq!((pooled.view(&slab), accounting(&slab)), (other, before));
    pooled.free(&mut slab);
}

#[test]
fn an_initial_cursor_occupies_no_bytes() {
    let mut slab = ByteSlab::new(0);
    let pooled = PooledCursor::from_update(CursorUpdate::initial(), &mut slab).unwrap();
    for cursor in [pooled, PooledCursor::initial()] {
        assert!(cursor.is_initial());
        assert_eq!(cursor.view(&slab), CursorUpdate::initial());
        assert_eq!((cursor.last_key(&slab), cursor.token(&slab)), (None, None));
        cursor.free(&mut slab);
    }
}

#[test]
fn a_cursor_that_does_not_fit_leaves_the_slab_unchanged() {
    let mut slab = ByteSlab::new(ByteSlab::MIN_BLOCK);
    let fresh = accounting(&slab);
    let update = CursorUpdate::new(b"key and token", b"of 17 bytes");
    assert!(PooledCursor::from_update(update, &mut slab).is_err());
    assert_eq!(accounting(&slab), fresh);
}

#[test]
fn a_cursor_of_the_same_size_is_updated_in_a_full_slab() {
    let mut slab = ByteSlab::new(ByteSlab::MIN_BLOCK);
    let mut cursor =
        PooledCursor::from_update(CursorUpdate::new(b"key 1", b"token 1"), &mut slab).unwrap();
    assert_eq!(slab.virgin_bytes(), 0);
    let next = CursorUpdate::new(b"key 22", b"token 22");
    cursor.update(next, &mut slab).unwrap();
    assert_eq!(cursor.view(&slab), next);
    cursor.free(&mut slab);
}

/// Returns a slab with one block free, and a cursor of one block.
fn slab_with_one_free_block() -> (ByteSlab, PooledCursor) {
    let mut slab = ByteSlab::new(2 * ByteSlab::MIN_BLOCK);
    let update = CursorUpdate::new(b"key", b"token");
    let cursor = PooledCursor::from_update(update, &mut slab).unwrap();
    (slab, cursor)
}

/// Grows the key, the token or both beyond the free block.
#[test]
fn a_cursor_update_that_does_not_fit_changes_nothing() {
    let long = [b'l'; 2 * ByteSlab::MIN_BLOCK];
    let refused = [
        CursorUpdate::new(&long, b"t"),
        CursorUpdate::with_last_key(&long),
        CursorUpdate::new(b"k", &long),
        CursorUpdate::new(&long[..17], &long[..17]),
        CursorUpdate::new(&long, &long),
    ];
    for update in refused {
        let (mut slab, mut cursor) = slab_with_one_free_block();
        let before = accounting(&slab);
        assert!(cursor.update(update, &mut slab).is_err());
        assert_eq!(cursor.view(&slab), CursorUpdate::new(b"key", b"token"));
        assert_eq!(accounting(&slab), before);
        cursor.free(&mut slab);
    }
}

#[test]
fn a_cursor_update_can_remove_token_and_key() {
    let (mut slab, mut cursor) = slab_with_one_free_block();
    cursor.update(CursorUpdate::with_last_key(b"k"), &mut slab).unwrap();
    assert_eq!(cursor.token(&slab), None);
    assert_eq!(slab.live_slots(), 1);
    cursor.update(CursorUpdate::initial(), &mut slab).unwrap();
    assert!(cursor.is_initial());
    assert_eq!(slab.live_slots(), 0);
    cursor.free(&mut slab);
}

#[test]
fn spawned_ids_keep_their_order() {
    let mut slab = ByteSlab::new(1024);
    let mut spawned = PooledSpawned::empty();
    assert!(spawned.is_empty());
    assert_eq!(spawned.iter(&slab).len(), 0);
    spawned.push(ShardId::from_raw(u64::MAX), &mut slab).unwrap();
    spawned.extend(&ids(3..6), &mut slab).unwrap();
    spawned.extend(&[], &mut slab).unwrap();
    let raw: Vec<u64> = spawned.iter(&slab).map(ShardId::as_raw).collect();
    assert_eq!(raw, [u64::MAX, 3, 4, 5]);
    assert_eq!(spawned.iter(&slab).next_back(), Some(ShardId::from_raw(5)));
    assert_eq!((spawned.len(), spawned.is_empty()), (4, false));
    assert!(spawned.contains(ShardId::from_raw(4), &slab));
    assert!(!spawned.contains(ShardId::from_raw(6), &slab));
    spawned.free(&mut slab);
    assert_eq!(slab.used_bytes(), 0);
}

#[test]
fn spawned_ids_beyond_the_limit_are_rejected() {
    let mut slab = ByteSlab::new(32 * 1024);
    let all = ids(0..MAX_SPAWNED_PER_SHARD as u64);
    let mut spawned = PooledSpawned::from_ids(&all, &mut slab).unwrap();
    let too_many = |current, additional| PooledSpawnedError::TooMany {
        current,
        additional,
        max: MAX_SPAWNED_PER_SHARD,
    };
    let before = accounting(&slab);
    let refused = spawned.push(ShardId::from_raw(0), &mut slab);
    assert_eq!(refused, Err(too_many(MAX_SPAWNED_PER_SHARD, 1)));
    let refused = PooledSpawned::from_ids(&[all.clone(), ids(0..1)].concat(), &mut slab);
    assert_eq!(refused.unwrap_err(), too_many(0, MAX_SPAWNED_PER_SHARD + 1));
    assert_eq!(accounting(&slab), before);
    assert!(spawned.iter(&slab).eq(all));
    spawned.free(&mut slab);
}

#[test]
fn spawned_ids_that_do_not_fit_leave_the_list_unchanged() {
    let mut slab = ByteSlab::new(2 * ByteSlab::MIN_BLOCK);
    let mut spawned = PooledSpawned::from_ids(&ids(1..3), &mut slab).unwrap();
    let before = accounting(&slab);
    let full = SlabFull { requested: 32, available: 16 };
    let refused = spawned.push(ShardId::from_raw(3), &mut slab);
    assert_eq!(refused, Err(PooledSpawnedError::Full(full)));
    // The limit is checked before the slab.
    let refused = spawned.extend(&ids(0..2000), &mut slab);
    assert!(matches!(refused, Err(PooledSpawnedError::TooMany { additional: 2000, .. })));
    assert!(spawned.iter(&slab).eq(ids(1..3)));
    assert_eq!(accounting(&slab), before);
    spawned.free(&mut slab);
}

#[test]
#[should_panic(expected = "slot")]
fn a_foreign_slab_rejects_a_wrapper() {
    let mut slab = ByteSlab::new(64);
    let cursor = PooledCursor::from_update(CursorUpdate::with_last_key(b"k"), &mut slab).unwrap();
    // Freed first, so that the panic below is the only one.
    let foreign = ByteSlab::new(64);
    slab.clear();
    let _ = cursor.last_key(&foreign);
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

proptest! {
    #[test]
    fn specs_round_trip(start in bytes(50), end in bytes(50), metadata in bytes(90)) {
        let mut slab = ByteSlab::new(256);
        let spec = ShardSpecRef::new(&start, &end, &metadata);
        let pooled = PooledShardSpec::from_ref(spec, &mut slab).unwrap();
        prop_assert_eq!(pooled.view(&slab), spec);
        pooled.free(&mut slab);
        prop_assert_eq!((slab.live_slots(), slab.virgin_bytes()), (0, 256));
    }

    /// Any sequence of updates in a slab that is often too small: a failed one changes nothing.
    #[test]
    fn cursors_hold_the_last_update_that_was_accepted(
        updates in prop::collection::vec((bytes(70), bytes(70)), 1..20),
        capacity in 64_usize..400,
    ) {
        let mut slab = ByteSlab::new(capacity);
        let mut cursor = PooledCursor::initial();
        let mut expected = CursorUpdate::initial();
        for (key, token) in &updates {
            let token = Some(token.as_slice()).filter(|_| !key.is_empty());
            let key = Some(key.as_slice()).filter(|key| !key.is_empty());
            let update = CursorUpdate::try_from_parts(key, token).unwrap();
            let before = accounting(&slab);
            if cursor.update(update, &mut slab).is_ok() {
                expected = update;
            } else {
                prop_assert_eq!(accounting(&slab), before);
            }
            prop_assert_eq!(cursor.view(&slab), expected);
            prop_assert_eq!(cursor.is_initial(), expected.is_initial());
        }
        cursor.free(&mut slab);
        prop_assert_eq!((slab.live_slots(), slab.used_bytes()), (0, 0));
    }

    #[test]
    fn spawned_ids_hold_every_batch_that_was_accepted(
        batches in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..9), 0..12),
        capacity in 0_usize..600,
    ) {
        let mut slab = ByteSlab::new(capacity);
        let mut spawned = PooledSpawned::empty();
        let mut expected = Vec::new();
        for batch in batches {
            let batch: Vec<_> = batch.into_iter().map(ShardId::from_raw).collect();
            let before = accounting(&slab);
            if spawned.extend(&batch, &mut slab).is_ok() {
                expected.extend(batch);
            } else {
                prop_assert_eq!(accounting(&slab), before);
            }
            prop_assert!(spawned.iter(&slab).eq(expected.iter().copied()));
            prop_assert_eq!(spawned.len(), expected.len());
        }
        spawned.free(&mut slab);
        prop_assert_eq!(slab.live_slots(), 0);
    }
}
