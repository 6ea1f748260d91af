//! The end of a world: what is stored is what the oracle saw happen.

use gossip_contracts::identity::{ShardKey, TenantId};

use super::oracle::{Oracle, Rule, ShardFacts, Violation};
use super::world::World;
use crate::store::{Key, KeyRange, decode_cold, decode_count, decode_hot};

impl World {
    /// Holds every shard, counter and index that is left against the oracle.
    pub(super) fn audit(&mut self) {
        let verdict = {
            let Ok(shared) = self.shared.try_borrow() else { return };
            if shared.violation.is_some() {
                return;
            }
            let shards = 0..shared.oracle.shards.len() as u32;
            let mut shards = shards.map(|shard| self.audit_shard(&shared.oracle, shard));
            let verdict = shards.find(Result::is_err).unwrap_or(Ok(()));
            verdict.and_then(|()| self.audit_counters(&shared.oracle))
        };
        self.shared.borrow_mut().judge(verdict);
    }

    fn tenant_of(&self, oracle: &Oracle, shard: &ShardFacts) -> TenantId {
        let tenant = oracle.runs[shard.run as usize].tenant;
        self.shared.borrow().tenants[tenant as usize]
    }

    fn audit_shard(&self, oracle: &Oracle, number: u32) -> Result<(), Violation> {
        let shard = &oracle.shards[number as usize];
        if oracle.is_gone(number) || self.torn.iter().any(|torn| torn.is_of(shard.key)) {
            return Ok(());
        }
        let tenant = self.tenant_of(oracle, shard);
        let require = |condition, rule, why| oracle.require(condition, rule, why);
        let hot = self.disk.get(&Key::ShardHot { tenant, shard: shard.key });
        let cold = self.disk.get(&Key::ShardCold { tenant, shard: shard.key });
        let (Some(hot), Some(cold)) = (hot, cold) else {
            return require(false, Rule::Tiling, "a shard is missing");
        };
        let hot = decode_hot(tenant, shard.key, &hot.bytes);
        let cold = decode_cold(tenant, shard.key, &cold.bytes);
        let (Ok(hot), Ok(cold)) = (hot, cold) else {
            return require(false, Rule::Undetected, "a shard cannot be decoded");
        };
        require(hot.status == shard.status, Rule::Acknowledged, "a status was lost")?;
        require(hot.fence.as_raw() == shard.fence, Rule::FenceFell, "a fence was lost")?;
        let from = oracle.keys.number(cold.spec.start);
        let to = oracle.keys.number(cold.spec.end);
        require(from.zip(to) == Some(shard.range), Rule::Tiling, "a range was lost")?;
        let done = hot.cursor.last_key().map_or(from, |key| Some(oracle.keys.number(key)? + 1));
        require(done == Some(shard.done), Rule::ProgressFell, "a position was lost")?;
        let holder = hot.lease.map(|lease| (lease.owner().as_raw(), lease.deadline().as_raw()));
        let known = shard.holder.map(|holder| (holder.worker, holder.deadline));
        require(holder == known, Rule::Acknowledged, "a lease was lost")
    }

    /// Every tenant has as many shards as are counted, and the counters agree.
    fn audit_counters(&self, oracle: &Oracle) -> Result<(), Violation> {
        let tenants = self.shared.borrow().tenants.clone();
        for (tenant, number) in tenants.iter().zip(0_u32..) {
            let runs =
                oracle.runs_of[number as usize].iter().map(|run| &oracle.runs[*run as usize]);
            let stored: usize = runs
                .map(|run| self.disk.range(&KeyRange::hot_shards_of(*tenant, run.id)).count())
                .sum();
            let live = oracle.live_shards[number as usize] as usize;
            oracle.require(stored == live, Rule::Limit, "shards are miscounted by the oracle")?;
            let counter = self.disk.get(&Key::TenantCounter { tenant: *tenant });
            let counted = counter.and_then(|it| decode_count(Some(*tenant), &it.bytes).ok());
            let unfinished = oracle.runs_of[number as usize].iter().any(|run| {
                let run = &oracle.runs[*run as usize];
                // A registration reserves what it has not made yet.
                run.roots_born as usize <= run.cuts.len() && run.roots_born > 0 && !run.deleted
            });
            let right = unfinished || counted.unwrap_or(0) == live as u64;
            oracle.require(right, Rule::Limit, "the count of a tenant's shards is wrong")?;
        }
        Ok(())
    }
}

/// A value that is torn until it is repaired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Torn {
    pub(super) key: Key,
    pub(super) revision: u64,
    /// Whether somebody has met it.
    pub(super) shown: bool,
}

impl Torn {
    fn is_of(&self, shard: ShardKey) -> bool {
        matches!(self.key, Key::ShardHot { shard: torn, .. } if torn == shard)
    }
}
