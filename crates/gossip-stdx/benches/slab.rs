//! The slab beside malloc, its limit: the same operations, sizes and order, in the same run.
//!
//! - `churn`: free a random string and store one of another size, in a slab that long use has
//!   fragmented; at a million strings every step misses the caches.
//! - `once`: store one string and free it again while all others stay.
//! - `replace`: overwrite a random string by one that fits its block, as a checkpoint does.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gossip_stdx::{ByteSlab, ByteSlot};

/// Few records, all in the first cache; and a million, mostly in main memory.
const LIVE: [usize; 2] = [1_000, 1_000_000];

/// Cursor keys and range ends are of this length, and so shorter than twice it when rounded.
const LEN_MAX: u32 = 120;

/// A fixed sequence, so that every run and both allocators see the same work.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.0 >> 33) as usize) % bound
    }

    fn len(&mut self) -> usize {
        1 + self.below(LEN_MAX as usize)
    }
}

/// The little both allocators have in common.
trait Store {
    type Handle;
    fn with_room_for(live: usize) -> Self;
    fn store(&mut self, bytes: &[u8]) -> Self::Handle;
    fn free(&mut self, handle: Self::Handle);
    fn replace(&mut self, handle: &mut Self::Handle, bytes: &[u8]);
}

impl Store for ByteSlab {
    type Handle = ByteSlot;

    fn with_room_for(live: usize) -> Self {
        Self::new(live * 160)
    }

    fn store(&mut self, bytes: &[u8]) -> ByteSlot {
        self.allocate(bytes)
            .expect("the slab was made large enough")
    }

    fn free(&mut self, slot: ByteSlot) {
        self.deallocate(slot);
    }

    fn replace(&mut self, slot: &mut ByteSlot, bytes: &[u8]) {
        *slot = Self::replace(self, *slot, bytes).expect("the slab was made large enough");
    }
}

struct Malloc;

impl Store for Malloc {
    type Handle = Vec<u8>;

    fn with_room_for(_live: usize) -> Self {
        Self
    }

    fn store(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    fn free(&mut self, bytes: Vec<u8>) {
        drop(bytes);
    }

    fn replace(&mut self, stored: &mut Vec<u8>, bytes: &[u8]) {
        stored.clear();
        stored.extend_from_slice(bytes);
    }
}

/// `live` strings in a store that has seen two replacements for each of them.
fn aged<S: Store>(live: usize, sequence: &mut Sequence) -> (S, Vec<S::Handle>) {
    let bytes = [1; LEN_MAX as usize];
    let mut store = S::with_room_for(live);
    let mut handles: Vec<_> = (0..live)
        .map(|_| store.store(&bytes[..sequence.len()]))
        .collect();
    for _ in 0..2 * live {
        churn(&mut store, &mut handles, sequence, &bytes);
    }
    (store, handles)
}

fn churn<S: Store>(
    store: &mut S,
    handles: &mut Vec<S::Handle>,
    sequence: &mut Sequence,
    bytes: &[u8],
) {
    let index = sequence.below(handles.len());
    let freed = handles.swap_remove(index);
    store.free(freed);
    handles.push(store.store(&bytes[..sequence.len()]));
}

fn bench_store<S: Store>(c: &mut Criterion, name: &str) {
    let bytes = [2; LEN_MAX as usize];
    for live in LIVE {
        let mut sequence = Sequence(live as u64);
        let (mut store, mut handles) = aged::<S>(live, &mut sequence);
        let mut run = |group: &str, action: &mut dyn FnMut(&mut S, &mut Vec<S::Handle>)| {
            c.bench_with_input(
                BenchmarkId::new(format!("{group}/{name}"), live),
                &live,
                |b, _| {
                    b.iter(|| action(&mut store, &mut handles));
                },
            );
        };
        run("churn", &mut |store, handles| {
            churn(store, handles, &mut sequence, &bytes);
        });
        run("once", &mut |store, _| {
            let handle = store.store(black_box(&bytes));
            store.free(black_box(handle));
        });
        run("replace", &mut |store, handles| {
            let index = sequence.below(handles.len());
            store.replace(&mut handles[index], black_box(&bytes[..40]));
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
    // Short: differences of a tenth show, and a whole run takes half a minute.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = slab_beside_malloc
}
criterion_main!(benches);
