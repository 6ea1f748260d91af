//! What the coordination contracts cost.
//!
//! Compare within one run only. `bare sort` is what no validation of 10,000 rows in any order can
//! avoid: sorting that many keys once.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, PooledCursor, ShardSpecRef,
    plan_split_replace_at_points_initial_cursor, plan_split_residual_at_point, validate_manifest,
    validate_split_coverage,
};
use gossip_contracts::identity::ShardId;
use gossip_stdx::ByteSlab;

/// Length of the keys: those of a usual path.
const KEY_LEN: usize = 40;

/// Keys that differ only near their end, like the files of one directory.
fn key(index: usize) -> [u8; KEY_LEN] {
    let mut key = [b'k'; KEY_LEN];
    key[KEY_LEN - 8..].copy_from_slice(&(index as u64).to_be_bytes());
    key
}

/// A permutation of `0..len` that looks random; 7919 is prime and divides no length used here.
fn shuffled<T: Copy>(items: &[T]) -> Vec<T> {
    (0..items.len())
        .map(|index| items[index * 7919 % items.len()])
        .collect()
}

fn spec_between(bounds: &[[u8; KEY_LEN]]) -> ShardSpecRef<'_> {
    ShardSpecRef::new(&bounds[0], &bounds[1], b"metadata")
}

fn split_planning(c: &mut Criterion) {
    let mut group = c.benchmark_group("split");
    for count in [2, 16, 256] {
        let keys: Vec<_> = (0..=count).map(key).collect();
        let points: Vec<&[u8]> = keys[1..count]
            .iter()
            .map(<[u8; KEY_LEN]>::as_slice)
            .collect();
        let parent = ShardSpecRef::new(&keys[0], &keys[count], b"metadata");
        group.bench_function(format!("plan replace, {count} children"), |b| {
            b.iter(|| plan_split_replace_at_points_initial_cursor(parent, black_box(&points)));
        });
        let specs: Vec<_> = keys.windows(2).map(spec_between).collect();
        group.bench_function(format!("coverage, {count} children in order"), |b| {
            b.iter(|| validate_split_coverage(parent, black_box(&specs)));
        });
        let specs = shuffled(&specs);
        group.bench_function(format!("coverage, {count} children shuffled"), |b| {
            b.iter(|| validate_split_coverage(parent, black_box(&specs)));
        });
    }
    let keys = [key(0), key(1), key(2)];
    let parent = ShardSpecRef::new(&keys[0], &keys[2], b"metadata");
    group.bench_function("plan residual", |b| {
        b.iter(|| plan_split_residual_at_point(black_box(parent), &keys[1]));
    });
}

fn manifest(c: &mut Criterion) {
    let keys: Vec<_> = (0..=MAX_INITIAL_SHARDS).map(key).collect();
    let row = |index: usize| InitialShardInput {
        shard_id: ShardId::from_raw(index as u64),
        spec: spec_between(&keys[index..]),
        cursor: CursorUpdate::initial(),
    };
    let rows: Vec<_> = (0..MAX_INITIAL_SHARDS).map(row).collect();
    let mixed = shuffled(&rows);
    let starts: Vec<&[u8]> = mixed.iter().map(|row| row.spec.start).collect();
    let mut group = c.benchmark_group("manifest");
    group.bench_function("bare sort of 10,000 keys, shuffled", |b| {
        b.iter_batched(
            || starts.clone(),
            |mut keys| keys.sort_unstable(),
            BatchSize::LargeInput,
        );
    });
    group.bench_function("10,000 rows in order", |b| {
        b.iter(|| validate_manifest(black_box(&rows)));
    });
    group.bench_function("10,000 rows shuffled", |b| {
        b.iter(|| validate_manifest(black_box(&mixed)));
    });
}

fn pooled_cursor(c: &mut Criterion) {
    let keys: Vec<_> = (0..1024).map(key).collect();
    let mut slab = ByteSlab::new(64 * 1024);
    let mut cursor = PooledCursor::initial();
    let mut next = 0;
    c.bench_function("pooled cursor update, key and token", |b| {
        b.iter(|| {
            next = (next + 1) % keys.len();
            cursor.update(CursorUpdate::new(&keys[next], b"page 1"), &mut slab)
        });
    });
    cursor.free(&mut slab);
}

criterion_group!(benches, split_planning, manifest, pooled_cursor);
criterion_main!(benches);
