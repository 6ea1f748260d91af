//! Damaged shards as the administrator sees them: the marks of listings, and repairs.
//!
//! A repair is an operator's command, `gossip shard repair`. Without it a damaged shard stays
//! damaged unless its lease holder writes it from its cache.

use gossip_contracts::identity::OpId;
use gossip_coordination::protocol::fence_floor_at;
use gossip_coordination::store::Txn;
use gossip_coordination::{RunProgress, ShardDamage, ShardFilter, ShardStatus, ShardSummary};

use super::admin::Admin;
use super::context::{Draft, Phase};
use super::effects::written;
use super::op::{Op, Verb};
use super::oracle::{Oracle, Rule, Violation};
use super::worker::keys;

/// One damaged shard in this many is repaired at once while there are faults, so that the others
/// are met by claims and by their lease holders.
const REPAIRED_ONE_IN: u64 = 2;

impl Admin {
    /// Repairs the shards that a listing marks as damaged.
    pub(super) async fn repair_marked(&mut self, run: u32, rows: &[ShardSummary]) {
        for row in rows.iter().filter(|row| row.damage.is_some()) {
            let is_faulty = self.cx.phase() == Phase::Faulty;
            if is_faulty && self.cx.odd_below(REPAIRED_ONE_IN) > 0 {
                continue;
            }
            let Some(shard) = self.cx.find(self.cx.key_of_run(run, row.shard)) else { continue };
            let target = self.cx.target(shard);
            let count = self.facts(run, |facts| facts.key_count);
            let op = self.cx.begin(Draft::about(Verb::RepairShard, target, OpId::from_raw(0)));
            // The true time: the fence relies on an operator's clock that is not set back.
            let at_least = fence_floor_at(1 + self.cx.shared.borrow().now);
            let (tenant, keys) = (self.cx.tenant_id, keys(&self.cx));
            let whole = Some((keys.key(0), keys.key(count)));
            let result = self.handle.repair_shard(tenant, target.key, at_least, whole).await;
            self.cx.end_plain(&op, &result);
        }
    }
}

impl Oracle {
    /// Checks the marks of a listing: every shard whose record was read damaged is marked, and no
    /// other one.
    pub(super) fn check_marks(
        &self,
        op: &Op,
        filter: ShardFilter,
        rows: &[ShardSummary],
    ) -> Result<(), Violation> {
        if op.misled.get() {
            return Ok(());
        }
        let damaged = op.damaged_shards();
        for shard in &damaged {
            let row = rows.iter().find(|row| row.shard == *shard);
            let is_asked_for = filter.only.is_none_or(|only| only == *shard) && !filter.root_only;
            let noticed = row.map_or(!is_asked_for, |row| row.damage.is_some());
            let why = "a damaged shard was listed as healthy, or not at all";
            self.require(noticed, Rule::Undetected, why)?;
        }
        let mut marked = rows.iter().filter(|row| row.damage.is_some());
        let founded = marked.all(|row| damaged.contains(&row.shard));
        self.require(founded, Rule::Unfounded, "an intact shard was listed as damaged")
    }

    /// Checks the number of damaged shards in a run's progress.
    pub(super) fn check_damaged_count(
        &self,
        op: &Op,
        progress: &RunProgress,
    ) -> Result<(), Violation> {
        let damaged = op.damaged_shards().len() as u64;
        let all = progress.damaged >= damaged || op.misled.get();
        self.require(all, Rule::Undetected, "a damaged shard was counted as healthy")?;
        let founded = progress.damaged <= damaged || op.misled.get();
        self.require(founded, Rule::Unfounded, "an intact shard was counted as damaged")
    }

    /// Records a repair. The record must have been damaged, so that no progress is lost without a
    /// reason, and the fence must lie above every fence that the shard has had.
    pub(super) fn repaired(&mut self, op: &Op, number: u32, txn: &Txn) -> Result<(), Violation> {
        let Some(damage) = op.found.get() else {
            return self.require(false, Rule::ProgressFell, "an intact shard was repaired");
        };
        let shard = &self.shards[number as usize];
        let over = self.runs[shard.run as usize].is_over();
        self.require(!over, Rule::RunOver, "a shard of a finished run was repaired")?;
        let Some(hot) = written(txn) else {
            return self.require(false, Rule::Undetected, "a repair stored a damaged record");
        };
        let risen = hot.fence.as_raw() > shard.fence;
        self.require(risen, Rule::FenceFell, "a repaired shard has a fence of before the repair")?;
        let is_hot_lost = damage != ShardDamage::Cold;
        // A replaced shard stays replaced; any other one without its hot part starts again.
        let restarts = is_hot_lost && shard.status != ShardStatus::Split;
        let status = if restarts { ShardStatus::Active } else { shard.status };
        self.require(hot.status == status, Rule::Tiling, "a repaired shard has a wrong status")?;
        let was_done = shard.status == ShardStatus::Done;
        self.runs[shard.run as usize].unsettled += u32::from(restarts && was_done);
        let shard = &mut self.shards[number as usize];
        (shard.status, shard.fence) = (status, hot.fence.as_raw());
        (shard.holder, shard.offer, shard.request) = (None, None, None);
        (shard.sequence, shard.moved_by, shard.forgotten) = (0, None, shard.logged);
        if is_hot_lost {
            (shard.attempts, shard.received, shard.granted) = (0, 0, 0);
            (shard.done, shard.reason) = (shard.range.0, None);
        }
        if damage != ShardDamage::Hot {
            // The metadata of a derived range are those of another shard.
            shard.foreign = true;
            // Children are found by their parent, in the order of ids. No retry asks for another
            // order, because the log is gone.
            shard.spawned.sort_unstable();
        }
        Ok(())
    }
}
