//! The operations on runs that every backend provides, blocking and asynchronous.
//!
//! None of them needs a lease: they are for administrators, and for workers that look for work.
//! Both traits are derived from [`for_each_run_operation!`].

use std::future::Future;

use crate::for_each_run_operation;
use crate::operations::*;
use crate::run::RunHead;

/// The run in which a worker looks for a shard, and when the next attempt makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOutlook {
    /// The run, whose status may forbid claiming.
    pub run: RunHead,
    /// When the next live lease expires.
    pub earliest_deadline: Option<LogicalTime>,
}

/// The operations on runs, blocking.
///
/// Every method returns the error type of its operation.
pub trait RunManagement {
    for_each_run_operation! { declare_blocking () }

    /// Creates a run with its shards. If the run exists with the same settings, continues with its
    /// registration, so the whole call can be repeated.
    ///
    /// # Errors
    ///
    /// [`CreateRunError`].
    fn create_run_with_shards(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> Result<IdempotentOutcome<RunOpResult>, CreateRunError> {
        match self.create_run(now, tenant, run, config) {
            Ok(()) => {}
            Err(CreateRunError::RunAlreadyExists { .. }) => {
                check_existing(self.get_run(tenant, run), run, config)?;
            }
            Err(error) => return Err(error),
        }
        self.register_shards(now, tenant, run, shards, op_id)
            .map_err(CreateRunError::RegisterShardsFailed)
    }
}

/// The operations on runs, asynchronous. See [`RunManagement`].
pub trait AsyncRunManagement: Send {
    for_each_run_operation! { declare_async () }

    /// Creates a run with its shards. If the run exists with the same settings, continues with its
    /// registration, so the whole call can be repeated.
    fn create_run_with_shards(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<RunOpResult>, CreateRunError>> + Send {
        async move {
            match self.create_run(now, tenant, run, config).await {
                Ok(()) => {}
                Err(CreateRunError::RunAlreadyExists { .. }) => {
                    check_existing(self.get_run(tenant, run).await, run, config)?;
                }
                Err(error) => return Err(error),
            }
            let registered = self.register_shards(now, tenant, run, shards, op_id).await;
            registered.map_err(CreateRunError::RegisterShardsFailed)
        }
    }
}

/// Checks that an existing run is the one to be created. The id of a deleted run is never used
/// again, although no record is found under it.
fn check_existing(
    existing: Result<RunRecord, GetRunError>,
    run: RunId,
    config: RunConfig,
) -> Result<(), CreateRunError> {
    match existing {
        Ok(existing) if existing.config() == config => Ok(()),
        Ok(_) => Err(CreateRunError::ConfigMismatch { run }),
        Err(GetRunError::RunNotFound) => Err(CreateRunError::RunAlreadyExists { run }),
        Err(error) => Err(CreateRunError::GetRunFailed(error)),
    }
}
