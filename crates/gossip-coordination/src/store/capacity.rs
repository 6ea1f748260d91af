//! How much work of a run waits: told with every grant and renewal.
//!
//! A grant loads the shard anyway, so the hint is read in the same batch and told as it is when the
//! grant has happened: the shard itself no longer waits, and its lease is a live one. A renewal
//! from memory loads nothing, so its hint is read when it has happened.
//!
//! # Never
//! - fails an operation: what cannot be read is told as nothing.

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::claim_stats::{DUE_ENOUGH, LOOKS_MAX, ScanPlan, Seen};
use super::core::Core;
use super::engine::Read;
use super::flight::{Answers, Io};
use crate::outcome::{CAPACITY_COUNT_MAX, CapacityHint};

/// How much work waits at `now`.
pub(super) async fn capacity(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, run): (TenantId, RunId),
    worker: WorkerId,
) -> CapacityHint {
    for looks in 1..=LOOKS_MAX {
        let look = counting(core, now, (tenant, run), worker);
        let Ok(mut answers) = io.read(look.reads(None)).await else { break };
        let seen = look.take(&mut answers);
        if learn(core, &look, &seen, None, looks) {
            return hint(seen.due_count(), seen.first_deadline(None));
        }
    }
    CapacityHint::default()
}

/// A hint that rides along with the load of a shard that is to be granted.
#[derive(Debug)]
pub(super) struct CapacityProbe {
    now: LogicalTime,
    tenant: TenantId,
    key: ShardKey,
    worker: WorkerId,
    /// What was asked for, until it is answered.
    look: Option<ScanPlan>,
    found: Option<Found>,
}

/// What the last load brought.
#[derive(Debug)]
struct Found {
    look: ScanPlan,
    seen: Seen,
    /// Whether the shard itself was among those that wait.
    was_due: bool,
}

impl CapacityProbe {
    pub(super) const fn new(
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
    ) -> Self {
        Self { now, tenant, key, worker, look: None, found: None }
    }

    /// Adds its questions to `reads`, if the store takes so many at once.
    pub(super) fn ask(&mut self, core: &mut Core, reads: &mut Vec<Read>) {
        let look = counting(core, self.now, (self.tenant, self.key.run()), self.worker);
        let asked = look.reads(None);
        if reads.len() + asked.len() <= core.limits.txn_ops {
            reads.extend(asked);
            self.look = Some(look);
        }
    }

    /// Takes its answers. The shard stood at `standing` in the claim index then.
    pub(super) fn take(&mut self, answers: &mut Answers, standing: Option<LogicalTime>) {
        let was_due = standing.is_some_and(|at| at <= self.now);
        self.found = self.look.take().map(|look| {
            let seen = look.take(answers);
            Found { look, seen, was_due }
        });
    }

    /// How much work waits once the shard is leased until `deadline`. What was found on the way is
    /// asked for again if it does not settle that.
    pub(super) async fn hint(
        self,
        core: &mut Core,
        io: &Io,
        deadline: LogicalTime,
    ) -> CapacityHint {
        let (shard, of) = (self.key.shard(), (self.tenant, self.key.run()));
        if let Some(Found { look, seen, was_due }) = self.found
            && learn(core, &look, &seen, Some((shard, deadline)), 1)
        {
            let others = seen.first_deadline(Some(shard)).unwrap_or(deadline);
            let due = seen.due_count().saturating_sub(usize::from(was_due));
            return hint(due, Some(others.min(deadline)));
        }
        capacity(core, io, self.now, of, self.worker).await
    }
}

/// A look that counts what waits.
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
    look: &ScanPlan,
    seen: &Seen,
    own: Option<(ShardId, LogicalTime)>,
    looks: usize,
) -> bool {
    let (tenant, run) = look.subject();
    let mut sight = core.claim_stats.of(tenant, run);
    let settled = sight.learn(look, seen, (DUE_ENOUGH, own), looks);
    core.claim_stats.remember(tenant, run, sight);
    settled
}

fn hint(due: usize, earliest_deadline: Option<LogicalTime>) -> CapacityHint {
    let available = u32::try_from(due.min(CAPACITY_COUNT_MAX)).expect("the cap fits in u32");
    CapacityHint { available_count: available, earliest_deadline }
}
