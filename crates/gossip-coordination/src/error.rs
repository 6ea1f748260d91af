//! Errors of the shard operations: one enum for each, with exactly the variants it can answer.
//!
//! A caller matches on what can happen to *its* operation and on nothing else. Lost races and
//! callers' mistakes are values here; a broken store is [`InfraError`]; a broken invariant of ours
//! is a panic and not here at all.
//!
//! No error shows a key, a token, an owner, a hash or another tenant: keys and tokens appear as
//! lengths, owners and hashes inside [`Redacted`]. Variants that the seeds do not have are marked
//! *Added*.

use gossip_contracts::coordination::SplitValidationError;
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, Redacted, ShardKey, TenantId, WorkerId,
};
use gossip_stdx::SlabFull;
use thiserror::Error;

use crate::handoff::HandoffId;
use crate::record::ShardStatus;
use crate::run::RunStatus;
use crate::store::is_about_record;

/// A store failed; the protocol had no say.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InfraError {
    /// Worth trying again: a timeout, a lost connection, too many conflicts.
    #[error("{operation}: {message}")]
    Transient {
        /// The step that failed, such as `renew.commit`.
        operation: &'static str,
        /// What the engine said.
        message: String,
    },
    /// Not worth trying again: what is stored is not what was written.
    #[error("{operation}: {message}")]
    Corruption {
        /// The step that failed.
        operation: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Added: not worth trying again as it is. The store works, and says no.
    #[error("{operation}: {message}")]
    Refused {
        /// The step that was refused.
        operation: &'static str,
        /// Why, for programs.
        why: StoreRefusal,
        /// Why, and what to do about it, for people.
        message: String,
    },
}

/// Why a store that works refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreRefusal {
    /// More than the store takes in one transaction.
    TooLarge,
    /// There is no room left: a full disk, an exceeded quota.
    NoSpace,
    /// It may be read and not written.
    ReadOnly,
    /// It does not let this user in, or not there.
    NotPermitted,
    /// What is stored was written by a newer version of this program.
    NewerFormat,
    /// It is not a store of ours, or not one that this program can speak with.
    Unusable,
}

impl InfraError {
    /// Whether trying again can help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Transient { .. } => true,
            Self::Corruption { .. } | Self::Refused { .. } => false,
        }
    }

    /// Whether a record cannot be read, and not the engine that keeps it.
    #[must_use]
    pub fn is_of_record(&self) -> bool {
        match self {
            Self::Corruption { operation, .. } => is_about_record(operation),
            Self::Transient { .. } | Self::Refused { .. } => false,
        }
    }
}

/// By how much a cursor missed its shard, in lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a cursor key of {last_key} bytes lies outside the shard (bounds of {spec_start} and \
     {spec_end} bytes)"
)]
pub struct CursorOutOfBoundsDetail {
    /// Length of the cursor's key.
    pub last_key: usize,
    /// Length of the shard's start.
    pub spec_start: usize,
    /// Length of the shard's end.
    pub spec_end: usize,
}

/// The shared vocabulary of refusals, as the seeds define it.
///
/// Public checks such as [`validate_lease`](crate::validate_lease) return it. The kernel itself
/// uses smaller errors that only widen (DESIGN Q18).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CoordError {
    /// The tenant has no such shard.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The shard asked for.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never told.
        expected: TenantId,
    },
    /// Somebody acquired the shard since: stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was given back.
        current: FenceEpoch,
    },
    /// The lease ran out.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// When it ended.
        deadline: LogicalTime,
        /// When the operation arrived.
        now: LogicalTime,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// How it ended.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a bug of the caller.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The id that was used twice.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The cursor would fall.
    #[error("the cursor would fall (stored key of {} bytes, presented key of {} bytes)", old_key.unwrap_or(0), new_key.unwrap_or(0))]
    CursorRegression {
        /// Length of the stored key.
        old_key: Option<usize>,
        /// Length of the presented key.
        new_key: Option<usize>,
    },
    /// The cursor lies outside the shard.
    #[error(transparent)]
    CursorOutOfBounds(CursorOutOfBoundsDetail),
    /// The cursor's key is oversized.
    #[error("a cursor key of {size} bytes exceeds {max}")]
    CursorKeyTooLarge {
        /// Its length.
        size: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The cursor's token is oversized.
    #[error("a cursor token of {size} bytes exceeds {max}")]
    CursorTokenTooLarge {
        /// Its length.
        size: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The split does not hold together.
    #[error("the split is invalid: {0}")]
    SplitInvalid(#[source] SplitValidationError),
    /// A cursor without a key says nothing.
    #[error("the cursor has no key")]
    CheckpointMissingKey,
}

/// Why a shard could not be acquired.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The tenant has no such shard.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The shard asked for.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never told.
        expected: TenantId,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// How it ended.
        status: ShardStatus,
    },
    /// Somebody holds the shard.
    #[error("the shard is leased until {lease_deadline}")]
    AlreadyLeased {
        /// Who: never shown.
        current_owner: Redacted<WorkerId>,
        /// When to try again.
        lease_deadline: LogicalTime,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (DESIGN Q5): the run is over and grows no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How the run ended.
        status: RunStatus,
    },
    /// Added (FACTS 4.9): the run is paused.
    #[error("the run is paused")]
    RunPaused,
}

/// Why a lease could not be renewed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RenewError {
    /// The tenant has no such shard.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The shard asked for.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never told.
        expected: TenantId,
    },
    /// Somebody acquired the shard since: stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was given back.
        current: FenceEpoch,
    },
    /// The lease ran out.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// When it ended.
        deadline: LogicalTime,
        /// When the operation arrived.
        now: LogicalTime,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// How it ended.
        status: ShardStatus,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (DESIGN Q5): the run is over and grows no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How the run ended.
        status: RunStatus,
    },
}

/// Why progress could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The tenant has no such shard.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The shard asked for.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never told.
        expected: TenantId,
    },
    /// Somebody acquired the shard since: stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was given back.
        current: FenceEpoch,
    },
    /// The lease ran out.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// When it ended.
        deadline: LogicalTime,
        /// When the operation arrived.
        now: LogicalTime,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// How it ended.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a bug of the caller.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The id that was used twice.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The cursor would fall.
    #[error("the cursor would fall (stored key of {} bytes, presented key of {} bytes)", old_key.unwrap_or(0), new_key.unwrap_or(0))]
    CursorRegression {
        /// Length of the stored key.
        old_key: Option<usize>,
        /// Length of the presented key.
        new_key: Option<usize>,
    },
    /// The cursor lies outside the shard.
    #[error(transparent)]
    CursorOutOfBounds(CursorOutOfBoundsDetail),
    /// The cursor's key is oversized.
    #[error("a cursor key of {size} bytes exceeds {max}")]
    CursorKeyTooLarge {
        /// Its length.
        size: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The cursor's token is oversized.
    #[error("a cursor token of {size} bytes exceeds {max}")]
    CursorTokenTooLarge {
        /// Its length.
        size: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A cursor without a key says nothing.
    #[error("the cursor has no key")]
    CheckpointMissingKey,
    /// The byte slab is full; nothing was changed.
    #[error("no room left for the record: {0}")]
    ResourceExhausted(#[source] SlabFull),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (FACTS 4.9): an offer stands, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The move that was offered.
        handoff: HandoffId,
        /// Until when it can be accepted.
        deadline: LogicalTime,
    },
}

/// Why a shard could not be completed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// The tenant has no such shard.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The shard asked for.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never told.
        expected: TenantId,
    },
    /// Somebody acquired the shard since: stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was given back.
        current: FenceEpoch,
    },
    /// The lease ran out.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// When it ended.
        deadline: LogicalTime,
        /// When the operation arrived.
        now: LogicalTime,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// How it ended.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a bug of the caller.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The id that was used twice.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The cursor would fall.
    #[error("the cursor would fall (stored key of {} bytes, presented key of {} bytes)", old_key.unwrap_or(0), new_key.unwrap_or(0))]
    CursorRegression {
        /// Length of the stored key.
        old_key: Option<usize>,
        /// Length of the presented key.
        new_key: Option<usize>,
    },
    /// The cursor lies outside the shard.
    #[error(transparent)]
    CursorOutOfBounds(CursorOutOfBoundsDetail),
    /// The cursor's key is oversized.
    #[error("a cursor key of {size} bytes exceeds {max}")]
    CursorKeyTooLarge {
        /// Its length.
        size: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The cursor's token is oversized.
    #[error("a cursor token of {size} bytes exceeds {max}")]
    CursorTokenTooLarge {
        /// Its length.
        size: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A cursor without a key says nothing.
    #[error("the cursor has no key")]
    CheckpointMissingKey,
    /// The byte slab is full; nothing was changed.
    #[error("no room left for the record: {0}")]
    ResourceExhausted(#[source] SlabFull),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (FACTS 4.9): an offer stands, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The move that was offered.
        handoff: HandoffId,
        /// Until when it can be accepted.
        deadline: LogicalTime,
    },
}

/// Why a shard could not be parked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParkError {
    /// The tenant has no such shard.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The shard asked for.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never told.
        expected: TenantId,
    },
    /// Somebody acquired the shard since: stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was given back.
        current: FenceEpoch,
    },
    /// The lease ran out.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// When it ended.
        deadline: LogicalTime,
        /// When the operation arrived.
        now: LogicalTime,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// How it ended.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a bug of the caller.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The id that was used twice.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (FACTS 4.9): an offer stands, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The move that was offered.
        handoff: HandoffId,
        /// Until when it can be accepted.
        deadline: LogicalTime,
    },
}

/// Why a shard could not be split.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The tenant has no such shard.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The shard asked for.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never told.
        expected: TenantId,
    },
    /// Somebody acquired the shard since: stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was given back.
        current: FenceEpoch,
    },
    /// The lease ran out.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// When it ended.
        deadline: LogicalTime,
        /// When the operation arrived.
        now: LogicalTime,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// How it ended.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a bug of the caller.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The id that was used twice.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The split does not hold together.
    #[error("the split is invalid: {0}")]
    SplitInvalid(#[source] SplitValidationError),
    /// The byte slab is full; nothing was changed.
    #[error("no room left for the record: {0}")]
    ResourceExhausted(#[source] SlabFull),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (DESIGN Q5): the run is over and grows no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How the run ended.
        status: RunStatus,
    },
    /// Added (FACTS 4.9): an offer stands, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The move that was offered.
        handoff: HandoffId,
        /// Until when it can be accepted.
        deadline: LogicalTime,
    },
}

/// Split-replace and split-residual fail alike.
pub type SplitReplaceError = SplitError;
/// Split-replace and split-residual fail alike.
pub type SplitResidualError = SplitError;
