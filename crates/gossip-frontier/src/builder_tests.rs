//! Staging is transactional, ids are dense, and a manifest is checked as a whole.

use std::error::Error;

use gossip_contracts::coordination::{MAX_KEY_SIZE, MAX_METADATA_SIZE};

use super::*;
use crate::hint::{ShardHint, decode_connector_extra, decode_hint};
use crate::key_encoding::{KeyBuf, KeyEncoding, ManifestRowKey, decode_manifest_row_key};

type Builder<'a> = PreallocShardBuilder<'a, 16>;
pub(super) type BuilderError = PreallocShardBuilderError;

/// Returns an arena larger than any test needs.
pub(super) fn large_arena() -> ShardArena {
    ShardArena::with_capacity(64, 64 * 1024)
}

pub(super) fn builder(arena: &mut ShardArena) -> Builder<'_> {
    PreallocShardBuilder::new(arena, 16).unwrap()
}

/// Returns the ranges of the staged shards, in the order of their ids, without manifest validation.
pub(super) fn staged<const CAP: usize>(
    builder: &PreallocShardBuilder<'_, CAP>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let spec = |entry: &BuilderEntry<'_>| builder.arena.view_spec(entry.handle);
    let specs = builder.entries.iter().map(spec);
    specs.map(|spec| (spec.start.to_vec(), spec.end.to_vec())).collect()
}

/// Runs `step`, which must fail with `expected` and change nothing: neither the entries nor the
/// slots and bytes of the arena.
pub(super) fn assert_refused<const CAP: usize, T: fmt::Debug>(
    builder: &mut PreallocShardBuilder<'_, CAP>,
    step: impl FnOnce(&mut PreallocShardBuilder<'_, CAP>) -> Result<T, BuilderError>,
    expected: BuilderError,
) {
    let accounting = |builder: &PreallocShardBuilder<'_, CAP>| format!("{:?}", builder.arena);
    let before = (staged(builder), accounting(builder));
    assert_eq!(step(builder).unwrap_err(), expected);
    assert_eq!((staged(builder), accounting(builder)), before);
}

fn row_key(manifest_id: u64, row: u64) -> Vec<u8> {
    let mut buf = KeyBuf::new();
    ManifestRowKey::new(manifest_id, row).encode_into(&mut buf);
    buf.as_bytes().to_vec()
}

fn rows_of(builder: &Builder<'_>) -> Vec<(u64, u64)> {
    let row = |key: &[u8]| decode_manifest_row_key(key).unwrap().row();
    staged(builder).iter().map(|(start, end)| (row(start), row(end))).collect()
}

pub(super) fn inverted(start_len: usize, end_len: usize) -> ShardSpecInputError {
    ShardSpecInputError::InvertedRange { start_len, end_len }
}

mod building {
    use super::*;

    #[test]
    fn mixed_range_prefix_manifest_builds_valid_manifest() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        builder.add_manifest(7, 10, 20, b"m").unwrap();
        builder.add_range(b"a", b"f", b"r").unwrap();
        builder.add_prefix(b"logs/", b"p").unwrap();
        let inputs = builder.build_inputs().unwrap();
        let hints: Vec<_> = inputs.iter().map(|input| decode_hint(input.spec).unwrap()).collect();
        let manifest = ShardHint::Manifest { manifest_id: 7, start_row: 10, end_row: 20 };
        assert_eq!(hints, [manifest, ShardHint::Range, ShardHint::Prefix { prefix: b"logs/" }]);
        let extras: Vec<_> =
            inputs.iter().map(|input| decode_connector_extra(input.spec).unwrap()).collect();
        assert_eq!(extras, [b"m", b"r", b"p"]);
        assert_eq!(inputs[2].spec.end, b"logs0");
        assert_eq!(validate_manifest(&inputs), Ok(()));
    }

    #[test]
    fn ids_are_assigned_in_insertion_order() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        // Later keys first: ids follow the calls, not the ranges.
        assert_eq!(builder.add_range(b"x", b"z", b""), Ok(ShardId::from_raw(0)));
        assert_eq!(builder.add_prefix(b"p", b""), Ok(ShardId::from_raw(1)));
        builder.add_range(b"z", b"a", b"").unwrap_err();
        assert_eq!(builder.split_range_by_boundaries(b"a", &[b"b", b"c"], b"d", b""), Ok(3));
        assert_eq!(builder.add_manifest(1, 2, 3, b""), Ok(ShardId::from_raw(5)));
        let inputs = builder.build_inputs().unwrap();
        let ids: Vec<_> = inputs.iter().map(|input| input.shard_id.as_raw()).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
        assert_eq!(inputs[0].spec.start, b"x");
        assert_eq!(inputs[4].spec.start, b"c");
    }

    #[test]
    fn default_add_methods_use_initial_cursor() {
        let mut arena = large_arena();
        let handle = arena.alloc_spec(ShardSpecRef::new(b"t", b"u", b"")).unwrap();
        let mut builder = builder(&mut arena);
        builder.add_range(b"a", b"b", b"").unwrap();
        builder.add_prefix(b"p", b"").unwrap();
        builder.add_manifest(1, 2, 3, b"").unwrap();
        builder.add_spec_ref(ShardSpecRef::new(b"x", b"y", b"")).unwrap();
        builder.add_spec_handle(handle).unwrap();
        builder.split_range_by_boundaries(b"c", &[b"d"], b"e", b"").unwrap();
        builder.split_manifest_by_rows(2, 0, 10, 5, b"").unwrap();
        let inputs = builder.build_inputs().unwrap();
        assert_eq!(inputs.len(), 9);
        assert!(inputs.iter().all(|input| input.cursor.is_initial()));
    }

    #[test]
    fn with_cursor_methods_preserve_non_initial_cursor() {
        let mut arena = large_arena();
        let handle = arena.alloc_spec(ShardSpecRef::new(b"t", b"u", b"")).unwrap();
        let mut builder = builder(&mut arena);
        let cursors = [b"am", b"pm", b"xm", b"tm"].map(|key| CursorUpdate::new(key, b"token"));
        builder.add_range_with_cursor(b"a", b"b", b"", cursors[0]).unwrap();
        builder.add_prefix_with_cursor(b"p", b"", cursors[1]).unwrap();
        let spec = ShardSpecRef::new(b"x", b"y", b"");
        builder.add_spec_ref_with_cursor(spec, cursors[2]).unwrap();
        builder.add_spec_handle_with_cursor(handle, cursors[3]).unwrap();
        let inputs = builder.build_inputs().unwrap();
        let kept: Vec<_> = inputs.iter().map(|input| input.cursor).collect();
        assert_eq!(kept, cursors);
    }

    #[test]
    fn add_manifest_with_cursor_preserves_initial_cursor() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        builder.add_manifest_with_cursor(7, 10, 20, b"", CursorUpdate::initial()).unwrap();
        assert!(builder.build_inputs().unwrap()[0].cursor.is_initial());
    }

    #[test]
    fn add_manifest_with_cursor_preserves_explicit_cursor() {
        let key = row_key(7, 15);
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let cursor = CursorUpdate::new(&key, b"offset");
        builder.add_manifest_with_cursor(7, 10, 20, b"", cursor).unwrap();
        assert_eq!(builder.build_inputs().unwrap()[0].cursor, cursor);
    }

    #[test]
    fn cursor_outside_range_fails_manifest_validation() {
        for key in [&b"a"[..], b"n", b"z"] {
            let mut arena = large_arena();
            let mut builder = builder(&mut arena);
            let cursor = CursorUpdate::with_last_key(key);
            // Staging accepts it; manifest validation does not.
            let shard_id = builder.add_range_with_cursor(b"m", b"n", b"", cursor).unwrap();
            let reason = ManifestValidationError::CursorOutOfBounds { shard_id };
            assert_eq!(builder.build_inputs(), Err(BuilderError::ManifestInvalid(reason)));
        }
    }

    #[test]
    fn overlapping_ranges_fail_on_build_validation() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let shard_b = builder.add_range(b"m", b"z", b"").unwrap();
        let shard_a = builder.add_range(b"a", b"n", b"").unwrap();
        let reason = ManifestValidationError::OverlappingRanges { shard_a, shard_b };
        let refused = builder.build_inputs().unwrap_err();
        assert_eq!(refused.source().unwrap().to_string(), reason.to_string());
        assert_eq!(refused, BuilderError::ManifestInvalid(reason));
    }

    #[test]
    fn build_inputs_on_empty_builder_returns_manifest_empty() {
        let mut arena = large_arena();
        let builder = builder(&mut arena);
        assert!(builder.is_empty());
        let refused = BuilderError::ManifestInvalid(ManifestValidationError::Empty);
        assert_eq!(builder.build_inputs(), Err(refused));
    }

    #[test]
    fn build_inputs_is_idempotent() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        builder.add_range(b"a", b"b", b"x").unwrap();
        builder.add_prefix(b"p", b"y").unwrap();
        assert_eq!(builder.build_inputs().unwrap(), builder.build_inputs().unwrap());
        // Staging can continue after a build.
        builder.add_range(b"b", b"c", b"").unwrap();
        assert_eq!(builder.build_inputs().unwrap().len(), 3);
    }
}

mod adding {
    use super::*;

    #[test]
    fn entry_limit_exhaustion_returns_capacity_exceeded() {
        let mut arena = large_arena();
        let handle = arena.alloc_spec(ShardSpecRef::new(b"t", b"u", b"")).unwrap();
        let mut builder = PreallocShardBuilder::<16>::new(&mut arena, 2).unwrap();
        builder.add_range(b"a", b"b", b"").unwrap();
        builder.add_range(b"b", b"c", b"").unwrap();
        let full = BuilderError::CapacityExceeded { limit: 2, current: 2, additional: 1 };
        // The limit is checked first: none of these would be valid either.
        assert_refused(&mut builder, |b| b.add_range(b"z", b"a", b""), full.clone());
        assert_refused(&mut builder, |b| b.add_prefix(b"", b""), full.clone());
        assert_refused(&mut builder, |b| b.add_manifest(1, 2, 2, b""), full.clone());
        let spec = ShardSpecRef::new(b"z", b"a", b"");
        assert_refused(&mut builder, |b| b.add_spec_ref(spec), full.clone());
        assert_refused(&mut builder, |b| b.add_spec_handle(handle), full);
    }

    #[test]
    fn arena_slot_exhaustion_returns_slab_full() {
        let mut arena = ShardArena::with_capacity(1, 4096);
        let mut builder = builder(&mut arena);
        builder.add_range(b"a", b"b", b"").unwrap();
        let full = BuilderError::SlabFull(SlabFull { requested: 1, available: 0 });
        assert_refused(&mut builder, |b| b.add_range(b"b", b"c", b""), full.clone());
        assert_refused(&mut builder, |b| b.add_prefix(b"p", b""), full.clone());
        assert_refused(&mut builder, |b| b.add_manifest(1, 2, 3, b""), full);
        assert_eq!(builder.len(), 1);
    }

    #[test]
    fn arena_byte_exhaustion_returns_slab_full() {
        let mut arena = ShardArena::with_capacity(16, 256);
        let mut builder = builder(&mut arena);
        builder.add_range(b"a", b"b", b"").unwrap();
        let before = (staged(&builder), format!("{:?}", builder.arena));
        let refused = builder.add_range(b"b", b"c", &[7; 1000]).unwrap_err();
        assert!(matches!(refused, BuilderError::SlabFull(SlabFull { requested: 1024, .. })));
        assert_eq!((staged(&builder), format!("{:?}", builder.arena)), before);
        // A smaller one still fits, and takes the id that the failed call did not use.
        assert_eq!(builder.add_range(b"b", b"c", b""), Ok(ShardId::from_raw(1)));
    }

    #[test]
    fn add_spec_ref_slab_full() {
        let mut arena = ShardArena::with_capacity(1, 4096);
        let mut builder = builder(&mut arena);
        builder.add_spec_ref(ShardSpecRef::new(b"a", b"b", b"")).unwrap();
        let full = BuilderError::SlabFull(SlabFull { requested: 1, available: 0 });
        let spec = ShardSpecRef::new(b"b", b"c", b"");
        assert_refused(&mut builder, |b| b.add_spec_ref(spec), full);
    }

    #[test]
    fn stale_or_foreign_handle_is_rejected_without_panic() {
        let mut elsewhere = large_arena();
        let spec = ShardSpecRef::new(b"a", b"b", b"");
        let foreign = elsewhere.alloc_spec(spec).unwrap();
        let mut arena = large_arena();
        let stale = arena.alloc_spec(spec).unwrap();
        arena.free_spec(stale);
        let live = arena.alloc_spec(spec).unwrap();
        let mut builder = builder(&mut arena);
        for handle in [foreign, stale] {
            let refused = BuilderError::InvalidSpecHandle;
            assert_refused(&mut builder, |b| b.add_spec_handle(handle), refused);
        }
        assert_eq!(builder.add_spec_handle(live), Ok(ShardId::from_raw(0)));
        // Handles freed by reset are stale as well.
        builder.reset();
        let refused = BuilderError::InvalidSpecHandle;
        assert_refused(&mut builder, |b| b.add_spec_handle(live), refused);
    }

    #[test]
    fn reset_allows_fresh_reuse_and_resets_ids() {
        let mut arena = ShardArena::with_capacity(2, 1024);
        let mut builder = builder(&mut arena);
        for _ in 0..3 {
            assert_eq!(builder.add_range(b"a", b"b", b"x"), Ok(ShardId::from_raw(0)));
            assert_eq!(builder.add_range(b"b", b"c", b"y"), Ok(ShardId::from_raw(1)));
            builder.add_range(b"c", b"d", b"z").unwrap_err();
            assert_eq!(builder.build_inputs().unwrap().len(), 2);
            builder.reset();
            assert!(builder.is_empty());
            assert_eq!(builder.arena.live_specs(), 0);
        }
    }

    #[test]
    fn add_spec_ref_happy_path() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let spec = ShardSpecRef::new(b"a", b"b", b"\xFFraw metadata");
        assert_eq!(builder.add_spec_ref(spec), Ok(ShardId::from_raw(0)));
        // Metadata is neither inspected nor wrapped.
        assert_eq!(builder.build_inputs().unwrap()[0].spec, spec);
    }

    #[test]
    fn add_spec_ref_rejects_inverted_range() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let mut check = |spec, reason| {
            let refused = BuilderError::SpecInvalid(reason);
            assert_refused(&mut builder, |b| b.add_spec_ref(spec), refused);
        };
        check(ShardSpecRef::new(b"b", b"a", b""), inverted(1, 1));
        check(ShardSpecRef::new(b"a", b"a", b""), inverted(1, 1));
        let (size, max) = (MAX_KEY_SIZE + 1, MAX_KEY_SIZE);
        let oversized = vec![b'z'; size];
        let too_large = ShardSpecInputError::KeyTooLarge { size, max };
        check(ShardSpecRef::new(b"a", &oversized, b""), too_large);
        let (size, max) = (MAX_METADATA_SIZE + 1, MAX_METADATA_SIZE);
        let oversized = vec![0; size];
        let too_large = ShardSpecInputError::MetadataTooLarge { size, max };
        check(ShardSpecRef::new(b"a", b"b", &oversized), too_large);
    }

    #[test]
    fn config_rejects_zero_entry_limit() {
        let mut arena = large_arena();
        let refused = PreallocShardBuilder::<8>::new(&mut arena, 0).unwrap_err();
        assert_eq!(refused, BuilderError::EntryLimitZero);
    }

    #[test]
    fn config_rejects_entry_limit_exceeding_cap() {
        let mut arena = large_arena();
        for entry_limit in [9, MAX_INITIAL_SHARDS + 1, usize::MAX] {
            let refused = PreallocShardBuilder::<8>::new(&mut arena, entry_limit).unwrap_err();
            assert_eq!(refused, BuilderError::CapMismatch { entry_limit, cap: 8 });
        }
        assert!(PreallocShardBuilder::<8>::new(&mut arena, 8).is_ok());
    }

    #[test]
    fn add_range_with_inverted_bounds_returns_range_invalid() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let refused = BuilderError::RangeInvalid(inverted(2, 1));
        assert_refused(&mut builder, |b| b.add_range(b"zz", b"a", b""), refused);
        let refused = BuilderError::RangeInvalid(inverted(1, 1));
        assert_refused(&mut builder, |b| b.add_range(b"a", b"a", b""), refused);
        let (size, max) = (MAX_KEY_SIZE + 1, MAX_KEY_SIZE);
        let refused = BuilderError::RangeInvalid(ShardSpecInputError::KeyTooLarge { size, max });
        assert_refused(&mut builder, |b| b.add_range(b"a", &vec![b'z'; size], b""), refused);
    }

    #[test]
    fn add_prefix_with_empty_prefix_returns_prefix_invalid() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let refused = BuilderError::PrefixInvalid(PrefixShardError::EmptyPrefix);
        assert_refused(&mut builder, |b| b.add_prefix(b"", b""), refused);
        let refused = BuilderError::PrefixInvalid(PrefixShardError::NoSuccessor);
        assert_refused(&mut builder, |b| b.add_prefix(b"\xFF\xFF", b""), refused);
        let (size, max) = (MAX_KEY_SIZE + 1, MAX_KEY_SIZE);
        let refused = BuilderError::PrefixInvalid(PrefixShardError::PrefixTooLarge { size, max });
        assert_refused(&mut builder, |b| b.add_prefix(&vec![b'p'; size], b""), refused);
    }

    #[test]
    fn add_manifest_with_inverted_rows_returns_manifest_ctor_invalid() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        for (start_row, end_row) in [(20, 10), (10, 10), (u64::MAX, u64::MAX)] {
            let refused = BuilderError::ManifestCtorInvalid(inverted(16, 16));
            assert_refused(&mut builder, |b| b.add_manifest(7, start_row, end_row, b""), refused);
        }
        let (size, max) = (MAX_METADATA_SIZE + 29, MAX_METADATA_SIZE);
        let reason = ShardSpecInputError::MetadataTooLarge { size, max };
        let refused = BuilderError::ManifestCtorInvalid(reason);
        assert_refused(&mut builder, |b| b.add_manifest(7, 1, 2, &vec![0; max]), refused);
    }
}

mod splitting_ranges {
    use super::*;

    /// Returns `count` ascending points: a 2-byte counter after a common byte.
    fn points(count: u16) -> Vec<Vec<u8>> {
        (1..=count).map(|point| [&b"k"[..], &point.to_be_bytes()].concat()).collect()
    }

    fn slices(points: &[Vec<u8>]) -> Vec<&[u8]> {
        points.iter().map(Vec::as_slice).collect()
    }

    #[test]
    fn split_range_by_boundaries_exact_capacity_preserves_ordering() {
        let mut arena = ShardArena::with_capacity(4, 4096);
        let mut builder = PreallocShardBuilder::<4>::new(&mut arena, 4).unwrap();
        let made = builder.split_range_by_boundaries(b"a", &[b"g", b"m", b"t"], b"z", b"extra");
        assert_eq!(made, Ok(4));
        let inputs = builder.build_inputs().unwrap();
        let ranges: Vec<_> =
            inputs.iter().map(|input| (input.spec.start, input.spec.end)).collect();
        let tiles: [(&[u8], &[u8]); 4] = [(b"a", b"g"), (b"g", b"m"), (b"m", b"t"), (b"t", b"z")];
        assert_eq!(ranges, tiles);
        for input in inputs {
            assert_eq!(decode_hint(input.spec), Ok(ShardHint::Range));
            assert_eq!(decode_connector_extra(input.spec), Ok(&b"extra"[..]));
        }
    }

    #[test]
    fn split_range_by_boundaries_under_capacity_succeeds() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        assert_eq!(builder.split_range_by_boundaries(b"a", &[b"m"], b"z", b""), Ok(2));
        // Without points there is one shard.
        assert_eq!(builder.split_range_by_boundaries(b"z", &[], b"zz", b""), Ok(1));
        assert_eq!(builder.len(), 3);
        assert_eq!(builder.build_inputs().unwrap().len(), 3);
    }

    #[test]
    fn split_range_capacity_exceeded_has_no_partial_writes() {
        let mut arena = large_arena();
        let mut builder = PreallocShardBuilder::<4>::new(&mut arena, 3).unwrap();
        builder.add_range(b"0", b"1", b"").unwrap();
        let refused = BuilderError::CapacityExceeded { limit: 3, current: 1, additional: 3 };
        assert_refused(
            &mut builder,
            |b| b.split_range_by_boundaries(b"a", &[b"g", b"m"], b"z", b""),
            refused,
        );
    }

    #[test]
    fn split_range_fan_out_exceeded_has_no_partial_writes() {
        let mut arena = ShardArena::with_capacity(300, 1 << 20);
        let mut builder = PreallocShardBuilder::<300>::new(&mut arena, 300).unwrap();
        let (widest, too_wide) = (points(255), points(256));
        let refused = BuilderError::FanOutExceeded { limit: 256, requested: 257 };
        assert_refused(
            &mut builder,
            |b| b.split_range_by_boundaries(b"a", &slices(&too_wide), b"z", b""),
            refused,
        );
        let made = builder.split_range_by_boundaries(b"a", &slices(&widest), b"z", b"");
        assert_eq!(made, Ok(256));
        // Fan-out is checked before the remaining entries.
        let refused = BuilderError::FanOutExceeded { limit: 256, requested: 257 };
        assert_refused(
            &mut builder,
            |b| b.split_range_by_boundaries(b"a", &slices(&too_wide), b"z", b""),
            refused,
        );
        let refused = BuilderError::CapacityExceeded { limit: 300, current: 256, additional: 256 };
        assert_refused(
            &mut builder,
            |b| b.split_range_by_boundaries(b"a", &slices(&widest), b"z", b""),
            refused,
        );
    }
}

mod splitting_manifests {
    use super::*;

    #[test]
    fn split_manifest_by_rows_exact_capacity_tiles_manifest_rows() {
        let mut arena = ShardArena::with_capacity(4, 4096);
        let mut builder = PreallocShardBuilder::<16>::new(&mut arena, 4).unwrap();
        assert_eq!(builder.split_manifest_by_rows(7, 100, 135, 10, b"extra"), Ok(4));
        // The last one is shorter.
        assert_eq!(rows_of(&builder), [(100, 110), (110, 120), (120, 130), (130, 135)]);
        for (input, (start_row, end_row)) in
            builder.build_inputs().unwrap().iter().zip(rows_of(&builder))
        {
            let hint = ShardHint::Manifest { manifest_id: 7, start_row, end_row };
            assert_eq!(decode_hint(input.spec), Ok(hint));
            assert_eq!(decode_connector_extra(input.spec), Ok(&b"extra"[..]));
        }
    }

    #[test]
    fn split_manifest_by_rows_under_capacity_succeeds() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        assert_eq!(builder.split_manifest_by_rows(7, 0, 20, 10, b""), Ok(2));
        // A chunk larger than the rows makes one shard.
        assert_eq!(builder.split_manifest_by_rows(8, 5, 6, u64::MAX, b""), Ok(1));
        assert_eq!(rows_of(&builder), [(0, 10), (10, 20), (5, 6)]);
        assert_eq!(builder.build_inputs().unwrap().len(), 3);
    }

    #[test]
    fn split_manifest_by_rows_capacity_exceeded_has_no_partial_writes() {
        let mut arena = large_arena();
        let mut builder = PreallocShardBuilder::<16>::new(&mut arena, 3).unwrap();
        builder.add_range(b"z", b"zz", b"").unwrap();
        let refused = BuilderError::CapacityExceeded { limit: 3, current: 1, additional: 3 };
        assert_refused(&mut builder, |b| b.split_manifest_by_rows(7, 0, 21, 10, b""), refused);
    }

    #[test]
    fn split_manifest_by_rows_fan_out_exceeded_has_no_partial_writes() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let mut check = |end_row, rows_per_shard, requested| {
            let refused = BuilderError::FanOutExceeded { limit: 256, requested };
            assert_refused(
                &mut builder,
                |b| b.split_manifest_by_rows(7, 0, end_row, rows_per_shard, b""),
                refused,
            );
        };
        check(257, 1, 257);
        check(2561, 10, 257);
        // Fan-out is checked before the remaining entries, and such numbers cost nothing.
        check(u64::MAX, 1, usize::try_from(u64::MAX).unwrap_or(usize::MAX));
    }

    #[test]
    fn split_manifest_by_rows_handles_u64_boundary_without_wrap() {
        let mut arena = large_arena();
        let mut builder = builder(&mut arena);
        let max = u64::MAX;
        assert_eq!(builder.split_manifest_by_rows(7, max - 5, max, 2, b""), Ok(3));
        let tail = [(max - 5, max - 3), (max - 3, max - 1), (max - 1, max)];
        assert_eq!(rows_of(&builder), tail);
        builder.reset();
        let half = max / 2;
        assert_eq!(builder.split_manifest_by_rows(max, 0, max, half, b""), Ok(3));
        assert_eq!(rows_of(&builder), [(0, half), (half, max - 1), (max - 1, max)]);
        builder.reset();
        assert_eq!(builder.split_manifest_by_rows(0, 0, max, max, b""), Ok(1));
        assert_eq!(rows_of(&builder), [(0, max)]);
    }
}
