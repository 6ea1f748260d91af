//! The end of a world: what is stored is what the oracle saw happen.

use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId};

use super::oracle::{Oracle, Rule, RunFacts, ShardFacts, Violation};
use super::world::World;
use crate::record::ShardStatus;
use crate::run::RunStatus;
use crate::store::{
    Key, KeyKind, KeyRange, decode_cold, decode_count, decode_hot, decode_owner, decode_run_head,
};

impl World {
    /// Holds every shard, run, index, owner key and counter that is left against the oracle.
    pub(super) fn audit(&mut self) {
        let verdict = {
            let Ok(shared) = self.shared.try_borrow() else { return };
            if shared.violation.is_some() {
                return;
            }
            let shards = 0..shared.oracle.shards.len() as u32;
            let mut shards = shards.map(|shard| self.audit_shard(&shared.oracle, shard));
            let verdict = shards.find(Result::is_err).unwrap_or(Ok(()));
            verdict
                .and_then(|()| self.audit_runs(&shared.oracle))
                .and_then(|()| self.audit_owners(&shared.oracle))
                .and_then(|()| self.audit_counters(&shared.oracle))
        };
        self.shared.borrow_mut().judge(verdict);
    }

    fn tenant_of(&self, oracle: &Oracle, shard: &ShardFacts) -> TenantId {
        let tenant = oracle.runs[shard.run as usize].tenant;
        self.shared.borrow().tenants[tenant as usize]
    }

    fn audit_shard(&self, oracle: &Oracle, number: u32) -> Result<(), Violation> {
        let shard = &oracle.shards[number as usize];
        let swept = may_be_swept(&oracle.runs[shard.run as usize]);
        if swept || oracle.is_gone(number) || self.torn.iter().any(|torn| torn.is_of(shard.key)) {
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

    /// Every run is where it went, and its indexes hold its shards and nothing else.
    fn audit_runs(&self, oracle: &Oracle) -> Result<(), Violation> {
        let tenants = self.shared.borrow().tenants.clone();
        for (number, run) in (0_u32..).zip(&oracle.runs) {
            let (Some(status), false) = (run.status, run.deleted) else { continue };
            let tenant = tenants[run.tenant as usize];
            let head = self.disk.get(&Key::RunHead { tenant, run: run.id });
            let head = head.and_then(|head| decode_run_head(tenant, run.id, &head.bytes).ok());
            let found = head.map(|head| (head.head().status, head.head().paused));
            let right = found == Some((status, run.paused));
            oracle.require(right, Rule::Acknowledged, "a run is not where it went")?;
            if !may_be_swept(run) {
                self.audit_indexes(oracle, number, tenant)?;
            }
        }
        Ok(())
    }

    /// The claim index has each active shard once, at its deadline or at zero; the parked index
    /// has the parked ones.
    fn audit_indexes(&self, oracle: &Oracle, run: u32, tenant: TenantId) -> Result<(), Violation> {
        let id = oracle.runs[run as usize].id;
        let mut due: Vec<_> = self.disk.range(&KeyRange::claims_of(tenant, id)).collect();
        let mut parked: Vec<_> = self.disk.range(&KeyRange::parked_of(tenant, id)).collect();
        for shard in oracle.shards.iter().filter(|shard| shard.run == run) {
            let key = shard.key;
            let at = LogicalTime::from_raw(shard.holder.map_or(0, |holder| holder.deadline));
            let claim = Key::ClaimIndex { tenant, shard: key, at };
            let due = strike(&mut due, &claim) == (shard.status == ShardStatus::Active);
            oracle.require(due, Rule::FreeShardWithheld, "the claim index is wrong")?;
            let claim = Key::ParkedIndex { tenant, shard: key };
            let parked = strike(&mut parked, &claim) == (shard.status == ShardStatus::Parked);
            oracle.require(parked, Rule::FreeShardWithheld, "the parked index is wrong")?;
        }
        let rest = due.len() + parked.len();
        oracle.require(rest == 0, Rule::FreeShardWithheld, "an index names what is not there")
    }

    /// An owner key stands only while a lease is held, and names its fence.
    fn audit_owners(&self, oracle: &Oracle) -> Result<(), Violation> {
        for key in self.disk.range(&KeyRange::all_of(KeyKind::Owner)) {
            let Key::Owner { tenant, shard } = key else { continue };
            let Some(number) = oracle.find_shard(tenant, shard) else {
                return oracle.require(
                    false,
                    Rule::Tiling,
                    "an owner of a shard that is not there",
                );
            };
            let facts = &oracle.shards[number as usize];
            let bytes = self.disk.get(&key).map_or(&[][..], |value| &value.bytes);
            let fence = decode_owner(tenant, shard, bytes).map(|owner| owner.fence.as_raw());
            let right = facts.holder.is_some() && fence == Ok(facts.fence);
            let excused = oracle.is_gone(number);
            oracle.require(right || excused, Rule::TwoOwners, "an owner key outlived its lease")?;
        }
        Ok(())
    }

    /// Every tenant has as many shards as are counted, and the counters agree.
    fn audit_counters(&self, oracle: &Oracle) -> Result<(), Violation> {
        let tenants = self.shared.borrow().tenants.clone();
        let (mut all, mut any_unfinished) = (0, false);
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
            (all, any_unfinished) = (all + live as u64, any_unfinished || unfinished);
        }
        let counter = self.disk.get(&Key::TotalCounter);
        let counted = counter.and_then(|it| decode_count(None, &it.bytes).ok());
        let right = any_unfinished || counted.unwrap_or(0) == all;
        oracle.require(right, Rule::Limit, "the count of all shards is wrong")
    }
}

/// Whether a collection may have taken the run's shards away and not the run yet: it was given up
/// before its registration was complete, and cancelled.
fn may_be_swept(run: &RunFacts) -> bool {
    let unfinished = run.roots_born as usize <= run.cuts.len();
    unfinished && run.status == Some(RunStatus::Cancelled)
}

/// Takes `key` out of `keys`, and answers whether it was there.
fn strike(keys: &mut Vec<Key>, key: &Key) -> bool {
    let place = keys.iter().position(|it| it == key);
    place.is_some_and(|place| keys.swap_remove(place) == *key)
}

/// A value that is torn until it is repaired.
#[derive(Debug)]
pub(super) struct Torn {
    pub(super) key: Key,
    pub(super) revision: u64,
    /// Whether somebody has met it.
    pub(super) shown: bool,
    /// What was to be written.
    pub(super) good: Vec<u8>,
}

impl Torn {
    fn is_of(&self, shard: ShardKey) -> bool {
        matches!(self.key, Key::ShardHot { shard: torn, .. } if torn == shard)
    }
}
