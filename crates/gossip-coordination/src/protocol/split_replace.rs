//! `split_replace`: children take the place of their parent.
//!
//! The parent ends as Split, and the children together cover exactly its range. Progress is not
//! lost: the child that contains the parent's cursor carries it on.

use std::fmt;

use gossip_contracts::coordination::{
    CursorSemantics, MAX_SPAWNED_PER_SHARD, MAX_SPLIT_CHILDREN, ShardSpecRef, SplitReplacePlan,
    SplitValidationError, validate_split_child_cursors, validate_split_coverage,
};
use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, ShardId, ShardKey, TenantId};
use gossip_stdx::{InlineVec, SlabFull};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, check_no_offer, check_run_not_over,
    inherited_attempts, stored_time,
};
use crate::error::SplitReplaceError;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::record::{Lineage, NewShard, ShardStatus, ShardView};
use crate::split_execution::{
    DerivedShardKind, SplitReplaceResult, derive_split_shard_id, hash_split_replace,
};
use crate::validation::{check_lease, find_replay};

/// An owner replaces its shard by children.
#[derive(Clone, Copy, Debug)]
pub struct SplitReplace<'a> {
    /// The caller.
    pub tenant: TenantId,
    /// Its lease.
    pub lease: &'a Lease,
    /// The children.
    pub plan: &'a SplitReplacePlan<'a>,
    /// The most children that the store can publish at once.
    pub children_max: usize,
    /// Its idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for SplitReplace<'_> {
    type Output = SplitReplaceResult;
    type Error = SplitReplaceError;

    const CONSULTS_RUN: bool = true;
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
        check_run_not_over(&run)?;
        check_no_offer(record)?;
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
            children.births().map(|birth| birth.shard).collect();
        check_ids_free(&ids, seen)?;
        assert!(ids.len() == self.plan.children().len(), "every child of the plan gets an id");
        assert!(ids.iter().all(|id| id.is_derived()), "children have derived ids");
        let at = stored_time(shard, now);
        let entry = OpLogEntry::new(self.op_id, OpKind::SplitReplace, payload_hash, at);
        let change = ShardChange::Replace { children, entry };
        Ok(Decision::commit(change, SplitReplaceResult { children: ids }))
    }

    fn exhausted(full: SlabFull) -> SplitReplaceError {
        full.into()
    }
}

impl SplitReplace<'_> {
    /// Coverage, then progress, then what the store can publish.
    fn check_children(&self, shard: ShardView<'_>) -> Result<(), SplitValidationError> {
        let children = self.plan.children();
        let specs: InlineVec<ShardSpecRef<'_>, MAX_SPLIT_CHILDREN> =
            children.iter().map(|child| child.spec).collect();
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

    /// The parent ended with this split, so its last children are the ones it made.
    fn replayed(&self, shard: ShardView<'_>) -> SplitReplaceResult {
        let (spawned, made) = (shard.record().spawned_count(), self.plan.children().len());
        assert!(shard.record().status() == ShardStatus::Split, "a remembered split happened");
        assert!(spawned >= made, "a split shard remembers its children");
        let first = spawned - made;
        SplitReplaceResult { children: shard.spawned().skip(first).collect() }
    }
}

/// The shards that replace a parent, named and ready to be made.
#[derive(Clone, Copy)]
pub struct Children<'c> {
    plan: &'c SplitReplacePlan<'c>,
    parent: ShardKey,
    op_id: OpId,
    /// Number of the first child among everything the parent ever spawned.
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
    /// The children, in the order of their ranges, which is the order of their numbers.
    pub fn births(&self) -> impl Iterator<Item = NewShard<'c>> + use<'c> {
        let this = *self;
        let children = self.plan.children();
        let count = children.len();
        let mut order: InlineVec<usize, MAX_SPLIT_CHILDREN> = (0..count).collect();
        order.sort_unstable_by_key(|index| children[*index].spec.start);
        let in_order = order.into_iter().enumerate();
        in_order.map(move |(number, index)| this.birth(number, index))
    }

    fn birth(&self, number: usize, index: usize) -> NewShard<'c> {
        let child = self.plan.children()[index];
        let (run, parent) = (self.parent.run(), self.parent.shard());
        // Numbers go on across splits, so that no two splits of one parent derive the same id.
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

/// A shard's list of everything it ever spawned is bounded.
pub(super) const fn check_spawn_cap(
    current: usize,
    additional: usize,
) -> Result<(), SplitValidationError> {
    if current + additional > MAX_SPAWNED_PER_SHARD {
        return Err(SplitValidationError::SpawnLimitExceeded {
            current,
            additional,
            max: MAX_SPAWNED_PER_SHARD,
        });
    }
    Ok(())
}

/// Derived ids are hashes: a taken one is refused, never overwritten. Ids within one split are
/// compared too, for the same reason.
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
