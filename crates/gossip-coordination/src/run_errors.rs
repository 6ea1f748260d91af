//! Errors of the operations on runs and of administrators.
//!
//! Each operation has its own enum. A reused operation id is wrapped whole ([`RunOpIdConflict`]),
//! so that its hashes cannot be matched out. Variants that the seeds do not have are marked
//! *Added*.

use std::fmt;

use gossip_contracts::coordination::{ManifestValidationError, ShardLimitScope};
use gossip_contracts::identity::{OpId, RunId, TenantId};
use thiserror::Error;

use crate::error::InfraError;
use crate::record::ShardStatus;
use crate::refusal::OpIdReused;
use crate::run::{RunConfigError, RunStatus};

/// An operation id was used before with other parameters.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("operation {op_id} was already used with other parameters")]
pub struct RunOpIdConflict {
    op_id: OpId,
    /// Kept so that two conflicts can be told apart in tests; never shown.
    hashes: (u64, u64),
}

impl RunOpIdConflict {
    pub(crate) const fn new(reused: OpIdReused) -> Self {
        Self { op_id: reused.op_id, hashes: (reused.expected_hash, reused.actual_hash) }
    }

    /// The id that was used twice.
    #[must_use]
    pub const fn op_id(&self) -> OpId {
        self.op_id
    }
}

impl fmt::Debug for RunOpIdConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOpIdConflict").field("op_id", &self.op_id).finish_non_exhaustive()
    }
}

/// Why a run could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateRunError {
    /// Its settings make no run.
    #[error(transparent)]
    InvalidConfig(#[from] RunConfigError),
    /// There is, or was, a run of that id.
    #[error("run {run} already exists")]
    RunAlreadyExists {
        /// The id.
        run: RunId,
    },
    /// It was made, but its shards could not be registered.
    #[error("registering the run's shards failed: {0}")]
    RegisterShardsFailed(#[source] RegisterShardsError),
    /// It exists, but could not be read.
    #[error("reading the existing run failed: {0}")]
    GetRunFailed(#[source] GetRunError),
    /// It exists with other settings.
    #[error("run {run} exists with other settings")]
    ConfigMismatch {
        /// The id.
        run: RunId,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}

/// Why shards could not be registered. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterShardsError {
    /// The tenant has no such run.
    #[error("no such run")]
    RunNotFound,
    /// The record belongs to another tenant.
    #[error("the run does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The run has shards already, or is over.
    #[error("shards cannot be registered in a run that is {status:?}")]
    WrongStatus {
        /// Where the run is.
        status: RunStatus,
    },
    /// The shards do not hold together.
    #[error("the manifest is invalid: {0}")]
    ManifestInvalid(#[source] ManifestValidationError),
    /// The operation id was used before with other shards.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// There would be too many shards.
    #[error("{additional} more shards exceed the limit of {max} ({scope:?}; now {current})")]
    ShardLimitExceeded {
        /// How many there are; `max` for the global limit, which tells nothing of other tenants.
        current: usize,
        /// How many were to be added.
        additional: usize,
        /// The limit.
        max: usize,
        /// Whose limit.
        scope: ShardLimitScope,
    },
    /// The records do not fit.
    #[error("no room left in the {resource}")]
    ResourceExhausted {
        /// What is full.
        resource: &'static str,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}

/// Why a run could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GetRunError {
    /// The tenant has no such run.
    #[error("no such run")]
    RunNotFound,
    /// The record belongs to another tenant.
    #[error("the run does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}

/// Why a run could not be completed, failed, cancelled, paused or resumed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunTransitionError {
    /// The tenant has no such run.
    #[error("no such run")]
    RunNotFound,
    /// The record belongs to another tenant.
    #[error("the run does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The run is over.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How it ended.
        status: RunStatus,
    },
    /// A run does not go that way.
    #[error("a run that is {status:?} does not become {target:?}")]
    WrongStatus {
        /// Where the run is.
        status: RunStatus,
        /// Where it was to go.
        target: RunStatus,
    },
    /// The operation id was used before for something else.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
    /// Added (DESIGN Q6): shards remain that are not done.
    #[error("the run is not settled: {active} shards active, {parked} parked")]
    NotSettled {
        /// Shards with work left.
        active: u64,
        /// Shards set aside.
        parked: u64,
    },
}

/// Why a shard could not be unparked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnparkError {
    /// The tenant has no such shard.
    #[error("no such shard")]
    ShardNotFound,
    /// The record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The run is over.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How it ended.
        status: RunStatus,
    },
    /// The shard is not parked.
    #[error("the shard is {status:?}, not parked")]
    NotParked {
        /// What it is.
        status: ShardStatus,
    },
    /// The operation id was used before for something else.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}

/// Why nothing could be asked of a shard's owner (added operation).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestActionError {
    /// The tenant has no such shard.
    #[error("no such shard")]
    ShardNotFound,
    /// The record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The run is over.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How it ended.
        status: RunStatus,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// How it ended.
        status: ShardStatus,
    },
    /// Nobody holds the shard, so there is nobody to ask.
    #[error("nobody holds the shard")]
    NotLeased,
    /// Another request waits.
    #[error("another request waits for the owner")]
    RequestPending,
    /// The operation id of the pending request came with another request.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}

/// Why a lease could not be taken away (added operation).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RevokeLeaseError {
    /// The tenant has no such shard.
    #[error("no such shard")]
    ShardNotFound,
    /// The record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The shard is finished.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// How it ended.
        status: ShardStatus,
    },
    /// There is no lease to take away.
    #[error("nobody holds the shard")]
    NotLeased,
    /// The operation id was used before for something else.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}

/// Why a run could not be deleted (added operation).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeleteRunError {
    /// The tenant has no such run.
    #[error("no such run")]
    RunNotFound,
    /// The record belongs to another tenant.
    #[error("the run does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// Only a run that is over can be deleted.
    #[error("the run is {status:?}; cancel it first")]
    NotTerminal {
        /// Where the run is.
        status: RunStatus,
    },
    /// The operation id was used before for something else.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}
