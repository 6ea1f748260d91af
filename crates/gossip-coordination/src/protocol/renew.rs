//! `renew`: the owner keeps its shard a while longer.
//!
//! A renewal never shortens a lease, so replies that arrive out of order are harmless, and it
//! carries what the owner should know: its own standing offer, a request, a pause.

use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, check_run_not_over, request_expired,
    shown_request,
};
use crate::error::RenewError;
use crate::handoff::OfferNotice;
use crate::lease::{Lease, LeaseHolder};
use crate::record::ShardRecord;
use crate::request::PendingRequest;
use crate::run::RunHead;
use crate::validation::check_lease;

/// An owner renews its lease.
#[derive(Clone, Copy, Debug)]
pub struct Renew<'a> {
    /// The caller.
    pub tenant: TenantId,
    /// Its lease.
    pub lease: &'a Lease,
}

/// What a renewal brought, as far as the record knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// When the lease ends now.
    pub new_deadline: LogicalTime,
    /// The owner's own standing offer.
    pub offer: Option<OfferNotice>,
    /// What an administrator asks.
    pub request: Option<PendingRequest>,
    /// Whether the run is paused.
    pub run_paused: bool,
}

impl ShardTransition for Renew<'_> {
    type Output = Renewed;
    type Error = RenewError;

    const CONSULTS_RUN: bool = true;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    // Into its caller: what it returns is large, and copying it would cost as much as deciding.
    #[inline(always)]
    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, Renewed, RenewError>, RenewError> {
        let (shard, run) = seen.shard_and_run(self.lease.key())?;
        let record = shard.record();
        // No operation id: a renewal changes only a deadline, and to do that twice is harmless.
        check_lease(now, self.tenant, self.lease, record)?;
        check_run_not_over(&run)?;

        let holder = record.lease().expect("a lease that passes the ladder has a holder");
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
        // Made where it is returned, for the same reason.
        Ok(Decision::commit(ShardChange::Renew { holder, drop_request }, renewed))
    }
}

/// A whole lease from now; while an offer stands, no longer than one lease beyond the offer, so
/// that an owner that never withdraws cannot hold a frozen shard for ever.
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
    allowed.max(holder.deadline())
}
