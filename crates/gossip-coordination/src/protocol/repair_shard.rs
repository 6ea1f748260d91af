//! `repair_shard`: an operator rebuilds the record of a damaged shard.
//!
//! The new record has no lease and a fence above every fence that the shard can have had, so a
//! worker that still holds a lease on it is fenced out; leases on other shards are not affected.
//! Without its hot part the shard starts again at the first key of its range. With it, status and
//! progress are kept.

use gossip_contracts::identity::{FenceEpoch, ShardKey, TenantId};

use super::raise_fence_floor::raised;
use crate::record::ShardStatus;
use crate::run::{RunHead, RunStatus, ShardDamage};
use crate::run_errors::RepairShardError;

/// Repairs the record of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepairShard {
    /// The tenant.
    pub tenant: TenantId,
    /// The shard.
    pub(crate) key: ShardKey,
    /// The fence to reach at least; see [`fence_floor_at`](super::fence_floor_at).
    pub(crate) at_least: FenceEpoch,
}

/// The readable state of a damaged shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remains {
    /// Its run, if it exists.
    pub(crate) run: Option<RunHead>,
    /// The damaged part; `None` if the shard is intact.
    pub(crate) damage: Option<ShardDamage>,
    /// Its status, if the hot part is intact.
    pub(crate) status: Option<ShardStatus>,
    /// Whether shards that were cut from it cover its range.
    pub(crate) is_covered: bool,
    /// The highest fence that is known of it, from intact records.
    pub(crate) fence: FenceEpoch,
}

/// What a repaired shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairedShard {
    /// The part that was damaged.
    pub damage: ShardDamage,
    /// Its status. A shard whose hot part was damaged is `Active`, or `Split` if other shards cover
    /// its range.
    pub status: ShardStatus,
    /// Its fence.
    pub fence: FenceEpoch,
}

impl RepairShard {
    /// Decides what the repaired shard is.
    ///
    /// # Errors
    ///
    /// Returns the first check that fails.
    pub(crate) fn decide(&self, remains: &Remains) -> Result<RepairedShard, RepairShardError> {
        let found = remains.run.filter(|run| run.status != RunStatus::Initializing);
        let run = found.ok_or(RepairShardError::ShardNotFound)?;
        let damage = remains.damage.ok_or(RepairShardError::NotDamaged)?;
        // A rebuilt shard would be claimable work of a terminal run.
        if run.status.is_terminal() {
            return Err(RepairShardError::RunTerminal { status: run.status });
        }
        let known = remains.fence.max(run.fence_floor);
        // A fence at the maximum still rises: two lease holders must not have the same one.
        let fence = raised(known, self.at_least).max(known.increment());
        // A replaced shard that became active would be processed a second time.
        let rebuilt = if remains.is_covered { ShardStatus::Split } else { ShardStatus::Active };
        let status = remains.status.unwrap_or(rebuilt);
        assert!(fence > known, "a repair raises the fence");
        let was_parked = remains.status == Some(ShardStatus::Parked);
        assert!(status != ShardStatus::Parked || was_parked, "a repair parks no shard");
        Ok(RepairedShard { damage, status, fence })
    }
}
