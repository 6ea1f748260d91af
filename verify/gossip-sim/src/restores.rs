//! Restores: the store is set back to a backup, and an operator raises the fence floors with
//! `gossip store restored` before the first process reads it (docs/operations.md).
//!
//! The processes are not stopped. Their leases, their caches and their messages in flight are of a
//! state that the store has lost, and the revisions of that state are assigned again. The work
//! since the backup is repeated, so most rules are suspended; the rules about fences are not: no
//! lease of before the restore has an effect, no fence is issued twice, and no key is skipped.

use gossip_contracts::identity::{FenceEpoch, LogicalTime, RunId, TenantId};
use gossip_coordination::InfraError;
use gossip_coordination::protocol::fence_floor_at;
use gossip_coordination::store::{
    Answer, CommitOutcome, Key, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
    decode_cold, decode_hot, decode_run_head,
};

use super::bugs::Bug;
use super::disk::Disk;
use super::faults::FaultKind;
use super::op::Terms;
use super::oracle::Oracle;
use super::world::World;

/// A run and its new floor.
type Floor = (TenantId, RunId, Option<u64>);

/// Maximum number of commits since the backup.
const RESTORED_COMMITS_MAX: u64 = 24;

/// The operator's handle number; no process has it.
const OPERATOR: u64 = u64::MAX << 32;

impl World {
    /// Sets the store back, and raises the fence floors of all runs.
    pub(super) fn restore(&mut self, process: u32) {
        let count = 1 + self.luck(process, RESTORED_COMMITS_MAX);
        let from = self.disk.restore_before(count);
        self.drop_damage_from(from);
        self.shared.borrow_mut().add_trace(|| format!("the store is restored to before {from}"));
        self.count_fault(FaultKind::Restore);
        let floors = match self.plan.bug {
            Some(Bug::FloorsNotRaised) => Vec::new(),
            _ => self.raise_floors(),
        };
        let shared = &mut *self.shared.borrow_mut();
        shared.oracle.restored(&self.disk, &shared.tenants, &floors);
        let runs = &shared.oracle.runs;
        for directory in &mut shared.directory {
            directory.retain(|run| !runs[*run as usize].unprotected);
        }
    }

    /// Raises the floors as the command does, and returns them; `None` for a run that cannot be
    /// read.
    fn raise_floors(&mut self) -> Vec<Floor> {
        let store =
            Operator { disk: std::mem::take(&mut self.disk), limits: self.plan.store_limits() };
        let mut handle = StoreCoordinator::new(store, StoreConfig::new(OPERATOR));
        // The true time: floors rely on an operator's clock that is not set back.
        let (now, at_least) = (LogicalTime::from_raw(1 + self.now), fence_floor_at(1 + self.now));
        let mut floors = Vec::new();
        let raised = handle.raise_fence_floors(now, None, at_least, &mut |tenant, run, floor| {
            floors.push((tenant, run, floor.ok().map(FenceEpoch::as_raw)));
        });
        self.disk = std::mem::take(&mut handle.store_mut().disk);
        raised.expect("the disk answers the operator");
        floors
    }
}

impl Oracle {
    /// Takes the state of the store for the history: the work since the backup never happened, and
    /// all leases have ended. Fences that were issued stay issued.
    fn restored(&mut self, disk: &Disk, tenants: &[TenantId], floors: &[Floor]) {
        self.commits += 1;
        for run in &mut self.runs {
            let (tenant, id) = (tenants[run.tenant as usize], run.id);
            let head = disk.get(&Key::RunHead { tenant, run: id });
            let head = head.and_then(|head| decode_run_head(tenant, id, &head.bytes).ok());
            let head = head.map(|head| head.head());
            (run.status, run.changed_at) = (head.map(|head| head.status), self.commits);
            run.paused = head.is_some_and(|head| head.paused);
            run.deleted = disk.get(&Key::Tombstone { tenant, run: id }).is_some();
            let is_lost = head.is_none() && !run.deleted;
            run.unprotected |= is_lost;
            // The administrator does not create a run again.
            run.deleted |= is_lost;
            let raised = floors.iter().find(|(of, run, _)| (*of, *run) == (tenant, id));
            run.floor = match raised.map(|(_, _, floor)| *floor) {
                Some(Some(floor)) => floor,
                // Its root list is damaged, and its head keeps the floor of the restore before.
                Some(None) => run.floor,
                None => 0,
            };
            run.unprotected |= raised.is_some_and(|(_, _, floor)| floor.is_none());
        }
        for number in 0..self.shards.len() {
            let tenant = tenants[self.runs[self.shards[number].run as usize].tenant as usize];
            self.restore_shard(disk, tenant, number);
        }
    }

    fn restore_shard(&mut self, disk: &Disk, tenant: TenantId, number: usize) {
        let shard = self.shards[number].key;
        let is_latest = self.find_shard(tenant, shard) == Some(number as u32);
        let bytes = |key: Key| disk.get(&key).map(|value| &*value.bytes);
        let hot = bytes(Key::ShardHot { tenant, shard });
        let cold = bytes(Key::ShardCold { tenant, shard });
        let facts = &mut self.shards[number];
        facts.changed_at = self.commits;
        (facts.holder, facts.request) = (None, None);
        let is_missing = hot.is_none() || !is_latest;
        let hot = hot.and_then(|hot| decode_hot(tenant, shard, hot).ok());
        let cold = cold.and_then(|cold| decode_cold(tenant, shard, cold).ok());
        // The audit does not compare a shard that is lost or damaged.
        facts.swept = is_missing || hot.is_none() || cold.is_none();
        let (Some(hot), Some(cold)) = (hot, cold) else { return };
        let number = |key: &[u8]| self.keys.number(key);
        let (Some(start), Some(end)) = (number(cold.spec.start), number(cold.spec.end)) else {
            return;
        };
        (facts.status, facts.fence) = (hot.status, hot.fence.as_raw());
        facts.range = (start, end);
        facts.done = hot.cursor.last_key().and_then(number).map_or(start, |key| key + 1);
        facts.offer = hot.offer.map(|offer| Terms {
            handoff: offer.handoff.as_raw(),
            destination: offer.destination.as_raw(),
            until: offer.deadline.as_raw(),
        });
    }
}

/// The disk as the operator reads and writes it, while no process does.
struct Operator {
    disk: Disk,
    limits: StoreLimits,
}

impl Store for Operator {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        Ok(self.disk.read(&reads, self.limits.page))
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let mut commit = |txn: &Txn| match self.disk.conflict(txn) {
            Some(conflict) => CommitOutcome::Conflict(conflict),
            None => CommitOutcome::Applied { revision: self.disk.apply(txn, u32::MAX) },
        };
        txns.iter().map(|txn| Ok(commit(txn))).collect()
    }

    fn wait(&mut self, _ticks: u64) {}

    fn limits(&self) -> StoreLimits {
        self.limits
    }
}
