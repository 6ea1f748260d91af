//! Claims while other threads of the process work: skips shards on their last attempt
//! ([`quarantine`](super::quarantine) says why).
//!
//! Each acquire is preceded by one read of the shard's attempts, because the grant itself counts as
//! an attempt and cannot be undone.

use gossip_contracts::identity::{LogicalTime, ShardId, ShardKey};
use gossip_coordination::protocol::{Claim, ClaimStep};
use gossip_coordination::{
    AcquireScratch, ClaimError, CoordinationFacade, GetRunError, SessionState, ShardFilter,
};

use super::WorkerConfig;

/// The result of a claim while other threads work.
#[derive(Debug)]
pub(super) struct SharedClaim {
    /// The shard, or why there is none.
    pub(super) claimed: Result<SessionState, ClaimError>,
    /// Whether suspects were skipped.
    pub(super) passed_over: bool,
}

/// Claims the first shard that is not a suspect: not on its last attempt. Returns the shard or why
/// there is none, and whether suspects were skipped.
pub(super) fn claim_shared<B: CoordinationFacade>(
    coordinator: &mut B,
    config: &WorkerConfig,
    now: LogicalTime,
    scratch: &mut AcquireScratch,
) -> SharedClaim {
    let mut passed_over = false;
    let mut seeker = Seeker { coordinator, config, now, passed_over: &mut passed_over };
    let claimed = seeker.claim(scratch);
    SharedClaim { claimed, passed_over }
}

struct Seeker<'s, B> {
    coordinator: &'s mut B,
    config: &'s WorkerConfig,
    now: LogicalTime,
    passed_over: &'s mut bool,
}

impl<B: CoordinationFacade> Seeker<'_, B> {
    fn claim(&mut self, scratch: &mut AcquireScratch) -> Result<SessionState, ClaimError> {
        let WorkerConfig { tenant, run, worker, .. } = *self.config;
        let now = self.now;
        let reservation = self.coordinator.reserve_claim(now, tenant, worker)?;
        let mut claim = Claim::new(B::CANDIDATES_PER_SCAN, now);
        // `Claim` bounds the number of candidates, so the loop ends.
        loop {
            match claim.step() {
                ClaimStep::Scan { limit, partial, found } => {
                    let seeker = &mut *self.coordinator;
                    let outlook = match partial {
                        true => {
                            seeker.probe_candidates_into(now, tenant, run, worker, limit, found)
                        }
                        false => seeker
                            .collect_claim_candidates_into(now, tenant, run, worker, limit, found),
                    };
                    claim.outlook = Some(outlook?);
                }
                // The check and the acquire are not atomic. A grant in between is caught by the
                // runner, which releases the shard uncounted.
                ClaimStep::Try(shard) if self.is_suspect(shard)? => *self.passed_over = true,
                ClaimStep::Try(shard) => {
                    let key = ShardKey::new(run, shard);
                    let acquired = self
                        .coordinator
                        .acquire_and_restore_into(now, tenant, key, worker, scratch);
                    match acquired {
                        Ok(acquired) => {
                            reservation.claimed();
                            return Ok(SessionState::new(acquired));
                        }
                        Err(refusal) => claim.refused(refusal)?,
                    }
                }
                ClaimStep::End(error) => return Err(error),
            }
        }
    }

    /// Returns whether the next grant would be the last attempt of the shard.
    fn is_suspect(&mut self, shard: ShardId) -> Result<bool, GetRunError> {
        let (config, mut rows) = (self.config, Vec::new());
        let filter = ShardFilter::one(shard);
        self.coordinator.list_shards_into(
            self.now,
            config.tenant,
            config.run,
            filter,
            &mut rows,
        )?;
        // If the shard is gone, the acquire refuses it.
        let attempts = rows.first().map_or(0, |row| row.attempts);
        Ok(config.task.is_last_chance(attempts.saturating_add(1)))
    }
}
