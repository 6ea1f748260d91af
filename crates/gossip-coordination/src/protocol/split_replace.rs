//! `split_replace`: replaces a shard by children.
//!
//! The parent ends as `Split`, and the children together cover exactly its range. The child that
//! contains the parent's cursor inherits it, so no progress is lost.

use std::fmt;

use gossip_contracts::coordination::{
    CursorSemantics, MAX_SPAWNED_PER_SHARD, MAX_SPLIT_CHILDREN, ShardSpecRef, SplitReplacePlan,
    SplitValidationError, validate_split_child_cursors, validate_split_coverage,
};
use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, ShardId, ShardKey, TenantId};
use gossip_stdx::{InlineVec, SlabFull};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, check_fence_floor, check_no_offer,
    check_run_not_over, inherited_attempts, stored_time,
};
use crate::error::SplitReplaceError;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::record::{Lineage, NewShard, ShardStatus, ShardView};
use crate::split_execution::{
    DerivedShardKind, SplitReplaceResult, derive_split_shard_id, hash_split_replace,
};
use crate::validation::{check_lease, check_sequence, find_replay};

/// Replaces a shard by children.
#[derive(Clone, Copy, Debug)]
pub struct SplitReplace<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
    /// The split plan.
    pub plan: &'a SplitReplacePlan<'a>,
    /// Maximum number of children that the store can create in one transaction.
    pub children_max: usize,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for SplitReplace<'_> {
    type Output = SplitReplaceResult;
    type Error = SplitReplaceError;

    const MAKES_SHARDS: bool = true;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, SplitReplaceResult, SplitReplaceError>, SplitReplaceError>
    {
        let (shard, run) = seen.shard_and_run(self.lease.key())?;
        let record = shard.record();
        let payload_hash = hash_split_replace(self.plan);
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(self.replayed(shard)));
        }
        check_lease(now, self.tenant, self.lease, record)?;
        check_fence_floor(seen, self.lease)?;
        check_sequence(shard.op_log(), self.lease, self.op_id)?;
        // A run that is over must not grow new work; a paused one may, because the parent's lease
        // is still live.
        check_run_not_over(&run)?;
        check_no_offer(record)?;
        // After the offer check: a frozen source must not change the range that it offers.
        self.check_children(shard)?;
        check_spawn_cap(record.spawned_count(), self.plan.children().len())?;
        seen.quota.check(self.plan.children().len()).map_err(SplitValidationError::from)?;

        let children = Children {
            plan: self.plan,
            parent: self.lease.key(),
            op_id: self.op_id,
            first_index: record.spawned_count(),
            fence: record.fence_epoch(),
            attempts: inherited_attempts(record, &run),
            cursor_semantics: record.cursor_semantics(),
            split_hash: payload_hash,
        };
        let ids: InlineVec<ShardId, MAX_SPLIT_CHILDREN> =
            children.new_shards().map(|new| new.shard).collect();
        // Last, because the lookup may need a store read; the cheap checks refuse first.
        check_ids_free(&ids, seen)?;
        assert!(ids.len() == self.plan.children().len(), "every child of the plan gets an id");
        assert!(ids.iter().all(|id| id.is_derived()), "children have derived ids");
        assert!(!ids.contains(&self.lease.key().shard()), "no child is its own parent");
        let at = stored_time(shard, now);
        let entry = OpLogEntry::new(self.op_id, OpKind::SplitReplace, payload_hash, at);
        let sequence = self.lease.sequence();
        let change = ShardChange::Replace { children, sequence, entry };
        Ok(Decision::commit(change, SplitReplaceResult { children: ids }))
    }

    fn exhausted(full: SlabFull) -> SplitReplaceError {
        full.into()
    }
}

impl SplitReplace<'_> {
    /// Checks coverage, then child cursors, then the store's limit.
    fn check_children(&self, shard: ShardView<'_>) -> Result<(), SplitValidationError> {
        let children = self.plan.children();
        let specs: InlineVec<ShardSpecRef<'_>, MAX_SPLIT_CHILDREN> =
            children.iter().map(|child| child.spec).collect();
        // Coverage first: the cursor rules assume children that tile the parent's range.
        validate_split_coverage(shard.spec(), &specs)?;
        validate_split_child_cursors(shard.cursor(), children)?;
        if children.len() > self.children_max {
            return Err(SplitValidationError::BackendChildLimitExceeded {
                requested: children.len(),
                backend_max: self.children_max,
            });
        }
        Ok(())
    }

    /// Returns the earlier result. A split ends its parent, so the last spawned shards are its
    /// children.
    fn replayed(&self, shard: ShardView<'_>) -> SplitReplaceResult {
        let (spawned, made) = (shard.record().spawned_count(), self.plan.children().len());
        assert!(shard.record().status() == ShardStatus::Split, "a logged split ended its shard");
        assert!(spawned >= made, "a split shard lists its children");
        // Earlier residual splits of the same parent come first in the list.
        let first = spawned - made;
        SplitReplaceResult { children: shard.spawned().skip(first).collect() }
    }
}

/// The children to create.
#[derive(Clone, Copy)]
pub struct Children<'c> {
    plan: &'c SplitReplacePlan<'c>,
    parent: ShardKey,
    op_id: OpId,
    /// Index of the first child in the parent's list of spawned shards.
    first_index: usize,
    fence: FenceEpoch,
    attempts: u32,
    cursor_semantics: CursorSemantics,
    split_hash: u64,
}

impl fmt::Debug for Children<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children")
            .field("plan", &self.plan)
            .field("parent", &self.parent)
            .finish_non_exhaustive()
    }
}

impl<'c> Children<'c> {
    /// Returns the children in range order, which is the order of their indexes.
    pub(crate) fn new_shards(&self) -> impl Iterator<Item = NewShard<'c>> + use<'c> {
        let this = *self;
        let children = self.plan.children();
        let count = children.len();
        let mut order: InlineVec<usize, MAX_SPLIT_CHILDREN> = (0..count).collect();
        // Derived ids depend on the index, so it must not depend on the order in the caller's plan.
        order.sort_unstable_by_key(|index| children[*index].spec.start);
        let in_order = order.into_iter().enumerate();
        in_order.map(move |(number, index)| this.child(number, index))
    }

    fn child(&self, number: usize, index: usize) -> NewShard<'c> {
        let child = self.plan.children()[index];
        let (run, parent) = (self.parent.run(), self.parent.shard());
        // Indexes continue across splits, so that two splits of one parent derive different ids.
        let number = u32::try_from(self.first_index + number).expect("spawned is bounded");
        let kind = DerivedShardKind::Child;
        NewShard {
            shard: derive_split_shard_id(run, parent, self.op_id, kind, number),
            spec: child.spec,
            cursor: child.cursor,
            fence: self.fence,
            attempts: self.attempts,
            cursor_semantics: self.cursor_semantics,
            lineage: Some(Lineage { parent, split_hash: self.split_hash }),
        }
    }
}

/// Checks the cap on a shard's list of spawned shards.
pub(super) const fn check_spawn_cap(
    current: usize,
    additional: usize,
) -> Result<(), SplitValidationError> {
    // The list is part of the record, whose size every engine bounds.
    if current + additional > MAX_SPAWNED_PER_SHARD {
        return Err(SplitValidationError::SpawnLimitExceeded {
            current,
            additional,
            max: MAX_SPAWNED_PER_SHARD,
        });
    }
    Ok(())
}

/// Checks that no derived id exists. Derived ids are hashes, so a collision is possible: it is
/// refused instead of overwriting a shard. Ids within one split are compared for the same reason.
pub(super) fn check_ids_free(
    ids: &[ShardId],
    seen: &ShardInputs<'_>,
) -> Result<(), SplitValidationError> {
    let mut sorted: InlineVec<ShardId, MAX_SPLIT_CHILDREN> = InlineVec::from_slice(ids);
    sorted.sort_unstable();
    let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    let taken = ids.iter().copied().find(|id| (seen.split_hash_of)(*id).is_some());
    match twice.or(taken) {
        Some(derived_id) => Err(SplitValidationError::DerivedIdCollision { derived_id }),
        None => Ok(()),
    }
}
