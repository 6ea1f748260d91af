//! Claiming, and the traits that combine all operations of a backend.
//!
//! A claim picks a free shard and acquires it. If another worker acquires the shard first, the
//! claim tries the next candidate; the caller gets an error only if no candidate is left.

use std::future::Future;

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use thiserror::Error;

use crate::claim_clock::ClaimReservation;
use crate::error::InfraError;
use crate::lease::Lease;
use crate::outcome::CapacityHint;
use crate::protocol::{CLAIM_CANDIDATES_MAX, Claim, ClaimCandidates, ClaimScope, ClaimStep};
use crate::record::ShardStatus;
use crate::refusal::{RunOnPause, RunOver, operation_errors};
use crate::run::RunStatus;
use crate::run_errors::GetRunError;
use crate::run_management::{AsyncRunManagement, ClaimOutlook, RunManagement};
use crate::scratch::{AcquireResultView, AcquireScratch};
use crate::traits::{AsyncCoordinationBackend, CoordinationBackend};

operation_errors! { run
    /// Why a claim returned no shard.
    ///
    /// Added: `RunTerminal` (DESIGN Q5), `RunPaused` (FACTS 4.9) and `OnlyLastAttempts` (ADR 63).
    pub enum ClaimError {
        /// Every shard is leased or terminal.
        #[error("no shard can be claimed now")]
        NoneAvailable {
            /// When to try again: when the next lease expires, or immediately if the claim stopped
            /// with candidates left.
            earliest_deadline: Option<LogicalTime>,
        },
        RunNotFound, TenantMismatch,
        /// The worker's claim cooldown has not passed.
        #[error("claiming again is allowed from {retry_after} on")]
        Throttled {
            /// When the worker may claim again.
            retry_after: LogicalTime,
        },
        BackendError, RunTerminal, RunPaused,
        /// Shards can be claimed, but for each the grant would be its last attempt, and the claim
        /// spares those.
        #[error("every shard that can be claimed is on its last attempt")]
        OnlyLastAttempts,
    }
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

/// Claiming, blocking.
pub trait ShardClaiming: CoordinationBackend + RunManagement {
    /// Candidates per query: more where a query is expensive and other workers race.
    const CANDIDATES_PER_SCAN: usize = CLAIM_CANDIDATES_MAX;

    /// Reserves a claim of `worker` at `now`. The handles of a process share the reservations, so
    /// that a worker with several handles makes one successful claim per cooldown.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Throttled`] if the worker's cooldown has not passed, or would not have passed
    /// if an in-flight claim succeeds.
    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError>;

    /// See [`Store::change_count`](crate::store::Store::change_count).
    fn change_count(&mut self) -> Option<u64> {
        None
    }

    /// As [`RunManagement::collect_claim_candidates_into`], but may return fewer shards and no
    /// deadline where a complete search is expensive. An empty result is complete, with its
    /// deadline.
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

    /// Acquires the first candidate of `run` that no other worker acquires first.
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
        self.claim_within(ClaimScope::Any, now, tenant, run, worker, scratch)
    }

    /// As [`claim_next_available`](Self::claim_next_available), among the shards of `scope`.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    fn claim_within<'a>(
        &mut self,
        scope: ClaimScope,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, ClaimError> {
        // Held until the claim ends: dropped on every other path, it gives the claim back.
        let reservation = self.reserve_claim(now, tenant, worker)?;
        let mut claim = Claim::new(Self::CANDIDATES_PER_SCAN, now);
        loop {
            match claim.step() {
                ClaimStep::Scan { limit, partial, found } => {
                    claim.outlook = Some(match partial {
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
                    let acquired = match scope {
                        ClaimScope::Any => {
                            self.acquire_and_restore_into(now, tenant, key, worker, scratch)
                        }
                        ClaimScope::SpareLastAttempts => self
                            .acquire_sparing_last_attempt_into(now, tenant, key, worker, scratch),
                    };
                    match acquired {
                        Ok(acquired) => {
                            let claimed = Claimed::of(&acquired);
                            // Only now: a claim that found nothing starts no cooldown.
                            reservation.claimed();
                            return Ok(claimed.show(scratch));
                        }
                        // A shard that another worker took is no failure of the claim, which tries
                        // the next one.
                        Err(refusal) => claim.refused(refusal)?,
                    }
                }
                ClaimStep::End(error) => return Err(error),
            }
        }
    }
}

/// Claiming, asynchronous. See [`ShardClaiming`].
pub trait AsyncShardClaiming: AsyncCoordinationBackend + AsyncRunManagement {
    /// See [`ShardClaiming::CANDIDATES_PER_SCAN`].
    const CANDIDATES_PER_SCAN: usize = CLAIM_CANDIDATES_MAX;

    /// See [`ShardClaiming::reserve_claim`].
    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError>;

    /// See [`ShardClaiming::change_count`].
    fn change_count(&mut self) -> Option<u64> {
        None
    }

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
        self.claim_within(ClaimScope::Any, now, tenant, run, worker, scratch)
    }

    /// See [`ShardClaiming::claim_within`].
    fn claim_within<'a>(
        &mut self,
        scope: ClaimScope,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> impl Future<Output = Result<AcquireResultView<'a>, ClaimError>> + Send {
        async move {
            // As in the blocking form. A dropped future drops the reservation, too.
            let reservation = self.reserve_claim(now, tenant, worker)?;
            let mut claim = Claim::new(Self::CANDIDATES_PER_SCAN, now);
            loop {
                match claim.step() {
                    ClaimStep::Scan { limit, partial, found } => {
                        claim.outlook = Some(match partial {
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
                        let acquired = match scope {
                            ClaimScope::Any => {
                                self.acquire_and_restore_into(now, tenant, key, worker, scratch)
                                    .await
                            }
                            ClaimScope::SpareLastAttempts => {
                                self.acquire_sparing_last_attempt_into(
                                    now, tenant, key, worker, scratch,
                                )
                                .await
                            }
                        };
                        match acquired {
                            Ok(acquired) => {
                                let claimed = Claimed::of(&acquired);
                                reservation.claimed();
                                return Ok(claimed.show(scratch));
                            }
                            Err(refusal) => claim.refused(refusal)?,
                        }
                    }
                    ClaimStep::End(error) => return Err(error),
                }
            }
        }
    }
}

/// All operations of a backend, blocking.
pub trait CoordinationFacade: CoordinationBackend + RunManagement + ShardClaiming {}

impl<B: CoordinationBackend + RunManagement + ShardClaiming> CoordinationFacade for B {}

/// All operations of a backend, asynchronous.
pub trait AsyncCoordinationFacade:
    AsyncCoordinationBackend + AsyncRunManagement + AsyncShardClaiming
{
}

impl<B: AsyncCoordinationBackend + AsyncRunManagement + AsyncShardClaiming> AsyncCoordinationFacade
    for B
{
}

/// The result of a successful acquire, without its borrow of the scratch.
///
/// The borrow checker does not let a loop that may acquire again return the view of one iteration,
/// so the view is built again after the loop.
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
