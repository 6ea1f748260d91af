//! A coordinator handle that converts between the worker time and the wall time.
//!
//! The worker passes worker time and receives worker time; the store sees wall time only. So no
//! wait of a worker depends on the wall clock, and every stored deadline does.
//!
//! A worker relies on a lease for at most one lease duration since it asked for it, whatever
//! deadline is stored: a deadline that lies hours ahead becomes void one lease and the skew after
//! the last renewal ([`LeaseWatch`](gossip_coordination::protocol::LeaseWatch)).
//!
//! # Not converted
//! - Times in listings of shards and workers, and in pending requests: they stay wall times.
//! - The claim cooldown: it is a wait, so it stays in worker time.

use std::fmt;

use gossip_coordination::operations::*;
use gossip_coordination::{
    ClaimError, ClaimReservation, CoordinationBackend, RunManagement, ShardClaiming,
    for_each_run_operation, for_each_shard_operation,
};

use crate::clock::{Clock, ClockOffset};
use crate::delegation::reservations_of_inner;

/// A coordinator handle of a worker.
pub(crate) struct WallTime<'c, B> {
    inner: B,
    clock: &'c dyn Clock,
    lease_ticks: u64,
}

impl<'c, B> WallTime<'c, B> {
    pub(crate) const fn new(inner: B, clock: &'c dyn Clock, lease_ticks: u64) -> Self {
        Self { inner, clock, lease_ticks }
    }

    /// Returns until when a lease is relied on that was granted or renewed by a call at `now`.
    fn relied_until(
        &self,
        offset: ClockOffset,
        now: LogicalTime,
        deadline: LogicalTime,
    ) -> LogicalTime {
        // The earlier one: the deadline may lie far ahead if the wall clock was set back, and
        // others void it after a lease without renewal.
        offset.to_worker(deadline).min(now.saturating_add(self.lease_ticks))
    }

    /// Calls an operation that grants a lease.
    fn granted<'a, E>(
        &mut self,
        now: LogicalTime,
        call: impl FnOnce(&mut B, LogicalTime) -> Result<AcquireResultView<'a>, E>,
    ) -> Result<AcquireResultView<'a>, E> {
        // One offset for the call and its answer: a step of the clock in between would shift the
        // deadline.
        let offset = self.clock.offset();
        let mut view = call(&mut self.inner, offset.to_wall(now))?;
        let until = self.relied_until(offset, now, view.lease.deadline());
        let granted = &view.lease;
        let (key, owner, token) = (granted.key(), granted.owner(), granted.token());
        // A new value, because the deadline may become earlier, which no renewal does.
        view.lease = Lease::new(granted.tenant(), key, owner, granted.fence(), until, token);
        let earliest = &mut view.capacity.earliest_deadline;
        *earliest = earliest.map(|deadline| offset.to_worker(deadline));
        Ok(view)
    }

    fn renewed(
        &self,
        offset: ClockOffset,
        now: LogicalTime,
        result: &mut Result<RenewResult, RenewError>,
    ) {
        if let Ok(renewed) = result {
            renewed.new_deadline = self.relied_until(offset, now, renewed.new_deadline);
            let earliest = &mut renewed.capacity.earliest_deadline;
            *earliest = earliest.map(|deadline| offset.to_worker(deadline));
        }
    }

    fn scanned(
        offset: ClockOffset,
        outlook: Result<ClaimOutlook, GetRunError>,
    ) -> Result<ClaimOutlook, GetRunError> {
        let mut outlook = outlook?;
        let earliest = outlook.earliest_deadline;
        outlook.earliest_deadline = earliest.map(|deadline| offset.to_worker(deadline));
        Ok(outlook)
    }
}

fn refused(offset: ClockOffset, mut refusal: AcquireError) -> AcquireError {
    if let AcquireError::AlreadyLeased { lease_deadline, .. } = &mut refusal {
        *lease_deadline = offset.to_worker(*lease_deadline);
    }
    refusal
}

impl<B> fmt::Debug for WallTime<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WallTime").finish_non_exhaustive()
    }
}

/// Defines methods that call the method of the same name at the wall time. The operations whose
/// other times are converted too are written out below.
macro_rules! at_wall_time {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($args:tt)*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        at_wall_time! { @one $name ($($life)?) ($($args)*) $answer }
    )* };
    (@one acquire_and_restore_into $($row:tt)*) => {};
    (@one acquire_sparing_last_attempt_into $($row:tt)*) => {};
    (@one accept $($row:tt)*) => {};
    (@one renew $($row:tt)*) => {};
    (@one renew_many $($row:tt)*) => {};
    (@one offer $($row:tt)*) => {};
    (@one request_action $($row:tt)*) => {};
    (@one collect_claim_candidates_into $($row:tt)*) => {};
    (@one $name:ident () ($now:ident: LogicalTime $(, $arg:ident: $type:ty)*) $answer:ty) => {
        fn $name(&mut self, $now: LogicalTime $(, $arg: $type)*) -> $answer {
            self.inner.$name(self.clock.offset().to_wall($now) $(, $arg)*)
        }
    };
    (@one $name:ident () ($($arg:ident: $type:ty),*) $answer:ty) => {
        fn $name(&mut self, $($arg: $type),*) -> $answer {
            self.inner.$name($($arg),*)
        }
    };
}

impl<B: CoordinationBackend> CoordinationBackend for WallTime<'_, B> {
    for_each_shard_operation! { at_wall_time () }

    fn acquire_and_restore_into<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError> {
        let granted = self.granted(now, |inner, wall| {
            inner.acquire_and_restore_into(wall, tenant, key, worker, scratch)
        });
        granted.map_err(|refusal| refused(self.clock.offset(), refusal))
    }

    fn acquire_sparing_last_attempt_into<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError> {
        let granted = self.granted(now, |inner, wall| {
            inner.acquire_sparing_last_attempt_into(wall, tenant, key, worker, scratch)
        });
        granted.map_err(|refusal| refused(self.clock.offset(), refusal))
    }

    fn accept<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcceptError> {
        self.granted(now, |inner, wall| inner.accept(wall, tenant, key, worker, handoff, scratch))
    }

    fn renew(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
    ) -> Result<RenewResult, RenewError> {
        let offset = self.clock.offset();
        let mut result = self.inner.renew(offset.to_wall(now), tenant, lease);
        self.renewed(offset, now, &mut result);
        result
    }

    fn renew_many(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        leases: &[Lease],
        results: &mut Vec<Result<RenewResult, RenewError>>,
    ) {
        let offset = self.clock.offset();
        self.inner.renew_many(offset.to_wall(now), tenant, leases, results);
        results.iter_mut().for_each(|result| self.renewed(offset, now, result));
    }

    fn offer(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        terms: OfferTerms,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, OfferError> {
        let offset = self.clock.offset();
        // The deadline of an offer is compared by the other worker, whose only common clock is the
        // wall clock.
        let terms = OfferTerms { deadline: offset.to_wall(terms.deadline), ..terms };
        self.inner.offer(offset.to_wall(now), tenant, lease, terms, cursor, op_id)
    }
}

impl<B: RunManagement> RunManagement for WallTime<'_, B> {
    for_each_run_operation! { at_wall_time () }

    fn request_action(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        action: &ShardAction,
        expires_at: LogicalTime,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RequestActionError> {
        let offset = self.clock.offset();
        let (now, expires_at) = (offset.to_wall(now), offset.to_wall(expires_at));
        self.inner.request_action(now, tenant, key, action, expires_at, op_id)
    }

    fn collect_claim_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError> {
        let offset = self.clock.offset();
        let wall = offset.to_wall(now);
        let found = self.inner.collect_claim_candidates_into(wall, tenant, run, worker, limit, out);
        Self::scanned(offset, found)
    }
}

impl<B: ShardClaiming> ShardClaiming for WallTime<'_, B> {
    // Not converted: the cooldown is a wait of this process, and a step of the wall clock must
    // not extend it.
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
        let offset = self.clock.offset();
        let wall = offset.to_wall(now);
        let found = self.inner.probe_candidates_into(wall, tenant, run, worker, limit, out);
        Self::scanned(offset, found)
    }
}
