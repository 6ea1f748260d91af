//! The record cache: stored values and revisions of shards that the handles of a process hold.
//!
//! A shard is cached when a handle acquires its lease or commits under it; from then on an
//! operation on it needs no load (`shard_flight` explains why that is sound). An operation takes
//! the entry out and puts back what it wrote, so an operation that ends in any other way
//! invalidates the entry.
//!
//! Handles in a process share one cache, so a renewal on one thread does not invalidate another
//! thread's entry.
//!
//! # Invariants
//! - Hot and cold part of a cached shard belong to one snapshot.
//! - A newer entry is never replaced by an older one: of two overlapping operations on one shard,
//!   the first to commit may be the last to put its entry back.
//! - Two generations hold all entries. A used entry moves to the young generation; when that is
//!   full, the old one is dropped and the young one becomes old. Eviction therefore approximates
//!   LRU without a clock or randomness, and at most twice the bounds below are held.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::FixedState;
use gossip_contracts::identity::{RunId, ShardKey, TenantId};
use hashbrown::HashMap;

use super::loaded::Head;
use super::txn::Versioned;

/// Maximum number of shards, and of runs, per generation. A process that holds more leases renews
/// some of them with a load, which is slower but equally correct.
pub(super) const GENERATION_SHARDS_MAX: usize = 8_192;

/// Maximum bytes of shards per generation. Usual shards take less than 1 KiB, so their number is
/// the effective bound; this one limits shards with the longest keys.
pub(super) const GENERATION_BYTES_MAX: usize = 16 << 20;

/// A cached shard.
pub(super) struct CachedShard {
    pub(super) hot: Versioned,
    pub(super) cold: Versioned,
    /// The store's binding under which this handle last wrote the shard's owner key; `None` if it
    /// never did, or if the store binds no keys.
    pub(super) bound: Option<u64>,
}

impl CachedShard {
    const fn byte_count(&self) -> usize {
        self.hot.bytes.len() + self.cold.bytes.len()
    }
}

/// The record cache of a process for one store. Clones share the same cache.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordCache(Arc<Mutex<Cache>>);

impl RecordCache {
    /// Removes and returns a shard, and returns the head of its run; each if cached.
    pub(super) fn take(
        &self,
        tenant: TenantId,
        shard: ShardKey,
    ) -> (Option<CachedShard>, Option<Head>) {
        self.with(|cache| (cache.take(tenant, shard), cache.head(tenant, shard.run())))
    }

    /// Inserts a shard and the head of its run.
    pub(super) fn put(&self, tenant: TenantId, shard: ShardKey, entry: CachedShard, head: Head) {
        self.with(|cache| cache.put(tenant, shard, entry, head));
    }

    /// Removes the head of a run, after the store has shown an older one.
    pub(super) fn forget_head(&self, tenant: TenantId, run: RunId) {
        self.with(|cache| cache.forget_head(tenant, run));
    }

    /// Runs `access` under the lock. `access` neither blocks nor panics.
    fn with<R>(&self, access: impl FnOnce(&mut Cache) -> R) -> R {
        // A panic elsewhere cannot leave an entry half written: each call replaces whole entries.
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Cached shards and the heads of their runs.
#[derive(Default)]
pub(super) struct Cache {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    shards: HashMap<(TenantId, ShardKey), CachedShard, FixedState>,
    /// Shared by the shards of a run, so that one shard's refresh serves all.
    heads: HashMap<(TenantId, RunId), Head, FixedState>,
    /// Total bytes of `shards`.
    byte_count: usize,
}

impl Cache {
    /// Removes and returns a shard.
    pub(super) fn take(&mut self, tenant: TenantId, shard: ShardKey) -> Option<CachedShard> {
        let (young, old) = (self.young.take(tenant, shard), self.old.take(tenant, shard));
        young.or(old)
    }

    /// Returns the head of a run, if cached.
    pub(super) fn head(&self, tenant: TenantId, run: RunId) -> Option<Head> {
        // The young generation first: it receives every new head, so its head is never the older
        // one.
        let (young, old) = (&self.young.heads, &self.old.heads);
        young.get(&(tenant, run)).or_else(|| old.get(&(tenant, run))).cloned()
    }

    /// Removes the head of a run.
    fn forget_head(&mut self, tenant: TenantId, run: RunId) {
        self.young.heads.remove(&(tenant, run));
        self.old.heads.remove(&(tenant, run));
    }

    /// Inserts a shard and the head of its run, unless newer ones are cached.
    pub(super) fn put(
        &mut self,
        tenant: TenantId,
        shard: ShardKey,
        entry: CachedShard,
        head: Head,
    ) {
        // A concurrent operation may have put a newer entry back while this one was in flight.
        let known = self.take(tenant, shard);
        let newer = known.filter(|known| known.hot.revision > entry.hot.revision);
        let newer_head = self.head(tenant, shard.run()).filter(|it| it.revision > head.revision);
        // Evicts a whole generation: exact LRU needs a list that every use of an entry updates.
        if self.young.is_full() {
            self.old = std::mem::take(&mut self.young);
        }
        let (entry, head) = (newer.unwrap_or(entry), newer_head.unwrap_or(head));
        self.young.put(tenant, shard, entry, head);
    }
}

/// Shows counts only: values contain keys and owners of tenants.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("shards", &(self.young.shards.len() + self.old.shards.len()))
            .field("bytes", &(self.young.byte_count + self.old.byte_count))
            .finish_non_exhaustive()
    }
}

impl Generation {
    fn is_full(&self) -> bool {
        // A shard that is taken out leaves its head, so there may be more heads than shards.
        self.shards.len().max(self.heads.len()) >= GENERATION_SHARDS_MAX
            || self.byte_count >= GENERATION_BYTES_MAX
    }

    fn take(&mut self, tenant: TenantId, shard: ShardKey) -> Option<CachedShard> {
        // One generation is often empty, and checking that is cheaper than hashing the key.
        if self.shards.is_empty() {
            return None;
        }
        let found = self.shards.remove(&(tenant, shard))?;
        self.byte_count -= found.byte_count();
        Some(found)
    }

    fn put(&mut self, tenant: TenantId, shard: ShardKey, entry: CachedShard, head: Head) {
        self.byte_count += entry.byte_count();
        let before = self.shards.insert((tenant, shard), entry);
        assert!(before.is_none(), "the previous entry was removed");
        self.heads.insert((tenant, shard.run()), head);
    }
}
