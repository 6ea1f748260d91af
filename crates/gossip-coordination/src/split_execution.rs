//! Ids and fingerprints: the names of shards that splits make, and the hashes of operations.
//!
//! Both are pure functions of their arguments, so a retry on another machine derives the same ids
//! and the same hash.

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, MAX_SPLIT_CHILDREN, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{
    CanonicalBytes, CanonicalHasher, Domain, FenceEpoch, LogicalTime, OpId, RunId, ShardId,
    ShardKey,
};
use gossip_stdx::InlineVec;

use crate::handoff::HandoffId;
use crate::protocol::{OfferTerms, ReleaseMode};
use crate::record::{ParkReason, ShardView};
use crate::request::ShardAction;

/// How a derived shard came to be. The numbers are hashed into its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(clippy::exhaustive_enums, reason = "there are exactly two kinds of split")]
pub enum DerivedShardKind {
    /// One of the children that replaced their parent.
    Child = 0,
    /// The right part of a shrunk parent.
    Residual = 1,
}

const _: () = assert!(DerivedShardKind::Child as u8 == 0 && DerivedShardKind::Residual as u8 == 1);

impl CanonicalBytes for DerivedShardKind {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u8(*self as u8);
    }
}

impl CanonicalBytes for ParkReason {
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u8(*self as u8);
    }
}

/// The shards that replaced a parent, in the order of their ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitReplaceResult {
    /// Their ids.
    pub children: InlineVec<ShardId, MAX_SPLIT_CHILDREN>,
}

/// The shard that took the right part of a shrunk parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitResidualResult {
    /// Its id.
    pub residual: ShardId,
}

/// The id of the `index`-th shard cut from `parent` by operation `op_id`.
///
/// Bit 63 is set, which no root may have. The other 63 bits are a hash: with the number of shards
/// bounded, two ids of one run are equal about once in 2⁴⁴ runs of a thousand shards, and a split
/// that meets a taken id is refused.
#[must_use]
pub fn derive_split_shard_id(
    run: RunId,
    parent: ShardId,
    op_id: OpId,
    kind: DerivedShardKind,
    index: u32,
) -> ShardId {
    let mut hasher = CanonicalHasher::for_domain(Domain::SPLIT_ID_V1);
    hasher.write_u64(run.as_raw());
    hasher.write_u64(parent.as_raw());
    // The operation is part of the id: a second split of the parent must not derive the ids of the
    // first.
    hasher.write_u64(op_id.as_raw());
    kind.write_canonical(&mut hasher);
    hasher.write_u32(index);
    ShardId::from_raw(hasher.finalize_64() | ShardId::DERIVED_BIT)
}

/// The residual that operation `op_id` made, if `parent` ever made one by it.
///
/// The parent's list of spawned shards is never evicted and ids are derived, so the operation is
/// recognised by the id it would have given at each position — also after the operation log has
/// forgotten it.
pub(crate) fn find_replayed_residual(parent: ShardView<'_>, op_id: OpId) -> Option<ShardId> {
    let key = parent.record().key();
    let mut spawned = parent.spawned().zip(0_u32..);
    let kind = DerivedShardKind::Residual;
    let derived = |index| derive_split_shard_id(key.run(), key.shard(), op_id, kind, index);
    spawned.find(|(id, index)| *id == derived(*index)).map(|(id, _)| id)
}

/// Fingerprint of a checkpoint.
#[must_use]
pub(crate) fn hash_checkpoint(cursor: CursorUpdate<'_>) -> u64 {
    hash_operation(b"checkpoint", |hasher| cursor.write_canonical(hasher))
}

/// Fingerprint of a completion.
#[must_use]
pub(crate) fn hash_complete(cursor: CursorUpdate<'_>) -> u64 {
    hash_operation(b"complete", |hasher| cursor.write_canonical(hasher))
}

/// Fingerprint of a parking.
#[must_use]
pub(crate) fn hash_park(reason: ParkReason) -> u64 {
    hash_operation(b"park", |hasher| reason.write_canonical(hasher))
}

/// Fingerprint of a replacing split; the order of the children counts.
#[must_use]
pub(crate) fn hash_split_replace(plan: &SplitReplacePlan<'_>) -> u64 {
    hash_operation(b"split_replace", |hasher| plan.write_canonical(hasher))
}

/// Fingerprint of a residual split.
#[must_use]
pub(crate) fn hash_split_residual(plan: &SplitResidualPlan<'_>) -> u64 {
    hash_operation(b"split_residual", |hasher| plan.write_canonical(hasher))
}

/// Fingerprint of an unparking.
#[must_use]
pub(crate) fn hash_unpark(key: ShardKey) -> u64 {
    hash_operation(b"unpark_shard", |hasher| key.write_canonical(hasher))
}

/// Fingerprint of a release.
#[must_use]
pub(crate) fn hash_release(mode: ReleaseMode) -> u64 {
    hash_operation(b"release", |hasher| hasher.write_u8(mode as u8))
}

/// Fingerprint of an offer.
#[must_use]
pub(crate) fn hash_offer(terms: OfferTerms, cursor: CursorUpdate<'_>) -> u64 {
    hash_operation(b"offer", |hasher| {
        hasher.write_u64(terms.handoff.as_raw());
        hasher.write_u64(terms.destination.as_raw());
        hasher.write_u64(terms.deadline.as_raw());
        cursor.write_canonical(hasher);
    })
}

/// Fingerprint of a withdrawal.
#[must_use]
pub(crate) fn hash_withdraw(handoff: HandoffId) -> u64 {
    hash_operation(b"withdraw", |hasher| hasher.write_u64(handoff.as_raw()))
}

/// Fingerprint of a revocation. The fence is last, so its absence is no other fence.
#[must_use]
pub(crate) fn hash_revoke_lease(key: ShardKey, expected_fence: Option<FenceEpoch>) -> u64 {
    hash_operation(b"revoke_lease", |hasher| {
        key.write_canonical(hasher);
        if let Some(fence) = expected_fence {
            fence.write_canonical(hasher);
        }
    })
}

/// Fingerprint of a request to a shard's owner.
#[must_use]
pub(crate) fn hash_request_action(
    key: ShardKey,
    action: &ShardAction,
    expires_at: LogicalTime,
) -> u64 {
    hash_operation(b"request_action", |hasher| {
        key.write_canonical(hasher);
        action.write_canonical(hasher);
        hasher.write_u64(expires_at.as_raw());
    })
}

/// Fingerprint of a registration; the order of the shards does not count.
#[must_use]
pub(crate) fn hash_register_shards(shards: &[InitialShardInput<'_>]) -> u64 {
    let mut by_id: Vec<_> = shards.iter().collect();
    // A retry may list the same shards in another order.
    by_id.sort_unstable_by_key(|shard| shard.shard_id);
    hash_operation(b"register_shards", |hasher| {
        let count = u32::try_from(by_id.len()).expect("the count was capped before hashing");
        hasher.write_u32(count);
        for shard in &by_id {
            hasher.write_u64(shard.shard_id.as_raw());
            shard.spec.write_canonical(hasher);
            shard.cursor.write_canonical(hasher);
        }
    })
}

/// Fingerprint of an operation on a run that has no parameters, by its tag.
#[must_use]
pub(crate) fn hash_run_operation(tag: &'static [u8]) -> u64 {
    hash_operation(tag, |_| ())
}

/// The tag precedes the fields without a length: it separates operations with equal fields.
fn hash_operation(tag: &'static [u8], write_fields: impl FnOnce(&mut CanonicalHasher)) -> u64 {
    let mut hasher = CanonicalHasher::for_domain(Domain::OP_PAYLOAD_V1);
    hasher.write_raw(tag);
    write_fields(&mut hasher);
    hasher.finalize_64()
}
