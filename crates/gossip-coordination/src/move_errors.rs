//! Errors of the operations by which a shard changes hands on purpose (FACTS 4.9).
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
    /// An offer stands, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The move that was offered.
        handoff: HandoffId,
        /// Until when it can be accepted.
        deadline: LogicalTime,
    },
}

/// Why a shard could not be offered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OfferError {
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
    /// The byte slab is full; nothing was changed.
    #[error("no room left for the record: {0}")]
    ResourceExhausted(#[source] SlabFull),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// The run is over and grows no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How the run ended.
        status: RunStatus,
    },
    /// An offer stands, so its source is frozen until it withdraws.
    #[error("the shard is offered in {handoff:?} until {deadline}")]
    Offered {
        /// The move that was offered.
        handoff: HandoffId,
        /// Until when it can be accepted.
        deadline: LogicalTime,
    },
    /// The owner took an offer of this id back, and this one came late. Added beyond FACTS 4.9.
    #[error("{handoff:?} was withdrawn")]
    Withdrawn {
        /// The move that was withdrawn.
        handoff: HandoffId,
    },
    /// A shard cannot be offered to its own owner.
    #[error("the destination already owns the shard")]
    InvalidDestination,
    /// The offer ends too early or too late.
    #[error("an offer until {deadline} must end after {now} and by {latest}")]
    InvalidOfferDeadline {
        /// The deadline asked for.
        deadline: LogicalTime,
        /// It must lie after this instant.
        now: LogicalTime,
        /// And not after this one.
        latest: LogicalTime,
    },
}

/// Why an offered shard could not be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AcceptError {
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
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[source] InfraError),
    /// The run is over and grows no new work.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How the run ended.
        status: RunStatus,
    },
    /// The run is paused.
    #[error("the run is paused")]
    RunPaused,
    /// No offer of that id stands.
    #[error("no such offer stands")]
    NoOffer,
    /// The offer names another worker.
    #[error("the offer names another destination")]
    NotDestination,
    /// The offer ran out.
    #[error("the offer ended at {deadline}, it is {now}")]
    OfferExpired {
        /// When it ended.
        deadline: LogicalTime,
        /// When the operation arrived.
        now: LogicalTime,
    },
}

/// Why an offer could not be withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WithdrawError {
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
    /// No offer of that id stands.
    #[error("no such offer stands")]
    NoOffer,
}
