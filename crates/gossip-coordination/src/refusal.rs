//! Small errors of the kernel, and their conversions into the errors of the operations.
//!
//! A check returns the smallest error that describes its failure. Each converts into every
//! operation's error that has those variants, and into nothing else. So the kernel cannot produce a
//! variant that its operation does not have (DESIGN Q18).
//!
//! The narrowing conversions from [`CoordError`] that the seeds require are at the end. They are
//! for callers of the public checks; a refusal that an operation cannot have is a caller's bug.

use gossip_contracts::coordination::SplitValidationError;
use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, Redacted, ShardKey, TenantId};
use gossip_stdx::SlabFull;

use crate::error::{
    AcquireError, CheckpointError, CompleteError, CoordError, CursorOutOfBoundsDetail, InfraError,
    ParkError, RenewError, SplitError,
};
use crate::handoff::OfferNotice;
use crate::move_errors::{AcceptError, OfferError, ReleaseError, WithdrawError};
use crate::record::ShardStatus;
use crate::run::RunStatus;
use crate::run_errors::{
    RequestActionError, RevokeLeaseError, RunOpIdConflict, RunTransitionError, UnparkError,
};

/// The shard does not exist for this tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardMissing(pub(crate) ShardKey);

/// A lease check failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseRefusal {
    TenantMismatch { expected: TenantId },
    ShardTerminal { shard: ShardKey, status: ShardStatus },
    StaleFence { presented: FenceEpoch, current: FenceEpoch },
    LeaseExpired { deadline: LogicalTime, now: LogicalTime },
}

/// An operation id was reused with other parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpIdReused {
    pub(crate) op_id: OpId,
    pub(crate) expected_hash: u64,
    pub(crate) actual_hash: u64,
}

/// A presented cursor is invalid.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CursorRefusal {
    KeyTooLarge { size: usize, max: usize },
    TokenTooLarge { size: usize, max: usize },
    Regression { old_key: Option<usize>, new_key: Option<usize> },
    OutOfBounds(CursorOutOfBoundsDetail),
}

/// A required cursor key is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyMissing;

/// The run is terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOver(pub(crate) RunStatus);

/// The run is paused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOnPause;

/// An offer is pending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferStands(pub(crate) OfferNotice);

/// Declares the operation errors into which a small error converts.
macro_rules! widens {
    (ShardMissing into $($wide:ident),+) => {$(
        impl From<ShardMissing> for $wide {
            fn from(ShardMissing(shard): ShardMissing) -> Self {
                Self::ShardNotFound { shard }
            }
        }
    )+};
    (LeaseRefusal into $($wide:ident),+) => {$(
        impl From<LeaseRefusal> for $wide {
            fn from(refusal: LeaseRefusal) -> Self {
                match refusal {
                    LeaseRefusal::TenantMismatch { expected } => Self::TenantMismatch { expected },
                    LeaseRefusal::ShardTerminal { shard, status } => {
                        Self::ShardTerminal { shard, status }
                    }
                    LeaseRefusal::StaleFence { presented, current } => {
                        Self::StaleFence { presented, current }
                    }
                    LeaseRefusal::LeaseExpired { deadline, now } => {
                        Self::LeaseExpired { deadline, now }
                    }
                }
            }
        }
    )+};
    (OpIdReused into $($wide:ident),+) => {$(
        impl From<OpIdReused> for $wide {
            fn from(reused: OpIdReused) -> Self {
                Self::OpIdConflict {
                    op_id: reused.op_id,
                    expected_hash: Redacted::new(reused.expected_hash),
                    actual_hash: Redacted::new(reused.actual_hash),
                }
            }
        }
    )+};
    (CursorRefusal into $($wide:ident),+) => {$(
        impl From<CursorRefusal> for $wide {
            fn from(refusal: CursorRefusal) -> Self {
                match refusal {
                    CursorRefusal::KeyTooLarge { size, max } => {
                        Self::CursorKeyTooLarge { size, max }
                    }
                    CursorRefusal::TokenTooLarge { size, max } => {
                        Self::CursorTokenTooLarge { size, max }
                    }
                    CursorRefusal::Regression { old_key, new_key } => {
                        Self::CursorRegression { old_key, new_key }
                    }
                    CursorRefusal::OutOfBounds(detail) => Self::CursorOutOfBounds(detail),
                }
            }
        }
    )+};
    (KeyMissing into $($wide:ident),+) => {$(
        impl From<KeyMissing> for $wide {
            fn from(KeyMissing: KeyMissing) -> Self {
                Self::CheckpointMissingKey
            }
        }
    )+};
    (SplitValidationError into $($wide:ident),+) => {$(
        impl From<SplitValidationError> for $wide {
            fn from(error: SplitValidationError) -> Self {
                Self::SplitInvalid(error)
            }
        }
    )+};
    (RunOver into $($wide:ident),+) => {$(
        impl From<RunOver> for $wide {
            fn from(RunOver(status): RunOver) -> Self {
                Self::RunTerminal { status }
            }
        }
    )+};
    (RunOnPause into $($wide:ident),+) => {$(
        impl From<RunOnPause> for $wide {
            fn from(RunOnPause: RunOnPause) -> Self {
                Self::RunPaused
            }
        }
    )+};
    (OfferStands into $($wide:ident),+) => {$(
        impl From<OfferStands> for $wide {
            fn from(OfferStands(notice): OfferStands) -> Self {
                Self::Offered { handoff: notice.handoff, deadline: notice.deadline }
            }
        }
    )+};
    (SlabFull into $($wide:ident),+) => {$(
        impl From<SlabFull> for $wide {
            fn from(full: SlabFull) -> Self {
                Self::ResourceExhausted(full)
            }
        }
    )+};
    (InfraError into $($wide:ident),+) => {$(
        impl From<InfraError> for $wide {
            fn from(error: InfraError) -> Self {
                Self::BackendError(error)
            }
        }
    )+};
}

widens!(ShardMissing into CoordError, AcquireError, RenewError, CheckpointError, CompleteError,
    ParkError, SplitError, ReleaseError, OfferError, AcceptError, WithdrawError);
widens!(LeaseRefusal into CoordError, RenewError, CheckpointError, CompleteError, ParkError,
    SplitError, ReleaseError, OfferError, WithdrawError);
widens!(OpIdReused into CoordError, CheckpointError, CompleteError, ParkError, SplitError,
    ReleaseError, OfferError, WithdrawError);
widens!(CursorRefusal into CoordError, CheckpointError, CompleteError, OfferError);
widens!(KeyMissing into CoordError, CheckpointError, CompleteError);
widens!(SplitValidationError into CoordError, SplitError);
widens!(RunOver into AcquireError, RenewError, SplitError, OfferError, AcceptError, UnparkError,
    RunTransitionError, RequestActionError);
widens!(RunOnPause into AcquireError, AcceptError);
widens!(OfferStands into CheckpointError, CompleteError, ParkError, SplitError, ReleaseError,
    OfferError);
widens!(SlabFull into CheckpointError, CompleteError, SplitError, OfferError);
widens!(InfraError into AcquireError, RenewError, CheckpointError, CompleteError, ParkError,
    SplitError, ReleaseError, OfferError, AcceptError, WithdrawError);

/// Errors of administrative operations wrap the conflict, so that its hashes stay private.
macro_rules! widens_for_administrators {
    ($($wide:ident),+) => {$(
        impl From<OpIdReused> for $wide {
            fn from(reused: OpIdReused) -> Self {
                Self::OpIdConflict(RunOpIdConflict::new(reused))
            }
        }
    )+};
}

widens_for_administrators!(UnparkError, RequestActionError, RevokeLeaseError, RunTransitionError);

impl From<CoordError> for RenewError {
    fn from(error: CoordError) -> Self {
        match error {
            CoordError::ShardNotFound { shard } => Self::ShardNotFound { shard },
            CoordError::TenantMismatch { expected } => Self::TenantMismatch { expected },
            CoordError::StaleFence { presented, current } => {
                Self::StaleFence { presented, current }
            }
            CoordError::LeaseExpired { deadline, now } => Self::LeaseExpired { deadline, now },
            CoordError::ShardTerminal { shard, status } => Self::ShardTerminal { shard, status },
            CoordError::OpIdConflict { .. }
            | CoordError::CursorRegression { .. }
            | CoordError::CursorOutOfBounds(_)
            | CoordError::CursorKeyTooLarge { .. }
            | CoordError::CursorTokenTooLarge { .. }
            | CoordError::SplitInvalid(_)
            | CoordError::CheckpointMissingKey => {
                unreachable!("RenewError has no such refusal")
            }
        }
    }
}

impl From<CoordError> for CheckpointError {
    fn from(error: CoordError) -> Self {
        match error {
            CoordError::ShardNotFound { shard } => Self::ShardNotFound { shard },
            CoordError::TenantMismatch { expected } => Self::TenantMismatch { expected },
            CoordError::StaleFence { presented, current } => {
                Self::StaleFence { presented, current }
            }
            CoordError::LeaseExpired { deadline, now } => Self::LeaseExpired { deadline, now },
            CoordError::ShardTerminal { shard, status } => Self::ShardTerminal { shard, status },
            CoordError::OpIdConflict { op_id, expected_hash, actual_hash } => {
                Self::OpIdConflict { op_id, expected_hash, actual_hash }
            }
            CoordError::CursorRegression { old_key, new_key } => {
                Self::CursorRegression { old_key, new_key }
            }
            CoordError::CursorOutOfBounds(detail) => Self::CursorOutOfBounds(detail),
            CoordError::CursorKeyTooLarge { size, max } => Self::CursorKeyTooLarge { size, max },
            CoordError::CursorTokenTooLarge { size, max } => {
                Self::CursorTokenTooLarge { size, max }
            }
            CoordError::CheckpointMissingKey => Self::CheckpointMissingKey,
            CoordError::SplitInvalid(_) => {
                unreachable!("CheckpointError has no such refusal")
            }
        }
    }
}

impl From<CoordError> for CompleteError {
    fn from(error: CoordError) -> Self {
        match error {
            CoordError::ShardNotFound { shard } => Self::ShardNotFound { shard },
            CoordError::TenantMismatch { expected } => Self::TenantMismatch { expected },
            CoordError::StaleFence { presented, current } => {
                Self::StaleFence { presented, current }
            }
            CoordError::LeaseExpired { deadline, now } => Self::LeaseExpired { deadline, now },
            CoordError::ShardTerminal { shard, status } => Self::ShardTerminal { shard, status },
            CoordError::OpIdConflict { op_id, expected_hash, actual_hash } => {
                Self::OpIdConflict { op_id, expected_hash, actual_hash }
            }
            CoordError::CursorRegression { old_key, new_key } => {
                Self::CursorRegression { old_key, new_key }
            }
            CoordError::CursorOutOfBounds(detail) => Self::CursorOutOfBounds(detail),
            CoordError::CursorKeyTooLarge { size, max } => Self::CursorKeyTooLarge { size, max },
            CoordError::CursorTokenTooLarge { size, max } => {
                Self::CursorTokenTooLarge { size, max }
            }
            CoordError::CheckpointMissingKey => Self::CheckpointMissingKey,
            CoordError::SplitInvalid(_) => {
                unreachable!("CompleteError has no such refusal")
            }
        }
    }
}

impl From<CoordError> for ParkError {
    fn from(error: CoordError) -> Self {
        match error {
            CoordError::ShardNotFound { shard } => Self::ShardNotFound { shard },
            CoordError::TenantMismatch { expected } => Self::TenantMismatch { expected },
            CoordError::StaleFence { presented, current } => {
                Self::StaleFence { presented, current }
            }
            CoordError::LeaseExpired { deadline, now } => Self::LeaseExpired { deadline, now },
            CoordError::ShardTerminal { shard, status } => Self::ShardTerminal { shard, status },
            CoordError::OpIdConflict { op_id, expected_hash, actual_hash } => {
                Self::OpIdConflict { op_id, expected_hash, actual_hash }
            }
            CoordError::CursorRegression { .. }
            | CoordError::CursorOutOfBounds(_)
            | CoordError::CursorKeyTooLarge { .. }
            | CoordError::CursorTokenTooLarge { .. }
            | CoordError::SplitInvalid(_)
            | CoordError::CheckpointMissingKey => {
                unreachable!("ParkError has no such refusal")
            }
        }
    }
}

impl From<CoordError> for SplitError {
    fn from(error: CoordError) -> Self {
        match error {
            CoordError::ShardNotFound { shard } => Self::ShardNotFound { shard },
            CoordError::TenantMismatch { expected } => Self::TenantMismatch { expected },
            CoordError::StaleFence { presented, current } => {
                Self::StaleFence { presented, current }
            }
            CoordError::LeaseExpired { deadline, now } => Self::LeaseExpired { deadline, now },
            CoordError::ShardTerminal { shard, status } => Self::ShardTerminal { shard, status },
            CoordError::OpIdConflict { op_id, expected_hash, actual_hash } => {
                Self::OpIdConflict { op_id, expected_hash, actual_hash }
            }
            CoordError::SplitInvalid(error) => Self::SplitInvalid(error),
            CoordError::CursorRegression { .. }
            | CoordError::CursorOutOfBounds(_)
            | CoordError::CursorKeyTooLarge { .. }
            | CoordError::CursorTokenTooLarge { .. }
            | CoordError::CheckpointMissingKey => {
                unreachable!("SplitError has no such refusal")
            }
        }
    }
}
