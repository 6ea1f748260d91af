//! The ring beside [`VecDeque`], its limit: the same operations in the same run.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use gossip_stdx::RingBuffer;

/// As many as an op-log holds.
const CAP: usize = 16;

/// As large as an op-log entry: id, kind, hash and time.
type Entry = [u64; 4];

const ENTRY: Entry = [1, 2, 3, 4];

fn push_and_pop(c: &mut Criterion) {
    let mut group = c.benchmark_group("push 16, pop 16");
    let mut ring = RingBuffer::<Entry, CAP>::new();
    group.bench_function("ring", |b| {
        b.iter(|| {
            for _ in 0..CAP {
                let _ = black_box(ring.push_back(black_box(ENTRY)));
            }
            while let Some(entry) = ring.pop_front() {
                black_box(entry);
            }
        });
    });
    let mut deque = VecDeque::<Entry>::with_capacity(CAP);
    group.bench_function("deque", |b| {
        b.iter(|| {
            for _ in 0..CAP {
                deque.push_back(black_box(ENTRY));
            }
            while let Some(entry) = deque.pop_front() {
                black_box(entry);
            }
        });
    });
}

fn overwrite(c: &mut Criterion) {
    let mut group = c.benchmark_group("overwrite the oldest of 16");
    let mut ring: RingBuffer<Entry, CAP> = [ENTRY; CAP].into_iter().collect();
    group.bench_function("ring", |b| {
        b.iter(|| ring.push_back_overwrite(black_box(ENTRY)));
    });
    let mut deque = VecDeque::from([ENTRY; CAP]);
    group.bench_function("deque", |b| {
        b.iter(|| {
            let evicted = if deque.len() == CAP {
                deque.pop_front()
            } else {
                None
            };
            deque.push_back(black_box(ENTRY));
            evicted
        });
    });
}

fn iterate(c: &mut Criterion) {
    let mut group = c.benchmark_group("find the newest of 16");
    // Turned by half, so that both wrap.
    let mut ring: RingBuffer<Entry, CAP> = [ENTRY; CAP].into_iter().collect();
    let mut deque = VecDeque::from([ENTRY; CAP]);
    for number in 0..CAP as u64 / 2 {
        ring.push_back_overwrite([number; 4]);
        deque.pop_front();
        deque.push_back([number; 4]);
    }
    let wanted = CAP as u64 / 2 - 1;
    group.bench_function("ring", |b| {
        b.iter(|| {
            black_box(&ring)
                .iter()
                .find(|entry| entry[0] == black_box(wanted))
        });
    });
    group.bench_function("deque", |b| {
        b.iter(|| {
            black_box(&deque)
                .iter()
                .find(|entry| entry[0] == black_box(wanted))
        });
    });
}

criterion_group! {
    name = benches;
    // Short: differences of a tenth show, and a whole run takes ten seconds.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = push_and_pop, overwrite, iterate
}
criterion_main!(benches);
