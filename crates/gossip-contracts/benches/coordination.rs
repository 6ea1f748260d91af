//! Cost of the coordination contracts.
//!
//! Compare within one run only. `bare sort` is the lower bound of a validation of 10,000 rows in
//! any order: one sort of that many keys.

#[path = "support/splits.rs"]
mod splits;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, PooledCursor,
    plan_split_replace_at_points_initial_cursor, plan_split_residual_at_point, validate_manifest,
    validate_split_coverage,
};
use gossip_contracts::identity::ShardId;
use gossip_stdx::ByteSlab;
use splits::{children, keys, parent, points, shuffled};

fn split_planning(c: &mut Criterion) {
    let mut group = c.benchmark_group("split");
    for count in [2, 16, 256] {
        let keys = keys(count + 1);
        let (parent, points) = (parent(&keys), points(&keys));
        group.bench_function(format!("plan replace, {count} children"), |b| {
            b.iter(|| plan_split_replace_at_points_initial_cursor(parent, black_box(&points)));
        });
        let specs = children(&keys);
        group.bench_function(format!("coverage, {count} children in order"), |b| {
            b.iter(|| validate_split_coverage(parent, black_box(&specs)));
        });
        let specs = shuffled(&specs);
        group.bench_function(format!("coverage, {count} children shuffled"), |b| {
            b.iter(|| validate_split_coverage(parent, black_box(&specs)));
        });
    }
    let keys = keys(3);
    let parent = parent(&keys);
    group.bench_function("plan residual", |b| {
        b.iter(|| plan_split_residual_at_point(black_box(parent), &keys[1]));
    });
}

fn manifest(c: &mut Criterion) {
    let keys = keys(MAX_INITIAL_SHARDS + 1);
    let specs = children(&keys);
    let row = |index: usize| InitialShardInput {
        shard_id: ShardId::from_raw(index as u64),
        spec: specs[index],
        cursor: CursorUpdate::initial(),
    };
    let rows: Vec<_> = (0..MAX_INITIAL_SHARDS).map(row).collect();
    let mixed = shuffled(&rows);
    let starts: Vec<&[u8]> = mixed.iter().map(|row| row.spec.start).collect();
    let mut group = c.benchmark_group("manifest");
    group.bench_function("bare sort of 10,000 keys, shuffled", |b| {
        b.iter_batched(|| starts.clone(), |mut keys| keys.sort_unstable(), BatchSize::LargeInput);
    });
    group.bench_function("10,000 rows in order", |b| {
        b.iter(|| validate_manifest(black_box(&rows)));
    });
    group.bench_function("10,000 rows shuffled", |b| {
        b.iter(|| validate_manifest(black_box(&mixed)));
    });
}

fn pooled_cursor(c: &mut Criterion) {
    let keys = keys(1024);
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

criterion_group! {
    name = benches;
    // Short: differences of 10 % are visible, and a whole run takes half a minute.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = split_planning, manifest, pooled_cursor
}
criterion_main!(benches);
