//! Errors of the shard operations: one enum per operation, with exactly the variants it can return.
//!
//! A caller matches only on the failures of *its* operation. Lost races and callers' mistakes are
//! values here; a failure of the store is an [`InfraError`]; a violated invariant is a panic.
//! A variant without a definition here is shared: `operation_errors!` defines it.
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
use crate::lease::OpSequence;
use crate::record::ShardStatus;
use crate::refusal::{
    CursorRefusal, KeyMissing, LeaseRefusal, OfferStands, OpIdReused, OpOvertaken, RunOnPause,
    RunOver, ShardMissing, operation_errors,
};
use crate::run::RunStatus;
use crate::store::{is_about_record, is_about_shard};

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
    /// Added: not retryable without a change, except for [`StoreRefusal::NoSpace`]. The store works
    /// and refuses the request.
    #[error("{operation}: {message}")]
    Refused {
        /// The step that was refused.
        operation: &'static str,
        /// The reason, for programs.
        why: StoreRefusal,
        /// The reason and the remedy, for people.
        message: String,
    },
    /// Added: the operation failed after the reply to one of its commits was lost, so it may have
    /// been applied. Repeating it with the same operation id shows whether it was.
    #[error("{cause}; it may have happened")]
    Unresolved {
        /// The failure that ended the operation; never `Unresolved` itself.
        cause: Box<Self>,
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
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transient { .. } => true,
            // The request needs no change: room is made while the caller waits.
            Self::Refused { why, .. } => matches!(why, StoreRefusal::NoSpace),
            Self::Corruption { .. } => false,
            // A refusal ended the last try, but an earlier one may have been applied: only a retry
            // shows it.
            Self::Unresolved { cause } => !matches!(**cause, Self::Corruption { .. }),
        }
    }

    /// Returns whether the operation may have been applied although it failed.
    #[must_use]
    pub const fn is_unresolved(&self) -> bool {
        matches!(self, Self::Unresolved { .. })
    }

    /// Returns the failure, without the information whether the operation may have been applied.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::Unresolved { cause } => cause,
            Self::Transient { .. } | Self::Corruption { .. } | Self::Refused { .. } => self,
        }
    }

    /// Converts an error that ended an operation with an unresolved commit.
    #[must_use]
    pub(crate) fn into_unresolved(self) -> Self {
        match self {
            // One layer says all: a cause of a cause would hide the failure from callers that
            // match on it.
            Self::Unresolved { .. } => self,
            Self::Transient { .. } | Self::Corruption { .. } | Self::Refused { .. } => {
                Self::Unresolved { cause: Box::new(self) }
            }
        }
    }

    /// Returns whether a record is unreadable, as opposed to a failure of the engine.
    #[must_use]
    pub fn is_of_record(&self) -> bool {
        match self {
            Self::Corruption { operation, .. } => is_about_record(operation),
            Self::Transient { .. } | Self::Refused { .. } => false,
            Self::Unresolved { cause } => cause.is_of_record(),
        }
    }

    /// Returns whether the record of one shard is unreadable. Other shards of its run are not
    /// affected.
    #[must_use]
    pub fn is_of_shard(&self) -> bool {
        match self {
            Self::Corruption { operation, .. } => is_about_shard(operation),
            Self::Transient { .. } | Self::Refused { .. } => false,
            Self::Unresolved { cause } => cause.is_of_shard(),
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

operation_errors! { shard
    /// All refusals, as the seeds define them.
    ///
    /// Public checks such as [`validate_lease`](crate::validate_lease) return it. The kernel itself
    /// uses smaller errors that convert into larger ones (DESIGN Q18).
    ///
    /// Added: `OperationTooOld` (DESIGN Q33).
    pub enum CoordError {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, OpIdConflict,
        CursorRegression, CursorOutOfBounds, CursorKeyTooLarge, CursorTokenTooLarge, SplitInvalid,
        CheckpointMissingKey, OperationTooOld,
    }

    /// Why a shard could not be acquired.
    ///
    /// Added: `RunTerminal` (DESIGN Q5), `RunPaused` (FACTS 4.9) and `LastAttempt` (ADR 63).
    pub enum AcquireError {
        ShardNotFound, TenantMismatch, ShardTerminal,
        /// The shard has a live lease.
        #[error("the shard is leased until {lease_deadline}")]
        AlreadyLeased {
            /// The lease holder; never shown.
            current_owner: Redacted<WorkerId>,
            /// The deadline, after which to try again.
            lease_deadline: LogicalTime,
        },
        BackendError, RunTerminal, RunPaused,
        /// The grant would be the shard's last attempt, and the caller asked to spare it.
        #[error("the shard is on its last attempt")]
        LastAttempt,
    }

    /// Why a lease could not be renewed.
    ///
    /// Added: `RunTerminal` (DESIGN Q5).
    pub enum RenewError: From<CoordError> {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, BackendError,
        RunTerminal,
    }

    /// Why a checkpoint failed.
    ///
    /// Added: `Offered` (FACTS 4.9) and `OperationTooOld` (DESIGN Q33).
    pub enum CheckpointError: From<CoordError> {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, OpIdConflict,
        CursorRegression, CursorOutOfBounds, CursorKeyTooLarge, CursorTokenTooLarge,
        CheckpointMissingKey, ResourceExhausted, BackendError, Offered, OperationTooOld,
    }

    /// Why a shard could not be completed.
    ///
    /// Added: `Offered` (FACTS 4.9) and `OperationTooOld` (DESIGN Q33).
    pub enum CompleteError: From<CoordError> {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, OpIdConflict,
        CursorRegression, CursorOutOfBounds, CursorKeyTooLarge, CursorTokenTooLarge,
        CheckpointMissingKey, ResourceExhausted, BackendError, Offered, OperationTooOld,
    }

    /// Why a shard could not be parked.
    ///
    /// Added: `Offered` (FACTS 4.9) and `OperationTooOld` (DESIGN Q33).
    pub enum ParkError: From<CoordError> {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, OpIdConflict,
        BackendError, Offered, OperationTooOld,
    }

    /// Why a shard could not be split.
    ///
    /// Added: `RunTerminal` (DESIGN Q5), `Offered` (FACTS 4.9) and `OperationTooOld` (DESIGN Q33).
    pub enum SplitError: From<CoordError> {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, OpIdConflict,
        SplitInvalid, ResourceExhausted, BackendError, RunTerminal, Offered, OperationTooOld,
    }

    /// Why a shard could not be given back (added operation, FACTS 4.9).
    pub enum ReleaseError {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, OpIdConflict,
        BackendError, Offered, OperationTooOld,
    }

    /// Why a shard could not be offered (added operation, FACTS 4.9).
    pub enum OfferError {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, OpIdConflict,
        CursorRegression, CursorOutOfBounds, CursorKeyTooLarge, CursorTokenTooLarge,
        ResourceExhausted, BackendError, RunTerminal, Offered,
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
        OperationTooOld,
    }

    /// Why an offered shard could not be accepted (added operation, FACTS 4.9).
    pub enum AcceptError {
        ShardNotFound, TenantMismatch, ShardTerminal, BackendError, RunTerminal, RunPaused, NoOffer,
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

    /// Why an offer could not be withdrawn (added operation, FACTS 4.9).
    pub enum WithdrawError {
        ShardNotFound, TenantMismatch, StaleFence, LeaseExpired, ShardTerminal, OpIdConflict,
        BackendError, NoOffer, OperationTooOld,
    }
}

/// `split_replace` and `split_residual` share one error.
pub type SplitReplaceError = SplitError;
/// `split_replace` and `split_residual` share one error.
pub type SplitResidualError = SplitError;
