//! The slab next to its baseline, malloc: the same operations, sizes and order, in the same run.
//!
//! - `churn`: free a random string and store one of another length, in a slab fragmented by long
//!   use; at a million strings every step misses the caches.
//! - `once`: store one string and free it again while all others stay.
//! - `replace`: overwrite a random string by one that fits its block, as a checkpoint does.

#[path = "support/store.rs"]
mod store;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gossip_stdx::ByteSlab;
use store::{LEN_MAX, Malloc, Sequence, Store, aged, churn, once, replace};

/// Few records, all in the first-level cache; and a million, mostly in main memory.
const LIVE: [usize; 2] = [1_000, 1_000_000];

fn bench_store<S: Store>(c: &mut Criterion, name: &str) {
    let bytes = [2; LEN_MAX];
    for live in LIVE {
        let mut sequence = Sequence(live as u64);
        let (mut store, mut handles) = aged::<S>(live, &mut sequence);
        let mut run = |group: &str, action: &mut dyn FnMut(&mut S, &mut Vec<S::Handle>)| {
            c.bench_with_input(BenchmarkId::new(format!("{group}/{name}"), live), &live, |b, _| {
                b.iter(|| action(&mut store, &mut handles));
            });
        };
        run("churn", &mut |store, handles| {
            churn(store, handles, &mut sequence, &bytes);
        });
        run("once", &mut |store, _| once(store, &bytes));
        run("replace", &mut |store, handles| {
            replace(store, handles, &mut sequence, &bytes);
        });
        handles.into_iter().for_each(|handle| store.free(handle));
    }
}

fn slab_beside_malloc(c: &mut Criterion) {
    bench_store::<ByteSlab>(c, "slab");
    bench_store::<Malloc>(c, "malloc");
}

criterion_group! {
    name = benches;
    // Short: differences of 10 % are visible, and a whole run takes half a minute.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = slab_beside_malloc
}
criterion_main!(benches);
