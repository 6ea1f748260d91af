//! Hot paths allocate nothing, verified by counting.
//!
//! One test for each function that the specification calls hot, then the warm ones with the same
//! guarantee. Buffers are created outside the counted code, as callers do.

use gossip_contracts::coordination::{
    CursorUpdate, MAX_KEY_SIZE, MAX_METADATA_SIZE, ShardArena, ShardSpecRef,
};
use gossip_frontier::builder::{PreallocShardBuilder, PreallocShardBuilderError};
use gossip_frontier::*;
use gossip_testkit::{CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs `action`, asserts that it does not allocate, and returns its result.
#[track_caller]
fn without_allocating<R>(action: impl FnOnce() -> R) -> R {
    let (result, counts) = count_allocations(action);
    assert_eq!((counts.allocations, counts.bytes), (0, 0));
    result
}

const HINTS: [ShardHint<'static>; 3] = [
    ShardHint::Range,
    ShardHint::Prefix { prefix: b"logs/" },
    ShardHint::Manifest { manifest_id: 7, start_row: 10, end_row: 20 },
];

/// Returns short keys and keys of maximum length, so that an allocation for long ones would be
/// counted.
fn keys() -> [(Vec<u8>, Vec<u8>); 3] {
    [16, 200, MAX_KEY_SIZE].map(|len| (vec![b'a'; len], vec![b'c'; len]))
}

#[test]
fn the_counter_counts_allocations() {
    let (_, counts) = count_allocations(|| std::hint::black_box(vec![1_u8; 100]));
    assert_eq!((counts.allocations, counts.bytes), (1, 100));
}

#[test]
fn key_encoding_encode_into_allocates_nothing() {
    let path = "p".repeat(MAX_KEY_SIZE);
    let mut buf = KeyBuf::new();
    without_allocating(|| {
        PathKey::new(&path).encode_into(&mut buf);
        ManifestRowKey::new(7, 9).encode_into(&mut buf);
        U64Key(7).encode_into(&mut buf);
        I64Key(-7).encode_into(&mut buf);
        PairKey(U64Key(7), I64Key(-7)).encode_into(&mut buf);
    });
    let decoded = without_allocating(|| PairKey::<U64Key, I64Key>::decode(buf.as_bytes()));
    assert_eq!(decoded, Some(PairKey(U64Key(7), I64Key(-7))));
}

#[test]
fn decode_manifest_row_key_allocates_nothing() {
    let key = ManifestRowKey::new(7, 9);
    let mut buf = KeyBuf::new();
    key.encode_into(&mut buf);
    let bytes = buf.as_bytes();
    assert_eq!(without_allocating(|| decode_manifest_row_key(bytes)), Some(key));
    assert_eq!(without_allocating(|| decode_manifest_row_key(&bytes[1..])), None);
}

#[test]
fn prefix_successor_allocates_nothing() {
    let mut buf = KeyBuf::new();
    for (key, _) in keys() {
        assert!(without_allocating(|| prefix_successor(&key, &mut buf)).is_some());
    }
    assert!(without_allocating(|| prefix_successor(b"\xFF", &mut buf)).is_none());
}

#[test]
fn key_successor_allocates_nothing() {
    let mut buf = KeyBuf::new();
    for (key, _) in keys() {
        assert!(without_allocating(|| key_successor(&key, &mut buf)).is_some());
    }
    assert!(without_allocating(|| key_successor(&[0xFF; MAX_KEY_SIZE], &mut buf)).is_none());
}

#[test]
fn byte_midpoint_allocates_nothing() {
    let mut buf = KeyBuf::new();
    for (a, b) in keys() {
        assert!(without_allocating(|| byte_midpoint(&a, &b, &mut buf)).is_some());
    }
    // With a carry, by the successor, and without a result.
    assert!(without_allocating(|| byte_midpoint(b"\xF0", b"\xFF", &mut buf)).is_some());
    assert!(without_allocating(|| byte_midpoint(b"a", b"b", &mut buf)).is_some());
    assert!(without_allocating(|| byte_midpoint(b"a", b"a\0", &mut buf)).is_none());
}

#[test]
fn shard_hint_encode_into_and_decode_allocate_nothing() {
    let mut buf = MetadataBuf::new();
    for hint in HINTS {
        let bytes = without_allocating(|| hint.encode_into(&mut buf)).unwrap();
        assert_eq!(without_allocating(|| ShardHint::decode(bytes)), Ok((hint, bytes.len())));
    }
    assert!(without_allocating(|| ShardHint::decode(b"\x01\xFF\xFF\xFF\xFF")).is_err());
}

#[test]
fn decode_hint_allocates_nothing() {
    for_each_spec(|spec, hint| assert_eq!(without_allocating(|| decode_hint(spec)), Ok(hint)));
}

#[test]
fn decode_metadata_allocates_nothing() {
    for_each_spec(|spec, hint| {
        let metadata = without_allocating(|| decode_metadata(spec));
        assert_eq!(metadata, Ok(ShardMetadata::new(hint, b"extra")));
    });
    let malformed = ShardSpecRef::new(b"a", b"b", b"\0\0\0\x09\0");
    assert!(without_allocating(|| decode_metadata(malformed)).is_err());
}

#[test]
fn decode_connector_extra_allocates_nothing() {
    for_each_spec(|spec, _| {
        let extra = without_allocating(|| decode_connector_extra(spec));
        assert_eq!(extra, Ok(&b"extra"[..]));
    });
}

/// Counts the encoding of each metadata as well.
fn for_each_spec(check: impl Fn(ShardSpecRef<'_>, ShardHint<'static>)) {
    let mut buf = MetadataBuf::new();
    for hint in HINTS {
        let metadata = ShardMetadata::new(hint, b"extra");
        let bytes =
            without_allocating(|| metadata.encode_into(&mut buf)).expect("the metadata fits");
        check(ShardSpecRef::new(b"a", b"b", bytes), hint);
    }
}

#[test]
fn shard_constructors_allocate_nothing() {
    let mut scratch = ShardSpecScratch::new();
    let mut arena = ShardArena::with_capacity(16, 4096);
    let (mut start, mut end) = (KeyBuf::new(), KeyBuf::new());
    without_allocating(|| {
        let (from, to) = (PathKey::new("a"), PathKey::new("b"));
        shard_spec_from_keys_into(&from, &to, b"", &mut start, &mut end, &mut arena).unwrap();
        shard_spec_from_prefix_into(b"p", b"", &mut end, &mut arena).unwrap();
        shard_spec_from_manifest_range_into(7, 1, 2, b"", &mut start, &mut end, &mut arena)
            .unwrap();
        range_shard_into(b"a", b"b", b"extra", &mut scratch, &mut arena).unwrap();
        prefix_shard_into(b"p", b"extra", &mut scratch, &mut arena).unwrap();
        manifest_shard_into(7, 1, 2, b"extra", &mut scratch, &mut arena).unwrap();
    });
    assert_eq!(arena.live_specs(), 6);
}

#[test]
fn propagate_hint_on_split_allocates_nothing() {
    let (mut from, mut to) = (KeyBuf::new(), KeyBuf::new());
    ManifestRowKey::new(7, 12).encode_into(&mut from);
    ManifestRowKey::new(7, 15).encode_into(&mut to);
    let [range, prefix, manifest] = HINTS;
    without_allocating(|| propagate_hint_on_split(range, b"a", b"b")).unwrap();
    without_allocating(|| propagate_hint_on_split(prefix, b"logs/a", b"logs/b")).unwrap();
    without_allocating(|| propagate_hint_on_split(manifest, from.as_bytes(), to.as_bytes()))
        .unwrap();
}

#[test]
fn staging_allocates_nothing() {
    let mut arena = ShardArena::with_capacity(64, 64 * 1024);
    let spec = ShardSpecRef::new(b"x", b"y", b"metadata");
    let handle = arena.alloc_spec(spec).expect("the arena is empty");
    without_allocating(|| {
        let mut builder = PreallocShardBuilder::<64>::new(&mut arena, 64).unwrap();
        builder.add_range(b"a", b"b", b"extra").unwrap();
        builder.add_prefix(b"p", b"extra").unwrap();
        builder.add_manifest(7, 100, 200, b"extra").unwrap();
        builder.add_spec_ref(spec).unwrap();
        builder.add_spec_handle(handle).unwrap();
        builder.split_range_by_boundaries(b"t", &[b"u", b"v"], b"w", b"").unwrap();
        builder.split_manifest_by_rows(7, 0, 100, 10, b"").unwrap();
        builder.reset();
    });
}

#[test]
fn staging_with_cursors_allocates_nothing() {
    let mut row = KeyBuf::new();
    ManifestRowKey::new(7, 12).encode_into(&mut row);
    let mut arena = ShardArena::with_capacity(8, 16 * 1024);
    let spec = ShardSpecRef::new(b"x", b"y", b"metadata");
    let handle = arena.alloc_spec(spec).expect("the arena is empty");
    let cursor = |key| CursorUpdate::new(key, b"token");
    without_allocating(|| {
        let mut builder = PreallocShardBuilder::<8>::new(&mut arena, 8).unwrap();
        builder.add_range_with_cursor(b"a", b"b", b"extra", cursor(b"aa")).unwrap();
        builder.add_prefix_with_cursor(b"p", b"extra", cursor(b"pp")).unwrap();
        builder.add_manifest_with_cursor(7, 10, 20, b"extra", cursor(row.as_bytes())).unwrap();
        builder
            .add_spec_ref_with_cursor(ShardSpecRef::new(b"t", b"u", b""), cursor(b"tt"))
            .unwrap();
        builder.add_spec_handle_with_cursor(handle, cursor(b"xx")).unwrap();
        assert_eq!(builder.len(), 5);
    });
}

#[test]
fn failed_staging_allocates_nothing() {
    let long = vec![b'k'; MAX_KEY_SIZE + 1];
    let extra = vec![0; MAX_METADATA_SIZE];
    let mut arena = ShardArena::with_capacity(4, 16 * 1024);
    let stale = arena.alloc_spec(ShardSpecRef::new(b"x", b"y", b"")).unwrap();
    arena.free_spec(stale);
    without_allocating(|| {
        assert!(PreallocShardBuilder::<4>::new(&mut arena, 5).is_err());
        let mut builder = PreallocShardBuilder::<4>::new(&mut arena, 4).unwrap();
        assert!(builder.add_range(b"b", b"a", b"").is_err());
        assert!(builder.add_range(b"a", &long, b"").is_err());
        assert!(builder.add_range(b"a", b"b", &extra).is_err());
        assert!(builder.add_prefix(b"\xFF", b"").is_err());
        assert!(builder.add_manifest(7, 2, 1, b"").is_err());
        let inverted = ShardSpecRef::new(b"b", b"a", b"");
        assert!(builder.add_spec_ref(inverted).is_err());
        assert!(builder.add_spec_handle(stale).is_err());
        let points: [&[u8]; 2] = [b"u", b"t"];
        assert!(builder.split_range_by_boundaries(b"a", &points, b"z", b"").is_err());
        assert!(builder.split_manifest_by_rows(7, 0, 5, 1, b"").is_err());
        assert!(builder.split_manifest_by_rows(7, 0, 999, 1, b"").is_err());
        assert!(builder.is_empty());
    });
}

#[test]
fn a_split_that_is_rolled_back_allocates_nothing() {
    // Two slots for three children: the arena rejects the third, not an earlier check.
    let mut arena = ShardArena::with_capacity(2, 16 * 1024);
    let mut builder = PreallocShardBuilder::<4>::new(&mut arena, 4).unwrap();
    let points: [&[u8]; 2] = [b"c", b"d"];
    let refused =
        without_allocating(|| builder.split_range_by_boundaries(b"b", &points, b"e", b""));
    assert!(matches!(refused, Err(PreallocShardBuilderError::SlabFull(_))));
    assert!(builder.is_empty());
    // The slots it had taken are free again.
    let staged =
        without_allocating(|| builder.split_range_by_boundaries(b"b", &points[..1], b"e", b""));
    assert_eq!(staged, Ok(2));
}

#[test]
fn split_points_allocates_nothing() {
    let mut bufs = vec![KeyBuf::new(); SPLIT_POINTS_MAX];
    let mut check = |start: &[u8], end: &[u8], expected: usize| {
        let range = KeyRange::try_new(start, end).unwrap();
        let points = without_allocating(|| split_points(range, 256, &mut bufs)).unwrap();
        assert_eq!(points.len(), expected);
    };
    for (start, end) in keys() {
        check(&start, &end, SPLIT_POINTS_MAX);
    }
    // By counting keys, and without keys to count.
    check(b"a", b"a\0\0\0\0", 3);
    check(b"a", b"a\0", 0);
}

#[test]
fn split_points_by_density_allocates_nothing() {
    // In reverse and with repetitions, so that there is something to sort.
    let keys: Vec<Vec<u8>> = (0..5000_u32).rev().map(|i| (i / 3).to_be_bytes().to_vec()).collect();
    let mut sample: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let range = KeyRange::WIDEST_UTF8;
    let points = without_allocating(|| split_points_by_density(range, 256, &mut sample)).unwrap();
    assert_eq!(points.len(), SPLIT_POINTS_MAX);
}
