//! A first-in, first-out buffer of at most `N` items, stored inline.
//!
//! It never allocates, never grows and never reorders. An item that does not fit is returned
//! ([`RingBuffer::push_back`]) or replaces the oldest ([`RingBuffer::push_back_overwrite`]).
//! It is not synchronised; `Send` and `Sync` follow `T`.
//!
//! # Invariants
//!
//! - `head < N` and `len <= N`.
//! - The `len` slots from `head` on, wrapping at `N`, hold a value; the others hold none.
//! - A slot leaves that window *before* its value is returned or dropped, so a panic in a value's
//!   own code can leak values but never drop one twice.

use std::fmt;
use std::iter::FusedIterator;
use std::mem::MaybeUninit;
use std::slice;

/// A ring of at most `N` items; index 0 is the oldest.
///
/// `N` is a power of two, so that wrapping is one bit mask. An invalid `N` does not compile:
///
/// ```compile_fail
/// let _ = gossip_stdx::RingBuffer::<u8, 3>::new();
/// ```
///
/// A ring of items that are not `Send` or `Sync` is not either:
///
/// ```compile_fail,E0277
/// fn assert_send<T: Send>() {}
/// assert_send::<gossip_stdx::RingBuffer<std::rc::Rc<u8>, 4>>();
/// ```
///
/// ```compile_fail,E0277
/// fn assert_sync<T: Sync>() {}
/// assert_sync::<gossip_stdx::RingBuffer<std::cell::Cell<u8>, 4>>();
/// ```
///
/// ```
/// let mut recent = gossip_stdx::RingBuffer::<u32, 2>::new();
/// assert_eq!(recent.push_back(1), Ok(()));
/// assert_eq!(recent.push_back(2), Ok(()));
/// assert_eq!(recent.push_back(3), Err(3));
/// assert_eq!(recent.push_back_overwrite(3), Some(1));
/// assert!(recent.iter().eq(&[2, 3]));
/// ```
pub struct RingBuffer<T, const N: usize> {
    slots: [MaybeUninit<T>; N],
    /// Slot of the oldest item; always below `N`.
    head: u32,
    /// Number of slots in use from `head` on; never above `N`.
    len: u32,
}

impl<T, const N: usize> RingBuffer<T, N> {
    /// Maximum number of items. Naming the constant checks `N` at compile time.
    pub const CAPACITY: usize = {
        assert!(N > 0, "N must be 1 or more");
        assert!(N.is_power_of_two(), "N must be a power of two, because wrapping is a bit mask");
        // `head + index` is computed in u32 and both are below N.
        assert!(N <= (u32::MAX / 2) as usize, "N must leave room for head + index in a u32");
        N
    };

    const CAPACITY_U32: u32 = Self::CAPACITY as u32;

    /// Returns an empty ring.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(Self::CAPACITY == N) };
        Self { slots: [const { MaybeUninit::uninit() }; N], head: 0, len: 0 }
    }

    /// Collects `items` into a ring.
    ///
    /// # Errors
    ///
    /// Returns the first item that does not fit.
    pub fn try_from_iter(items: impl IntoIterator<Item = T>) -> Result<Self, T> {
        let mut ring = Self::new();
        for item in items {
            ring.push_back(item)?;
        }
        Ok(ring)
    }

    /// Appends `item` as the newest.
    ///
    /// # Errors
    ///
    /// Returns `item` if the ring is full.
    pub fn push_back(&mut self, item: T) -> Result<(), T> {
        if self.is_full() {
            return Err(item);
        }
        let slot = self.slot_of(self.len);
        self.slots[slot].write(item);
        self.len += 1;
        Ok(())
    }

    /// Appends `item` as the newest; if the ring is full, removes the oldest and returns it.
    pub fn push_back_overwrite(&mut self, item: T) -> Option<T> {
        // The oldest item is removed first and returned: if dropping it panics, that happens in the
        // caller, after the ring is consistent again.
        let evicted = if self.is_full() { self.pop_front() } else { None };
        let slot = self.slot_of(self.len);
        self.slots[slot].write(item);
        self.len += 1;
        evicted
    }

    /// Removes and returns the oldest item.
    pub fn pop_front(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot_of(0);
        self.head = self.slot_of(1) as u32;
        self.len -= 1;
        // SAFETY: the slot was the first of the window, so it holds a value. The window has just
        // been moved past it, so the value is not read or dropped again.
        Some(unsafe { self.slots[slot].assume_init_read() })
    }

    /// Drops every item, oldest first.
    ///
    /// Items are popped one at a time: if dropping one panics, the later ones remain in the ring
    /// and none is dropped twice.
    pub fn clear(&mut self) {
        while let Some(item) = self.pop_front() {
            drop(item);
        }
    }

    /// Returns the item at logical `index`, counted from the oldest.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index >= self.len() {
            return None;
        }
        let slot = self.slot_of(index as u32);
        // SAFETY: `index` is below `len`, so the slot lies within the window and holds a value.
        Some(unsafe { self.slots[slot].assume_init_ref() })
    }

    /// Returns the oldest item.
    #[must_use]
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// Returns the newest item.
    #[must_use]
    pub fn back(&self) -> Option<&T> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Returns an iterator over the items from oldest to newest.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        let (older, newer) = self.as_slices();
        Iter { older: older.iter(), newer: newer.iter() }
    }

    /// Returns the number of items the ring holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the ring holds no item.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the next [`push_back`](Self::push_back) would fail.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len == Self::CAPACITY_U32
    }

    /// Returns the window as two slices: up to the end of the array, then from its start.
    fn as_slices(&self) -> (&[T], &[T]) {
        let (head, len) = (self.head as usize, self.len());
        let unwrapped = len.min(N - head);
        let (older, newer) = (&self.slots[head..head + unwrapped], &self.slots[..len - unwrapped]);
        // SAFETY: together the slices are exactly the window, whose every slot holds a value.
        unsafe { (older.assume_init_ref(), newer.assume_init_ref()) }
    }

    /// Returns the slot of logical `index`; `index <= N`, so the sum cannot overflow.
    const fn slot_of(&self, index: u32) -> usize {
        ((self.head + index) & (Self::CAPACITY_U32 - 1)) as usize
    }
}

impl<T, const N: usize> Drop for RingBuffer<T, N> {
    /// Drops the items one at a time; if dropping one panics, the later ones leak.
    fn drop(&mut self) {
        self.clear();
    }
}

impl<T, const N: usize> Default for RingBuffer<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone, const N: usize> Clone for RingBuffer<T, N> {
    fn clone(&self) -> Self {
        self.iter().cloned().collect()
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for RingBuffer<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// Compares the items in logical order; their slots in the array do not matter.
impl<T: PartialEq, const N: usize> PartialEq for RingBuffer<T, N> {
    fn eq(&self, other: &Self) -> bool {
        // Lengths first: two rings of different lengths often share their oldest items.
        self.len == other.len && self.iter().eq(other)
    }
}

impl<T: Eq, const N: usize> Eq for RingBuffer<T, N> {}

impl<T, const N: usize> FromIterator<T> for RingBuffer<T, N> {
    /// # Panics
    ///
    /// If `items` yields more than `N` items; [`RingBuffer::try_from_iter`] returns an error
    /// instead.
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        match Self::try_from_iter(items) {
            Ok(ring) => ring,
            Err(_) => panic!("more than {N} items for a ring of {N} slots"),
        }
    }
}

impl<T, const N: usize> IntoIterator for RingBuffer<T, N> {
    type Item = T;
    type IntoIter = IntoIter<T, N>;

    fn into_iter(self) -> IntoIter<T, N> {
        // The ring owns the remaining items; dropping the iterator early drops them.
        IntoIter { ring: self }
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a RingBuffer<T, N> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Borrowing iterator of a [`RingBuffer`], oldest first.
#[derive(Debug)]
pub struct Iter<'a, T> {
    older: slice::Iter<'a, T>,
    newer: slice::Iter<'a, T>,
}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { older: self.older.clone(), newer: self.newer.clone() }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        self.older.next().or_else(|| self.newer.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Both slices lie in one array, so the sum cannot overflow.
        let len = self.older.len() + self.newer.len();
        (len, Some(len))
    }

    // Overridden because these compile to plain loops over slices: a search, and `for_each`, `sum`
    // and similar.
    fn find<P: FnMut(&&'a T) -> bool>(&mut self, mut predicate: P) -> Option<&'a T> {
        self.older.find(&mut predicate).or_else(|| self.newer.find(predicate))
    }

    fn fold<B, F: FnMut(B, &'a T) -> B>(self, init: B, mut f: F) -> B {
        let folded = self.older.fold(init, &mut f);
        self.newer.fold(folded, f)
    }
}

impl<'a, T> DoubleEndedIterator for Iter<'a, T> {
    fn next_back(&mut self) -> Option<&'a T> {
        self.newer.next_back().or_else(|| self.older.next_back())
    }

    // As for `find`: the op-log is searched from its newest entry.
    fn rfind<P: FnMut(&&'a T) -> bool>(&mut self, mut predicate: P) -> Option<&'a T> {
        self.newer.rfind(&mut predicate).or_else(|| self.older.rfind(predicate))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
impl<T> FusedIterator for Iter<'_, T> {}

/// Consuming iterator of a [`RingBuffer`], oldest first.
#[derive(Debug)]
pub struct IntoIter<T, const N: usize> {
    ring: RingBuffer<T, N>,
}

impl<T, const N: usize> Iterator for IntoIter<T, N> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.ring.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.ring.len(), Some(self.ring.len()))
    }
}

impl<T, const N: usize> ExactSizeIterator for IntoIter<T, N> {}
impl<T, const N: usize> FusedIterator for IntoIter<T, N> {}
