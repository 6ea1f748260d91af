//! Storage and lookup of records in memory.
//!
//! Two levels: a tenant, then its shards by run and id. A wrong tenant misses at the first level.
//! Records are in chunks that never move; everything else refers to them by [`Slot`].

use std::sync::Arc;

use foldhash::fast::FixedState;
use gossip_contracts::identity::{RunId, ShardKey, TenantId};
use gossip_stdx::{SlotSpacing, prefetch, prefetch_whole};
use hashbrown::HashMap;
use std::hash::BuildHasher;

use super::claims::{ClaimIndex, PackedLink};
use super::events::EventRing;
use super::slot_table::SlotTable;
use crate::pool::RecordPool;
use crate::protocol::Tombstone;
use crate::record::ShardRecord;
use crate::run::RunRecord;

/// Records are allocated this many at a time, so that growing copies none. More would leave more
/// unused in the last chunk, fewer make the list of chunks too long for the nearest cache.
const RECORDS_PER_CHUNK: usize = 1 << 11;

/// The index of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u32);

/// The highest place there may be: what lies above marks ends, absences and lists. Two billion
/// records are 256 GiB without their bytes.
pub(super) const SLOT_MAX: u32 = (1 << 31) - 4;

/// The index of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunSlot(pub(super) u32);

/// The indexes of a shard and its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: Slot,
    pub(super) run: RunSlot,
}

/// A record, and what finds it work: two cache lines, the first with link, key and lease.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    /// Its position in its run's claim index.
    pub(super) link: PackedLink,
    pub(super) record: ShardRecord,
}

const _: () = assert!(size_of::<Entry>() == 128 && size_of::<Option<Entry>>() == 128);

impl Entry {
    /// A record that is in no list yet.
    pub(super) const fn new(record: ShardRecord) -> Self {
        Self { record, link: PackedLink::NONE }
    }
}

/// Slots that were allocated together.
#[derive(Debug)]
struct Chunk {
    /// Of a length that is known, so that looking into it is not checked against it.
    places: Box<[Option<Entry>; RECORDS_PER_CHUNK]>,
    /// How far apart the bytes of the first two records lay when they came, as most others do that
    /// were made in a row. Only a hint: bytes move, and places are used again.
    spacing: SlotSpacing,
}

/// Records by place.
#[derive(Debug, Default)]
pub(super) struct Records {
    chunks: Vec<Chunk>,
    /// Places in the chunks that were given back.
    free: Vec<Slot>,
    /// Places handed out so far; those behind were never in use.
    used: usize,
}

impl Records {
    pub(super) fn insert(&mut self, entry: Entry) -> Slot {
        // Freed slots first, so that memory follows the largest number of records at one time.
        if let Some(slot) = self.free.pop() {
            *self.place_mut(slot) = Some(entry);
            return slot;
        }
        let slot = self.used;
        if slot == self.chunks.len() * RECORDS_PER_CHUNK {
            self.chunks.push(Chunk::new());
        }
        self.used += 1;
        // Only for slots that are new: the bytes of a record in a reused slot may be anywhere.
        if slot % RECORDS_PER_CHUNK == 1 {
            self.chunks[slot / RECORDS_PER_CHUNK].note_second(&entry.record);
        }
        let slot = u32::try_from(slot).ok().filter(|slot| *slot <= SLOT_MAX);
        let slot = Slot(slot.expect("memory limits the slots to far below two billion"));
        *self.place_mut(slot) = Some(entry);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Entry {
        let entry = self.place_mut(slot).take().expect("only a slot in use is freed");
        // A hint in an old lease may still name the slot; `recall` compares keys for that reason.
        self.free.push(slot);
        entry
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> &Entry {
        let place = self.place(slot).and_then(Option::as_ref);
        place.expect("a referenced slot is in use")
    }

    /// Returns the entry at a slot that may not exist or not be in use.
    #[inline]
    pub(super) fn try_get(&self, slot: Slot) -> Option<&Entry> {
        self.place(slot)?.as_ref()
    }

    /// Prefetches link, key and lease of an entry.
    #[inline]
    pub(super) fn prefetch(&self, slot: Slot) {
        self.place(slot).into_iter().for_each(prefetch);
    }

    /// Prefetches a whole entry.
    #[inline]
    pub(super) fn prefetch_whole(&self, slot: Slot) {
        self.place(slot).into_iter().for_each(prefetch_whole);
    }

    /// Asks the processor for the bytes of an entry that may not be here yet itself: records that
    /// came in a row have their bytes in a row.
    #[inline]
    pub(super) fn prefetch_bytes(&self, slot: Slot, pool: &RecordPool) {
        let slot = slot.0 as usize;
        if let Some(chunk) = self.chunks.get(slot / RECORDS_PER_CHUNK) {
            pool.bytes().prefetch_spaced(chunk.spacing, (slot % RECORDS_PER_CHUNK) as u32);
        }
    }

    #[cfg(test)]
    pub(super) fn spacings(&self) -> impl Iterator<Item = SlotSpacing> {
        self.chunks.iter().map(|chunk| chunk.spacing)
    }

    #[inline]
    fn place(&self, slot: Slot) -> Option<&Option<Entry>> {
        let slot = slot.0 as usize;
        Some(&self.chunks.get(slot / RECORDS_PER_CHUNK)?.places[slot % RECORDS_PER_CHUNK])
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut Entry {
        self.place_mut(slot).as_mut().expect("a referenced slot is in use")
    }

    #[inline]
    fn place_mut(&mut self, slot: Slot) -> &mut Option<Entry> {
        let slot = slot.0 as usize;
        &mut self.chunks[slot / RECORDS_PER_CHUNK].places[slot % RECORDS_PER_CHUNK]
    }
}

impl Chunk {
    fn new() -> Self {
        // Collected into a box: an array of 256 KiB on the stack could overflow a small one.
        let places: Box<[Option<Entry>]> = (0..RECORDS_PER_CHUNK).map(|_| None).collect();
        let places = places.try_into().expect("a chunk has this many slots");
        Self { places, spacing: SlotSpacing::default() }
    }

    /// Remembers how far the bytes of the second record are from those of the first.
    fn note_second(&mut self, second: &ShardRecord) {
        if let Some(first) = &self.places[0] {
            self.spacing = first.record.spacing_to(second);
        }
    }
}

/// A run, its shards and where to find work in them.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) record: RunRecord,
    /// Every shard of the run, oldest first.
    pub(super) shards: Vec<Slot>,
    pub(super) claims: ClaimIndex,
    pub(super) events: EventRing,
}

/// The runs and shards of one tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) id: Arc<TenantId>,
    shards: SlotTable,
    pub(super) runs: HashMap<RunId, RunSlot, FixedState>,
    pub(super) tombstones: HashMap<RunId, Tombstone, FixedState>,
}

impl Tenant {
    fn new(id: TenantId) -> Self {
        Self {
            id: Arc::new(id),
            shards: SlotTable::default(),
            runs: HashMap::default(),
            tombstones: HashMap::default(),
        }
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    #[inline(always)]
    pub(super) fn find(&self, key: ShardKey, records: &Records, pool: &RecordPool) -> Option<Slot> {
        // A guess compares tags only; the key of the record confirms it.
        let Some(slot) = self.shards.guess(hash(key)) else {
            return self.find_further(key, records);
        };
        // The first match is almost always the right one, and all of it will be read.
        records.prefetch_whole(slot);
        records.prefetch_bytes(slot, pool);
        if records.get(slot).record.key() == key {
            return Some(slot);
        }
        self.find_further(key, records)
    }

    /// As [`Self::find`], for those that are not the first that have their tag.
    #[inline(never)]
    fn find_further(&self, key: ShardKey, records: &Records) -> Option<Slot> {
        self.shards.find(hash(key), |slot| records.get(slot).record.key() == key)
    }

    pub(super) fn reserve(&mut self, additional: usize, records: &Records) {
        self.shards.reserve(additional, |slot| hash(records.get(slot).record.key()));
    }

    pub(super) fn insert(&mut self, slot: Slot, records: &Records) {
        let key = records.get(slot).record.key();
        // The rules have refused a taken id; a second record would hide the first from every
        // lookup.
        assert!(self.find_further(key, records).is_none(), "a shard is never overwritten");
        self.shards.insert(hash(key), slot, |slot| hash(records.get(slot).record.key()));
    }

    pub(super) fn remove(&mut self, key: ShardKey, records: &Records) {
        self.shards.remove(hash(key), |slot| records.get(slot).record.key() == key);
    }
}

/// Tenants by id. The one that was looked for last is found without hashing its long name.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    /// Positions in `homes`.
    places: HashMap<TenantId, usize, FixedState>,
    /// A tenant stays for ever.
    homes: Vec<Tenant>,
    /// Position of the last lookup; only a hint.
    last: usize,
}

impl Tenants {
    pub(super) fn len(&self) -> usize {
        self.homes.len()
    }

    pub(super) fn get(&self, tenant: TenantId) -> Option<&Tenant> {
        Some(&self.homes[*self.places.get(&tenant)?])
    }

    pub(super) fn get_mut(&mut self, tenant: TenantId) -> Option<&mut Tenant> {
        Some(&mut self.homes[*self.places.get(&tenant)?])
    }

    /// As [`Self::get`], and caches the position for the next call.
    #[inline]
    pub(super) fn turn_to(&mut self, tenant: TenantId) -> Option<&Tenant> {
        if self.homes.get(self.last).is_none_or(|home| *home.id != tenant) {
            self.last = *self.places.get(&tenant)?;
        }
        self.homes.get(self.last)
    }

    pub(super) fn get_or_insert(&mut self, tenant: TenantId) -> &mut Tenant {
        // A new tenant gets the next position, so an equal position means that it was absent.
        let place = *self.places.entry(tenant).or_insert(self.homes.len());
        if place == self.homes.len() {
            self.homes.push(Tenant::new(tenant));
        }
        &mut self.homes[place]
    }
}

/// A fixed hasher: the same order in every process. Ids are hashes or caller's numbers within one
/// tenant, and a tenant that chose colliding ids would slow down only itself.
fn hash(key: ShardKey) -> u64 {
    FixedState::with_seed(0).hash_one((key.run().as_raw(), key.shard().as_raw()))
}
