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
    /// Kept to distinguish two conflicts in tests; never shown.
    hashes: (u64, u64),
}

impl RunOpIdConflict {
    pub(crate) const fn new(reused: OpIdReused) -> Self {
        Self { op_id: reused.op_id, hashes: (reused.expected_hash, reused.actual_hash) }
    }

    /// The reused id.
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

/// Why a run could not be created.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateRunError {
    /// The configuration is invalid.
    #[error(transparent)]
    InvalidConfig(#[from] RunConfigError),
    /// The run id is in use or was used.
    #[error("run {run} already exists")]
    RunAlreadyExists {
        /// The id.
        run: RunId,
    },
    /// The run was created, but the registration of its shards failed.
    #[error("registering the run's shards failed: {0}")]
    RegisterShardsFailed(#[source] RegisterShardsError),
    /// The run exists, but could not be read.
    #[error("reading the existing run failed: {0}")]
    GetRunFailed(#[source] GetRunError),
    /// The run exists with another configuration.
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
    /// The run does not exist for this tenant.
    #[error("no such run")]
    RunNotFound,
    /// The record belongs to another tenant.
    #[error("the run does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The run is not initializing.
    #[error("shards cannot be registered in a run that is {status:?}")]
    WrongStatus {
        /// The run's status.
        status: RunStatus,
    },
    /// The manifest is invalid.
    #[error("the manifest is invalid: {0}")]
    ManifestInvalid(#[source] ManifestValidationError),
    /// The operation id was used before with other shards.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The limit on shards would be exceeded.
    #[error("{additional} more shards exceed the limit of {max} ({scope:?}; now {current})")]
    ShardLimitExceeded {
        /// Current number of shards; `max` for the global limit, to hide other tenants' numbers.
        current: usize,
        /// Number of shards to be added.
        additional: usize,
        /// The limit.
        max: usize,
        /// The scope of the limit.
        scope: ShardLimitScope,
    },
    /// The records do not fit into memory.
    #[error("no room left in the {resource}")]
    ResourceExhausted {
        /// The full resource.
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
    /// The run does not exist for this tenant.
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
    /// The run does not exist for this tenant.
    #[error("no such run")]
    RunNotFound,
    /// The record belongs to another tenant.
    #[error("the run does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The run is terminal.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// The status.
        status: RunStatus,
    },
    /// The status transition is not allowed.
    #[error("a run that is {status:?} does not become {target:?}")]
    WrongStatus {
        /// The run's status.
        status: RunStatus,
        /// The requested status.
        target: RunStatus,
    },
    /// The operation id was used before by another operation.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
    /// Added (DESIGN Q6): shards remain that are not done.
    #[error("the run is not settled: {active} shards active, {parked} parked")]
    NotSettled {
        /// Active shards.
        active: u64,
        /// Parked shards.
        parked: u64,
    },
}

/// Why a shard could not be unparked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnparkError {
    /// The shard does not exist for this tenant.
    #[error("no such shard")]
    ShardNotFound,
    /// The record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The run is terminal.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// The status.
        status: RunStatus,
    },
    /// The shard is not parked.
    #[error("the shard is {status:?}, not parked")]
    NotParked {
        /// The status.
        status: ShardStatus,
    },
    /// The operation id was used before by another operation.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}

/// Why a request to a lease holder was refused (added operation).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestActionError {
    /// The shard does not exist for this tenant.
    #[error("no such shard")]
    ShardNotFound,
    /// The record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The run is terminal.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// The status.
        status: RunStatus,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The status.
        status: ShardStatus,
    },
    /// The shard has no lease holder to receive the request.
    #[error("the shard has no lease holder")]
    NotLeased,
    /// Another request is pending.
    #[error("another request is pending")]
    RequestPending,
    /// The operation id of the pending request came with another request.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}

/// Why a lease could not be revoked (added operation).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RevokeLeaseError {
    /// The shard does not exist for this tenant.
    #[error("no such shard")]
    ShardNotFound,
    /// The record belongs to another tenant.
    #[error("the shard does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The shard is in a terminal status.
    #[error("the shard is already {status:?}")]
    ShardTerminal {
        /// The status.
        status: ShardStatus,
    },
    /// The shard has no lease.
    #[error("the shard has no lease holder")]
    NotLeased,
    /// The operation id was used before by another operation.
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
    /// The run does not exist for this tenant.
    #[error("no such run")]
    RunNotFound,
    /// The record belongs to another tenant.
    #[error("the run does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// Only a terminal run can be deleted.
    #[error("the run is {status:?}; cancel it first")]
    NotTerminal {
        /// The run's status.
        status: RunStatus,
    },
    /// The operation id was used before by another operation.
    #[error(transparent)]
    OpIdConflict(#[from] RunOpIdConflict),
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}
