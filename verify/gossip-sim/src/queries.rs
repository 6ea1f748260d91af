//! Oracle rules for queries: records, progress, listings and the worker registry.
//!
//! A listing of several pages is read at several instants. Subjects that did not change during the
//! operation must be listed exactly; the others are not compared.

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
    entries: BTreeMap<u64, (WorkerEntry, u64)>,
    /// Commit number of the last removal.
    removed_at: u64,
    /// Commit number of the last change.
    pub(super) changed_at: u64,
}

impl Registry {
    pub(super) fn is_live(&self, worker: u64, now: u64) -> bool {
        self.entries.get(&worker).is_some_and(|(entry, _)| now < entry.expires_at.as_raw())
    }

    /// Returns whether the entry of the operation's worker is as new as the operation or newer.
    pub(super) fn has_newer(&self, op: &Op) -> bool {
        let until = op.now.as_raw() + WORKER_ENTRY_TTL;
        self.entries.get(&op.worker).is_some_and(|(entry, _)| entry.expires_at.as_raw() >= until)
    }

    /// Returns the stored entries, live or not.
    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = &WorkerEntry> {
        self.entries.values().map(|(entry, _)| entry)
    }
}

/// A page of runs: the first `limit` after `after`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPage {
    pub(super) after: Option<RunId>,
    pub(super) limit: usize,
}

impl Oracle {
    /// Records a write to the registry. An entry expires by the presented clock, and is never
    /// shortened.
    pub(super) fn registered_workers(
        &mut self,
        op: &Op,
        tenant: TenantId,
        txn: &Txn,
    ) -> Result<(), Violation> {
        for write in txn.writes() {
            let Key::Worker { tenant: of, worker } = *write.key() else { continue };
            self.require(
                of == tenant,
                Rule::Tenants,
                "a worker was registered for another tenant",
            )?;
            let registry = &mut self.registries[op.tenant as usize];
            registry.changed_at = self.commits;
            let Write::Put(_, bytes) = write else {
                registry.entries.remove(&worker.as_raw());
                registry.removed_at = self.commits;
                continue;
            };
            let entry = decode_worker(of, worker, bytes).ok();
            let before = registry.entries.get(&worker.as_raw()).map(|(entry, _)| *entry);
            registry.entries.extend(entry.map(|entry| (worker.as_raw(), (entry, self.commits))));
            op.applied.set(op.applied.get() + 1);
            let until = op.now.as_raw() + WORKER_ENTRY_TTL;
            let lasts = entry.is_some_and(|entry| entry.expires_at.as_raw() >= until);
            self.require(lasts, Rule::Acknowledged, "a worker expires too early")?;
            let newer =
                |(before, entry): (WorkerEntry, WorkerEntry)| before.expires_at <= entry.expires_at;
            let is_newer = before.zip(entry).is_none_or(newer);
            self.require(is_newer, Rule::Acknowledged, "a worker has an older entry than before")?;
            let result = entry.zip(op.said.state).is_none_or(|(entry, state)| entry.state == state);
            self.require(result, Rule::Acknowledged, "a worker is stored with another state")?;
        }
        Ok(())
    }

    /// Checks a listing of workers.
    pub(super) fn check_listed_workers(
        &self,
        op: &Op,
        result: &[WorkerEntry],
    ) -> Result<(), Violation> {
        let registry = &self.registries[op.tenant as usize];
        if registry.removed_at > op.begun_at || op.misled.get() {
            self.skip_query(op);
            return Ok(());
        }
        let mut known = 0;
        for (entry, changed_at) in registry.entries.values() {
            let listed = result.iter().find(|it| it.worker == entry.worker);
            known += usize::from(listed.is_some());
            let wanted = Some(entry).filter(|entry| entry.is_live_at(op.now));
            let same = *changed_at > op.begun_at || listed == wanted;
            self.require(same, Rule::Acknowledged, "a listing has wrong workers")?;
        }
        self.require(known == result.len(), Rule::Acknowledged, "a listing has wrong workers")
    }

    /// Checks a page of runs. A run that changed during the operation may be listed or not, and the
    /// page says nothing about runs after the last one of a full page.
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
            self.require(right, Rule::Acknowledged, "a listing has wrong runs")?;
        }
        self.require(known == result.len(), Rule::Acknowledged, "an unknown run was listed")
    }

    /// Checks a quota that was reported as set. Only its operator changes it.
    pub(super) fn check_allotment(&self, op: &Op, max: u32) -> Result<(), Violation> {
        if op.misled.get() {
            return Ok(());
        }
        let same = self.allotments[op.tenant as usize].0 == max;
        self.require(same, Rule::Acknowledged, "a quota was acknowledged and is not stored")
    }

    /// Checks a garbage collection that reports to be complete: nothing may remain of a run that
    /// was deleted before it began.
    pub(super) fn check_collection(&self, op: &Op) -> Result<(), Violation> {
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

    /// Checks the returned record of a run.
    pub(super) fn check_run_query(&self, op: &Op, result: &RunRecord) -> Result<(), Violation> {
        let Some(run) = self.unchanged_run(op) else { return Ok(()) };
        let roots = if run.is_whole() { run.cuts.len() + 1 } else { 0 };
        let is = (result.status(), result.is_paused());
        let same = (Some(is.0), is.1) == (run.status, run.paused)
            && result.root_shards().len() == roots
            && run.is_set_as(result.config());
        self.require(
            same && !run.deleted,
            Rule::Acknowledged,
            "a query returned a wrong run record",
        )
    }

    /// Checks the returned progress of a run. A shard that changed during the operation may be
    /// counted as it was or as it is.
    pub(super) fn check_progress_query(
        &self,
        op: &Op,
        result: &RunProgress,
    ) -> Result<(), Violation> {
        let Some(run) = self.unchanged_run(op) else { return Ok(()) };
        let mut wanted = RunProgress::default();
        let (mut lowest, mut moving): (Option<&[u8]>, u64) = (None, 0);
        for shard in self.shown(run) {
            if shard.changed_at > op.begun_at {
                moving += 1;
                continue;
            }
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
        let why = "a query returned a wrong progress";
        if moving == 0 {
            return self.require(*result == wanted, Rule::Acknowledged, why);
        }
        let counts =
            |it: &RunProgress| [it.total, it.active, it.done, it.split, it.parked, it.leased];
        let mut pairs = counts(&wanted).into_iter().zip(counts(result));
        let near = pairs.all(|(least, found)| (least..=least + moving).contains(&found));
        self.require(near, Rule::Acknowledged, why)
    }

    /// Checks a listing of the shards that match `filter`. A shard that changed during the
    /// operation may be listed or not, with values of its past.
    pub(super) fn check_listed_shards(
        &self,
        op: &Op,
        filter: ShardFilter,
        result: &[ShardSummary],
    ) -> Result<(), Violation> {
        let Some(run) = self.unchanged_run(op) else { return Ok(()) };
        let in_order = result.is_sorted_by_key(|row| (&row.start, row.shard));
        let moves = |shard: &ShardFacts| shard.changed_at > op.begun_at;
        let in_order = in_order || self.shown(run).any(moves);
        self.require(in_order, Rule::Acknowledged, "a listing is not in the order of its keys")?;
        let mut known = 0;
        for shard in self.shown(run) {
            let mut rows = result.iter().filter(|row| row.shard == shard.key.shard());
            let row = rows.next();
            known += usize::from(row.is_some());
            if moves(shard) {
                continue;
            }
            let there = row.is_some() == is_admitted(op, filter, shard) && rows.next().is_none();
            self.require(
                there,
                Rule::Acknowledged,
                "shards are missing in a listing, or too many",
            )?;
            let same = row.is_none_or(|row| self.is_row_of(op, row, shard));
            self.require(same, Rule::Acknowledged, "a listed shard has wrong values")?;
        }
        let all = known == result.len();
        self.require(all, Rule::Acknowledged, "shards are missing in a listing, or too many")
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

    /// Returns the last completed key of a shard, if there is one.
    pub(super) fn reached(&self, shard: &ShardFacts) -> Option<&[u8]> {
        (shard.done > shard.range.0).then(|| self.keys.key(shard.done - 1))
    }

    /// Returns the cursor token of a shard: the simulator's workers use the last byte of the last
    /// key.
    pub(super) fn token_of(&self, shard: &ShardFacts) -> Option<&[u8]> {
        self.reached(shard).map(|key| &key[key.len() - 1..])
    }

    /// Returns a digest of the token, metadata and semantics that the next holder receives.
    pub(super) fn carried(&self, shard: &ShardFacts) -> u64 {
        if shard.foreign {
            return 0;
        }
        let semantics = self.runs[shard.run as usize].semantics;
        carried(self.token_of(shard), metadata_of(shard.key.run(), shard.range.0), semantics)
    }

    /// Returns the visible shards of a run: none before all of its roots exist.
    fn shown<'o>(&'o self, run: &'o RunFacts) -> impl Iterator<Item = &'o ShardFacts> {
        self.shown_or_not(run).filter(|_| run.is_whole())
    }

    /// Returns the run of `op`, if the run itself did not change during the operation.
    fn unchanged_run(&self, op: &Op) -> Option<&RunFacts> {
        let run = &self.runs[op.run? as usize];
        let unchanged = run.changed_at <= op.begun_at;
        if !unchanged {
            self.skip_query(op);
        }
        (unchanged && !op.misled.get()).then_some(run)
    }

    /// Counts a query whose result is not checked. A misled one is counted when it ends.
    fn skip_query(&self, op: &Op) {
        if !op.misled.get() {
            self.skip(|tally| &mut tally.queries);
        }
    }
}

/// Returns a digest of token, metadata and cursor semantics, never zero.
pub(super) fn carried(token: Option<&[u8]>, metadata: &[u8], semantics: CursorSemantics) -> u64 {
    let bytes = token.unwrap_or_default().iter().chain(metadata);
    let start = 1 + token.map_or(0, <[u8]>::len) as u64 + (u64::from(semantics.as_u8()) << 32);
    bytes.fold(start, |hash, byte| mix(hash ^ u64::from(*byte))) | 1
}

/// Returns whether a run belongs to the list of `verb`.
fn is_listed(verb: Verb, run: &RunFacts) -> bool {
    let there = run.status.is_some() && !run.deleted;
    there && (verb == Verb::ListRuns || !run.is_over())
}

/// Returns whether a filter matches a shard, by its history: a root has no parent.
fn is_admitted(op: &Op, filter: ShardFilter, shard: &ShardFacts) -> bool {
    let ShardFilter { status, is_leased: leased, root_only, only, damaged_only, page } = filter;
    assert!(page.is_none(), "no page of shards is requested here");
    !damaged_only
        && status.is_none_or(|status| status == shard.status)
        && leased.is_none_or(|leased| leased == is_leased(shard, op))
        && (!root_only || shard.parent.is_none())
        && only.is_none_or(|only| only == shard.key.shard())
}

fn is_leased(shard: &ShardFacts, op: &Op) -> bool {
    shard.holder.is_some_and(|holder| op.now.as_raw() < holder.deadline)
}
