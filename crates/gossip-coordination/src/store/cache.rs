//! What handles remember of the shards that they hold: their stored values and revisions.
//!
//! A shard is remembered when a handle was granted its lease, or committed under it, and from then
//! on an operation on it needs no load (`shard_flight` tells why that is sound). Whoever starts an
//! operation takes the shard out, and puts back what it wrote: what ends in any other way is
//! forgotten by that alone.
//!
//! The handles of a process share one memory. A thread checkpoints a shard and another one renews
//! it: each would make what the other remembers out of date.
//!
//! # Invariants
//! - Hot and cold part of a remembered shard are of one instant.
//! - What is newer is never replaced by what is older: of two operations on one shard that overlap
//!   the first may be the last to put it back.
//! - Two generations hold everything. Who is used moves to the young one; when that is full, the
//!   old one is dropped and the young one takes its place. So what was used last stays, nothing
//!   depends on a clock or on chance, and at most twice the bounds below are held.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::FixedState;
use gossip_contracts::identity::{RunId, ShardKey, TenantId};
use hashbrown::HashMap;

use super::loaded::Head;
use super::txn::Versioned;

/// Shards of one generation, and runs. A process that holds more leases than this renews some of
/// them with a load, which is slower and as good.
pub(super) const GENERATION_SHARDS_MAX: usize = 8_192;

/// Bytes of shards of one generation: usual shards take below 1 KiB, so the number of shards is
/// what bounds them, and shards with the longest keys are bounded by this.
pub(super) const GENERATION_BYTES_MAX: usize = 16 << 20;

/// A shard as this handle last saw it.
pub(super) struct CachedShard {
    pub(super) hot: Versioned,
    pub(super) cold: Versioned,
    /// The store's binding when this handle last wrote the shard's owner key; `None` if it never
    /// did, or the store binds nothing.
    pub(super) bound: Option<u64>,
}

impl CachedShard {
    const fn byte_count(&self) -> usize {
        self.hot.bytes.len() + self.cold.bytes.len()
    }
}

/// What the handles of one process on one store remember of the shards that they hold. Clones are
/// the same memory.
///
/// It is of **one** store: what it holds is compared by revision, and a revision of another store
/// says nothing.
#[derive(Clone, Debug, Default)]
pub struct RecordCache(Arc<Mutex<Cache>>);

impl RecordCache {
    /// Takes a shard out, and tells the head of its run; each if it is remembered.
    pub(super) fn take(
        &self,
        tenant: TenantId,
        shard: ShardKey,
    ) -> (Option<CachedShard>, Option<Head>) {
        self.with(|memory| (memory.take(tenant, shard), memory.head(tenant, shard.run())))
    }

    /// Puts a shard in, with the head of its run.
    pub(super) fn put(
        &self,
        tenant: TenantId,
        shard: ShardKey,
        remembered: CachedShard,
        head: Head,
    ) {
        self.with(|memory| memory.put(tenant, shard, remembered, head));
    }

    /// Forgets the head of a run: the store knows less than it.
    pub(super) fn forget_head(&self, tenant: TenantId, run: RunId) {
        self.with(|memory| memory.forget_head(tenant, run));
    }

    /// Nothing waits while it has the lock, and nothing panics.
    fn with<R>(&self, look: impl FnOnce(&mut Cache) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The shards that are remembered, and the heads of their runs.
#[derive(Default)]
pub(super) struct Cache {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    shards: HashMap<(TenantId, ShardKey), CachedShard, FixedState>,
    /// Shared by the shards of a run, so that one of them learns of a change for all.
    heads: HashMap<(TenantId, RunId), Head, FixedState>,
    /// Of all shards.
    byte_count: usize,
}

impl Cache {
    /// Takes a shard out.
    pub(super) fn take(&mut self, tenant: TenantId, shard: ShardKey) -> Option<CachedShard> {
        let (young, old) = (self.young.take(tenant, shard), self.old.take(tenant, shard));
        young.or(old)
    }

    /// The head of a run, if it is remembered.
    pub(super) fn head(&self, tenant: TenantId, run: RunId) -> Option<Head> {
        let (young, old) = (&self.young.heads, &self.old.heads);
        young.get(&(tenant, run)).or_else(|| old.get(&(tenant, run))).copied()
    }

    /// Forgets the head of a run.
    fn forget_head(&mut self, tenant: TenantId, run: RunId) {
        self.young.heads.remove(&(tenant, run));
        self.old.heads.remove(&(tenant, run));
    }

    /// Puts a shard in, with the head of its run, unless newer ones are there.
    pub(super) fn put(
        &mut self,
        tenant: TenantId,
        shard: ShardKey,
        remembered: CachedShard,
        head: Head,
    ) {
        let known = self.take(tenant, shard);
        let newer = known.filter(|known| known.hot.revision > remembered.hot.revision);
        let newer_head = self.head(tenant, shard.run()).filter(|it| it.revision > head.revision);
        if self.young.is_full() {
            self.old = std::mem::take(&mut self.young);
        }
        let (shown, head) = (newer.unwrap_or(remembered), newer_head.unwrap_or(head));
        self.young.put(tenant, shard, shown, head);
    }
}

/// Values hold keys and owners of tenants, so only numbers are shown.
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
        self.shards.len().max(self.heads.len()) >= GENERATION_SHARDS_MAX
            || self.byte_count >= GENERATION_BYTES_MAX
    }

    fn take(&mut self, tenant: TenantId, shard: ShardKey) -> Option<CachedShard> {
        // Of two generations one is often empty, and to hash a key takes longer than to see that.
        if self.shards.is_empty() {
            return None;
        }
        let found = self.shards.remove(&(tenant, shard))?;
        self.byte_count -= found.byte_count();
        Some(found)
    }

    fn put(&mut self, tenant: TenantId, shard: ShardKey, remembered: CachedShard, head: Head) {
        self.byte_count += remembered.byte_count();
        let before = self.shards.insert((tenant, shard), remembered);
        debug_assert!(before.is_none(), "what was known of it was taken out");
        self.heads.insert((tenant, shard.run()), head);
    }
}
