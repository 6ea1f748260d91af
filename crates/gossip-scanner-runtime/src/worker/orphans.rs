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
use gossip_coordination::{CoordinationFacade, ShardFilter, ShardSummary, WorkerEntry};

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
}

impl Orphans {
    pub(super) fn new(seed: u64) -> Self {
        let backoff = Backoff::new(LOOK_FIRST, LOOK_LONGEST, seed);
        Self(Mutex::new(Looks { next: LogicalTime::ZERO, backoff }))
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
///
/// Failures are ignored: the leases expire anyway.
pub(super) fn revoke<B>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut impl CoordinationFacade,
    now: LogicalTime,
) -> bool {
    // One look for all idle runners of the process, as for splits.
    let mut looks = shared.orphans.0.lock().unwrap_or_else(PoisonError::into_inner);
    if now < looks.next {
        return false;
    }
    looks.next = now.saturating_add(looks.backoff.wait());
    let Some(held) = look(shared, coordinator, now) else { return false };
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

/// Returns the leases that other workers hold; `None` if they cannot be listed.
fn look<B>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut impl CoordinationFacade,
    now: LogicalTime,
) -> Option<Vec<Held>> {
    let config = &shared.config;
    let (mut shards, filter) = (Vec::new(), ShardFilter::active());
    coordinator.list_shards_into(now, config.tenant, config.run, filter, &mut shards).ok()?;
    shards.retain(|shard| shard.owner.is_some_and(|owner| owner != config.worker));
    if shards.is_empty() {
        return None;
    }
    // All entries that are stored: a lease may last longer than the entry of its holder.
    let mut workers = Vec::new();
    coordinator.list_workers_into(LogicalTime::ZERO, config.tenant, &mut workers).ok()?;
    let held = shards.into_iter().filter_map(|shard| {
        let entry = workers.iter().find(|entry| Some(entry.worker) == shard.owner).copied();
        let process = entry.and_then(|entry| entry.process);
        let presence =
            process.map_or(Presence::Unknown, |process| shared.parts.host.presence(&process));
        Some(Held { deadline: shard.lease_deadline?, shard, entry, presence })
    });
    Some(held.collect())
}

/// Reports the wait for the first lease that is not renewed in time, if this worker has nothing
/// else to do.
fn report<B>(shared: &WorkerShared<'_, B>, now: LogicalTime, held: &[Held]) {
    if shared.busy.load(Ordering::SeqCst) > 0 {
        return;
    }
    let lease = shared.config.lease_ticks;
    // Listed times are wall times.
    let now = shared.parts.clock.offset().to_wall(now);
    // Half a period late: the lease holder and its store are slow at times.
    let overdue = renewer::period(lease) * 3 / 2;
    let ticks =
        |later: LogicalTime, earlier: LogicalTime| later.as_raw().saturating_sub(earlier.as_raw());
    let is_late = |held: &&Held| {
        held.presence == Presence::Ending
            || ticks(held.deadline, now).saturating_add(overdue) < lease
    };
    let first = held.iter().filter(is_late).min_by_key(|held| held.deadline);
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
