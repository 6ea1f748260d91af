//! Errors of release and of the handoff operations (FACTS 4.9).
//!
//! The seeds do not have these operations, so all of it is added. The rules of
//! [`error`](crate::error) hold here too: no key, owner, hash or foreign tenant is shown.

use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, Redacted, ShardKey, TenantId};
use gossip_stdx::SlabFull;
use thiserror::Error;

use crate::error::{CursorOutOfBoundsDetail, InfraError};
use crate::handoff::HandoffId;
use crate::record::ShardStatus;
use crate::run::RunStatus;

/// Why a shard could not be given back.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReleaseError {
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
    /// An offer is pending, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The offered handoff.
        handoff: HandoffId,
        /// The offer's deadline.
        deadline: LogicalTime,
    },
}

/// Why a shard could not be offered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OfferError {
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
    /// The byte slab is full; the record is unchanged.
    #[error("no room left for the record: {0}")]
    ResourceExhausted(#[source] SlabFull),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// The run is terminal and accepts no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// The run's status.
        status: RunStatus,
    },
    /// An offer is pending, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The offered handoff.
        handoff: HandoffId,
        /// The offer's deadline.
        deadline: LogicalTime,
    },
    /// The lease holder withdrew this handoff before the offer arrived. Added beyond FACTS 4.9.
    #[error("{handoff:?} was withdrawn")]
    Withdrawn {
        /// The withdrawn handoff.
        handoff: HandoffId,
    },
    /// The destination is the lease holder.
    #[error("the destination already holds the shard")]
    InvalidDestination,
    /// The offer's deadline is too early or too late.
    #[error("an offer until {deadline} must end after {now} and by {latest}")]
    InvalidOfferDeadline {
        /// The requested deadline.
        deadline: LogicalTime,
        /// The deadline must be later than this.
        now: LogicalTime,
        /// The latest allowed deadline.
        latest: LogicalTime,
    },
}

/// Why an offered shard could not be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AcceptError {
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
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// The run is terminal and accepts no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// The run's status.
        status: RunStatus,
    },
    /// The run is paused.
    #[error("the run is paused")]
    RunPaused,
    /// No offer of that handoff is pending.
    #[error("no such offer is pending")]
    NoOffer,
    /// The offer names another worker.
    #[error("the offer names another destination")]
    NotDestination,
    /// The offer expired.
    #[error("the offer ended at {deadline}, it is {now}")]
    OfferExpired {
        /// The deadline.
        deadline: LogicalTime,
        /// The time of the operation.
        now: LogicalTime,
    },
}

/// Why an offer could not be withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WithdrawError {
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
    /// No offer of that handoff is pending.
    #[error("no such offer is pending")]
    NoOffer,
}
