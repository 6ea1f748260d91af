//! What a change of a shard means for whoever holds it.

use crate::lease::GrantToken;
use crate::protocol::ShardChange;

/// Who holds a shard after a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// The caller, by this grant.
    Granted(GrantToken),
    /// The caller, as before.
    Kept,
    /// Nobody any more.
    Ended,
    /// Whoever held it before, if anybody: the caller is an administrator.
    Untouched,
}

impl Holding {
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
            ShardChange::Unpark { .. } | ShardChange::Request(_) => Self::Untouched,
        }
    }

    /// Whether the caller holds the shard.
    pub(super) const fn is_held(self) -> bool {
        matches!(self, Self::Granted(_) | Self::Kept)
    }
}
