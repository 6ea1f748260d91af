//! Guarantees of the builder beyond the matrix of `builder_tests`: rollback, liveness, edge cases.

use gossip_contracts::coordination::{MAX_KEY_SIZE, MAX_METADATA_SIZE};
use proptest::prelude::*;

use super::builder_tests::{BuilderError, assert_refused, builder, inverted, large_arena, staged};
use super::*;
use crate::key_encoding::decode_manifest_row_key;

#[test]
fn unbounded_ranges_fail_on_build_validation() {
    for (start, end) in [(&b""[..], &b"m"[..]), (b"m", b""), (b"", b"")] {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let shard_id = builder.add_range(start, end, b"").unwrap();
        let reason = ManifestValidationError::UnboundedRange { shard_id };
        assert_eq!(builder.build_inputs(), Err(BuilderError::ManifestInvalid(reason)));
    }
}

/// Only the builder can free a staged spec, so this test frees one through a private field.
#[test]
fn build_inputs_checks_that_specs_are_live() {
    let mut arena = large_arena();
    let mut builder = builder(&mut arena);
    builder.add_range(b"a", b"b", b"").unwrap();
    builder.arena.free_spec(builder.entries[0].handle);
    assert_eq!(builder.build_inputs(), Err(BuilderError::InvalidSpecHandle));
}

#[test]
fn a_full_builder_of_the_largest_cap_builds() {
    let mut arena = ShardArena::with_capacity(MAX_BUILDER_CAP, 1 << 20);
    let mut builder =
        PreallocShardBuilder::<MAX_BUILDER_CAP>::new(&mut arena, MAX_BUILDER_CAP).unwrap();
    for chunk in 0..4 {
        builder.split_manifest_by_rows(chunk, 0, 256, 1, b"").unwrap();
    }
    assert!(!builder.entries.is_spilled());
    assert_eq!(builder.build_inputs().unwrap().len(), MAX_BUILDER_CAP);
}

#[test]
fn drop_clears_the_arena() {
    let mut arena = ShardArena::with_capacity(2, 1024);
    let before = arena.alloc_spec(ShardSpecRef::new(b"a", b"b", b"")).unwrap();
    let mut staging = builder(&mut arena);
    staging.add_range(b"c", b"d", b"").unwrap();
    drop(staging);
    assert_eq!(arena.live_specs(), 0);
    assert_eq!(arena.try_view_spec(before), None);
    // All of it can be reused.
    let mut staging = builder(&mut arena);
    assert_eq!(staging.split_range_by_boundaries(b"a", &[b"b"], b"c", b""), Ok(2));
}

/// No `CAP` that compiles reaches this limit, so the check is called directly.
#[test]
fn config_rejects_entry_limit_exceeding_manifest_max() {
    let (entry_limit, max) = (MAX_INITIAL_SHARDS + 1, MAX_INITIAL_SHARDS);
    let refused = BuilderError::EntryLimitExceedsManifestMax { entry_limit, max };
    assert_eq!(check_entry_limit(entry_limit, usize::MAX), Err(refused));
    assert_eq!(check_entry_limit(max, usize::MAX), Ok(()));
}

#[test]
fn debug_shows_counts_only() {
    let mut arena = large_arena();
    let mut builder = builder(&mut arena);
    builder.add_prefix(b"secret", b"hidden").unwrap();
    let shown = format!("{builder:?}");
    assert_eq!(shown, "PreallocShardBuilder { len: 1, entry_limit: 16, .. }");
}

#[test]
fn split_range_with_an_invalid_boundary_has_no_partial_writes() {
    let mut arena = large_arena();
    let mut builder = builder(&mut arena);
    builder.add_range(b"0", b"1", b"").unwrap();
    let mut check = |points: &[&[u8]], reason| {
        let refused = BuilderError::RangeInvalid(reason);
        assert_refused(
            &mut builder,
            |b| b.split_range_by_boundaries(b"c", points, b"x", b""),
            refused,
        );
    };
    check(&[b"g", b"g"], inverted(1, 1));
    check(&[b"m", b"g"], inverted(1, 1));
    check(&[b"c"], inverted(1, 1));
    check(&[b"d", b"x"], inverted(1, 1));
    check(&[b"d", b"zz"], inverted(2, 1));
    check(&[b"a"], inverted(1, 1));
    // An empty point would mean "unbounded" to both of its neighbours.
    check(&[b"dd", b""], inverted(2, 0));
    check(&[b""], inverted(1, 0));
    let (size, max) = (MAX_KEY_SIZE + 1, MAX_KEY_SIZE);
    check(&[b"d", &vec![b'e'; size]], ShardSpecInputError::KeyTooLarge { size, max });
}

/// The last of three children finds no slot, or no bytes: the first two are rolled back.
#[test]
fn split_range_rolls_back_when_the_arena_fills() {
    for (slots, bytes) in [(3, 4096), (16, 160)] {
        let mut arena = ShardArena::with_capacity(slots, bytes);
        let mut builder = builder(&mut arena);
        builder.add_range(b"0", b"1", b"").unwrap();
        let before = (staged(&builder), format!("{:?}", builder.arena));
        let extra = [7; 50];
        let refused = builder.split_range_by_boundaries(b"a", &[b"g", b"m"], b"z", &extra);
        assert!(matches!(refused, Err(BuilderError::SlabFull(_))), "{refused:?}");
        assert_eq!((staged(&builder), format!("{:?}", builder.arena)), before);
        // Two of them fit, with the ids that were released.
        assert_eq!(builder.split_range_by_boundaries(b"a", &[b"g"], b"z", &extra), Ok(2));
        let inputs = builder.build_inputs().unwrap();
        assert_eq!(inputs[2].shard_id, ShardId::from_raw(2));
    }
}

#[test]
fn split_manifest_without_rows_is_rejected() {
    let mut arena = large_arena();
    let mut builder = builder(&mut arena);
    for (start_row, end_row, rows_per_shard) in
        [(10, 10, 1), (20, 10, 1), (0, 10, 0), (u64::MAX, u64::MAX, 1), (u64::MAX, 0, 0)]
    {
        let refused = BuilderError::ManifestCtorInvalid(inverted(16, 16));
        assert_refused(
            &mut builder,
            |b| b.split_manifest_by_rows(7, start_row, end_row, rows_per_shard, b""),
            refused,
        );
    }
}

#[test]
fn split_manifest_with_oversized_metadata_has_no_partial_writes() {
    let mut arena = large_arena();
    let mut builder = builder(&mut arena);
    let (size, max) = (MAX_METADATA_SIZE + 29, MAX_METADATA_SIZE);
    let reason = ShardSpecInputError::MetadataTooLarge { size, max };
    let refused = BuilderError::ManifestCtorInvalid(reason);
    let extra = vec![0; max];
    assert_refused(&mut builder, |b| b.split_manifest_by_rows(7, 0, 9, 1, &extra), refused);
}

#[test]
fn split_manifest_rolls_back_when_the_arena_fills() {
    let mut arena = ShardArena::with_capacity(3, 4096);
    let mut builder = builder(&mut arena);
    builder.add_range(b"z", b"zz", b"").unwrap();
    let full = BuilderError::SlabFull(SlabFull { requested: 1, available: 0 });
    assert_refused(&mut builder, |b| b.split_manifest_by_rows(7, 0, 30, 10, b""), full);
    assert_eq!(builder.split_manifest_by_rows(7, 0, 20, 10, b""), Ok(2));
}

proptest! {
    /// For any points and any arena size: all children or none, and on failure the arena's
    /// accounting is unchanged.
    #[test]
    fn bulk_splits_stage_everything_or_nothing(
        points in proptest::collection::vec(proptest::collection::vec(b'a'..=b'z', 0..3), 0..8),
        sorted in any::<bool>(),
        slots in 0..10_usize,
        bytes in 0..1024_usize,
        limit in 1..10_usize,
    ) {
        let mut points = points;
        if sorted {
            points.sort();
            points.dedup();
        }
        let mut arena = ShardArena::with_capacity(slots, bytes);
        let mut builder = PreallocShardBuilder::<10>::new(&mut arena, limit).unwrap();
        let before = format!("{:?}", builder.arena);
        let slices: Vec<&[u8]> = points.iter().map(Vec::as_slice).collect();
        match builder.split_range_by_boundaries(b"Z", &slices, b"~", b"extra") {
            Ok(made) => {
                prop_assert_eq!(made, points.len() + 1);
                let starts: Vec<_> = staged(&builder).into_iter().skip(1).map(|s| s.0).collect();
                prop_assert_eq!(starts, points);
                prop_assert!(builder.build_inputs().is_ok());
            }
            Err(_) => {
                prop_assert!(builder.is_empty());
                prop_assert_eq!(format!("{:?}", builder.arena), before);
            }
        }
    }

    #[test]
    fn manifest_chunks_tile_the_rows(
        start in any::<u64>(),
        len in 1..2000_u64,
        chunk in 1..500_u64,
    ) {
        let start = start.min(u64::MAX - len);
        let mut arena = ShardArena::with_capacity(256, 1 << 17);
        let mut builder = PreallocShardBuilder::<256>::new(&mut arena, 256).unwrap();
        let made = builder.split_manifest_by_rows(7, start, start + len, chunk, b"");
        if len.div_ceil(chunk) > 256 {
            prop_assert!(made.is_err() && builder.is_empty());
            return Ok(());
        }
        let row = |key: &[u8]| decode_manifest_row_key(key).unwrap().row();
        let mut next = start;
        for (from, to) in staged(&builder) {
            prop_assert_eq!(row(&from), next);
            next = row(&to);
            prop_assert!(next - row(&from) == chunk || next == start + len);
        }
        prop_assert_eq!(next, start + len);
    }
}
