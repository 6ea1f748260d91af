//! Errors of the operations on runs and of administrators.
//!
//! Each operation has its own enum; `operation_errors!` defines the variants that they share. A
//! reused operation id is wrapped whole ([`RunOpIdConflict`]), so that its hashes cannot be matched
//! out. Variants that the seeds do not have are marked *Added*.

use std::fmt;

use gossip_contracts::coordination::{ManifestValidationError, ShardLimitScope};
use gossip_contracts::identity::{FenceEpoch, OpId, RunId, TenantId};
use thiserror::Error;

use crate::error::InfraError;
use crate::record::ShardStatus;
use crate::refusal::{OpIdReused, RunOver, operation_errors};
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

operation_errors! { run
    /// Why a run could not be created.
    pub enum CreateRunError {
        /// The configuration is invalid.
        #[error("{0}")]
        InvalidConfig(RunConfigError),
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
        BackendError,
    }

    /// Why shards could not be registered. Nothing was changed.
    pub enum RegisterShardsError {
        RunNotFound, TenantMismatch,
        /// The run is not initializing.
        #[error("shards cannot be registered in a run that is {status:?}")]
        WrongStatus {
            /// The run's status.
            status: RunStatus,
        },
        /// The manifest is invalid.
        #[error("the manifest is invalid: {0}")]
        ManifestInvalid(#[source] ManifestValidationError),
        OpIdConflict,
        /// The limit on shards would be exceeded.
        #[error("{additional} more shards exceed the limit of {max} ({scope:?}; now {current})")]
        ShardLimitExceeded {
            /// Current number of shards; `max` for the global limit, to hide other tenants'
            /// numbers.
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
        BackendError,
    }

    /// Why a run could not be read.
    pub enum GetRunError {
        RunNotFound, TenantMismatch, BackendError,
    }

    /// Why a run could not be completed, failed, cancelled, paused or resumed.
    pub enum RunTransitionError {
        RunNotFound, TenantMismatch, RunTerminal,
        /// The status transition is not allowed.
        #[error("a run that is {status:?} does not become {target:?}")]
        WrongStatus {
            /// The run's status.
            status: RunStatus,
            /// The requested status.
            target: RunStatus,
        },
        OpIdConflict, BackendError,
        /// Added (DESIGN Q6): shards remain that are not done.
        #[error("the run is not settled: {active} shards active, {parked} parked")]
        NotSettled {
            /// Active shards.
            active: u64,
            /// Parked shards.
            parked: u64,
        },
    }

    /// Why a run could not be deleted (added operation).
    pub enum DeleteRunError {
        RunNotFound, TenantMismatch,
        /// Only a terminal run can be deleted.
        #[error("the run is {status:?}; cancel it first")]
        NotTerminal {
            /// The run's status.
            status: RunStatus,
        },
        OpIdConflict, BackendError,
    }
}

impl From<RunConfigError> for CreateRunError {
    fn from(error: RunConfigError) -> Self {
        Self::InvalidConfig(error)
    }
}

operation_errors! { admin
    /// Why a shard could not be unparked.
    pub enum UnparkError {
        ShardNotFound, TenantMismatch, RunTerminal,
        /// The shard is not parked.
        #[error("the shard is {status:?}, not parked")]
        NotParked {
            /// The status.
            status: ShardStatus,
        },
        OpIdConflict, BackendError,
    }

    /// Why a request to a lease holder was refused (added operation).
    pub enum RequestActionError {
        ShardNotFound, TenantMismatch, RunTerminal, ShardTerminal, NotLeased,
        /// Another request is pending.
        #[error("another request is pending")]
        RequestPending,
        OpIdConflict, BackendError,
    }

    /// Why a shard could not be repaired (added operation).
    pub enum RepairShardError {
        ShardNotFound,
        /// The record of the shard is intact.
        #[error("the shard is not damaged")]
        NotDamaged,
        RunTerminal,
        /// The range of the shard is lost, and the other shards do not show it.
        #[error("the range of the shard cannot be derived from other shards")]
        RangeUnknown,
        BackendError,
    }

    /// Why a lease could not be revoked (added operation).
    pub enum RevokeLeaseError {
        ShardNotFound, TenantMismatch, ShardTerminal, NotLeased, OpIdConflict, BackendError,
        /// The shard was granted again since the caller saw its lease.
        #[error("stale fence: presented {presented}, current {current}")]
        StaleFence {
            /// The fence of the lease to revoke.
            presented: FenceEpoch,
            /// The fence of the record.
            current: FenceEpoch,
        },
    }
}
