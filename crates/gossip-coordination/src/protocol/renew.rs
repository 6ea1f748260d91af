//! `renew`: the lease holder extends its lease.
//!
//! A renewal never shortens a lease, so replies that arrive out of order are harmless. Its result
//! carries notices for the lease holder: its own pending offer, a request, a pause.

use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, check_fence_floor, check_run_not_over,
    request_expired, shown_request,
};
use crate::error::RenewError;
use crate::handoff::OfferNotice;
use crate::lease::{Lease, LeaseHolder};
use crate::record::ShardRecord;
use crate::request::PendingRequest;
use crate::run::RunHead;
use crate::validation::check_lease;

/// Renews a lease.
#[derive(Clone, Copy, Debug)]
pub struct Renew<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
}

/// The result of a renewal, from the record alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The new deadline.
    pub new_deadline: LogicalTime,
    /// The lease holder's own pending offer.
    pub(crate) offer: Option<OfferNotice>,
    /// The administrator's pending request.
    pub request: Option<PendingRequest>,
    /// Whether the run is paused.
    pub(crate) run_paused: bool,
}

impl ShardTransition for Renew<'_> {
    type Output = Renewed;
    type Error = RenewError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    // Inlined: the result is large, and copying it would cost as much as the decision.
    #[inline(always)]
    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, Renewed, RenewError>, RenewError> {
        let (shard, run) = seen.shard_and_run(self.lease.key())?;
        let record = shard.record();
        // No operation id is needed: applying a renewal twice is harmless.
        check_lease(now, self.tenant, self.lease, record)?;
        check_fence_floor(seen, self.lease)?;
        check_run_not_over(&run)?;

        let holder = record.lease().expect("a checked lease has a holder");
        let new_deadline = renewed_deadline(now, holder, record, &run);
        assert!(new_deadline >= holder.deadline(), "a renewal never shortens a lease");
        assert!(new_deadline > now, "a renewed lease is live");
        let renewed = Renewed {
            new_deadline,
            offer: record.offer().map(|offer| offer.notice()),
            request: shown_request(record, now),
            run_paused: run.paused,
        };
        let holder = LeaseHolder::new(holder.owner(), new_deadline, holder.token());
        let drop_request = request_expired(record, now);
        // Built in the return expression to avoid a copy.
        Ok(Decision::commit(ShardChange::Renew { holder, drop_request }, renewed))
    }
}

/// Returns one lease duration from `now`. While an offer is pending, the limit is one duration
/// past the offer's deadline, so that a source that never withdraws cannot hold a frozen shard.
fn renewed_deadline(
    now: LogicalTime,
    holder: LeaseHolder,
    record: &ShardRecord,
    run: &RunHead,
) -> LogicalTime {
    let duration = run.config.lease_duration();
    let wanted = now.saturating_add(duration);
    let allowed = match record.offer() {
        Some(offer) => wanted.min(offer.deadline.saturating_add(duration)),
        None => wanted,
    };
    // A clock that lags behind another machine's must not move the deadline backwards.
    allowed.max(holder.deadline())
}
