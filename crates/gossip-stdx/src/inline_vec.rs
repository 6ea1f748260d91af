//! A vector that keeps up to `N` items inline and moves to the heap beyond that.
//!
//! It never moves back to inline storage: a vector that spilled once is likely to spill again, and
//! its allocation is already paid for.
//! It holds no `unsafe` code: inline storage is [`arrayvec::ArrayVec`], heap storage is [`Vec`].
//!
//! # Invariants
//!
//! - Pushing up to `N` items allocates nothing.
//! - A panic in an item's `Clone` or `Drop` leaves a valid vector: the length includes an item only
//!   after it was cloned, and no longer includes it when it is dropped.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::{Deref, DerefMut};

use arrayvec::ArrayVec;

/// A vector of any length whose first `N` items need no allocation.
///
/// An invalid `N` does not compile:
///
/// ```compile_fail
/// let _ = gossip_stdx::InlineVec::<u8, 0>::new();
/// ```
///
/// ```compile_fail
/// let _ = gossip_stdx::InlineVec::<u8, 0>::from_slice(&[]);
/// ```
///
/// ```
/// let mut ids = gossip_stdx::InlineVec::<u64, 2>::from_slice(&[1, 2]);
/// assert!(!ids.is_spilled());
/// ids.push(3);
/// assert!(ids.is_spilled());
/// assert_eq!(*ids, [1, 2, 3]);
/// ```
pub struct InlineVec<T, const N: usize> {
    storage: Storage<T, N>,
}

/// Storage of the items. `Inline` becomes `Heap` when item `N + 1` is added, never the reverse.
#[derive(Clone)]
enum Storage<T, const N: usize> {
    Inline(ArrayVec<T, N>),
    Heap(Vec<T>),
}

impl<T, const N: usize> InlineVec<T, N> {
    /// Number of items stored inline. Naming the constant checks `N` at compile time.
    pub(crate) const INLINE_CAPACITY: usize = {
        assert!(N > 0, "N must be 1 or more; use a Vec to store no item inline");
        // Inline lengths are u32, and a spill doubles the capacity.
        assert!(N <= (u32::MAX / 2) as usize, "N must leave room to double in a u32");
        N
    };

    /// Returns an empty vector; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(Self::INLINE_CAPACITY == N) };
        Self { storage: Storage::Inline(ArrayVec::new_const()) }
    }

    /// Returns a copy of `items`; allocates only above `N` items.
    #[must_use]
    pub fn from_slice(items: &[T]) -> Self
    where
        T: Copy,
    {
        const { assert!(Self::INLINE_CAPACITY == N) };
        // One memcpy; collecting would copy item by item.
        let mut inline = ArrayVec::new();
        match inline.try_extend_from_slice(items) {
            Ok(()) => Self { storage: Storage::Inline(inline) },
            Err(_) => Self { storage: Storage::Heap(items.to_vec()) },
        }
    }

    /// Appends `item`; item `N + 1` moves all items to the heap.
    pub fn push(&mut self, item: T) {
        match &mut self.storage {
            Storage::Inline(inline) => {
                if let Err(refused) = inline.try_push(item) {
                    self.spill(1).push(refused.element());
                }
            }
            Storage::Heap(heap) => heap.push(item),
        }
    }

    /// Removes and returns the last item.
    pub fn pop(&mut self) -> Option<T> {
        match &mut self.storage {
            Storage::Inline(inline) => inline.pop(),
            Storage::Heap(heap) => heap.pop(),
        }
    }

    /// Drops every item; a spilled vector stays on the heap and keeps its capacity.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Drops the items from index `len` on, if there are any.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.storage {
            Storage::Inline(inline) => inline.truncate(len),
            Storage::Heap(heap) => heap.truncate(len),
        }
    }

    /// Appends clones of `items`; spills at most once, before the first clone.
    pub fn extend_from_slice(&mut self, items: &[T])
    where
        T: Clone,
    {
        match &mut self.storage {
            Storage::Inline(inline) if items.len() <= inline.remaining_capacity() => {
                inline.extend(items.iter().cloned());
            }
            Storage::Inline(_) => self.spill(items.len()).extend_from_slice(items),
            Storage::Heap(heap) => heap.extend_from_slice(items),
        }
    }

    /// Returns the items.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        match &self.storage {
            Storage::Inline(inline) => inline,
            Storage::Heap(heap) => heap,
        }
    }

    /// Returns the items as a mutable slice.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        match &mut self.storage {
            Storage::Inline(inline) => inline,
            Storage::Heap(heap) => heap,
        }
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns whether there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns whether the items are stored on the heap.
    #[must_use]
    pub const fn is_spilled(&self) -> bool {
        matches!(self.storage, Storage::Heap(_))
    }

    /// Moves the items to the heap, with capacity for `additional` more and at least twice the
    /// present length.
    #[cold]
    fn spill(&mut self, additional: usize) -> &mut Vec<T> {
        let len = self.len();
        // Reserved before any item moves: if the allocation fails, the items are still inline.
        let mut heap = Vec::with_capacity(len.saturating_add(additional).max(2 * len));
        if let Storage::Inline(inline) = &mut self.storage {
            heap.extend(inline.drain(..));
        }
        self.storage = Storage::Heap(heap);
        let Storage::Heap(heap) = &mut self.storage else { unreachable!("assigned just above") };
        heap
    }
}

impl<T, const N: usize> Deref for InlineVec<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T, const N: usize> DerefMut for InlineVec<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

impl<T, const N: usize> Default for InlineVec<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone, const N: usize> Clone for InlineVec<T, N> {
    fn clone(&self) -> Self {
        Self { storage: self.storage.clone() }
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for InlineVec<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Compares the items, not where they are stored.
impl<T: PartialEq, const N: usize> PartialEq for InlineVec<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Eq, const N: usize> Eq for InlineVec<T, N> {}

/// Moves the items inline if they fit, else keeps the allocation.
impl<T, const N: usize> From<Vec<T>> for InlineVec<T, N> {
    fn from(items: Vec<T>) -> Self {
        // The allocation already exists, so it is kept if the items do not fit inline.
        if items.len() > Self::INLINE_CAPACITY {
            return Self { storage: Storage::Heap(items) };
        }
        Self { storage: Storage::Inline(items.into_iter().collect()) }
    }
}

impl<T, const N: usize> FromIterator<T> for InlineVec<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut vec = Self::new();
        vec.extend(items);
        vec
    }
}

impl<T, const N: usize> Extend<T> for InlineVec<T, N> {
    /// Relies on the lower size hint: if the items cannot fit inline, spills before the first one.
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        // Fused, because `for_each` below may call `next` on an iterator that has already ended.
        let mut items = items.into_iter().fuse();
        let (at_least, _) = items.size_hint();
        if let Storage::Inline(inline) = &mut self.storage {
            if at_least > inline.remaining_capacity() {
                self.spill(at_least);
            } else {
                inline.extend(items.by_ref().take(inline.remaining_capacity()));
            }
        }
        // At this point the vector is spilled or full, or the iterator has ended.
        items.for_each(|item| self.push(item));
    }
}

impl<T, const N: usize> IntoIterator for InlineVec<T, N> {
    type Item = T;
    type IntoIter = IntoIter<T, N>;

    fn into_iter(self) -> IntoIter<T, N> {
        match self.storage {
            Storage::Inline(inline) => IntoIter(Items::Inline(inline.into_iter())),
            Storage::Heap(heap) => IntoIter(Items::Heap(heap.into_iter())),
        }
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a InlineVec<T, N> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> std::slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a mut InlineVec<T, N> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> std::slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

/// Consuming iterator of an [`InlineVec`].
#[derive(Debug)]
pub struct IntoIter<T, const N: usize>(Items<T, N>);

#[derive(Debug)]
enum Items<T, const N: usize> {
    Inline(arrayvec::IntoIter<T, N>),
    Heap(std::vec::IntoIter<T>),
}

impl<T, const N: usize> Iterator for IntoIter<T, N> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            Items::Inline(items) => items.next(),
            Items::Heap(items) => items.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Items::Inline(items) => items.size_hint(),
            Items::Heap(items) => items.size_hint(),
        }
    }
}

impl<T, const N: usize> DoubleEndedIterator for IntoIter<T, N> {
    fn next_back(&mut self) -> Option<T> {
        match &mut self.0 {
            Items::Inline(items) => items.next_back(),
            Items::Heap(items) => items.next_back(),
        }
    }
}

impl<T, const N: usize> ExactSizeIterator for IntoIter<T, N> {}
impl<T, const N: usize> FusedIterator for IntoIter<T, N> {}
