//! The ring next to its baseline, [`VecDeque`]: the same operations in the same run.

#[path = "support/rings.rs"]
mod rings;

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use gossip_stdx::RingBuffer;
use rings::{CAP, ENTRY, Entry};

fn push_and_pop(c: &mut Criterion) {
    let mut group = c.benchmark_group("push 16, pop 16");
    let mut ring = RingBuffer::<Entry, CAP>::new();
    group.bench_function("ring", |b| {
        b.iter(|| rings::fill_and_empty_ring(&mut ring));
    });
    let mut deque = VecDeque::with_capacity(CAP);
    group.bench_function("deque", |b| {
        b.iter(|| rings::fill_and_empty_deque(&mut deque));
    });
}

fn overwrite(c: &mut Criterion) {
    let mut group = c.benchmark_group("overwrite the oldest of 16");
    let mut ring = rings::full_ring();
    group.bench_function("ring", |b| {
        b.iter(|| ring.push_back_overwrite(black_box(ENTRY)));
    });
    let mut deque = rings::full_deque();
    group.bench_function("deque", |b| {
        b.iter(|| rings::overwrite(&mut deque, black_box(ENTRY)));
    });
}

fn iterate(c: &mut Criterion) {
    let mut group = c.benchmark_group("find the newest of 16");
    let (ring, deque) = (rings::full_ring(), rings::full_deque());
    group.bench_function("ring", |b| {
        b.iter(|| rings::find(black_box(&ring).iter()));
    });
    group.bench_function("deque", |b| {
        b.iter(|| rings::find(black_box(&deque).iter()));
    });
}

criterion_group! {
    name = benches;
    // Short: differences of 10 % are visible, and a whole run takes ten seconds.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = push_and_pop, overwrite, iterate
}
criterion_main!(benches);
