//! Who holds a shard after a change, and the key that tells whether that process lives.
//!
//! Only stores that can tie a key to the life of a process have owner keys
//! ([`Store::binding`](super::Store::binding)); on others none is written or read.
//!
//! # Invariants
//! - Every grant writes the owner key and every end of a lease deletes it, in the same commit.
//! - Whoever keeps a lease writes its owner key again if it may have vanished since. No
//!   administrator ever does: the key would live and die with the wrong process.
//! - An owner key is written only together with the hot part. So an acquire that compares the hot
//!   part need not compare the owner key: all that can happen to it alone is that it vanishes,
//!   which forbids nothing that was allowed.
//! - Evidence delays a takeover and never brings one forward; the kernel sees to that.
//! - A key that cannot be read is no reason to refuse anything, because it is only a hint. It is
//!   taken for the key of the present lease, which delays a takeover by no more than the skew. The
//!   next grant writes it anew.

use gossip_contracts::identity::{ShardKey, TenantId};

use super::codec::{OwnerBinding, decode_owner, encode_owner};
use super::core::encoded;
use super::key::Key;
use super::txn::{Txn, Versioned};
use crate::lease::GrantToken;
use crate::protocol::{OwnerEvidence, ShardChange};
use crate::record::ShardRecord;

/// Who holds a shard after a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnershipChange {
    /// The caller, by this grant.
    Granted(GrantToken),
    /// The caller, as before.
    Kept,
    /// Nobody any more.
    Ended,
    /// Whoever held it before, if anybody: the caller is an administrator.
    Untouched,
}

impl OwnershipChange {
    pub(super) const fn after(change: &ShardChange<'_>) -> Self {
        match change {
            ShardChange::Grant { holder, .. } => Self::Granted(holder.token()),
            ShardChange::Renew { .. }
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

    /// Whether the caller holds the shard.
    pub(super) const fn is_held(self) -> bool {
        matches!(self, Self::Granted(_) | Self::Kept)
    }
}

/// What the owner key of a shard is tied to.
#[derive(Clone, Copy)]
pub(super) struct OwnerKeyState {
    /// The store's present binding; `None` if it binds nothing.
    pub(super) binding: Option<u64>,
    /// The binding when this handle last wrote the key; `None` if it is not known to have.
    pub(super) bound: Option<u64>,
}

impl OwnerKeyState {
    /// Adds to `txn` what becomes of the owner key of `record`, which was changed already.
    pub(super) fn write(
        self,
        txn: &mut Txn,
        record: &ShardRecord,
        ownership_change: OwnershipChange,
    ) {
        if self.binding.is_none() {
            return;
        }
        let (tenant, shard) = (record.tenant(), record.key());
        let key = Key::Owner { tenant, shard };
        match ownership_change {
            OwnershipChange::Kept if self.bound == self.binding => {}
            OwnershipChange::Granted(_) | OwnershipChange::Kept => {
                let holder = record.lease().expect("a shard that is held has a holder");
                let (owner, token) = (holder.owner(), holder.token());
                let binding = OwnerBinding { owner, fence: record.fence_epoch(), token };
                txn.bind(key, encoded(|out| encode_owner(tenant, shard, &binding, out)));
            }
            OwnershipChange::Ended => txn.delete(key),
            OwnershipChange::Untouched => {}
        }
    }
}

/// What is stored under the owner key of a shard.
pub(super) enum OwnerKey {
    Missing,
    /// Something is there, and nobody can tell whose it is.
    Damaged,
    Of(OwnerBinding),
}

impl OwnerKey {
    pub(super) fn read(value: Option<&Versioned>, tenant: TenantId, shard: ShardKey) -> Self {
        let Some(value) = value else { return Self::Missing };
        decode_owner(tenant, shard, &value.bytes).map_or(Self::Damaged, Self::Of)
    }

    /// What the key says about the holder of `record`. That of another grant says nothing.
    pub(super) fn evidence(self, record: &ShardRecord, max_clock_skew: u64) -> OwnerEvidence {
        let Some(holder) = record.lease() else { return OwnerEvidence::Gone };
        let is_of_lease = match self {
            Self::Missing => false,
            Self::Damaged => true,
            Self::Of(key) => key.fence == record.fence_epoch() && key.token == holder.token(),
        };
        match is_of_lease {
            true => OwnerEvidence::Alive { owner: holder.owner(), max_clock_skew },
            false => OwnerEvidence::Gone,
        }
    }
}
