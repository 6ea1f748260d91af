//! Reads of a run: progress, listings, candidates.

use gossip_contracts::identity::{LogicalTime, RunId, ShardKey, TenantId, WorkerId};

use super::table::{Run, Slot};
use super::{InMemoryCoordinator, run_ref};
use crate::outcome::CAPACITY_COUNT_MAX;
use crate::protocol::ClaimCandidates;
use crate::record::{ShardStatus, ShardView};
use crate::run::{RunProgress, ShardFilter, ShardSummary, Watermark};
use crate::run_errors::GetRunError;
use crate::run_management::ClaimOutlook;

impl InMemoryCoordinator {
    pub(super) fn run_named(&self, tenant: TenantId, run: RunId) -> Result<&Run, GetRunError> {
        let slot = self.find_run(tenant, run).ok_or(GetRunError::RunNotFound)?;
        let run = run_ref(&self.runs, slot);
        if run.record.tenant() != tenant {
            return Err(GetRunError::TenantMismatch { expected: tenant });
        }
        Ok(run)
    }

    pub(super) fn progress(&self, now: LogicalTime, run: &Run) -> RunProgress {
        // An expired lease stays in the index until the next operation on its shard, so it is
        // filtered out below.
        let held = run.claims.by_deadline(&self.records);
        let active = |slot: &&Slot| self.view(**slot).record().status() == ShardStatus::Active;
        let reached = run
            .shards
            .iter()
            .filter(active)
            .filter_map(|slot| self.view(*slot).cursor().last_key());
        RunProgress {
            total: run.shards.len() as u64,
            active: run.claims.active(),
            done: run.claims.settled(ShardStatus::Done),
            split: run.claims.settled(ShardStatus::Split),
            parked: run.claims.settled(ShardStatus::Parked),
            damaged: 0,
            leased: held.filter(|(deadline, _)| now < *deadline).count() as u64,
            watermark: reached.min().map(Watermark::new),
        }
    }

    /// Sorts places and makes rows in their order, so a listing allocates what its rows hold.
    pub(super) fn list(
        &self,
        now: LogicalTime,
        run: &Run,
        filter: ShardFilter,
        out: &mut Vec<ShardSummary>,
    ) {
        let admitted = |slot: &Slot| {
            let record = self.view(*slot).record();
            filter.admits(record.status(), record.is_leased_at(now), record.key().shard())
        };
        // One lookup: a scan would cost as much as the run has shards.
        if let Some(shard) = filter.only {
            let key = ShardKey::new(run.record.run(), shard);
            let home = self.tenants.get(run.record.tenant());
            let slot = home.and_then(|home| home.find(key, &self.records, &self.pool));
            out.extend(slot.filter(admitted).map(|slot| summary(now, filter, self.view(slot))));
            return;
        }
        let mut shown: Vec<Slot> = run.shards.iter().copied().filter(admitted).collect();
        let position = |slot: &Slot| {
            let shard = self.view(*slot);
            (shard.spec().start, shard.record().key().shard())
        };
        match filter.page {
            Some(page) => {
                shown.sort_unstable_by_key(|slot| self.view(*slot).record().key().shard());
                shown.truncate(page.limit);
            }
            // The id decides between a split parent and its first child, which have the same start.
            None => shown.sort_unstable_by(|one, other| position(one).cmp(&position(other))),
        }
        out.extend(shown.into_iter().map(|slot| summary(now, filter, self.view(slot))));
    }

    /// Free shards from the worker's own offset on, then shards whose lease ran out. Those `limit`
    /// that are listed first are free.
    pub(super) fn candidates(
        &self,
        now: LogicalTime,
        run: &Run,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> ClaimOutlook {
        let free = run.claims.listed_for(worker).take(limit);
        let mut held = run.claims.by_deadline(&self.records).peekable();
        let expired = std::iter::from_fn(|| held.next_if(|(deadline, _)| *deadline <= now));
        let candidates = free.chain(expired.map(|(_, slot)| slot));

        out.clear();
        out.extend(candidates.take(limit).map(|slot| self.view(slot).record().key().shard()));
        // The deadline is needed only if nothing is claimable, and then the first lease is live.
        // After many expired leases the search would be long and its result unused.
        let earliest_deadline = held.take(CAPACITY_COUNT_MAX).find(|(deadline, _)| now < *deadline);
        ClaimOutlook {
            run: run.record.head(),
            earliest_deadline: earliest_deadline.map(|(deadline, _)| deadline),
        }
    }
}

fn summary(now: LogicalTime, filter: ShardFilter, shard: ShardView<'_>) -> ShardSummary {
    let record = shard.record();
    // The record keeps an expired lease until the next operation; a listing must not show it.
    let leased = record.is_leased_at(now);
    ShardSummary {
        shard: record.key().shard(),
        damage: None,
        status: record.status(),
        park_reason: record.park_reason(),
        park_context: record.park_context().filter(|_| filter.has_contexts()).map(Into::into),
        leased,
        lease_deadline: record.lease_deadline().filter(|_| leased),
        owner: record.lease().map(|holder| holder.owner()).filter(|_| leased),
        fence_epoch: record.fence_epoch(),
        last_handoff: record.last_handoff(),
        acquire_count: record.acquire_count(),
        attempts: record.attempts(),
        last_key: shard.cursor().last_key().map(Into::into),
        token: shard.cursor().token().map(Into::into),
        start: shard.spec().start.into(),
        end: shard.spec().end.into(),
        metadata: shard.spec().metadata.into(),
        parent: record.parent(),
        spawned_count: u32::try_from(record.spawned_count()).expect("spawned is bounded"),
    }
}
