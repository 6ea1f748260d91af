//! The capacity hint: how much claimable work a run has, returned with every grant and renewal.
//!
//! A grant loads the shard anyway, so the hint is read in the same batch and adjusted for the
//! grant: the shard itself is no longer claimable, and its lease is live. A renewal from the cache
//! loads nothing, so its hint is read after the commit.
//!
//! # Never
//! - fails an operation: if the index cannot be read, the hint is empty.

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::claim_stats::{DUE_ENOUGH, SCANS_MAX, ScanPlan, ScanResult};
use super::core::Core;
use super::engine::Read;
use super::flight::{Answers, Io};
use crate::outcome::{CAPACITY_COUNT_MAX, CapacityHint};

/// Returns the capacity hint at `now`.
pub(super) async fn capacity(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    worker: WorkerId,
) -> CapacityHint {
    // The estimate of the density may be wrong at first; each scan corrects it.
    for scans in 1..=SCANS_MAX {
        let plan = counting(core, now, (tenant, run), worker);
        // A failed read must not fail the grant or renewal that carries the hint.
        let Ok(mut answers) = io.read(plan.reads(None)).await else { break };
        let found = plan.take(&mut answers);
        if learn(core, &plan, &found, None, scans) {
            return hint(found.due_count(), found.first_deadline(None));
        }
    }
    CapacityHint::default()
}

/// A capacity hint whose reads share the load of a shard that is to be granted.
#[derive(Debug)]
pub(super) struct CapacityProbe {
    now: LogicalTime,
    tenant: TenantId,
    key: ShardKey,
    worker: WorkerId,
    /// The plan whose answers are pending.
    plan: Option<ScanPlan>,
    found: Option<Found>,
}

/// The result of the last load.
#[derive(Debug)]
struct Found {
    plan: ScanPlan,
    found: ScanResult,
    /// Whether the shard itself was claimable.
    was_due: bool,
}

impl CapacityProbe {
    pub(super) const fn new(
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
    ) -> Self {
        Self { now, tenant, key, worker, plan: None, found: None }
    }

    /// Adds its reads to `reads`, if the store accepts that many at once.
    pub(super) fn ask(&mut self, core: &mut Core, reads: &mut Vec<Read>) {
        let plan = counting(core, self.now, (self.tenant, self.key.run()), self.worker);
        let own = plan.reads(None);
        // Without the probe the hint costs its own read after the commit, but the load still fits.
        if reads.len() + own.len() <= core.limits.txn_ops {
            reads.extend(own);
            self.plan = Some(plan);
        }
    }

    /// Takes its answers. `indexed_at` is the shard's time in the claim index at that moment.
    pub(super) fn take(&mut self, answers: &mut Answers, indexed_at: Option<LogicalTime>) {
        // The scan may have counted the shard itself as claimable; the hint subtracts it.
        let was_due = indexed_at.is_some_and(|at| at <= self.now);
        self.found = self.plan.take().map(|plan| {
            let found = plan.take(answers);
            Found { plan, found, was_due }
        });
    }

    /// Returns the hint after the shard was leased until `deadline`. Reads again if the probe's
    /// answers do not settle it.
    pub(super) async fn hint(
        self,
        core: &mut Core,
        io: &Io,
        deadline: LogicalTime,
    ) -> CapacityHint {
        let (shard, of) = (self.key.shard(), (self.tenant, self.key.run()));
        if let Some(Found { plan, found, was_due }) = self.found
            && learn(core, &plan, &found, Some((shard, deadline)), 1)
        {
            // The granted shard's old deadline may be in the scan; its new one is known exactly.
            let others = found.first_deadline(Some(shard)).unwrap_or(deadline);
            let due = found.due_count().saturating_sub(usize::from(was_due));
            return hint(due, Some(others.min(deadline)));
        }
        capacity(core, io, self.now, of, self.worker).await
    }
}

/// Returns a plan that counts claimable shards.
fn counting(
    core: &mut Core,
    now: LogicalTime,
    of: (TenantId, RunId),
    worker: WorkerId,
) -> ScanPlan {
    let point = core.claim_stats.point(core.config.nonce, worker);
    ScanPlan::new(of, now, &core.claim_stats.of(of.0, of.1), point, false, core.limits.page)
}

fn learn(
    core: &mut Core,
    plan: &ScanPlan,
    found: &ScanResult,
    own: Option<(ShardId, LogicalTime)>,
    scans: usize,
) -> bool {
    let (tenant, run) = plan.subject();
    let mut stats = core.claim_stats.of(tenant, run);
    let settled = stats.learn(plan, found, (DUE_ENOUGH, own), scans);
    core.claim_stats.remember(tenant, run, stats);
    settled
}

fn hint(due: usize, earliest_deadline: Option<LogicalTime>) -> CapacityHint {
    let available = u32::try_from(due.min(CAPACITY_COUNT_MAX)).expect("the cap fits in u32");
    CapacityHint { available_count: available, earliest_deadline }
}
