//! An arena of shard specs with a capacity fixed at construction.
//!
//! Builders stage many specs before there are records for them. The arena stores their bytes in one
//! slab and returns small [`ShardSpecHandle`]s. It never grows and, once built, never allocates.
//!
//! # Invariants
//! - A handle names a slot, the slot's generation and the arena. Freeing and clearing increment the
//!   generation, so a stale handle never resolves to another spec.
//! - Every slot is either live or on the free list, exactly once.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_stdx::{ByteSlab, SlabFull};
use thiserror::Error;

use super::ShardSpecRef;
use super::pooled::PooledShardSpec;

/// Specs in a slab, addressed by handles.
pub struct ShardArena {
    slab: ByteSlab,
    /// One entry per slot, live or not; never resized.
    slots: Box<[Slot]>,
    /// Slots that are not live; the last one is used next. Never exceeds its initial capacity.
    free: Vec<u32>,
    /// Unique among the arenas of the process.
    id: u64,
}

struct Slot {
    /// Incremented whenever a handle to this slot must become stale. Wide enough never to wrap.
    generation: u64,
    spec: Option<PooledShardSpec>,
}

impl ShardArena {
    /// Creates an arena for `slots` specs of `bytes` bytes in total, after rounding each spec up to
    /// a block.
    ///
    /// # Panics
    /// If either exceeds `u32::MAX`, or there is no memory for the slots; see
    /// [`Self::try_with_capacity`].
    #[must_use]
    pub fn with_capacity(slots: usize, bytes: usize) -> Self {
        match Self::try_with_capacity(slots, bytes) {
            Ok(arena) => arena,
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates an arena as [`Self::with_capacity`] does, for sizes from untrusted input.
    ///
    /// The memory for the bytes is allocated as by [`ByteSlab::try_new`], which cannot report a
    /// lack of memory; callers should limit `bytes`.
    ///
    /// # Errors
    /// [`ShardArenaTooLarge`] if either size exceeds `u32::MAX` or there is no memory for the
    /// slots.
    pub fn try_with_capacity(slots: usize, bytes: usize) -> Result<Self, ShardArenaTooLarge> {
        let too_large = ShardArenaTooLarge { slots, bytes };
        let count = u32::try_from(slots).map_err(|_| too_large)?;
        let slab = ByteSlab::try_new(bytes).map_err(|_| too_large)?;
        let empty = |_| Slot { generation: 0, spec: None };
        // Fallible, because the maximum number of slots would need hundreds of GiB.
        let entries = try_collect((0..count).map(empty)).ok_or(too_large)?;
        let free = try_collect((0..count).rev()).ok_or(too_large)?;
        Ok(Self { slab, slots: entries.into_boxed_slice(), free, id: next_arena_id() })
    }

    /// Stores `spec`, which the caller has validated.
    ///
    /// # Errors
    /// [`SlabFull`]; the arena is unchanged. If slots rather than bytes ran out, the error is
    /// `requested: 1, available: 0`.
    ///
    /// # Panics
    /// If `spec` is invalid.
    pub fn alloc_spec(&mut self, spec: ShardSpecRef<'_>) -> Result<ShardSpecHandle, SlabFull> {
        if let Err(error) = spec.validate() {
            panic!("specs are validated before they are stored: {error}");
        }
        const NO_SLOT: SlabFull = SlabFull { requested: 1, available: 0 };
        // The slot is taken only after the bytes are stored, so a full slab costs no slot.
        let slot = *self.free.last().ok_or(NO_SLOT)?;
        let spec = PooledShardSpec::from_ref(spec, &mut self.slab)?;
        self.free.pop();
        let entry = &mut self.slots[slot as usize];
        debug_assert!(entry.spec.is_none(), "a slot on the free list holds no spec");
        entry.spec = Some(spec);
        Ok(ShardSpecHandle { arena_id: self.id, generation: entry.generation, slot })
    }

    /// Frees a spec. A stale or foreign handle is ignored, so freeing twice is harmless.
    pub fn free_spec(&mut self, handle: ShardSpecHandle) {
        if self.try_view_spec(handle).is_none() {
            return;
        }
        let entry = &mut self.slots[handle.slot as usize];
        if let Some(spec) = entry.spec.take() {
            spec.free(&mut self.slab);
            entry.generation += 1;
            self.free.push(handle.slot);
        }
    }

    /// Returns the spec behind `handle`.
    ///
    /// # Panics
    /// If the handle is stale or from another arena.
    #[must_use]
    pub fn view_spec(&self, handle: ShardSpecHandle) -> ShardSpecRef<'_> {
        self.try_view_spec(handle).expect("the handle belongs to this arena and its spec is live")
    }

    /// Returns the spec behind `handle`, or `None` if it is stale or from another arena.
    #[must_use]
    pub fn try_view_spec(&self, handle: ShardSpecHandle) -> Option<ShardSpecRef<'_>> {
        if handle.arena_id != self.id {
            return None;
        }
        let entry = &self.slots[handle.slot as usize];
        let current = entry.generation == handle.generation;
        let spec = entry.spec.as_ref().filter(|_| current)?;
        Some(spec.view(&self.slab))
    }

    /// Frees all specs. Every handle becomes stale, and slots are assigned from the first again.
    pub fn clear(&mut self) {
        for entry in &mut self.slots {
            entry.spec = None;
            entry.generation += 1;
        }
        self.slab.clear();
        self.free.clear();
        // The constructor checked that the number of slots fits in a u32.
        self.free.extend((0..self.slots.len() as u32).rev());
    }

    /// Returns the number of specs stored.
    #[must_use]
    pub fn live_specs(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the maximum number of specs, provided their bytes fit.
    #[must_use]
    pub const fn slot_capacity(&self) -> usize {
        self.slots.len()
    }
}

impl Drop for ShardArena {
    fn drop(&mut self) {
        // In debug builds the slab asserts on drop that it is empty.
        self.slab.clear();
    }
}

impl fmt::Debug for ShardArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardArena")
            .field("live_specs", &self.live_specs())
            .field("slot_capacity", &self.slot_capacity())
            .field("used_bytes", &self.slab.used_bytes())
            .field("byte_capacity", &self.slab.capacity())
            .finish_non_exhaustive()
    }
}

/// Names a spec in a [`ShardArena`] while it is stored there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardSpecHandle {
    arena_id: u64,
    generation: u64,
    /// Below the slot capacity of the arena that `arena_id` names.
    slot: u32,
}

/// The capacity exceeds the addressable range or the available memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "an arena of {slots} slots and {bytes} bytes exceeds the limit of {} for each, or the memory",
    u32::MAX
)]
pub struct ShardArenaTooLarge {
    /// Slots requested.
    pub slots: usize,
    /// Bytes requested.
    pub bytes: usize,
}

/// Collects the items, or returns `None` if there is no memory for them.
fn try_collect<T>(items: impl ExactSizeIterator<Item = T>) -> Option<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(items.len()).ok()?;
    vec.extend(items);
    Some(vec)
}

fn next_arena_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Only uniqueness matters, and the addition is atomic in any ordering.
    NEXT.fetch_add(1, Ordering::Relaxed)
}
