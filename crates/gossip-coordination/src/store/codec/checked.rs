//! Values whose checksum was right a moment ago.
//!
//! A handle reads the head of its run with every claim, and records that nobody has written since
//! it last looked at them. Equal bytes under an equal key have an equal checksum, and
//! to compare them costs a tenth of hashing them. So each thread keeps a few values that it has
//! hashed; nothing is believed here that this thread did not hash.
//!
//! What a thread sealed itself was hashed, too. A process hardly ever reads that back, because it
//! remembers what it wrote; a thread that plays many processes reads what another of them wrote,
//! and only it keeps those values ([`make_room`]).
//!
//! # Invariants
//! - A value is remembered only under the key with which its checksum was computed, whole.
//! - At most [`SLOTS`] values of [`VALUE_LEN_MAX`] bytes are kept; the newest takes the place.
//! - Room for all of them is made once for each thread, with its first value; nothing else
//!   allocates. A thread that plays many processes is given room for as many ([`make_room`]).

use std::cell::RefCell;

use crate::store::key::Key;

/// Values that a thread keeps: what the workers of one process hold, and a few heads of runs. A
/// power of two, so that a place is some bits of a checksum.
const SLOTS: usize = 128;

/// Processes that one thread is given room for, at most: a place is found by sixteen bits.
const PROCESSES_MAX: usize = 1 << 16 >> SLOTS.ilog2();

/// The longest value kept, so that a thread gives an eighth of a mebibyte. Heads of runs, and
/// shards with keys of usual length, are a few hundred bytes long.
pub(super) const VALUE_LEN_MAX: usize = 1024;

const _: () = assert!(SLOTS.is_power_of_two());

thread_local! {
    static CHECKED: RefCell<Checked> = const { RefCell::new(Checked { slots: Vec::new() }) };
}

/// Whether `value` was remembered under `key`.
pub(super) fn is_known(key: &Key, value: &[u8]) -> bool {
    CHECKED.with_borrow(|checked| {
        let slot = checked.slots.get(place(value, checked.slots.len()));
        slot.is_some_and(|slot| slot.value() == value && slot.key == *key)
    })
}

/// Remembers that the checksum of `value` is right under `key`.
pub(super) fn remember(key: &Key, value: &[u8]) {
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

/// As [`remember`] for a value that this thread sealed.
pub(super) fn remember_sealed(key: &Key, value: &[u8]) {
    if CHECKED.with_borrow(|checked| checked.slots.len() > SLOTS) {
        remember(key, value);
    }
}

/// Enlarges the cache of verified values of this thread to that of so many processes.
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

/// The memory of one thread.
struct Checked {
    /// None until something is remembered, then [`SLOTS`] or more; a power of two.
    slots: Vec<Slot>,
}

/// A value that was hashed, and its key.
#[derive(Clone)]
struct Slot {
    key: Key,
    /// At most [`VALUE_LEN_MAX`]; zero for nothing, because every value has a frame.
    len: usize,
    bytes: [u8; VALUE_LEN_MAX],
}

impl Slot {
    const EMPTY: Self = Self { key: Key::SchemaVersion, len: 0, bytes: [0; VALUE_LEN_MAX] };

    fn value(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Where `value` is kept among `slots` if it is: by its last bytes, which are of its checksum.
fn place(value: &[u8], slots: usize) -> usize {
    let last = value.last_chunk().map_or(0, |last| usize::from(u16::from_be_bytes(*last)));
    last & slots.saturating_sub(1)
}
