//! The slab and malloc behind one interface, and the work that both perform.

use std::hint::black_box;

use gossip_stdx::{ByteSlab, ByteSlot};

/// Maximum length of a stored string, typical of cursor keys and range ends. Rounding to a block
/// less than doubles it.
pub(crate) const LEN_MAX: usize = 120;

/// A fixed pseudo-random sequence, so that every run and both allocators do the same work.
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as usize) % bound
    }

    fn len(&mut self) -> usize {
        1 + self.below(LEN_MAX)
    }
}

/// The operations that both allocators have in common.
pub(crate) trait Store {
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
        self.allocate(bytes).expect("the slab is large enough")
    }

    fn free(&mut self, slot: ByteSlot) {
        self.deallocate(slot);
    }

    fn replace(&mut self, slot: &mut ByteSlot, bytes: &[u8]) {
        *slot = Self::replace(self, *slot, bytes).expect("the slab is large enough");
    }
}

pub(crate) struct Malloc;

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

/// Returns `live` strings in a store that has performed two replacements for each of them.
pub(crate) fn aged<S: Store>(live: usize, sequence: &mut Sequence) -> (S, Vec<S::Handle>) {
    let bytes = [1; LEN_MAX];
    let mut store = S::with_room_for(live);
    let mut handles: Vec<_> = (0..live).map(|_| store.store(&bytes[..sequence.len()])).collect();
    for _ in 0..2 * live {
        churn(&mut store, &mut handles, sequence, &bytes);
    }
    (store, handles)
}

/// Frees a random string and stores one of another length.
pub(crate) fn churn<S: Store>(
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

/// Stores a string and frees it again.
pub(crate) fn once<S: Store>(store: &mut S, bytes: &[u8]) {
    let handle = store.store(black_box(bytes));
    store.free(black_box(handle));
}

/// Overwrites a random string by one that fits its block.
pub(crate) fn replace<S: Store>(
    store: &mut S,
    handles: &mut [S::Handle],
    sequence: &mut Sequence,
    bytes: &[u8],
) {
    let index = sequence.below(handles.len());
    store.replace(&mut handles[index], black_box(&bytes[..40]));
}
