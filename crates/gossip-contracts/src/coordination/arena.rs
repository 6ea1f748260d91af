//! An arena of shard specs with room fixed at construction.
//!
//! Builders stage many specs before anyone owns a record for them. The arena holds their bytes in
//! one slab and hands out small [`ShardSpecHandle`]s. It never grows and, once built, never
//! allocates.
//!
//! # Invariants
//! - A handle names a slot, the slot's generation and the arena. Freeing and clearing bump the
//!   generation, so a handle outlives its spec without ever naming another one.
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
    /// Slots that are not live, next to be used last. Never holds more than it was made for.
    free: Vec<u32>,
    /// Unlike that of any other arena of the process.
    id: u64,
}

struct Slot {
    /// Bumped whenever a handle to this slot must stop working. Wide enough never to come round.
    generation: u64,
    spec: Option<PooledShardSpec>,
}

impl ShardArena {
    /// Room for `slots` specs of `bytes` bytes altogether, after rounding each part up to a block.
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

    /// Like [`Self::with_capacity`], for sizes that come from outside.
    ///
    /// The memory for the bytes is asked for as [`ByteSlab::try_new`] does, which cannot refuse
    /// what it may address; whoever takes `bytes` from outside should bound it.
    ///
    /// # Errors
    /// [`ShardArenaTooLarge`].
    pub fn try_with_capacity(slots: usize, bytes: usize) -> Result<Self, ShardArenaTooLarge> {
        let too_large = ShardArenaTooLarge { slots, bytes };
        let count = u32::try_from(slots).map_err(|_| too_large)?;
        let slab = ByteSlab::try_new(bytes).map_err(|_| too_large)?;
        let empty = |_| Slot { generation: 0, spec: None };
        // A slot takes more than its number: the most that can be addressed needs hundreds of GiB.
        let entries = try_collect((0..count).map(empty)).ok_or(too_large)?;
        let free = try_collect((0..count).rev()).ok_or(too_large)?;
        Ok(Self { slab, slots: entries.into_boxed_slice(), free, id: next_arena_id() })
    }

    /// Stores `spec`, which the caller has validated.
    ///
    /// # Errors
    /// [`SlabFull`], and nothing has changed. When slots rather than bytes ran out it says
    /// `requested: 1, available: 0`.
    ///
    /// # Panics
    /// If `spec` is invalid.
    pub fn alloc_spec(&mut self, spec: ShardSpecRef<'_>) -> Result<ShardSpecHandle, SlabFull> {
        if let Err(error) = spec.validate() {
            panic!("specs are validated before they are stored: {error}");
        }
        const NO_SLOT: SlabFull = SlabFull { requested: 1, available: 0 };
        // The slot is taken only after the bytes are stored, so a full slab costs none.
        let slot = *self.free.last().ok_or(NO_SLOT)?;
        let spec = PooledShardSpec::from_ref(spec, &mut self.slab)?;
        self.free.pop();
        let entry = &mut self.slots[slot as usize];
        debug_assert!(entry.spec.is_none(), "a slot on the free list holds no spec");
        entry.spec = Some(spec);
        Ok(ShardSpecHandle { arena_id: self.id, generation: entry.generation, slot })
    }

    /// Gives a spec's room back. A stale or foreign handle is ignored, so freeing twice is
    /// harmless.
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

    /// The spec behind `handle`.
    ///
    /// # Panics
    /// If the handle is stale or from another arena.
    #[must_use]
    pub fn view_spec(&self, handle: ShardSpecHandle) -> ShardSpecRef<'_> {
        self.try_view_spec(handle).expect("the handle is of this arena and its spec was not freed")
    }

    /// The spec behind `handle`, or `None` if it is stale or from another arena.
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

    /// Frees everything at once. Every handle becomes stale, and slots are handed out from the
    /// first again.
    pub fn clear(&mut self) {
        for entry in &mut self.slots {
            entry.spec = None;
            entry.generation += 1;
        }
        self.slab.clear();
        self.free.clear();
        // Construction checked that the number of slots fits.
        self.free.extend((0..self.slots.len() as u32).rev());
    }

    /// How many specs are stored.
    #[must_use]
    pub fn live_specs(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many specs fit, if their bytes do.
    #[must_use]
    pub const fn slot_capacity(&self) -> usize {
        self.slots.len()
    }
}

impl Drop for ShardArena {
    fn drop(&mut self) {
        // The slab asserts, in debug builds, that nothing is left in it.
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

/// Names a spec in a [`ShardArena`] for as long as it is stored there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardSpecHandle {
    arena_id: u64,
    generation: u64,
    /// Below the slot capacity of the arena that `arena_id` names.
    slot: u32,
}

/// More room than an arena can address, or than there is memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "an arena of {slots} slots and {bytes} bytes exceeds the limit of {} for each, or the memory",
    u32::MAX
)]
pub struct ShardArenaTooLarge {
    /// Slots asked for.
    pub slots: usize,
    /// Bytes asked for.
    pub bytes: usize,
}

/// The items, or nothing if there is no memory for them.
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
