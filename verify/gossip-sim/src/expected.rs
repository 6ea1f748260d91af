//! The outcomes that each operation must have had once enough operations were checked.
//!
//! The table contains the outcomes that the campaign of 834 million checked operations had more
//! than a handful of times (docs/reliability-simulation.md), and outcomes that were provoked on
//! purpose since. A missing pair means that the simulations have lost something: a rejection that
//! is no longer provoked, or no longer returned.

use super::op::Verb;
use super::report::{Coverage, Report};

/// Number of checked operations from which on every usual pair must occur. The rarest occurred more
/// than ten thousand times in 834 million, so a hundred times or more in these.
pub(super) const USUAL_FROM: u64 = 10_000_000;

/// Number of checked operations from which on the rare pairs must occur, too. The rarest occurred
/// ninety times in 834 million, so about thirty times in these.
pub(super) const RARE_FROM: u64 = 300_000_000;

const _: () = assert!(USUAL_FROM < RARE_FROM);

impl Report {
    /// Returns the pairs of operation and outcome that should have occurred and did not. Meaningful
    /// for simulations with default options only: a choice of faults, workers or tenants is a
    /// choice of outcomes.
    #[must_use]
    pub fn missing(&self) -> Vec<(Verb, &'static str)> {
        let mut missing = Vec::new();
        for (from, table) in [(USUAL_FROM, usual as fn(Verb) -> &'static str), (RARE_FROM, rare)] {
            if self.judged() >= from {
                missing.extend(not_met(&self.coverage, table));
            }
        }
        missing
    }
}

fn not_met(
    coverage: &Coverage,
    table: fn(Verb) -> &'static str,
) -> impl Iterator<Item = (Verb, &'static str)> {
    let pairs = Verb::ALL
        .into_iter()
        .flat_map(move |verb| table(verb).split_whitespace().map(move |name| (verb, name)));
    pairs.filter(|(verb, name)| coverage.of(*verb).iter().all(|(other, _)| other != name))
}

/// Returns the outcomes that an operation has in every campaign.
pub(super) const fn usual(verb: Verb) -> &'static str {
    match verb {
        Verb::Claim => "BackendError Executed NoneAvailable RunNotFound RunPaused RunTerminal",
        Verb::Acquire => {
            "AlreadyLeased BackendError Executed RunPaused RunTerminal ShardNotFound ShardTerminal"
        }
        Verb::Renew => {
            "BackendError Executed LeaseExpired RunTerminal ShardNotFound ShardTerminal StaleFence \
             TenantMismatch"
        }
        Verb::RenewMany => {
            "BackendError Executed LeaseExpired RunTerminal ShardNotFound ShardTerminal StaleFence"
        }
        Verb::Checkpoint => {
            "BackendError CheckpointMissingKey CursorKeyTooLarge CursorOutOfBounds \
             CursorRegression CursorTokenTooLarge Executed LeaseExpired Offered OpIdConflict \
             OperationTooOld Replayed ShardNotFound ShardTerminal StaleFence TenantMismatch"
        }
        Verb::Complete => {
            "BackendError CheckpointMissingKey CursorKeyTooLarge CursorRegression \
             CursorTokenTooLarge Executed LeaseExpired OpIdConflict Replayed ShardNotFound \
             ShardTerminal StaleFence TenantMismatch"
        }
        Verb::Park | Verb::Release => {
            "BackendError Executed LeaseExpired OpIdConflict Replayed ShardNotFound ShardTerminal \
             StaleFence TenantMismatch"
        }
        Verb::SplitReplace | Verb::SplitResidual => {
            "BackendError Executed LeaseExpired OpIdConflict Replayed RunTerminal ShardNotFound \
             ShardTerminal SplitInvalid StaleFence TenantMismatch"
        }
        Verb::Offer => {
            "BackendError Executed InvalidDestination InvalidOfferDeadline LeaseExpired \
             OpIdConflict Replayed RunTerminal ShardNotFound ShardTerminal StaleFence \
             TenantMismatch"
        }
        Verb::Accept => {
            "BackendError Executed NoOffer NotDestination OfferExpired RunPaused RunTerminal \
             ShardNotFound ShardTerminal"
        }
        Verb::Withdraw => {
            "BackendError Executed LeaseExpired OpIdConflict ShardNotFound ShardTerminal \
             StaleFence TenantMismatch"
        }
        Verb::Unpark => "BackendError Executed NotParked Replayed ShardNotFound",
        Verb::RequestAction => {
            "BackendError Executed NotLeased Replayed RequestPending ShardNotFound ShardTerminal"
        }
        Verb::RevokeLease => "BackendError Executed NotLeased ShardNotFound ShardTerminal",
        Verb::CreateRun | Verb::RegisterWorker | Verb::ListWorkers => "BackendError Executed",
        Verb::RegisterShards => {
            "BackendError Executed ManifestInvalid OpIdConflict Replayed RunNotFound \
             ShardLimitExceeded WrongStatus"
        }
        Verb::CompleteRun => "BackendError Executed NotSettled OpIdConflict Replayed WrongStatus",
        Verb::FailRun | Verb::PauseRun | Verb::ResumeRun => {
            "BackendError Executed OpIdConflict Replayed WrongStatus"
        }
        Verb::CancelRun => "BackendError Executed OpIdConflict Replayed",
        Verb::DeleteRun => "BackendError Executed NotTerminal OpIdConflict Replayed",
        Verb::CollectRuns | Verb::ActiveRuns => "Corruption Executed Transient",
        // It lists runs by their keys, including those that cannot be read.
        Verb::ListRuns => "Executed Transient",
        Verb::SetAllotment => "Executed Transient Unresolved",
        Verb::RepairShard => "BackendError Executed NotDamaged",
        Verb::GetRun => "BackendError Executed",
        Verb::Progress | Verb::ListShards => "BackendError Damaged Executed",
        Verb::Heartbeat => "BackendError Executed NotRegistered",
    }
}

/// Returns the outcomes that an operation has occasionally.
pub(super) const fn rare(verb: Verb) -> &'static str {
    match verb {
        Verb::Complete | Verb::Park | Verb::Release | Verb::SplitReplace | Verb::SplitResidual => {
            "Offered"
        }
        Verb::Offer => "Offered Withdrawn",
        Verb::Withdraw => "NoOffer Replayed",
        Verb::Unpark | Verb::RequestAction => "OpIdConflict RunTerminal",
        Verb::RevokeLease => "OpIdConflict Replayed StaleFence",
        Verb::CreateRun => "RunAlreadyExists",
        Verb::CompleteRun | Verb::FailRun | Verb::CancelRun | Verb::PauseRun | Verb::ResumeRun => {
            "RunNotFound RunTerminal"
        }
        Verb::DeleteRun | Verb::GetRun | Verb::Progress | Verb::ListShards => "RunNotFound",
        Verb::CollectRuns | Verb::ActiveRuns => "Refused",
        Verb::RepairShard => "RangeUnknown",
        Verb::Claim
        | Verb::Acquire
        | Verb::Renew
        | Verb::RenewMany
        | Verb::Checkpoint
        | Verb::Accept
        | Verb::RegisterShards
        | Verb::RegisterWorker
        | Verb::Heartbeat
        | Verb::ListRuns
        | Verb::ListWorkers
        | Verb::SetAllotment => "",
    }
}
