//! Cost of range arithmetic, hints and split planning.
//!
//! Run with `cargo bench -p gossip-frontier`. Deliberately short: differences of a few per cent are
//! noise.

#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]

#[path = "support/inputs.rs"]
mod inputs;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gossip_contracts::coordination::ShardSpecRef;
use gossip_frontier::{
    KeyBuf, KeyEncoding, KeyRange, ManifestRowKey, MetadataBuf, ShardHint, ShardMetadata,
    ShardSpecScratch, byte_midpoint, decode_metadata, key_successor, manifest_shard_ref,
    prefix_successor, propagate_hint_on_split, split_points, split_points_by_density,
};
use inputs::{EXTRA, HINTS, KEY_LENS, bounds, pair, sample_keys};

fn key_arithmetic(c: &mut Criterion) {
    let mut group = c.benchmark_group("keys");
    let mut buf = KeyBuf::new();
    for len in KEY_LENS {
        let (a, b) = pair(len);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::new("prefix_successor", len), |bench| {
            bench.iter(|| prefix_successor(black_box(&a), &mut buf).map(<[u8]>::len));
        });
        group.bench_function(BenchmarkId::new("key_successor", len), |bench| {
            bench.iter(|| key_successor(black_box(&a), &mut buf).map(<[u8]>::len));
        });
        group.bench_function(BenchmarkId::new("byte_midpoint", len), |bench| {
            bench.iter(|| byte_midpoint(black_box(&a), black_box(&b), &mut buf).map(<[u8]>::len));
        });
    }
    group.finish();
    c.bench_function("keys/manifest_row_key_encode", |bench| {
        bench.iter(|| ManifestRowKey::new(black_box(7), black_box(9)).encode_into(&mut buf));
    });
}

fn hints(c: &mut Criterion) {
    let mut group = c.benchmark_group("hints");
    for (name, hint) in HINTS {
        let mut buf = MetadataBuf::new();
        group.bench_function(BenchmarkId::new("encode_hint", name), |bench| {
            bench.iter(|| black_box(&hint).encode_into(&mut buf).map(<[u8]>::len));
        });
        let metadata = ShardMetadata::new(hint, &EXTRA);
        group.bench_function(BenchmarkId::new("encode", name), |bench| {
            bench.iter(|| {
                let encoded = black_box(&metadata).encode_into(&mut buf);
                encoded.map(<[u8]>::len)
            });
        });
        let bytes = metadata.encode_into(&mut buf).expect("the metadata fits");
        let spec = ShardSpecRef::new(b"a", b"b", bytes);
        group.bench_function(BenchmarkId::new("decode", name), |bench| {
            bench.iter(|| decode_metadata(black_box(spec)));
        });
    }
    let mut scratch = ShardSpecScratch::new();
    group.bench_function("manifest_shard_ref", |bench| {
        bench.iter(|| {
            let spec = manifest_shard_ref(black_box(7), 10, 20, b"extra", &mut scratch);
            spec.map(|spec| spec.metadata.len())
        });
    });
    group.bench_function("propagate_prefix", |bench| {
        let parent = ShardHint::Prefix { prefix: b"logs/" };
        bench.iter(|| propagate_hint_on_split(black_box(parent), b"logs/a", b"logs/m"));
    });
    group.finish();
}

fn split_planning(c: &mut Criterion) {
    let mut group = c.benchmark_group("split");
    let mut bufs = vec![KeyBuf::new(); 255];
    for len in KEY_LENS {
        let (start, end) = bounds(len);
        let range = KeyRange::try_new(&start, &end).expect("`a` lies before `z`");
        for parts in [16, 256] {
            let id = BenchmarkId::new(format!("even_{parts}"), len);
            group.bench_function(id, |bench| {
                bench.iter(|| split_points(black_box(range), parts, &mut bufs).map(|p| p.len()));
            });
        }
    }
    for (name, count) in [("1k", 1_000), ("100k", 100_000)] {
        let keys = sample_keys(count);
        let mut sample: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        for parts in [16, 256] {
            let id = BenchmarkId::new(format!("density_sorted_{name}"), parts);
            group.bench_function(id, |bench| {
                let range = KeyRange::WIDEST_UTF8;
                bench.iter(|| split_points_by_density(range, parts, &mut sample).map(|p| p.len()));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .sample_size(30);
    targets = key_arithmetic, hints, split_planning
}
criterion_main!(benches);
