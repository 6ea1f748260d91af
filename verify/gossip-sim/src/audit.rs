//! Final audit of a simulation: compares the whole store with the oracle's history.
//!
//! Every value is decoded with the production codec and compared with the history. The keys of each
//! kind are counted, so that a leftover key is found. The audit runs once per simulation, after all
//! torn values are repaired.
//!
//! | stored | compared with |
//! |---|---|
//! | shard | status, fence, range, position, token, metadata, lease, attempts, grants, park reason, offer, last move, pending request, log, sequence, parent and children |
//! | run head | status, pause, settings, progress of its registration, log |
//! | root lists | the names of the roots, chunk by chunk |
//! | claim index, parked index | the shards that are active, at their times, and those that are parked |
//! | owner key | the holder, its fence and its grant; it may have vanished |
//! | tombstone | the operation that deleted the run |
//! | counters | shards that are there and roots that are reserved, exactly |
//! | registry | the workers as they were last written |
//!
//! A deleted run leaves its shards until the purge removes them, each with all of its keys or none.
//! The oracle observes each purge, so the remains are audited, too. One key may lag behind its
//! shard: if the record of a shard could not be read, its claim index entry stays until the root
//! lists are purged, which are last. A simulation ends with a garbage collection in each tenant,
//! after which no earlier deletion has remains (`check_collection`).
//!
//! # Not audited
//!
//! The history does not contain these values: grant tokens (the owner key and the lease must have
//! the same one), fingerprints of operations and offers, and times in logs, run heads and
//! registrations. It contains cursor tokens and metadata of the simulator's own workers only; a
//! shard that a user worker touched has unknown ones. Park reasons, requests and worker states are
//! compared with the sent ones when they are stored, and here with the stored ones.

use gossip_contracts::identity::{LogicalTime, OpId, ShardId, TenantId};
use gossip_coordination::protocol::COLLECTION_CANCELS;
use gossip_coordination::store::{
    ColdPart, HotPart, Key, KeyKind, RunHeadPart, decode_claim_entry, decode_cold, decode_count,
    decode_hot, decode_owner, decode_parked_entry, decode_roots, decode_run_head, decode_tombstone,
    decode_worker,
};
use gossip_coordination::{OP_LOG_CAP, RUN_OP_LOG_CAP, ShardStatus};

use super::disk::Disk;
use super::oracle::{Log, Oracle, Rule, RunFacts, ShardFacts, Violation};
use super::splits::metadata_of;
use super::world::World;

impl World {
    /// Compares the final store with the oracle's history.
    pub(super) fn audit(&mut self) {
        let verdict = {
            let Ok(shared) = self.shared.try_borrow() else { return };
            if shared.violation.is_some() {
                return;
            }
            let (oracle, disk, tenants) = (&shared.oracle, &self.disk, &shared.tenants[..]);
            Audit { oracle, disk, tenants }.check()
        };
        self.shared.borrow_mut().judge(verdict);
    }
}

/// A store and the history to compare it with.
pub(super) struct Audit<'w> {
    pub(super) oracle: &'w Oracle,
    pub(super) disk: &'w Disk,
    /// Indexed by the oracle's tenant numbers.
    pub(super) tenants: &'w [TenantId],
}

impl<'w> Audit<'w> {
    /// Compares everything.
    ///
    /// # Errors
    ///
    /// Returns the rule that the store breaks.
    pub(super) fn check(&self) -> Result<(), Violation> {
        for (number, shard) in (0_u32..).zip(&self.oracle.shards) {
            self.shard(number, shard)?;
        }
        for (number, run) in (0_u32..).zip(&self.oracle.runs) {
            self.run(number, run)?;
        }
        self.owners()?;
        self.counters()?;
        self.workers()?;
        self.nothing_else()
    }

    fn require(&self, condition: bool, rule: Rule, why: &str) -> Result<(), Violation> {
        self.oracle.require(condition, rule, why)
    }

    fn bytes(&self, key: &Key) -> Option<&'w [u8]> {
        self.disk.get(key).map(|value| &*value.bytes)
    }

    fn tenant_of(&self, shard: &ShardFacts) -> TenantId {
        self.tenants[self.oracle.runs[shard.run as usize].tenant as usize]
    }

    fn shard(&self, number: u32, shard: &ShardFacts) -> Result<(), Violation> {
        let (tenant, key) = (self.tenant_of(shard), shard.key);
        let hot = self.bytes(&Key::ShardHot { tenant, shard: key });
        let cold = self.bytes(&Key::ShardCold { tenant, shard: key });
        if shard.swept {
            let gone = hot.is_none() && cold.is_none();
            return self.require(gone, Rule::RunReborn, "a purged shard exists");
        }
        let (Some(hot), Some(cold)) = (hot, cold) else {
            return self.require(false, Rule::Tiling, "a shard is missing");
        };
        let (hot, cold) = (decode_hot(tenant, key, hot), decode_cold(tenant, key, cold));
        let (Ok(hot), Ok(cold)) = (hot, cold) else {
            return self.require(false, Rule::Undetected, "a shard cannot be decoded");
        };
        self.progress(shard, &hot, &cold)?;
        self.holding(shard, &hot)?;
        self.counts(shard, &hot)?;
        self.moves(shard, &hot)?;
        self.family(shard, &hot, &cold)?;
        self.log(number, shard, &hot)?;
        self.indexes(tenant, shard, &hot)
    }

    /// Checks status, fence, range and cursor.
    fn progress(
        &self,
        shard: &ShardFacts,
        hot: &HotPart<'_>,
        cold: &ColdPart<'_>,
    ) -> Result<(), Violation> {
        self.require(hot.status == shard.status, Rule::Acknowledged, "a status was lost")?;
        self.require(hot.fence.as_raw() == shard.fence, Rule::FenceFell, "a fence was lost")?;
        let keys = &self.oracle.keys;
        let (from, to) = (keys.number(cold.spec.start), keys.number(cold.spec.end));
        self.require(from.zip(to) == Some(shard.range), Rule::Tiling, "a range was lost")?;
        let done = hot.cursor.last_key().map_or(from, |key| Some(keys.number(key)? + 1));
        self.require(done == Some(shard.done), Rule::ProgressFell, "a position was lost")?;
        let same = shard.foreign || hot.cursor.token() == self.oracle.token_of(shard);
        self.require(same, Rule::Acknowledged, "a token was lost")?;
        let metadata = metadata_of(shard.key.run(), shard.range.0);
        let same = shard.foreign || cold.spec.metadata == metadata;
        self.require(same, Rule::Acknowledged, "metadata were lost")?;
        let same = hot.cursor_semantics == self.oracle.runs[shard.run as usize].semantics;
        self.require(same, Rule::Acknowledged, "the cursor semantics were lost")
    }

    fn holding(&self, shard: &ShardFacts, hot: &HotPart<'_>) -> Result<(), Violation> {
        let holder = hot.lease.map(|lease| (lease.owner().as_raw(), lease.deadline().as_raw()));
        let known = shard.holder.map(|holder| (holder.worker, holder.deadline));
        self.require(holder == known, Rule::Acknowledged, "a lease was lost")
    }

    fn counts(&self, shard: &ShardFacts, hot: &HotPart<'_>) -> Result<(), Violation> {
        let same = hot.op_sequence.as_raw() == shard.sequence;
        self.require(same, Rule::Replay, "the executed sequence was lost or made up")?;
        let same = hot.attempts == shard.attempts;
        self.require(same, Rule::Attempts, "attempts were lost or made up")?;
        let same = hot.acquire_count == shard.granted;
        self.require(same, Rule::Attempts, "a grant was not counted, or one too many")?;
        // A worker's park reason is not always known, but whether the shard is parked always is.
        let same = hot.park_reason == shard.reason
            || shard.reason.is_none() && shard.status == ShardStatus::Parked;
        self.require(same, Rule::Attempts, "a shard is parked for another reason")
    }

    /// Checks the offer, the last handoff and the pending request.
    fn moves(&self, shard: &ShardFacts, hot: &HotPart<'_>) -> Result<(), Violation> {
        let terms = hot.offer.map(|offer| {
            (offer.handoff.as_raw(), offer.destination.as_raw(), offer.deadline.as_raw())
        });
        let known = shard.offer.map(|offer| (offer.handoff, offer.destination, offer.until));
        self.require(terms == known, Rule::Handoff, "an offer was lost or made up")?;
        let moved_by = hot.last_handoff.map(|handoff| handoff.as_raw());
        self.require(moved_by == shard.moved_by, Rule::Handoff, "a wrong handoff was recorded")?;
        let same = hot.request == shard.request;
        self.require(
            same,
            Rule::Acknowledged,
            "a request was lost or is still stored after its end",
        )
    }

    /// Checks the parent and the children.
    fn family(
        &self,
        shard: &ShardFacts,
        hot: &HotPart<'_>,
        cold: &ColdPart<'_>,
    ) -> Result<(), Violation> {
        let parent = cold.lineage.map(|lineage| lineage.parent);
        self.require(parent == shard.parent, Rule::Tiling, "a shard has another parent")?;
        let same = cold.spawned.iter().eq(shard.spawned.iter().copied())
            && hot.spawned_count == shard.spawned.len();
        self.require(same, Rule::Tiling, "a shard has other children")
    }

    /// The log holds the latest operations with an id and no others.
    fn log(&self, number: u32, shard: &ShardFacts, hot: &HotPart<'_>) -> Result<(), Violation> {
        let all = hot.op_log.len() == ((shard.logged - shard.forgotten) as usize).min(OP_LOG_CAP);
        self.require(all, Rule::Replay, "an operation was forgotten, or made up")?;
        let known = |op_id| self.is_logged(Log::Shard(number), op_id, OP_LOG_CAP);
        let known = hot.op_log.iter().all(|entry| known(entry.op_id()));
        self.require(known, Rule::Replay, "a logged operation is not one of the latest")
    }

    fn is_logged(&self, log: Log, op_id: OpId, capacity: usize) -> bool {
        let entry = self.oracle.recall(log, op_id);
        entry.is_some_and(|entry| self.oracle.is_fresh(log, entry, capacity))
    }

    /// The claim index has each active shard at its deadline or at zero; the parked index has the
    /// parked ones.
    fn indexes(
        &self,
        tenant: TenantId,
        facts: &ShardFacts,
        hot: &HotPart<'_>,
    ) -> Result<(), Violation> {
        let at = LogicalTime::from_raw(facts.holder.map_or(0, |holder| holder.deadline));
        let (shard, active) = (facts.key, facts.status == ShardStatus::Active);
        let entry = self.bytes(&Key::ClaimIndex { tenant, shard, at });
        let due = entry.is_some_and(|it| decode_claim_entry(tenant, shard, at, it).is_ok());
        let right = due == active && hot.indexed_at == active.then_some(at);
        self.require(right, Rule::FreeShardWithheld, "the claim index is wrong")?;
        let entry = self.bytes(&Key::ParkedIndex { tenant, shard });
        let parked = entry.is_some_and(|it| decode_parked_entry(tenant, shard, it).is_ok());
        let right = parked == (facts.status == ShardStatus::Parked);
        self.require(right, Rule::FreeShardWithheld, "the parked index is wrong")
    }

    /// The run head has the expected state, or a tombstone replaces it.
    fn run(&self, number: u32, run: &RunFacts) -> Result<(), Violation> {
        let (tenant, id) = (self.tenants[run.tenant as usize], run.id);
        let head = self.bytes(&Key::RunHead { tenant, run: id });
        let head = head.map(|head| decode_run_head(tenant, id, head));
        match (head, run.status.filter(|_| !run.deleted)) {
            (None, None) => {}
            (Some(Ok(head)), Some(_)) => self.head(run, &head)?,
            (Some(_), None) => {
                return self.require(false, Rule::RunReborn, "a deleted run exists");
            }
            (None | Some(Err(_)), Some(_)) => {
                return self.require(false, Rule::Acknowledged, "a run is lost");
            }
        }
        let grave = self.bytes(&Key::Tombstone { tenant, run: id });
        let grave = grave.map(|grave| decode_tombstone(tenant, id, grave).map(|it| it.op_id));
        let right = grave == run.deleted_by.map(Ok);
        self.require(right, Rule::RunReborn, "a tombstone is missing or names another operation")?;
        let named = self.roots(tenant, run)?;
        self.run_log(tenant, number, run, named)
    }

    fn head(&self, run: &RunFacts, head: &RunHeadPart) -> Result<(), Violation> {
        let (is, roots) = (head.head(), head.roots());
        let right = (Some(is.status), is.paused) == (run.status, run.paused);
        self.require(right, Rule::Acknowledged, "a run has a wrong status")?;
        let same = run.is_set_as(is.config);
        self.require(same, Rule::Acknowledged, "a run has other settings")?;
        let total = if run.roots_born > 0 { run.cuts.len() + 1 } else { 0 };
        let same = roots.total as usize == total
            && roots.registered == run.roots_born
            && usize::from(roots.chunks) == run.chunks.len();
        self.require(same, Rule::Tiling, "a registration has a wrong progress")
    }

    /// Checks the root lists, chunk by chunk. Returns the roots if all chunks exist.
    fn roots(&self, tenant: TenantId, run: &RunFacts) -> Result<Option<Vec<ShardId>>, Violation> {
        let (mut named, mut ids, mut whole) = (Vec::new(), Vec::new(), true);
        for (chunk, known) in (0_u16..).zip(&run.chunks) {
            let stored = self.bytes(&Key::RunRoots { tenant, run: run.id, chunk });
            ids.clear();
            let read = stored.map(|it| decode_roots(tenant, run.id, chunk, it, &mut ids));
            let right = match known {
                None => read.is_none(),
                Some((from, to)) => {
                    let wanted = (u64::from(*from)..u64::from(*to)).map(ShardId::from_raw);
                    read == Some(Ok(())) && ids.iter().copied().eq(wanted)
                }
            };
            self.require(right, Rule::Tiling, "a root list is wrong")?;
            named.extend_from_slice(&ids);
            whole &= known.is_some();
        }
        Ok(whole.then_some(named))
    }

    /// The log holds the latest operations on the run and no others; a collection adds its own.
    fn run_log(
        &self,
        tenant: TenantId,
        number: u32,
        run: &RunFacts,
        roots: Option<Vec<ShardId>>,
    ) -> Result<(), Violation> {
        let head = self.bytes(&Key::RunHead { tenant, run: run.id });
        let head = head.and_then(|head| decode_run_head(tenant, run.id, head).ok());
        let (Some(head), Some(mut roots)) = (head, roots) else { return Ok(()) };
        roots.retain(|_| run.is_whole());
        let Ok(record) = head.into_record(roots) else {
            return self.require(false, Rule::Tiling, "a run has other roots");
        };
        let collected = |op_id| op_id == COLLECTION_CANCELS;
        let by_collection = record.op_log().filter(|entry| collected(entry.op_id())).count();
        // The registration is recorded outside the log.
        let logged = run.logged as usize + by_collection;
        let logged = logged.saturating_sub(usize::from(run.is_whole()));
        let all = record.op_log().len() == logged.min(RUN_OP_LOG_CAP);
        self.require(all, Rule::Replay, "an operation on a run was forgotten, or made up")?;
        // One more, because the oracle counts the registration with the others.
        let known = |op_id| self.is_logged(Log::Run(number), op_id, RUN_OP_LOG_CAP + 1);
        let known = record.op_log().all(|it| known(it.op_id()) || collected(it.op_id()));
        self.require(known, Rule::Replay, "a logged operation was not applied to the run")
    }

    /// An owner key exists only while the lease is held, and belongs to the same grant.
    fn owners(&self) -> Result<(), Violation> {
        for key in self.disk.all_of(KeyKind::Owner) {
            let Key::Owner { tenant, shard } = key else { continue };
            let Some(number) = self.oracle.find_shard(tenant, shard) else {
                let why = "an owner key names a missing shard";
                return self.require(false, Rule::Tiling, why);
            };
            let facts = &self.oracle.shards[number as usize];
            let owner = decode_owner(tenant, shard, self.bytes(&key).unwrap_or_default());
            let owner = owner.map(|it| (it.owner.as_raw(), it.fence.as_raw(), it.token));
            let hot = self.bytes(&Key::ShardHot { tenant, shard });
            let hot = hot.and_then(|hot| decode_hot(tenant, shard, hot).ok());
            let token = hot.and_then(|hot| hot.lease).map(|lease| lease.token());
            let known = facts.holder.filter(|_| !facts.swept).zip(token);
            let known = known.map(|(holder, token)| Ok((holder.worker, facts.fence, token)));
            let right = known == Some(owner);
            self.require(right, Rule::TwoOwners, "an owner key outlived its lease")?;
        }
        Ok(())
    }

    /// The counter of each tenant is the number of its shards and reservations.
    fn counters(&self) -> Result<(), Violation> {
        for (place, tenant) in self.tenants.iter().enumerate() {
            let shards = self.oracle.shards_of[place].iter();
            let left = shards.filter(|it| !self.oracle.shards[**it as usize].swept).count();
            let live = self.oracle.live_shards[place];
            let same = left == live as usize;
            self.require(same, Rule::Limit, "shards are miscounted by the oracle")?;
            let runs = self.oracle.runs_of[place].iter();
            let reserved = runs.map(|run| self.oracle.runs[*run as usize].reserved()).sum::<u64>();
            let counter = self.bytes(&Key::TenantCounter { tenant: *tenant });
            let counted = counter.map_or(Ok(0), |it| decode_count(*tenant, it));
            let expected = u64::from(live) + reserved;
            let right = counted == Ok(expected);
            self.require(right, Rule::Limit, "the count of a tenant's shards is wrong")?;
        }
        Ok(())
    }

    fn workers(&self) -> Result<(), Violation> {
        for (tenant, registry) in self.tenants.iter().zip(&self.oracle.registries) {
            for entry in registry.entries() {
                let (tenant, worker) = (*tenant, entry.worker);
                let stored = self.bytes(&Key::Worker { tenant, worker });
                let stored = stored.map(|it| decode_worker(tenant, worker, it));
                let same = stored == Some(Ok(*entry));
                self.require(same, Rule::Acknowledged, "a registered worker was lost or changed")?;
            }
        }
        Ok(())
    }

    /// The number of keys of each kind is the number that was checked above.
    fn nothing_else(&self) -> Result<(), Violation> {
        let runs = || self.oracle.runs.iter();
        let left = || self.oracle.shards.iter().filter(|shard| !shard.swept);
        let with = |status| left().filter(|shard| shard.status == status).count();
        let there = runs().filter(|run| run.status.is_some() && !run.deleted).count();
        let deleted = runs().filter(|run| run.deleted).count();
        let chunks = runs().flat_map(|run| &run.chunks).flatten().count();
        let workers = self.oracle.registries.iter().map(|it| it.entries().len()).sum();
        let expected = [
            (KeyKind::RunHead, there, Rule::RunReborn, "an unknown run exists"),
            (KeyKind::Tombstone, deleted, Rule::RunReborn, "a tombstone of an unknown run exists"),
            (KeyKind::RunRoots, chunks, Rule::Tiling, "a root list outlived its run"),
            (KeyKind::ShardHot, left().count(), Rule::Tiling, "an unknown shard exists"),
            (
                KeyKind::ShardCold,
                left().count(),
                Rule::Tiling,
                "a shard has a cold part without a hot part",
            ),
            (KeyKind::ClaimIndex, with(ShardStatus::Active), INDEX.0, INDEX.1),
            (KeyKind::ParkedIndex, with(ShardStatus::Parked), INDEX.0, INDEX.1),
            (KeyKind::Worker, workers, Rule::Acknowledged, "an unknown worker exists"),
            (KeyKind::Handoff, 0, Rule::Handoff, "an unknown handoff exists"),
            (KeyKind::HandoffIndex, 0, Rule::Handoff, "an unknown handoff exists"),
        ];
        for (kind, count, rule, why) in expected {
            let found = self.disk.all_of(kind).filter(|key| !self.lags_behind(key)).count();
            self.require(found == count, rule, why)?;
        }
        Ok(())
    }

    /// Returns whether the key is a claim index entry of a shard that was purged by its key, in an
    /// unfinished purge.
    fn lags_behind(&self, key: &Key) -> bool {
        let Key::ClaimIndex { tenant, shard, .. } = *key else { return false };
        let number = self.oracle.find_shard(tenant, shard);
        number.is_some_and(|number| {
            let facts = &self.oracle.shards[number as usize];
            facts.swept && self.oracle.runs[facts.run as usize].is_named()
        })
    }
}

/// Violation for an index entry too many.
const INDEX: (Rule, &str) = (Rule::FreeShardWithheld, "an index entry names a missing shard");

/// A torn value that is not repaired yet.
#[derive(Debug)]
pub(super) struct Torn {
    pub(super) key: Key,
    pub(super) revision: u64,
    /// Whether a read has returned it.
    pub(super) shown: bool,
    /// The intact bytes.
    pub(super) good: Vec<u8>,
}
