//! Leases of workers that are gone.
//!
//! A worker that was killed cannot release its shards. If it was a process of this host, and its
//! commands have ended with it, an idle runner revokes its leases instead of waiting for their
//! deadlines. Of any other lease holder that does not renew in time the wait is reported.
//!
//! # Never
//! - revokes a lease while the process of its holder, or the process that ends its commands, may
//!   exist;
//! - revokes a lease that was granted since the lease holder was looked up: the revocation names
//!   the fence.

use std::time::Duration;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, ShardKey, TenantId};
use gossip_coordination::{
    CoordinationFacade, ShardFilter, ShardStatus, ShardSummary, WorkerEntry,
};

use super::sync::{Mutex, Ordering, PoisonError};
use super::{WorkerShared, renewer};
use crate::backoff::Backoff;
use crate::host::Presence;
use crate::observer::Event;
use crate::op_ids;

/// The first and the longest time between two looks, in ticks: each lists the shards of the run and
/// the workers of the tenant. Commands of a killed worker end within milliseconds.
const LOOK_FIRST: u64 = 50;
const LOOK_LONGEST: u64 = 2_000;

const _: () = assert!(LOOK_FIRST < LOOK_LONGEST);

/// When the runners of a worker look for leases of workers that are gone.
#[derive(Debug)]
pub(super) struct Orphans(Mutex<Looks>);

#[derive(Debug)]
struct Looks {
    next: LogicalTime,
    backoff: Backoff,
    /// The workers of the tenant when they were last listed.
    workers: Vec<WorkerEntry>,
}

impl Orphans {
    pub(super) fn new(seed: u64) -> Self {
        let backoff = Backoff::new(LOOK_FIRST, LOOK_LONGEST, seed);
        Self(Mutex::new(Looks { next: LogicalTime::ZERO, backoff, workers: Vec::new() }))
    }

    /// Puts the next look off.
    pub(super) fn not_before(&self, time: LogicalTime) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.next = looks.next.max(time);
    }
}

/// A lease that another worker holds.
struct Held {
    shard: ShardSummary,
    deadline: LogicalTime,
    /// The lease holder's entry in the registry, expired or not.
    entry: Option<WorkerEntry>,
    presence: Presence,
}

/// Revokes the leases of workers that are gone, if a look is due. Returns whether there were any.
/// `listed` are all shards of the run, if they were just listed for another reason.
///
/// Failures are ignored: the leases expire anyway.
pub(super) fn revoke<B>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut impl CoordinationFacade,
    now: LogicalTime,
    listed: Option<&[ShardSummary]>,
) -> bool {
    // One look for all idle runners of the process, as for splits.
    let mut looks = shared.orphans.0.lock().unwrap_or_else(PoisonError::into_inner);
    if now < looks.next {
        return false;
    }
    looks.next = now.saturating_add(looks.backoff.wait());
    let Some(held) = looks.held(shared, coordinator, now, listed) else { return false };
    let mut revoked = false;
    for lease in held.iter().filter(|lease| lease.presence == Presence::Gone) {
        let key = ShardKey::new(shared.config.run, lease.shard.shard);
        let fence = lease.shard.fence_epoch;
        revoked |= revoke_orphan(coordinator, now, shared.config.tenant, key, fence);
    }
    if revoked {
        looks.backoff.reset();
    } else {
        report(shared, now, &held);
    }
    revoked
}

/// Revokes the lease with this fence, whose holder is gone, unless the shard was granted since.
/// Returns whether it did.
///
/// Every process that finds the same lease performs the same operation, with one id.
pub fn revoke_orphan(
    coordinator: &mut impl CoordinationFacade,
    now: LogicalTime,
    tenant: TenantId,
    shard: ShardKey,
    fence: FenceEpoch,
) -> bool {
    let op_id = op_ids::of_revocation(shard, fence);
    coordinator.revoke_lease(now, tenant, shard, Some(fence), op_id).is_ok()
}

impl Looks {
    /// Returns the leases that other workers hold; `None` if there is nothing to do about any of
    /// them, or they cannot be listed.
    fn held<B>(
        &mut self,
        shared: &WorkerShared<'_, B>,
        coordinator: &mut impl CoordinationFacade,
        now: LogicalTime,
        listed: Option<&[ShardSummary]>,
    ) -> Option<Vec<Held>> {
        let config = &shared.config;
        let (mut own, filter) = (Vec::new(), ShardFilter::active());
        let shards = match listed {
            Some(shards) => shards,
            None => {
                coordinator
                    .list_shards_into(now, config.tenant, config.run, filter, &mut own)
                    .ok()?;
                &own
            }
        };
        let is_other = |shard: &&ShardSummary| {
            let is_active = shard.status == ShardStatus::Active || shard.damage.is_some();
            is_active && shard.owner.is_some_and(|owner| owner != config.worker)
        };
        let shards: Vec<_> = shards.iter().filter(is_other).collect();
        if shards.is_empty() {
            return None;
        }
        // An entry changes when the process that ends the commands of its worker is started. So an
        // earlier listing never shows that a worker is gone.
        let is_known = |shard: &&ShardSummary| {
            let known = |entry: &WorkerEntry| Some(entry.worker) == shard.owner;
            self.workers.iter().any(known)
        };
        if shards.iter().all(is_known) {
            let held = self.of_entries(shared, &shards);
            let is_fine = |held: &Held| {
                let may_exist = matches!(held.presence, Presence::Present | Presence::Unknown);
                may_exist && !is_late(shared, now, held)
            };
            if held.iter().all(is_fine) {
                return None;
            }
        }
        // All entries that are stored: a lease may last longer than the entry of its holder.
        self.workers.clear();
        coordinator.list_workers_into(LogicalTime::ZERO, config.tenant, &mut self.workers).ok()?;
        Some(self.of_entries(shared, &shards))
    }

    fn of_entries<B>(&self, shared: &WorkerShared<'_, B>, shards: &[&ShardSummary]) -> Vec<Held> {
        let held = shards.iter().filter_map(|shard| {
            let entry = self.workers.iter().find(|entry| Some(entry.worker) == shard.owner);
            let entry = entry.copied();
            let process = entry.and_then(|entry| entry.process);
            let presence =
                process.map_or(Presence::Unknown, |process| shared.parts.host.presence(&process));
            let deadline = shard.lease_deadline?;
            Some(Held { deadline, shard: (*shard).clone(), entry, presence })
        });
        held.collect()
    }
}

/// Returns whether the holder of a lease has not renewed it in time.
fn is_late<B>(shared: &WorkerShared<'_, B>, now: LogicalTime, held: &Held) -> bool {
    let lease = shared.config.lease_ticks;
    // Listed times are wall times.
    let now = shared.parts.clock.offset().to_wall(now);
    // Half a period late: the lease holder and its store are slow at times.
    let overdue = renewer::period(lease) * 3 / 2;
    held.deadline.as_raw().saturating_sub(now.as_raw()).saturating_add(overdue) < lease
}

/// Reports the wait for the first lease that is not renewed in time, if this worker has nothing
/// else to do.
fn report<B>(shared: &WorkerShared<'_, B>, now: LogicalTime, held: &[Held]) {
    if shared.busy.load(Ordering::SeqCst) > 0 {
        return;
    }
    let is_waited_for =
        |held: &&Held| held.presence == Presence::Ending || is_late(shared, now, held);
    let late = held.iter().filter(is_waited_for);
    let lease = shared.config.lease_ticks;
    // Listed times are wall times.
    let now = shared.parts.clock.offset().to_wall(now);
    let ticks =
        |later: LogicalTime, earlier: LogicalTime| later.as_raw().saturating_sub(earlier.as_raw());
    let first = late.min_by_key(|held| held.deadline);
    let Some((held, worker)) = first.and_then(|held| Some((held, held.shard.owner?))) else {
        return;
    };
    shared.parts.observer.observe(Event::Waiting {
        worker,
        process: held.entry.and_then(|entry| entry.process),
        // A deadline that lies further ahead is void a lease after the last renewal.
        left: Duration::from_millis(ticks(held.deadline, now).min(lease)),
        last_seen: held.entry.map(|entry| Duration::from_millis(ticks(now, entry.last_seen()))),
        ending: held.presence == Presence::Ending,
    });
}
