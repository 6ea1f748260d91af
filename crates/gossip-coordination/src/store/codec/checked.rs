//! A per-thread cache of values whose checksum was verified.
//!
//! A handle reads the head of its run with every claim, and often reads records that have not
//! changed since its last read. Equal bytes under an equal key have an equal checksum, and
//! comparing them costs a tenth of hashing them. So each thread keeps a few verified values; only
//! values that this thread hashed are trusted.
//!
//! Values that a thread sealed were hashed, too. A process rarely reads those back, because it
//! caches its own writes; a simulator thread, which runs many processes, reads values that another
//! of them wrote, and only it keeps sealed values ([`make_room`]).
//!
//! # Invariants
//! - A value is cached whole, and only under the key with which its checksum was computed.
//! - At most [`SLOTS`] values of [`VALUE_LEN_MAX`] bytes are kept; a newer value replaces an older
//!   one in its slot.
//! - Each thread allocates all slots once, with its first value. [`make_room`] allocates more for a
//!   thread that runs many processes.

use std::cell::RefCell;

use crate::store::key::Key;

/// Slots per thread: enough for the shards of one process's workers and a few heads of runs. A
/// power of two, so that a slot is selected by bits of the checksum.
const SLOTS: usize = 128;

/// Maximum processes per thread: a slot is selected by sixteen bits.
const PROCESSES_MAX: usize = 1 << 16 >> SLOTS.ilog2();

/// Maximum length of a cached value, so that a thread uses 128 KiB. Heads of runs, and shards with
/// keys of usual length, take a few hundred bytes.
pub(super) const VALUE_LEN_MAX: usize = 1024;

const _: () = assert!(SLOTS.is_power_of_two());

thread_local! {
    static CHECKED: RefCell<Checked> = const { RefCell::new(Checked { slots: Vec::new() }) };
}

/// Returns whether `value` is cached under `key`.
pub(super) fn is_known(key: &Key, value: &[u8]) -> bool {
    CHECKED.with_borrow(|checked| {
        let slot = checked.slots.get(place(value, checked.slots.len()));
        // The bytes are compared in full: the slot is chosen by few bits, so collisions are common.
        slot.is_some_and(|slot| slot.value() == value && slot.key == *key)
    })
}

/// Records that the checksum of `value` is correct under `key`.
pub(super) fn remember(key: &Key, value: &[u8]) {
    // Large values are rare; caching them would multiply the memory of every thread.
    if value.len() > VALUE_LEN_MAX {
        return;
    }
    CHECKED.with_borrow_mut(|checked| {
        if checked.slots.is_empty() {
            checked.slots = vec![Slot::EMPTY; SLOTS];
        }
        let place = place(value, checked.slots.len());
        let slot = &mut checked.slots[place];
        (slot.key, slot.len) = (*key, value.len());
        slot.bytes[..value.len()].copy_from_slice(value);
    });
}

/// As [`remember`], for a value that this thread sealed.
pub(super) fn remember_sealed(key: &Key, value: &[u8]) {
    // Only an enlarged cache profits; in a worker, sealed values would evict verified ones.
    if CHECKED.with_borrow(|checked| checked.slots.len() > SLOTS) {
        remember(key, value);
    }
}

/// Enlarges this thread's cache to hold the values of `processes` processes.
///
/// For simulators, which run many processes in one thread.
pub fn make_room(processes: usize) {
    let count = SLOTS * processes.clamp(1, PROCESSES_MAX).next_power_of_two();
    CHECKED.with_borrow_mut(|checked| {
        if checked.slots.len() < count {
            checked.slots = vec![Slot::EMPTY; count];
        }
    });
}

/// The cache of one thread.
struct Checked {
    /// Empty until the first value, then [`SLOTS`] or more; a power of two.
    slots: Vec<Slot>,
}

/// A verified value and its key.
#[derive(Clone)]
struct Slot {
    key: Key,
    /// At most [`VALUE_LEN_MAX`]; zero for an empty slot, because every value has a frame.
    len: usize,
    bytes: [u8; VALUE_LEN_MAX],
}

impl Slot {
    const EMPTY: Self = Self { key: Key::SchemaVersion, len: 0, bytes: [0; VALUE_LEN_MAX] };

    fn value(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the slot of `value`, selected by its last bytes, which belong to its checksum.
fn place(value: &[u8], slots: usize) -> usize {
    let last = value.last_chunk().map_or(0, |last| usize::from(u16::from_be_bytes(*last)));
    last & slots.saturating_sub(1)
}
