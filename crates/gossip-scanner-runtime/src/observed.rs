//! A coordinator handle that passes the kernel's events to an observer.

use std::fmt;

use gossip_coordination::operations::*;
use gossip_coordination::protocol::ClaimScope;
use gossip_coordination::{
    ClaimError, ClaimReservation, CollectEvents, CoordinationBackend, EventCollector,
    RunManagement, ShardClaiming, for_each_run_operation, for_each_shard_operation,
};

use crate::delegation::reservations_of_inner;
use crate::observer::{Event, Observer};

/// Events kept of one operation; further ones are dropped. A renewal emits one event per lease of a
/// worker ([`MAX_THREADS`](crate::MAX_THREADS)), garbage collection two per run, and every other
/// operation one.
const EVENTS_PER_OPERATION_MAX: usize = 1_024;

const _: () = assert!(crate::MAX_THREADS <= EVENTS_PER_OPERATION_MAX);

/// A coordinator handle that passes the events of each operation to an observer when the operation
/// returns.
///
/// A handle serves one tenant: its collector panics on events of a second one.
pub struct Observed<'o, B> {
    pub(crate) inner: B,
    observer: &'o dyn Observer,
}

impl<'o, B: CollectEvents> Observed<'o, B> {
    /// Attaches `observer` to `handle`. An observer that does not want the kernel's events costs
    /// nothing.
    pub fn new(mut handle: B, observer: &'o dyn Observer) -> Self {
        if observer.wants_kernel_events() {
            let events = EventCollector::with_max_capacity(EVENTS_PER_OPERATION_MAX);
            handle.collect_events(Some(events));
        }
        Self { inner: handle, observer }
    }

    /// Passes the collected events to the observer.
    fn deliver(&mut self) {
        let Some(mut events) = self.inner.collect_events(None) else { return };
        events.drain_with(|event| self.observer.observe(Event::Kernel(&event)));
        self.inner.collect_events(Some(events));
    }
}

impl<B> fmt::Debug for Observed<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}

/// Defines methods that call the method of the same name and deliver its events.
macro_rules! deliver_after {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            let answer = self.inner.$name($($arg),*);
            self.deliver();
            answer
        }
    )* };
}

impl<B: CoordinationBackend + CollectEvents> CoordinationBackend for Observed<'_, B> {
    for_each_shard_operation! { deliver_after () }
}

impl<B: RunManagement + CollectEvents> RunManagement for Observed<'_, B> {
    for_each_run_operation! { deliver_after () }
}

impl<B: ShardClaiming + CollectEvents> ShardClaiming for Observed<'_, B> {
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
        self.inner.probe_candidates_into(now, tenant, run, worker, limit, out)
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
        let claimed = self.inner.claim_within(scope, now, tenant, run, worker, scratch);
        self.deliver();
        claimed
    }
}
