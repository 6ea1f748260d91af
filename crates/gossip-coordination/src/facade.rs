//! The whole face of a backend, and claiming on top of it.
//!
//! A claim finds a worker something to do. It is coarser than an acquire: lost races are absorbed
//! by trying the next candidate, and only "nothing left" reaches the worker.

use std::future::Future;

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use thiserror::Error;

use crate::error::InfraError;
use crate::lease::Lease;
use crate::outcome::CapacityHint;
use crate::protocol::{CLAIM_CANDIDATES_MAX, Claim, ClaimCandidates, ClaimStep};
use crate::record::ShardStatus;
use crate::run::RunStatus;
use crate::run_errors::GetRunError;
use crate::run_management::{AsyncRunManagement, ClaimOutlook, RunManagement};
use crate::scratch::{AcquireResultView, AcquireScratch};
use crate::traits::{AsyncCoordinationBackend, CoordinationBackend};

/// Why a worker got nothing to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Everything is taken or finished.
    #[error("no shard can be claimed now")]
    NoneAvailable {
        /// When looking again makes sense: when the next lease runs out, or at once if the claim
        /// gave up with candidates left.
        earliest_deadline: Option<LogicalTime>,
    },
    /// The tenant has no such run.
    #[error("no such run")]
    RunNotFound,
    /// The record belongs to another tenant.
    #[error("the run does not belong to the calling tenant")]
    TenantMismatch {
        /// The caller's own tenant.
        expected: TenantId,
    },
    /// The worker claimed a moment ago.
    #[error("claiming again is allowed from {retry_after} on")]
    Throttled {
        /// When to come back.
        retry_after: LogicalTime,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
    /// Added (DESIGN Q5): the run is over.
    #[error("the run is already {status:?}")]
    RunTerminal {
        /// How it ended.
        status: RunStatus,
    },
    /// Added (FACTS 4.9): the run is paused.
    #[error("the run is paused")]
    RunPaused,
}

impl From<GetRunError> for ClaimError {
    fn from(error: GetRunError) -> Self {
        match error {
            GetRunError::RunNotFound => Self::RunNotFound,
            GetRunError::TenantMismatch { expected } => Self::TenantMismatch { expected },
            GetRunError::BackendError(error) => Self::BackendError(error),
        }
    }
}

/// Finding work, blocking.
pub trait ShardClaiming: CoordinationBackend + RunManagement {
    /// How many candidates to look up at once: more where looking is expensive and others race.
    const CANDIDATES_PER_LOOK: usize = CLAIM_CANDIDATES_MAX;

    /// Until when `worker` must wait since its last claim, if it must.
    fn claim_throttled_until(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Option<LogicalTime>;

    /// Remembers that `worker` claimed a shard at `now`.
    fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId);

    /// As [`RunManagement::collect_claim_candidates_into`], and may find fewer shards and no
    /// deadline, where finding all is expensive. If it finds no shard there is none, and the
    /// deadline is told.
    ///
    /// # Errors
    ///
    /// [`GetRunError`].
    fn probe_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError> {
        self.collect_claim_candidates_into(now, tenant, run, worker, limit, out)
    }

    /// Gets `worker` the first shard of `run` that nobody else takes meanwhile.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    fn claim_next_available<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, ClaimError> {
        if let Some(retry_after) = self.claim_throttled_until(now, tenant, worker) {
            return Err(ClaimError::Throttled { retry_after });
        }
        let mut claim = Claim::new(Self::CANDIDATES_PER_LOOK, now);
        loop {
            match claim.step() {
                ClaimStep::Look { limit, glance, found } => {
                    claim.outlook = Some(match glance {
                        true => {
                            self.probe_candidates_into(now, tenant, run, worker, limit, found)?
                        }
                        false => self.collect_claim_candidates_into(
                            now, tenant, run, worker, limit, found,
                        )?,
                    });
                }
                ClaimStep::Try(shard) => {
                    let key = ShardKey::new(run, shard);
                    match self.acquire_and_restore_into(now, tenant, key, worker, scratch) {
                        Ok(acquired) => {
                            let claimed = Claimed::of(&acquired);
                            self.note_claim(now, tenant, worker);
                            return Ok(claimed.show(scratch));
                        }
                        Err(refusal) => claim.refused(refusal)?,
                    }
                }
                ClaimStep::GiveUp(error) => return Err(error),
            }
        }
    }
}

/// Finding work, asynchronous. See [`ShardClaiming`].
pub trait AsyncShardClaiming: AsyncCoordinationBackend + AsyncRunManagement {
    /// See [`ShardClaiming::CANDIDATES_PER_LOOK`].
    const CANDIDATES_PER_LOOK: usize = CLAIM_CANDIDATES_MAX;

    /// See [`ShardClaiming::claim_throttled_until`].
    fn claim_throttled_until(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Option<LogicalTime>;

    /// See [`ShardClaiming::note_claim`].
    fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId);

    /// See [`ShardClaiming::probe_candidates_into`].
    fn probe_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> impl Future<Output = Result<ClaimOutlook, GetRunError>> + Send {
        self.collect_claim_candidates_into(now, tenant, run, worker, limit, out)
    }

    /// See [`ShardClaiming::claim_next_available`].
    fn claim_next_available<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> impl Future<Output = Result<AcquireResultView<'a>, ClaimError>> + Send {
        async move {
            if let Some(retry_after) = self.claim_throttled_until(now, tenant, worker) {
                return Err(ClaimError::Throttled { retry_after });
            }
            let mut claim = Claim::new(Self::CANDIDATES_PER_LOOK, now);
            loop {
                match claim.step() {
                    ClaimStep::Look { limit, glance, found } => {
                        claim.outlook = Some(match glance {
                            true => {
                                self.probe_candidates_into(now, tenant, run, worker, limit, found)
                                    .await?
                            }
                            false => {
                                self.collect_claim_candidates_into(
                                    now, tenant, run, worker, limit, found,
                                )
                                .await?
                            }
                        });
                    }
                    ClaimStep::Try(shard) => {
                        let key = ShardKey::new(run, shard);
                        let acquire =
                            self.acquire_and_restore_into(now, tenant, key, worker, scratch);
                        match acquire.await {
                            Ok(acquired) => {
                                let claimed = Claimed::of(&acquired);
                                self.note_claim(now, tenant, worker);
                                return Ok(claimed.show(scratch));
                            }
                            Err(refusal) => claim.refused(refusal)?,
                        }
                    }
                    ClaimStep::GiveUp(error) => return Err(error),
                }
            }
        }
    }
}

/// Everything a backend offers, blocking.
pub trait CoordinationFacade: CoordinationBackend + RunManagement + ShardClaiming {}

impl<B: CoordinationBackend + RunManagement + ShardClaiming> CoordinationFacade for B {}

/// Everything a backend offers, asynchronous.
pub trait AsyncCoordinationFacade:
    AsyncCoordinationBackend + AsyncRunManagement + AsyncShardClaiming
{
}

impl<B: AsyncCoordinationBackend + AsyncRunManagement + AsyncShardClaiming> AsyncCoordinationFacade
    for B
{
}

/// What a successful acquire said, without its borrow of the scratch.
///
/// A loop that may acquire again cannot keep the view of an earlier turn, so the view is shown
/// anew once the loop has ended.
struct Claimed {
    lease: Lease,
    capacity: CapacityHint,
    attempts: u32,
    status: ShardStatus,
    cursor_semantics: CursorSemantics,
    parent: Option<ShardId>,
}

impl Claimed {
    fn of(acquired: &AcquireResultView<'_>) -> Self {
        Self {
            lease: acquired.lease.clone(),
            capacity: acquired.capacity,
            attempts: acquired.attempts,
            status: acquired.snapshot.status(),
            cursor_semantics: acquired.snapshot.cursor_semantics(),
            parent: acquired.snapshot.parent(),
        }
    }

    fn show(self, scratch: &AcquireScratch) -> AcquireResultView<'_> {
        AcquireResultView {
            snapshot: scratch.view(self.status, self.cursor_semantics, self.parent),
            lease: self.lease,
            capacity: self.capacity,
            attempts: self.attempts,
        }
    }
}
