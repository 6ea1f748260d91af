//! The ring and its baseline, [`VecDeque`], under the same operations.

use std::collections::VecDeque;
use std::hint::black_box;

use gossip_stdx::RingBuffer;

/// Number of entries in an op-log.
pub(crate) const CAP: usize = 16;

/// Size of an op-log entry: id, kind, hash and time.
pub(crate) type Entry = [u64; 4];

pub(crate) const ENTRY: Entry = [1, 2, 3, 4];

/// The entry to search for: the last of [`newest`].
const WANTED: u64 = CAP as u64 / 2 - 1;

/// Returns a full ring whose window wraps in the middle.
pub(crate) fn full_ring() -> RingBuffer<Entry, CAP> {
    let mut ring: RingBuffer<Entry, CAP> = [ENTRY; CAP].into_iter().collect();
    for entry in newest() {
        ring.push_back_overwrite(entry);
    }
    ring
}

/// Returns a deque with the same entries in the same positions.
pub(crate) fn full_deque() -> VecDeque<Entry> {
    let mut deque = VecDeque::from([ENTRY; CAP]);
    for entry in newest() {
        overwrite(&mut deque, entry);
    }
    deque
}

/// Does the same as [`RingBuffer::push_back_overwrite`].
pub(crate) fn overwrite(deque: &mut VecDeque<Entry>, entry: Entry) -> Option<Entry> {
    let evicted = if deque.len() == CAP { deque.pop_front() } else { None };
    deque.push_back(entry);
    evicted
}

/// Fills an empty ring and empties it.
pub(crate) fn fill_and_empty_ring(ring: &mut RingBuffer<Entry, CAP>) {
    for _ in 0..CAP {
        let _ = black_box(ring.push_back(black_box(ENTRY)));
    }
    while let Some(entry) = ring.pop_front() {
        black_box(entry);
    }
}

/// Fills an empty deque and empties it.
pub(crate) fn fill_and_empty_deque(deque: &mut VecDeque<Entry>) {
    for _ in 0..CAP {
        deque.push_back(black_box(ENTRY));
    }
    while let Some(entry) = deque.pop_front() {
        black_box(entry);
    }
}

/// Finds the newest entry, which comes last.
pub(crate) fn find<'a>(mut entries: impl Iterator<Item = &'a Entry>) -> Option<&'a Entry> {
    entries.find(|entry| entry[0] == black_box(WANTED))
}

fn newest() -> impl Iterator<Item = Entry> {
    (0..CAP as u64 / 2).map(|number| [number; 4])
}
