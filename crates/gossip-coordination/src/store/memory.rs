//! What a handle remembers of the shards that it holds: their stored values and revisions.
//!
//! A shard is remembered when this handle was granted its lease, or committed under it, and from
//! then on an operation on it needs no load (`shard_flight` tells why that is sound). Whoever
//! starts an operation takes the shard out, and puts back what it wrote: what ends in any other
//! way is forgotten by that alone.
//!
//! # Invariants
//! - Hot and cold part of a remembered shard are of one instant.
//! - Two generations hold everything. Who is used moves to the young one; when that is full, the
//!   old one is dropped and the young one takes its place. So what was used last stays, nothing
//!   depends on a clock or on chance, and at most twice the bounds below are held.

use std::fmt;

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
pub(super) struct Remembered {
    pub(super) hot: Versioned,
    pub(super) cold: Versioned,
    /// The store's binding when this handle last wrote the shard's owner key; `None` if it never
    /// did, or the store binds nothing.
    pub(super) bound: Option<u64>,
}

impl Remembered {
    const fn byte_count(&self) -> usize {
        self.hot.bytes.len() + self.cold.bytes.len()
    }
}

/// The shards that a handle remembers, and the heads of their runs.
#[derive(Default)]
pub(super) struct Memory {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    shards: HashMap<(TenantId, ShardKey), Remembered, FixedState>,
    /// Shared by the shards of a run, so that one of them learns of a change for all.
    heads: HashMap<(TenantId, RunId), Head, FixedState>,
    /// Of all shards.
    byte_count: usize,
}

impl Memory {
    /// Takes a shard out.
    pub(super) fn take(&mut self, tenant: TenantId, shard: ShardKey) -> Option<Remembered> {
        let (young, old) = (self.young.take(tenant, shard), self.old.take(tenant, shard));
        young.or(old)
    }

    /// The head of a run, if it is remembered.
    pub(super) fn head(&self, tenant: TenantId, run: RunId) -> Option<Head> {
        let (young, old) = (&self.young.heads, &self.old.heads);
        young.get(&(tenant, run)).or_else(|| old.get(&(tenant, run))).copied()
    }

    /// Puts a shard in, with the head of its run.
    pub(super) fn put(
        &mut self,
        tenant: TenantId,
        shard: ShardKey,
        remembered: Remembered,
        head: Head,
    ) {
        if self.young.is_full() {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.put(tenant, shard, remembered, head);
    }
}

/// Values hold keys and owners of tenants, so only numbers are shown.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
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

    fn take(&mut self, tenant: TenantId, shard: ShardKey) -> Option<Remembered> {
        let found = self.shards.remove(&(tenant, shard))?;
        self.byte_count -= found.byte_count();
        Some(found)
    }

    fn put(&mut self, tenant: TenantId, shard: ShardKey, remembered: Remembered, head: Head) {
        self.byte_count += remembered.byte_count();
        if let Some(before) = self.shards.insert((tenant, shard), remembered) {
            self.byte_count -= before.byte_count();
        }
        self.heads.insert((tenant, shard.run()), head);
    }
}
