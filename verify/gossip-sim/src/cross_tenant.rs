//! Operations on leases of another tenant. A worker sends every lease operation with the id of a
//! tenant that did not grant the lease; all must be rejected. This guards the isolation of tenants.

use gossip_contracts::coordination::{
    CursorUpdate, SplitChild, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, TenantId, WorkerId};
use gossip_coordination::protocol::{OfferTerms, ReleaseMode};
use gossip_coordination::{AsyncCoordinationBackend, HandoffId, ParkReason};

use super::context::Draft;
use super::effects::wanted_parts;
use super::op::{Op, Said, Verb};
use super::splits::spec;
use super::worker::{Worker, cursor_at, keys};

/// The operations that are tried; splits need a shard with two keys or more.
const TRIED: [Verb; 9] = [
    Verb::Renew,
    Verb::Checkpoint,
    Verb::Complete,
    Verb::Park,
    Verb::Release,
    Verb::Offer,
    Verb::Withdraw,
    Verb::SplitReplace,
    Verb::SplitResidual,
];

/// Number of operations in [`TRIED`] that are not splits.
const WHOLE: u64 = 7;

impl Worker {
    /// Sends an operation on a lease to another tenant, which must reject it.
    pub(super) async fn probe_other_tenant(&mut self, place: usize) {
        let count = self.cx.shared.borrow().tenants.len() as u64;
        let other = self.cx.below(count) as usize;
        let tenant = self.cx.shared.borrow().tenants[other];
        if tenant == self.cx.tenant_id || self.cx.shared.borrow().compares_tenants {
            return;
        }
        let (from, to) = self.held[place].range;
        let tries = if to - from > 1 { TRIED.len() as u64 } else { WHOLE };
        let verb = TRIED[self.cx.below(tries) as usize];
        let op_id = self.new_op_id(place);
        let said = Said { stranger: true, ..Said::default() };
        let lease = self.held[place].lease_ref;
        let op = self.cx.begin(Draft { said, ..Draft::under(verb, lease, op_id) });
        // A plan is large. Boxed, it does not enlarge the future of every worker.
        match verb {
            Verb::SplitReplace | Verb::SplitResidual => {
                Box::pin(self.try_split(&op, tenant, place)).await;
            }
            _ => self.try_whole(&op, tenant, place).await,
        }
    }

    async fn try_whole(&mut self, op: &Op, tenant: TenantId, place: usize) {
        let (now, op_id, keys) = (op.now, op.op_id, keys(&self.cx));
        let cursor = cursor_at(&keys, self.held[place].range.1);
        let lease = &self.lease(place).clone();
        match op.verb {
            Verb::Renew => {
                let result = self.handle.renew(now, tenant, lease).await;
                self.cx.end_plain(op, &result);
            }
            Verb::Checkpoint => {
                let result = self.handle.checkpoint(now, tenant, lease, cursor, op_id).await;
                self.cx.end(op, &result, None);
            }
            Verb::Complete => {
                let result = self.handle.complete(now, tenant, lease, cursor, op_id).await;
                self.cx.end(op, &result, None);
            }
            Verb::Park => {
                let reason = ParkReason::Poisoned;
                let result = self.handle.park_shard(now, tenant, lease, reason, op_id).await;
                self.cx.end(op, &result, None);
            }
            Verb::Release => {
                let mode = ReleaseMode::Failed;
                let result = self.handle.release(now, tenant, lease, mode, op_id).await;
                self.cx.end(op, &result, None);
            }
            Verb::Offer => {
                let destination = WorkerId::from_raw(self.cx.worker.as_raw() + 1);
                let deadline = LogicalTime::from_raw(now.as_raw() + 1);
                let terms = OfferTerms { handoff: HandoffId::from_raw(7), destination, deadline };
                let result = self.handle.offer(now, tenant, lease, terms, cursor, op_id).await;
                self.cx.end(op, &result, None);
            }
            Verb::Withdraw => {
                let handoff = HandoffId::from_raw(7);
                let result = self.handle.withdraw(now, tenant, lease, handoff, op_id).await;
                self.cx.end(op, &result, None);
            }
            other => unreachable!("{other:?} is not sent to other tenants"),
        }
    }

    /// Splits off the first key.
    async fn try_split(&mut self, op: &Op, tenant: TenantId, place: usize) {
        let (now, op_id, keys) = (op.now, op.op_id, keys(&self.cx));
        let range = self.held[place].range;
        let run = self.held[place].lease_ref.key.run();
        let parts = wanted_parts(range, &[range.0 + 1]).into_iter();
        let parts: Vec<_> = parts.map(|part| spec(&keys, run, part)).collect();
        let lease = &self.lease(place).clone();
        if op.verb == Verb::SplitResidual {
            let plan = SplitResidualPlan::try_new(parts[0], parts[1]);
            let plan = plan.expect("the two parts differ");
            let result = self.handle.split_residual(now, tenant, lease, &plan, op_id).await;
            self.cx.end(op, &result, None);
        } else {
            let child = |part| SplitChild::new(part, CursorUpdate::initial());
            let plan = SplitReplacePlan::try_new(parts.into_iter().map(child));
            let plan = plan.expect("two parts make a plan");
            let result = self.handle.split_replace(now, tenant, lease, &plan, op_id).await;
            self.cx.end(op, &result, None);
        }
    }
}
