//! Leases of workers that were processes of this host and are gone.
//!
//! An idle worker revokes such leases, but it is idle only when no shard is free: until then a
//! killed process looks like another worker. The command that resumes its run revokes them before
//! it begins.
//!
//! # Never
//! - revokes a lease while the process of its holder, or the process that ends its commands, may
//!   exist: the boot, the pid and the start time of both are compared;
//! - revokes a lease that was granted since: the revocation names the fence.

use std::collections::BTreeSet;

use gossip::coordination::{RunManagement as _, ShardFilter, WorkerEntry};
use gossip::identity::{LogicalTime, RunId, ShardKey, TenantId, WorkerId};
use gossip::runtime::{Clock as _, Host as _, Presence, SystemClock, SystemHost, revoke_orphan};
use gossip::store::Coordinator;

use crate::runs;

/// Revokes the leases of a run whose holders are gone. Returns all workers of the tenant whose
/// process is gone, also if its commands are still being ended.
///
/// Failures are ignored: such leases expire anyway.
pub(crate) fn release(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
) -> BTreeSet<WorkerId> {
    let mut entries = Vec::new();
    // Expired entries too: a lease may last longer than the entry of its holder.
    drop(coordinator.list_workers_into(LogicalTime::ZERO, tenant, &mut entries));
    let of = |wanted: &[Presence]| -> BTreeSet<WorkerId> {
        let is_wanted = |entry: &&WorkerEntry| {
            entry.process.is_some_and(|it| wanted.contains(&SystemHost.presence(&it)))
        };
        entries.iter().filter(is_wanted).map(|entry| entry.worker).collect()
    };
    let gone = of(&[Presence::Gone]);
    if !gone.is_empty() {
        let rows = runs::rows(coordinator, tenant, run, ShardFilter::active()).unwrap_or_default();
        for row in rows.iter().filter(|row| row.owner.is_some_and(|owner| gone.contains(&owner))) {
            let (now, key) = (SystemClock::new().now(), ShardKey::new(run, row.shard));
            // One that was granted since stays.
            let _revoked = revoke_orphan(coordinator, now, tenant, key, row.fence_epoch);
        }
    }
    of(&[Presence::Gone, Presence::Ending])
}
