//! What the oracle makes of an answer that only tells: records, progress, listings, the registry.
//!
//! A listing of several pages is of several instants. Where nothing that it tells of changed
//! between the beginning of the operation and its end, all instants are one, and it must tell
//! everything as it is; where something changed, nothing is said here.

use std::collections::BTreeMap;

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::store::{Key, Txn, Write, decode_worker};
use gossip_coordination::{
    RunProgress, RunRecord, ShardFilter, ShardStatus, ShardSummary, WORKER_ENTRY_TTL, Watermark,
    WorkerEntry,
};

use super::op::{Op, Verb};
use super::oracle::{Oracle, Rule, RunFacts, ShardFacts, Violation};
use super::random::mix;
use super::splits::metadata_of;

/// The workers of a tenant as they were last written.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: BTreeMap<u64, WorkerEntry>,
    /// When anything in it last changed, in commits.
    pub(super) changed_at: u64,
}

impl Registry {
    pub(super) fn is_live(&self, worker: u64, now: u64) -> bool {
        self.entries.get(&worker).is_some_and(|entry| now < entry.expires_at.as_raw())
    }

    /// Those that are stored, live or not.
    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = &WorkerEntry> {
        self.entries.values()
    }
}

/// Which runs are asked for: the first `limit` behind `after`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPage {
    pub(super) after: Option<RunId>,
    pub(super) limit: usize,
}

impl Oracle {
    /// Hears what a transaction writes into the registry: an entry lasts from the clock that was
    /// presented, or longer if it was known.
    pub(super) fn registered_workers(
        &mut self,
        op: &Op,
        tenant: TenantId,
        txn: &Txn,
    ) -> Result<(), Violation> {
        for write in txn.writes() {
            let Key::Worker { tenant: of, worker } = *write.key() else { continue };
            self.require(of == tenant, Rule::Tenants, "a worker was entered for another tenant")?;
            let registry = &mut self.registries[op.tenant as usize];
            registry.changed_at = self.commits;
            let Write::Put(_, bytes) = write else {
                registry.entries.remove(&worker.as_raw());
                continue;
            };
            let entry = decode_worker(of, worker, bytes).ok();
            registry.entries.extend(entry.map(|entry| (worker.as_raw(), entry)));
            op.applied.set(op.applied.get() + 1);
            let until = op.now.as_raw() + WORKER_ENTRY_TTL;
            let lasts = entry.is_some_and(|entry| entry.expires_at.as_raw() >= until);
            self.require(lasts, Rule::Acknowledged, "a worker is forgotten too soon")?;
            let result = entry.zip(op.said.state).is_none_or(|(entry, state)| entry.state == state);
            self.require(result, Rule::Acknowledged, "a worker is said to do something else")?;
        }
        Ok(())
    }

    /// Holds the workers that were listed against those that are there.
    pub(super) fn check_listed_workers(
        &self,
        op: &Op,
        result: &[WorkerEntry],
    ) -> Result<(), Violation> {
        let registry = &self.registries[op.tenant as usize];
        if registry.changed_at > op.begun_at || op.misled.get() {
            return Ok(());
        }
        let live = registry.entries.values().filter(|entry| entry.is_live_at(op.now));
        let same = live.eq(result.iter());
        self.require(same, Rule::Acknowledged, "other workers were listed than are there")
    }

    /// Holds a page of runs against those that there are. One that changed meanwhile may be there
    /// or not, and behind the last of a full page nobody has looked.
    pub(super) fn check_listed_runs(
        &self,
        op: &Op,
        page: RunPage,
        result: &[RunId],
    ) -> Result<(), Violation> {
        if op.misled.get() {
            return Ok(());
        }
        let RunPage { after, limit } = page;
        let behind = result.first().is_none_or(|first| Some(*first) > after);
        let in_order =
            behind && result.is_sorted_by(|one, next| one < next) && result.len() <= limit;
        self.require(in_order, Rule::Acknowledged, "a page of runs is too long or not in order")?;
        let end = result.last().filter(|_| result.len() == limit);
        let looked_at =
            |run: &&RunFacts| Some(run.id) > after && end.is_none_or(|end| run.id <= *end);
        let runs = self.runs_of[op.tenant as usize].iter().map(|run| &self.runs[*run as usize]);
        let mut known = 0;
        for run in runs.filter(looked_at) {
            let there = result.binary_search(&run.id).is_ok();
            known += usize::from(there);
            let right = run.changed_at > op.begun_at || there == is_listed(op.verb, run);
            self.require(right, Rule::Acknowledged, "other runs were listed than are there")?;
        }
        self.require(known == result.len(), Rule::Acknowledged, "a run was listed that is nobody's")
    }

    /// Holds a collection that says that it has done everything against what deletions have left:
    /// of a run that was gone when it began nothing is there.
    pub(super) fn told_collected(&self, op: &Op) -> Result<(), Violation> {
        if op.misled.get() {
            return Ok(());
        }
        let runs = self.runs_of[op.tenant as usize].iter().map(|run| &self.runs[*run as usize]);
        let mut gone = runs.filter(|run| run.deleted && run.changed_at <= op.begun_at);
        let clean = gone.all(|run| !run.is_named() && self.shown_or_not(run).all(|it| it.swept));
        self.require(clean, Rule::Acknowledged, "a collection has left a part of a deleted run")
    }

    fn shown_or_not<'o>(&'o self, run: &'o RunFacts) -> impl Iterator<Item = &'o ShardFacts> {
        run.shards.iter().map(|shard| &self.shards[*shard as usize])
    }

    /// Holds the record of a run against what became of it.
    pub(super) fn check_run_query(&self, op: &Op, result: &RunRecord) -> Result<(), Violation> {
        let Some(run) = self.unchanged_run(op) else { return Ok(()) };
        let roots = if run.is_whole() { run.cuts.len() + 1 } else { 0 };
        let is = (result.status(), result.is_paused());
        let same = (Some(is.0), is.1) == (run.status, run.paused)
            && result.root_shards().len() == roots
            && run.is_set_as(result.config());
        self.require(same && !run.deleted, Rule::Acknowledged, "a run was told as it is not")
    }

    /// Holds the sums over a run against its shards.
    pub(super) fn check_progress_query(
        &self,
        op: &Op,
        result: &RunProgress,
    ) -> Result<(), Violation> {
        let Some(run) = self.unchanged_run(op) else { return Ok(()) };
        let mut wanted = RunProgress::default();
        let mut lowest: Option<&[u8]> = None;
        for shard in self.shown(run) {
            wanted.total += 1;
            match shard.status {
                ShardStatus::Active => wanted.active += 1,
                ShardStatus::Done => wanted.done += 1,
                ShardStatus::Split => wanted.split += 1,
                ShardStatus::Parked => wanted.parked += 1,
            }
            wanted.leased += u64::from(is_leased(shard, op));
            let reached = self.reached(shard).filter(|_| shard.status == ShardStatus::Active);
            lowest = lowest.into_iter().chain(reached).min();
        }
        wanted.watermark = lowest.map(Watermark::new);
        self.require(*result == wanted, Rule::Acknowledged, "a run has come further, or less far")
    }

    /// Holds a listing of the shards that `filter` admits against them.
    pub(super) fn check_listed_shards(
        &self,
        op: &Op,
        filter: ShardFilter,
        result: &[ShardSummary],
    ) -> Result<(), Violation> {
        let Some(run) = self.unchanged_run(op) else { return Ok(()) };
        let wanted = || self.shown(run).filter(|shard| is_admitted(op, filter, shard));
        let all = result.len() == wanted().count();
        self.require(all, Rule::Acknowledged, "shards are missing in a listing, or too many")?;
        let in_order = result.is_sorted_by_key(|row| (&row.start, row.shard));
        self.require(in_order, Rule::Acknowledged, "a listing is not in the order of its keys")?;
        for shard in wanted() {
            let mut rows = result.iter().filter(|row| row.shard == shard.key.shard());
            let same = rows.next().is_some_and(|row| self.is_row_of(op, row, shard));
            self.require(same, Rule::Acknowledged, "a shard was listed as it is not")?;
        }
        Ok(())
    }

    fn is_row_of(&self, op: &Op, row: &ShardSummary, shard: &ShardFacts) -> bool {
        let leased = is_leased(shard, op);
        let holder = shard.holder.filter(|_| leased);
        let held = (row.owner.map(|it| it.as_raw()), row.lease_deadline.map(|it| it.as_raw()));
        let range = (self.keys.key(shard.range.0), self.keys.key(shard.range.1));
        let metadata = metadata_of(shard.key.run(), shard.range.0);
        (row.status, row.leased) == (shard.status, leased)
            && held == (holder.map(|it| it.worker), holder.map(|it| it.deadline))
            && row.fence_epoch.as_raw() == shard.fence
            && (row.attempts, row.acquire_count) == (shard.attempts, shard.granted)
            && row.last_handoff.map(|it| it.as_raw()) == shard.moved_by
            && row.last_key.as_deref() == self.reached(shard)
            && (&*row.start, &*row.end) == range
            && (row.parent, row.spawned_count as usize) == (shard.parent, shard.spawned.len())
            && (shard.foreign || row.token.as_deref() == self.token_of(shard))
            && (shard.foreign || *row.metadata == *metadata)
    }

    /// The last key that a shard has done, if it has done any.
    pub(super) fn reached(&self, shard: &ShardFacts) -> Option<&[u8]> {
        (shard.done > shard.range.0).then(|| self.keys.key(shard.done - 1))
    }

    /// The token of a shard's cursor: our workers take the last byte of the last key.
    pub(super) fn token_of(&self, shard: &ShardFacts) -> Option<&[u8]> {
        self.reached(shard).map(|key| &key[key.len() - 1..])
    }

    /// A number of what a shard's next owner is told beside its range and position.
    pub(super) fn carried(&self, shard: &ShardFacts) -> u64 {
        if shard.foreign {
            return 0;
        }
        let semantics = self.runs[shard.run as usize].semantics;
        carried(self.token_of(shard), metadata_of(shard.key.run(), shard.range.0), semantics)
    }

    /// The shards of a run that can be found: none before all of its roots are there.
    fn shown<'o>(&'o self, run: &'o RunFacts) -> impl Iterator<Item = &'o ShardFacts> {
        self.shown_or_not(run).filter(|_| run.is_whole())
    }

    /// The run that `op` is about, if neither it nor any of its shards changed meanwhile.
    fn unchanged_run(&self, op: &Op) -> Option<&RunFacts> {
        let run = &self.runs[op.run? as usize];
        let unchanged = run.changed_at.max(run.touched_at) <= op.begun_at;
        (unchanged && !op.misled.get()).then_some(run)
    }
}

/// A number of a token, of metadata and of what a cursor means, never zero.
pub(super) fn carried(token: Option<&[u8]>, metadata: &[u8], semantics: CursorSemantics) -> u64 {
    let bytes = token.unwrap_or_default().iter().chain(metadata);
    let start = 1 + token.map_or(0, <[u8]>::len) as u64 + (u64::from(semantics.as_u8()) << 32);
    bytes.fold(start, |hash, byte| mix(hash ^ u64::from(*byte))) | 1
}

/// Whether a run is in the list that `verb` asks for.
fn is_listed(verb: Verb, run: &RunFacts) -> bool {
    let there = run.status.is_some() && !run.deleted;
    there && (verb == Verb::ListRuns || !run.is_over())
}

/// Whether a filter admits a shard, by what is known of it: a root is what was cut from nothing.
fn is_admitted(op: &Op, filter: ShardFilter, shard: &ShardFacts) -> bool {
    let ShardFilter { status, is_leased: leased, root_only, only } = filter;
    status.is_none_or(|status| status == shard.status)
        && leased.is_none_or(|leased| leased == is_leased(shard, op))
        && (!root_only || shard.parent.is_none())
        && only.is_none_or(|only| only == shard.key.shard())
}

fn is_leased(shard: &ShardFacts, op: &Op) -> bool {
    shard.holder.is_some_and(|holder| op.now.as_raw() < holder.deadline)
}
