//! Errors of the shard operations: one enum per operation, with exactly the variants it can return.
//!
//! A caller matches only on the failures of *its* operation. Lost races and callers' mistakes are
//! values here; a failure of the store is an [`InfraError`]; a violated invariant is a panic.
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

/// A failure of the store, independent of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InfraError {
    /// Retryable: a timeout, a lost connection, too many conflicts.
    #[error("{operation}: {message}")]
    Transient {
        /// The step that failed, such as `renew.commit`.
        operation: &'static str,
        /// The engine's message.
        message: String,
    },
    /// Not retryable: a stored value is damaged.
    #[error("{operation}: {message}")]
    Corruption {
        /// The step that failed.
        operation: &'static str,
        /// The damage.
        message: String,
    },
    /// Added: not retryable without a change. The store works and refuses the request.
    #[error("{operation}: {message}")]
    Refused {
        /// The step that was refused.
        operation: &'static str,
        /// The reason, for programs.
        why: StoreRefusal,
        /// The reason and the remedy, for people.
        message: String,
    },
}

/// Why a working store refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreRefusal {
    /// The transaction exceeds the store's limits.
    TooLarge,
    /// No space is left: a full disk, an exceeded quota.
    NoSpace,
    /// The store is read-only.
    ReadOnly,
    /// The credentials lack access.
    NotPermitted,
    /// The record was written by a newer version of this program.
    NewerFormat,
    /// The store is foreign, or its version is not supported.
    Unusable,
}

impl InfraError {
    /// Returns whether a retry can succeed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Transient { .. } => true,
            Self::Corruption { .. } | Self::Refused { .. } => false,
        }
    }

    /// Returns whether a record is unreadable, as opposed to a failure of the engine.
    #[must_use]
    pub fn is_of_record(&self) -> bool {
        match self {
            Self::Corruption { operation, .. } => is_about_record(operation),
            Self::Transient { .. } | Self::Refused { .. } => false,
        }
    }
}

/// The lengths of a cursor's key and of the bounds it violates.
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

/// All refusals, as the seeds define them.
///
/// Public checks such as [`validate_lease`](crate::validate_lease) return it. The kernel itself
/// uses smaller errors that convert into larger ones (DESIGN Q18).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CoordError {
    /// The shard does not exist for this tenant.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The requested shard.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never revealed.
        expected: TenantId,
    },
    /// The shard was granted again since: the caller must stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was released.
        current: FenceEpoch,
    },
    /// The lease expired.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// The deadline.
        deadline: LogicalTime,
        /// The time of the operation.
        now: LogicalTime,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// The status.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a caller's bug.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The reused id.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The cursor would move backwards.
    #[error("the cursor would move backwards (stored key of {} bytes, presented key of {} bytes)", old_key.unwrap_or(0), new_key.unwrap_or(0))]
    CursorRegression {
        /// Length of the stored key.
        old_key: Option<usize>,
        /// Length of the presented key.
        new_key: Option<usize>,
    },
    /// The cursor lies outside the shard.
    #[error(transparent)]
    CursorOutOfBounds(CursorOutOfBoundsDetail),
    /// The cursor's key is too long.
    #[error("a cursor key of {size} bytes exceeds {max}")]
    CursorKeyTooLarge {
        /// Its length.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The cursor's token is too long.
    #[error("a cursor token of {size} bytes exceeds {max}")]
    CursorTokenTooLarge {
        /// Its length.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The split is invalid.
    #[error("the split is invalid: {0}")]
    SplitInvalid(#[source] SplitValidationError),
    /// The cursor has no key.
    #[error("the cursor has no key")]
    CheckpointMissingKey,
}

/// Why a shard could not be acquired.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The shard does not exist for this tenant.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The requested shard.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never revealed.
        expected: TenantId,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// The status.
        status: ShardStatus,
    },
    /// The shard has a live lease.
    #[error("the shard is leased until {lease_deadline}")]
    AlreadyLeased {
        /// The lease holder; never shown.
        current_owner: Redacted<WorkerId>,
        /// The deadline, after which to try again.
        lease_deadline: LogicalTime,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (DESIGN Q5): the run is terminal and accepts no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// The run's status.
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
    /// The shard does not exist for this tenant.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The requested shard.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never revealed.
        expected: TenantId,
    },
    /// The shard was granted again since: the caller must stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was released.
        current: FenceEpoch,
    },
    /// The lease expired.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// The deadline.
        deadline: LogicalTime,
        /// The time of the operation.
        now: LogicalTime,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// The status.
        status: ShardStatus,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (DESIGN Q5): the run is terminal and accepts no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// The run's status.
        status: RunStatus,
    },
}

/// Why a checkpoint failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The shard does not exist for this tenant.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The requested shard.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never revealed.
        expected: TenantId,
    },
    /// The shard was granted again since: the caller must stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was released.
        current: FenceEpoch,
    },
    /// The lease expired.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// The deadline.
        deadline: LogicalTime,
        /// The time of the operation.
        now: LogicalTime,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// The status.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a caller's bug.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The reused id.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The cursor would move backwards.
    #[error("the cursor would move backwards (stored key of {} bytes, presented key of {} bytes)", old_key.unwrap_or(0), new_key.unwrap_or(0))]
    CursorRegression {
        /// Length of the stored key.
        old_key: Option<usize>,
        /// Length of the presented key.
        new_key: Option<usize>,
    },
    /// The cursor lies outside the shard.
    #[error(transparent)]
    CursorOutOfBounds(CursorOutOfBoundsDetail),
    /// The cursor's key is too long.
    #[error("a cursor key of {size} bytes exceeds {max}")]
    CursorKeyTooLarge {
        /// Its length.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The cursor's token is too long.
    #[error("a cursor token of {size} bytes exceeds {max}")]
    CursorTokenTooLarge {
        /// Its length.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The cursor has no key.
    #[error("the cursor has no key")]
    CheckpointMissingKey,
    /// The byte slab is full; the record is unchanged.
    #[error("no room left for the record: {0}")]
    ResourceExhausted(#[source] SlabFull),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (FACTS 4.9): an offer is pending, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The offered handoff.
        handoff: HandoffId,
        /// The offer's deadline.
        deadline: LogicalTime,
    },
}

/// Why a shard could not be completed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// The shard does not exist for this tenant.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The requested shard.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never revealed.
        expected: TenantId,
    },
    /// The shard was granted again since: the caller must stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was released.
        current: FenceEpoch,
    },
    /// The lease expired.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// The deadline.
        deadline: LogicalTime,
        /// The time of the operation.
        now: LogicalTime,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// The status.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a caller's bug.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The reused id.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The cursor would move backwards.
    #[error("the cursor would move backwards (stored key of {} bytes, presented key of {} bytes)", old_key.unwrap_or(0), new_key.unwrap_or(0))]
    CursorRegression {
        /// Length of the stored key.
        old_key: Option<usize>,
        /// Length of the presented key.
        new_key: Option<usize>,
    },
    /// The cursor lies outside the shard.
    #[error(transparent)]
    CursorOutOfBounds(CursorOutOfBoundsDetail),
    /// The cursor's key is too long.
    #[error("a cursor key of {size} bytes exceeds {max}")]
    CursorKeyTooLarge {
        /// Its length.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The cursor's token is too long.
    #[error("a cursor token of {size} bytes exceeds {max}")]
    CursorTokenTooLarge {
        /// Its length.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The cursor has no key.
    #[error("the cursor has no key")]
    CheckpointMissingKey,
    /// The byte slab is full; the record is unchanged.
    #[error("no room left for the record: {0}")]
    ResourceExhausted(#[source] SlabFull),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (FACTS 4.9): an offer is pending, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The offered handoff.
        handoff: HandoffId,
        /// The offer's deadline.
        deadline: LogicalTime,
    },
}

/// Why a shard could not be parked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParkError {
    /// The shard does not exist for this tenant.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The requested shard.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never revealed.
        expected: TenantId,
    },
    /// The shard was granted again since: the caller must stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was released.
        current: FenceEpoch,
    },
    /// The lease expired.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// The deadline.
        deadline: LogicalTime,
        /// The time of the operation.
        now: LogicalTime,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// The status.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a caller's bug.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The reused id.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (FACTS 4.9): an offer is pending, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The offered handoff.
        handoff: HandoffId,
        /// The offer's deadline.
        deadline: LogicalTime,
    },
}

/// Why a shard could not be split.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The shard does not exist for this tenant.
    #[error("no such shard: {shard:?}")]
    ShardNotFound {
        /// The requested shard.
        shard: ShardKey,
    },
    /// The lease or record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant; the other one is never revealed.
        expected: TenantId,
    },
    /// The shard was granted again since: the caller must stop at once.
    #[error("stale fence: presented {presented}, current {current}")]
    StaleFence {
        /// The fence of the lease.
        presented: FenceEpoch,
        /// The fence of the record; equal to `presented` if the lease was released.
        current: FenceEpoch,
    },
    /// The lease expired.
    #[error("the lease ended at {deadline}, it is {now}")]
    LeaseExpired {
        /// The deadline.
        deadline: LogicalTime,
        /// The time of the operation.
        now: LogicalTime,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The shard.
        shard: ShardKey,
        /// The status.
        status: ShardStatus,
    },
    /// The operation id was used before with other parameters: a caller's bug.
    #[error("operation {op_id} was already used with other parameters")]
    OpIdConflict {
        /// The reused id.
        op_id: OpId,
        /// Hash of the first use.
        expected_hash: Redacted<u64>,
        /// Hash of this use.
        actual_hash: Redacted<u64>,
    },
    /// The split is invalid.
    #[error("the split is invalid: {0}")]
    SplitInvalid(#[source] SplitValidationError),
    /// The byte slab is full; the record is unchanged.
    #[error("no room left for the record: {0}")]
    ResourceExhausted(#[source] SlabFull),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// Added (DESIGN Q5): the run is terminal and accepts no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// The run's status.
        status: RunStatus,
    },
    /// Added (FACTS 4.9): an offer is pending, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The offered handoff.
        handoff: HandoffId,
        /// The offer's deadline.
        deadline: LogicalTime,
    },
}

/// `split_replace` and `split_residual` share one error.
pub type SplitReplaceError = SplitError;
/// `split_replace` and `split_residual` share one error.
pub type SplitResidualError = SplitError;
