//! Automatic retries of shards that are parked as `TooManyErrors`.
//!
//! That reason says that errors accumulated which may pass: a listing that failed several times, or
//! grants that ended without progress. When nothing else is left to do, the worker waits and then
//! unparks such shards, each at most [`TaskConfig::parked_retries`] times.
//!
//! The operation log of the shard counts: the n-th retry has an operation id derived from the shard
//! and n, so a retry that was made, by any process, is replayed and unparks nothing. A shard that
//! logs enough other operations to evict the entry has made progress, and its retries begin anew
//! (docs/adr/0064-retries-of-parked-shards.md).

use std::collections::BTreeMap;

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::{
    CoordinationFacade, GetRunError, IdempotentOutcome, InfraError, ParkReason, ShardFilter,
    UnparkError,
};

use super::sync::{Mutex, PoisonError};
use crate::op_ids;
use crate::task::TaskConfig;

/// When the next retry is due, and how many were made.
#[derive(Debug, Default)]
pub(super) struct ParkedRetry {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the parked shards are unparked; `None` if no retry is planned.
    due: Option<LogicalTime>,
    /// Retries of each shard that are known to be made. A shard whose retries are used up must not
    /// delay the end of the run.
    made: BTreeMap<ShardId, u32>,
}

impl ParkedRetry {
    /// Plans or makes the next retry in a run that is settled but for parked shards. Returns
    /// whether the run is to be continued: a retry is planned, or a shard was unparked.
    ///
    /// # Errors
    ///
    /// [`InfraError`] of the store.
    pub(super) fn step<B: CoordinationFacade>(
        &self,
        coordinator: &mut B,
        now: LogicalTime,
        (tenant, run): (TenantId, RunId),
        config: &TaskConfig,
    ) -> Result<bool, InfraError> {
        if config.parked_retries == 0 {
            return Ok(false);
        }
        // Held during the operations: of several idle threads one makes the retry.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shards = retryable(coordinator, now, tenant, run)?;
        shards.retain(|shard| state.made(*shard) < config.parked_retries);
        if shards.is_empty() {
            return Ok(false);
        }
        let delay = config.parked_retry_delay;
        let due = *state.due.get_or_insert_with(|| now.saturating_add(delay));
        if now < due {
            return Ok(true);
        }
        state.due = None;
        let mut continues = false;
        for shard in shards {
            let key = ShardKey::new(run, shard);
            for number in state.made(shard)..config.parked_retries {
                let op_id = op_ids::of_parked_retry(key, number);
                match coordinator.unpark_shard(now, tenant, key, op_id) {
                    // An earlier process made this one.
                    Ok(IdempotentOutcome::Replayed(())) => state.made.insert(shard, number + 1),
                    Ok(IdempotentOutcome::Executed(())) => {
                        state.made.insert(shard, number + 1);
                        continues = true;
                        break;
                    }
                    Err(UnparkError::BackendError(error)) => return Err(error),
                    // Another worker unparked it, or the run ended: the next claim finds out.
                    Err(_) => {
                        continues = true;
                        break;
                    }
                };
            }
        }
        Ok(continues)
    }
}

impl State {
    fn made(&self, shard: ShardId) -> u32 {
        self.made.get(&shard).copied().unwrap_or(0)
    }
}

/// Returns the shards that are parked for a reason that may pass.
fn retryable<B: CoordinationFacade>(
    coordinator: &mut B,
    now: LogicalTime,
    tenant: TenantId,
    run: RunId,
) -> Result<Vec<ShardId>, InfraError> {
    let mut rows = Vec::new();
    match coordinator.list_shards_into(now, tenant, run, ShardFilter::parked(), &mut rows) {
        Ok(()) => {}
        Err(GetRunError::BackendError(error)) => return Err(error),
        // The run was deleted concurrently; the next claim reports it.
        Err(_) => return Ok(Vec::new()),
    }
    let rows = rows.iter().filter(|row| row.park_reason == Some(ParkReason::TooManyErrors));
    Ok(rows.map(|row| row.shard).collect())
}
