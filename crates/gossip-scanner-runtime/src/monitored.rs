//! A coordinator handle that notes whether the store failed.

use std::error::Error;
use std::fmt;

use gossip_coordination::operations::*;
use gossip_coordination::protocol::ClaimScope;
use gossip_coordination::{
    ClaimError, ClaimReservation, CoordinationBackend, RunManagement, ShardClaiming,
    for_each_run_operation, for_each_shard_operation,
};

use crate::delegation::reservations_of_inner;

/// What the store did since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreReport {
    /// It was not used.
    #[default]
    Unused,
    /// It answered every operation.
    Answered,
    /// It failed an operation that may succeed later; the last failure is kept.
    Failed(InfraError),
}

impl StoreReport {
    /// Adds the outcome of an operation: its error, if it has one.
    ///
    /// An error that a retry cannot help is an answer: it is about the request or one record, and
    /// the caller handles it.
    pub(crate) fn note(&mut self, error: Option<&(dyn Error + 'static)>) {
        let failure = error.and_then(infra_error).filter(|error| error.is_retryable());
        match (failure, &self) {
            (Some(error), _) => *self = Self::Failed(error.clone()),
            // A failure is kept until it was reported, although a later operation succeeded.
            (None, Self::Failed(_)) => {}
            (None, Self::Unused | Self::Answered) => *self = Self::Answered,
        }
    }

    /// Returns whether the store failed since the last report.
    pub(crate) const fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// Combines the reports of two handles of one part.
impl std::ops::Add for StoreReport {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        match (self, other) {
            (failed @ Self::Failed(_), _) | (_, failed @ Self::Failed(_)) => failed,
            (Self::Unused, Self::Unused) => Self::Unused,
            (Self::Answered, _) | (_, Self::Answered) => Self::Answered,
        }
    }
}

/// Returns the failure of the store behind `error`, if there is one.
fn infra_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e InfraError> {
    error.downcast_ref().or_else(|| error.source()?.downcast_ref())
}

/// A coordinator handle that notes whether the store failed.
pub(crate) struct Monitored<B> {
    inner: B,
    report: StoreReport,
}

impl<B> Monitored<B> {
    pub(crate) const fn new(inner: B) -> Self {
        Self { inner, report: StoreReport::Unused }
    }

    /// Returns what the store did since the last call.
    pub(crate) fn take_report(&mut self) -> StoreReport {
        std::mem::take(&mut self.report)
    }

    /// Returns whether the store failed since the last report.
    pub(crate) const fn has_failed(&self) -> bool {
        self.report.is_failed()
    }
}

impl<B> fmt::Debug for Monitored<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitored").field("report", &self.report).finish_non_exhaustive()
    }
}

/// The answer of an operation.
trait Answer {
    fn error(&self) -> Option<&(dyn Error + 'static)>;
}

impl<T, E: Error + 'static> Answer for Result<T, E> {
    fn error(&self) -> Option<&(dyn Error + 'static)> {
        self.as_ref().err().map(|error| error as _)
    }
}

/// Defines methods that call the method of the same name and note its error.
macro_rules! note_after {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        note_after! { @one $name ($($life)?) ($($arg: $type),*) $answer }
    )* };
    // Its answers are in its last argument.
    (@one renew_many () (
        $now:ident: $time:ty, $tenant:ident: $id:ty, $leases:ident: $slice:ty,
        $results:ident: $vec:ty
    ) $answer:ty) => {
        fn renew_many(
            &mut self, $now: $time, $tenant: $id, $leases: $slice, $results: $vec
        ) -> $answer {
            self.inner.renew_many($now, $tenant, $leases, $results);
            $results.iter().for_each(|result| self.report.note(result.error()));
        }
    };
    (@one $name:ident ($($life:lifetime)?) ($($arg:ident: $type:ty),*) $answer:ty) => {
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            let answer = self.inner.$name($($arg),*);
            self.report.note(answer.error());
            answer
        }
    };
}

impl<B: CoordinationBackend> CoordinationBackend for Monitored<B> {
    for_each_shard_operation! { note_after () }
}

impl<B: RunManagement> RunManagement for Monitored<B> {
    for_each_run_operation! { note_after () }
}

impl<B: ShardClaiming> ShardClaiming for Monitored<B> {
    reservations_of_inner! {}

    fn probe_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError> {
        let answer = self.inner.probe_candidates_into(now, tenant, run, worker, limit, out);
        self.report.note(answer.error());
        answer
    }

    fn claim_within<'a>(
        &mut self,
        scope: ClaimScope,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, ClaimError> {
        let answer = self.inner.claim_within(scope, now, tenant, run, worker, scratch);
        self.report.note(answer.error());
        answer
    }
}
