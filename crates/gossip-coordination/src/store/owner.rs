//! Owner keys: evidence that a shard's lease holder is alive.
//!
//! Only stores that can bind a key to the life of a process have owner keys
//! ([`Store::binding`](super::Store::binding)); other stores neither write nor read them.
//!
//! # Invariants
//! - Every grant writes the owner key and every end of a lease deletes it, in the same commit.
//! - A lease holder rewrites its owner key if the key may have vanished since. An administrator
//!   never writes one: the key would be bound to the wrong process.
//! - An owner key is written only together with the hot part. So an acquire that compares the hot
//!   part need not compare the owner key: the key alone can only vanish, and that never makes an
//!   allowed acquire wrong.
//! - Evidence delays a takeover and never permits an earlier one; the kernel enforces that.
//! - An owner key that cannot be decoded refuses nothing, because it is only a hint. It counts as
//!   the key of the present lease, which delays a takeover by at most the clock skew. The next
//!   grant overwrites it.

use gossip_contracts::identity::{ShardKey, TenantId};

use super::codec::{OwnerBinding, decode_owner, encode_owner};
use super::core::encoded;
use super::key::Key;
use super::txn::{Txn, Versioned};
use crate::lease::GrantToken;
use crate::protocol::{OwnerEvidence, ShardChange};
use crate::record::ShardRecord;

/// The effect of a change on the lease holder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnershipChange {
    /// The caller holds the shard by this grant.
    Granted(GrantToken),
    /// The caller still holds the shard.
    Kept,
    /// The lease ended.
    Ended,
    /// The lease is unchanged: the caller is an administrator.
    Untouched,
}

impl OwnershipChange {
    pub(super) const fn after(change: &ShardChange<'_>) -> Self {
        match change {
            ShardChange::Grant { holder, .. } => Self::Granted(holder.token()),
            ShardChange::Confirm { .. }
            | ShardChange::Renew { .. }
            | ShardChange::Advance { .. }
            | ShardChange::Shrink { .. }
            | ShardChange::Offer { .. }
            | ShardChange::Withdraw { .. } => Self::Kept,
            ShardChange::Complete { .. }
            | ShardChange::Park { .. }
            | ShardChange::Replace { .. }
            | ShardChange::Release { .. }
            | ShardChange::Revoke { .. } => Self::Ended,
            ShardChange::Unpark { .. } | ShardChange::Request { .. } => Self::Untouched,
        }
    }

    /// Returns whether the caller holds the shard.
    pub(super) const fn is_held(self) -> bool {
        matches!(self, Self::Granted(_) | Self::Kept)
    }
}

/// The bindings that decide whether to write the owner key.
#[derive(Clone, Copy)]
pub(super) struct OwnerKeyState {
    /// The store's current binding; `None` if the store binds no keys.
    pub(super) binding: Option<u64>,
    /// The binding under which this handle last wrote the key; `None` if unknown.
    pub(super) bound: Option<u64>,
}

impl OwnerKeyState {
    /// Returns whether a bound owner key implies a store that binds keys.
    pub(super) const fn is_consistent(self) -> bool {
        self.bound.is_none() || self.binding.is_some()
    }

    /// Adds the write of the owner key of `record`, which is already changed, to `txn`.
    pub(super) fn write(
        self,
        txn: &mut Txn,
        record: &ShardRecord,
        ownership_change: OwnershipChange,
    ) {
        // Stores without bindings would keep the key of a dead process for ever.
        if self.binding.is_none() {
            return;
        }
        let (tenant, shard) = (record.tenant(), record.key());
        let key = Key::Owner { tenant, shard };
        match ownership_change {
            // The key was written under the current binding, so it exists: save the write.
            OwnershipChange::Kept if self.bound == self.binding => {}
            OwnershipChange::Granted(_) | OwnershipChange::Kept => {
                let holder = record.lease().expect("a held shard has a lease");
                let (owner, token) = (holder.owner(), holder.token());
                let binding = OwnerBinding { owner, fence: record.fence_epoch(), token };
                txn.bind(key, encoded(|out| encode_owner(tenant, shard, &binding, out)));
            }
            OwnershipChange::Ended => txn.delete(key),
            // Written by an administrator, the key would be bound to the administrator's process.
            OwnershipChange::Untouched => {}
        }
    }
}

/// The decoded owner key of a shard.
pub(super) enum OwnerKey {
    Missing,
    /// The key exists, but its value cannot be decoded.
    Damaged,
    Of(OwnerBinding),
}

impl OwnerKey {
    pub(super) fn read(value: Option<&Versioned>, tenant: TenantId, shard: ShardKey) -> Self {
        let Some(value) = value else { return Self::Missing };
        decode_owner(tenant, shard, &value.bytes).map_or(Self::Damaged, Self::Of)
    }

    /// Returns the evidence about the lease holder of `record`; a key of another grant is ignored.
    pub(super) fn evidence(self, record: &ShardRecord, max_clock_skew: u64) -> OwnerEvidence {
        // Without a lease there is no takeover to delay.
        let Some(holder) = record.lease() else { return OwnerEvidence::Gone };
        let is_of_lease = match self {
            Self::Missing => false,
            Self::Damaged => true,
            // A key of another grant says nothing about the present lease holder.
            Self::Of(key) => key.fence == record.fence_epoch() && key.token == holder.token(),
        };
        match is_of_lease {
            true => OwnerEvidence::Alive { owner: holder.owner(), max_clock_skew },
            false => OwnerEvidence::Gone,
        }
    }
}
