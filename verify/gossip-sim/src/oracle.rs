//! The oracle of effects: decides what each worker was allowed to do, independently of the records.
//!
//! It observes every command, the instant at which its commit took effect, and the result that its
//! caller received, and keeps its own history: grants and deadlines, ranges, progress. A grant is
//! identified by its place in the order of commits and not by a fence read from a record, so mutual
//! exclusion is stated over accepted effects, and the check can fail. Of a transaction the oracle
//! reads the keys, and the ranges of new shards to learn their ids; it never derives permissions
//! from a record.
//!
//! # Rules
//!
//! The names are those of [`Rule`], shared with the model checker and the TLA+ specification. The
//! last column is the failure that a rule guards against.
//!
//! | rule | guarantee | guards against |
//! |---|---|---|
//! | StaleFence | only the last grant of a shard has effects | a paused worker resumes after its shard was granted again |
//! | Expired | no operation begins at or after the true end of its lease, or later by no more than its clock has lost since | work under an expired lease |
//! | TwoOwners | no grant before the true end of another lease, except by its own offer, or earlier by no more than the clocks differ; the difference must exceed the honoured skew while the owner key is there | two workers on one shard |
//! | Handoff | an offer is accepted by its destination, in time, while it is open | a shard taken over without consent |
//! | FrozenSource | while an offer is open, its source can only renew and withdraw | progress that the destination never sees |
//! | MoveRedoesNothing | a handoff redoes no key | a handoff that costs work |
//! | Replay | a retry returns the first result and has no second effect | a lost reply that doubles an operation |
//! | OpIdReused | a retry with other parameters is rejected | an id bug of the caller that goes unnoticed |
//! | LostKey | every key at or below a cursor was assigned to a worker whose write was accepted | a skipped key |
//! | DoneUncovered | the whole range of a completed shard was covered | a shard completed early |
//! | SinkOrder | accepted writes of a key have non-decreasing fences; one fence, one writer | a stale result that overwrites a new one |
//! | Tiling | the leaf ranges tile the roots at every instant | keys in no shard or in two |
//! | Limit | the shard quota is never exceeded | a tenant that fills the store |
//! | FenceFell | a fence never decreases, and rises with every grant, unpark and revocation | a fence that admits an old holder |
//! | ProgressFell | progress never decreases | completed work repeated or lost |
//! | Acknowledged | an acknowledged operation took effect and is visible | an acknowledged operation lost |
//! | RefusedHappened | a rejected operation has no effect, then or later | a caller that continues on a wrong premise |
//! | Unfounded | the reason of a rejection was true | a rejection that misleads the caller |
//! | OwnerShutOut | the holder of a live lease is not rejected for lack of one | a worker that stops without cause |
//! | FreeShardWithheld | a free shard of an active run is granted to any claimer | a run that never finishes |
//! | Attempts | attempts are counted, and parking follows from the count | a poisonous shard retried forever |
//! | RunOver | a finished or paused run starts and grows nothing, and finishes once | work on a cancelled run |
//! | RunUnsettled | a run completes only when its shards have ended | a run reported complete early |
//! | RunReborn | a deleted run never comes back | a late message that revives a run |
//! | Tenants | a tenant's results do not depend on another tenant | leaks across tenants |
//! | Undetected | damaged bytes are reported as corruption, and no decision uses them | silent corruption |
//! | NeverFinishes | after the last fault everything finishes within a bound | livelock, and state that blocks recovery |
//! | Panicked | the kernel, the codec and the store layer do not panic | a crash by input |

use std::cell::Cell;
use std::rc::Rc;

use foldhash::fast::FixedState;
use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{OpId, RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::{ParkReason, PendingRequest, RunConfig, RunStatus, ShardStatus};
use hashbrown::HashMap;

use super::keyspace::Keyspace;
use super::op::{LeaseRef, Op, Terms};
use super::past::Past;
use super::queries::Registry;
use super::sink::Sink;
pub use crate::model::{Rule, Violation};

/// The holder of a shard, by the order of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) grant: u32,
    pub(super) worker: u64,
    /// By the holder's clock. Never decreases.
    pub(super) deadline: u64,
    /// The true time at which the lease ends.
    pub(super) true_end: u64,
    /// By how much the holder's clock was ahead when it was granted or renewed.
    pub(super) clock_error: i64,
}

impl Holder {
    /// Returns the true time until which the lease is live for a process whose clock is ahead by
    /// `clock_error`. A clock that agrees with the holder's sees the true end.
    pub(super) const fn live_until(&self, clock_error: i64) -> i64 {
        self.true_end as i64 + self.clock_error - clock_error
    }
}

/// The history of a shard.
#[derive(Clone, Debug)]
pub(super) struct ShardFacts {
    pub(super) key: ShardKey,
    pub(super) run: u32,
    pub(super) range: (u32, u32),
    pub(super) status: ShardStatus,
    pub(super) holder: Option<Holder>,
    pub(super) fence: u64,
    /// The first key that is not done.
    pub(super) done: u32,
    pub(super) attempts: u32,
    /// Grants since the last progress that a process has received, whatever the coordinator counts.
    pub(super) received: u32,
    pub(super) offer: Option<Terms>,
    /// The highest sequence of an operation that took effect since the last grant.
    pub(super) sequence: u64,
    /// Logged operations that took effect.
    pub(super) logged: u32,
    /// Of them, those that a repair has dropped from the log.
    pub(super) forgotten: u32,
    /// The handoffs that were withdrawn.
    pub(super) withdrawn: Vec<u64>,
    /// The pending request.
    pub(super) request: Option<PendingRequest>,
    /// Every stored request in order; only the last can be pending.
    pub(super) asked: Vec<Asked>,
    /// The park reason; `None` if unknown or not parked.
    pub(super) reason: Option<ParkReason>,
    /// Number of grants.
    pub(super) granted: u32,
    /// The handoff that raised the fence last, if one did.
    pub(super) moved_by: Option<u64>,
    /// Commit number of the last renewal.
    pub(super) renewed_at: u64,
    /// The shard that it was split from, and those that were split from it.
    pub(super) parent: Option<ShardId>,
    pub(super) spawned: Vec<ShardId>,
    /// Whether a user worker changed it: then its token and metadata are unknown.
    pub(super) foreign: bool,
    /// Whether it was purged with its run.
    pub(super) swept: bool,
    /// Commit number of its last change.
    pub(super) changed_at: u64,
    /// The true time of its last change.
    pub(super) written_true: u64,
}

/// A request that was stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) op_id: OpId,
    pub(super) payload: u64,
    /// Commit number at which it was stored.
    pub(super) stored_at: u64,
    /// Commit number at which it ended; absent while it is pending.
    pub(super) ended_at: Option<u64>,
}

/// The history of a run.
#[derive(Clone, Debug)]
pub(super) struct RunFacts {
    pub(super) tenant: u32,
    pub(super) id: RunId,
    /// Absent until the run is created.
    pub(super) status: Option<RunStatus>,
    pub(super) deleted: bool,
    pub(super) paused: bool,
    /// The fence that every later grant reaches, since the store was restored.
    pub(super) floor: u64,
    /// Whether a restore has left it without a floor (docs/limitations.md): it was lost whole, and
    /// if it is created again, its fences begin again; or a value of it is damaged, and the
    /// operator's command reported that. The rules about fences do not apply to it.
    pub(super) unprotected: bool,
    pub(super) lease: u64,
    pub(super) retries: Option<u32>,
    /// The cursor semantics of its shards; a label that the product only stores.
    pub(super) semantics: CursorSemantics,
    pub(super) key_count: u32,
    /// Where its roots begin; the first is zero.
    pub(super) cuts: Vec<u32>,
    pub(super) roots_born: u32,
    /// The first and last root of each chunk of its registration; `None` once it was purged.
    pub(super) chunks: Vec<Option<(u32, u32)>>,
    /// The operation that deleted it.
    pub(super) deleted_by: Option<OpId>,
    /// Shards that are active or parked.
    pub(super) unsettled: u32,
    pub(super) logged: u32,
    /// Its shards in the order of creation.
    pub(super) shards: Vec<u32>,
    /// Commit number of the last change of the run itself.
    pub(super) changed_at: u64,
    /// Commit number of the last change of one of its shards.
    pub(super) touched_at: u64,
}

impl RunFacts {
    /// Returns whether all roots exist. Before that, none of them is visible.
    pub(super) const fn is_whole(&self) -> bool {
        self.roots_born as usize > self.cuts.len()
    }

    /// Returns the number of roots that are reserved and were never created. The first chunk of a
    /// registration reserves quota for all, and the deletion of the run returns the rest.
    pub(super) fn reserved(&self) -> u64 {
        let begun = self.roots_born > 0 && !self.deleted;
        let roots = self.cuts.len() as u64 + 1;
        if begun { roots.saturating_sub(self.roots_born.into()) } else { 0 }
    }

    /// Returns whether its shards may be purged: it is deleted, or was abandoned before its shards
    /// were visible.
    pub(super) fn may_be_swept(&self) -> bool {
        self.deleted || self.status == Some(RunStatus::Cancelled) && !self.is_whole()
    }

    /// Returns whether root lists are left. They are purged last, so they mark an unfinished purge.
    pub(super) fn is_named(&self) -> bool {
        self.chunks.iter().any(Option::is_some)
    }

    /// Returns whether these are the settings that it was created with.
    pub(super) fn is_set_as(&self, config: RunConfig) -> bool {
        RunConfig::try_new(self.semantics, self.lease, self.retries) == Ok(config)
    }

    pub(super) fn is_active(&self) -> bool {
        self.status == Some(RunStatus::Active) && !self.deleted
    }

    pub(super) fn is_over(&self) -> bool {
        self.deleted || self.status.is_some_and(RunStatus::is_terminal)
    }
}

/// An operation that took effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remembered {
    pub(super) payload: u64,
    pub(super) answer: u64,
    /// Its place in the log of its shard or run.
    pub(super) place: u32,
    /// Its commit number.
    pub(super) commit: u64,
}

/// The log that an operation is recorded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Log {
    Shard(u32),
    Run(u32),
}

/// The shard quota of a tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) per_tenant: u32,
}

/// The oracle.
#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) keys: Rc<Keyspace>,
    pub(super) shards: Vec<ShardFacts>,
    pub(super) runs: Vec<RunFacts>,
    pub(super) sink: Sink,
    pub(super) commits: u64,
    /// The true time.
    pub(super) now: u64,
    pub(super) true_time: TrueTimeTally,
    /// Answers that no rule checked, and why.
    pub(super) unjudged: Cell<UnjudgedTally>,
    pub(super) stale: StaleTally,
    pub(super) live_shards: Vec<u32>,
    pub(super) grants: u32,
    /// For each grant, the first key whose result is not known to be accepted by the sink.
    pub(super) worked: Vec<u32>,
    /// The highest fence that each shard was granted under. A restore does not lower it.
    pub(super) issued: HashMap<(u32, ShardKey), u64, FixedState>,
    /// The runs and the shards of each tenant, in the order of creation.
    pub(super) runs_of: Vec<Vec<u32>>,
    pub(super) shards_of: Vec<Vec<u32>>,
    /// The workers of each tenant.
    pub(super) registries: Vec<Registry>,
    /// Commit number at which the counted shards last decreased.
    pub(super) shrunk_at: u64,
    /// The earlier states of each shard and of each run.
    pub(super) past_shards: Vec<Past<ShardFacts>>,
    pub(super) past_runs: Vec<Past<RunFacts>>,
    /// The shard quota of each tenant, and the commit number of its last change.
    pub(super) allotments: Vec<(u32, u64)>,
    /// Suspended rules, one bit each: a fault has violated the guarantee they rest on.
    suspended: u64,
    shard_index: HashMap<(TenantId, ShardKey), u32, FixedState>,
    history: HashMap<(Log, OpId), Remembered, FixedState>,
}

/// Counts of grants and effects beyond the true end of a lease. Clocks that differ cause them; the
/// oracle bounds each by the difference.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrueTimeTally {
    /// Grants before the true end of the previous lease.
    pub early_grants: u64,
    /// Grants of a shard whose deadline was void.
    pub void_grants: u64,
    /// The most ticks by which one of them was early.
    pub earliest: u64,
    /// Effects of the last grant that arrived after the true end of its lease.
    pub late_effects: u64,
}

impl TrueTimeTally {
    pub(super) fn add(&mut self, other: &Self) {
        self.early_grants += other.early_grants;
        self.void_grants += other.void_grants;
        self.earliest = self.earliest.max(other.earliest);
        self.late_effects += other.late_effects;
    }
}

/// Counts of answers that no rule checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnjudgedTally {
    /// A read had returned an old version.
    pub misled: u64,
    /// The reason of a refusal depends on a state during the operation that is not kept.
    pub refusals: u64,
    /// The result of a query depends on such a state.
    pub queries: u64,
}

impl UnjudgedTally {
    /// Returns the number of answers.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.misled + self.refusals + self.queries
    }

    pub(super) const fn add(&mut self, other: &Self) {
        self.misled += other.misled;
        self.refusals += other.refusals;
        self.queries += other.queries;
    }
}

/// Counts of operations and writes under stale fences.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaleTally {
    /// Operations that were sent under a stale fence while the rules about them were in force.
    pub operations: u64,
    /// The same while a rule was suspended; their outcome proves nothing.
    pub operations_unjudged: u64,
    /// Of the first, the number that took effect.
    pub operations_accepted: u64,
    /// Number that took effect because the store had lost the newer grant.
    pub operations_excused: u64,
    /// Keys that reached the sink after a later grant had written them. The simulated sink decides
    /// about them, so they only show that fences follow the order of grants.
    pub keys: u64,
    /// Of those, the number that were accepted while the rules about them were in force.
    pub keys_accepted: u64,
    /// Keys from stale leases that no later grant had written yet; the next holder writes them
    /// again.
    pub keys_early: u64,
}

impl StaleTally {
    pub(super) const fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.operations_unjudged += other.operations_unjudged;
        self.operations_accepted += other.operations_accepted;
        self.operations_excused += other.operations_excused;
        self.keys += other.keys;
        self.keys_accepted += other.keys_accepted;
        self.keys_early += other.keys_early;
    }
}

impl Oracle {
    pub(super) fn new(keys: Rc<Keyspace>, tenants: u32, limits: Limits) -> Self {
        Self {
            keys,
            shards: Vec::new(),
            runs: Vec::new(),
            sink: Sink::default(),
            commits: 0,
            now: 0,
            true_time: TrueTimeTally::default(),
            unjudged: Cell::default(),
            stale: StaleTally::default(),
            live_shards: vec![0; tenants as usize],
            grants: 0,
            worked: vec![0],
            issued: HashMap::default(),
            runs_of: vec![Vec::new(); tenants as usize],
            shards_of: vec![Vec::new(); tenants as usize],
            registries: (0..tenants).map(|_| Registry::default()).collect(),
            shrunk_at: 0,
            past_shards: Vec::new(),
            past_runs: Vec::new(),
            allotments: vec![(limits.per_tenant, 0); tenants as usize],
            suspended: 0,
            shard_index: HashMap::default(),
            history: HashMap::default(),
        }
    }

    /// Counts an answer that no rule checked.
    pub(super) fn skip(&self, count: impl FnOnce(&mut UnjudgedTally) -> &mut u64) {
        let mut tally = self.unjudged.get();
        *count(&mut tally) += 1;
        self.unjudged.set(tally);
    }

    /// Returns a violation unless `condition` holds or the rule is suspended.
    #[inline]
    pub(super) fn require(&self, condition: bool, rule: Rule, why: &str) -> Result<(), Violation> {
        if condition || self.is_suspended(rule) {
            return Ok(());
        }
        Err(Violation { rule, why: why.to_owned() })
    }

    /// Suspends `rules`: a fault has violated the guarantee they rest on.
    pub(super) fn suspend(&mut self, rules: &[Rule]) {
        for rule in rules {
            self.suspended |= 1 << *rule as u32;
        }
    }

    pub(super) const fn is_suspended(&self, rule: Rule) -> bool {
        self.suspended >> rule as u32 & 1 == 1
    }

    /// Returns whether any rule is suspended.
    pub(super) const fn excuses(&self) -> bool {
        self.suspended != 0
    }

    /// Adds a run that is about to be created. Returns its number.
    pub(super) fn expect_run(&mut self, run: RunFacts) -> u32 {
        let number = u32::try_from(self.runs.len()).expect("a simulation has few runs");
        self.sink.add_run(run.key_count);
        self.runs_of[run.tenant as usize].push(number);
        self.runs.push(run);
        self.past_runs.push(Past::default());
        number
    }

    pub(super) fn find_shard(&self, tenant: TenantId, key: ShardKey) -> Option<u32> {
        self.shard_index.get(&(tenant, key)).copied()
    }

    pub(super) fn run_of(&self, tenant: u32, id: RunId) -> Option<u32> {
        let mut runs = self.runs_of[tenant as usize].iter().copied();
        runs.find(|number| self.runs[*number as usize].id == id)
    }

    pub(super) fn add_shard(&mut self, tenant: TenantId, facts: ShardFacts) {
        let number = u32::try_from(self.shards.len()).expect("a simulation has few shards");
        self.shard_index.insert((tenant, facts.key), number);
        let run = &mut self.runs[facts.run as usize];
        run.shards.push(number);
        self.shards_of[run.tenant as usize].push(number);
        self.shards.push(facts);
        self.past_shards.push(Past::default());
    }

    pub(super) fn is_held_by(&self, lease: LeaseRef) -> bool {
        let holder = self.shards[lease.shard as usize].holder;
        holder.is_some_and(|holder| holder.grant == lease.grant)
    }

    /// Returns whether the shard was granted, revoked or unparked since `lease` was granted, by the
    /// oracle's own count. A deleted shard has no fence.
    fn is_stale(&self, lease: LeaseRef) -> bool {
        self.shards[lease.shard as usize].fence > lease.fence && !self.is_gone(lease.shard)
    }

    /// Counts an operation that reaches the store under a stale fence once; of a batch of renewals,
    /// each stale lease.
    pub(super) fn count_stale(&mut self, op: &Op) {
        if op.stale.get() || !op.verb.is_leased() {
            return;
        }
        let batch = op.batch.borrow();
        let leases = op.lease.into_iter().chain(batch.iter().map(|member| member.lease));
        let count = leases.filter(|lease| self.is_stale(*lease)).count() as u64;
        op.stale.set(count > 0);
        match self.is_suspended(Rule::StaleFence) {
            true => self.stale.operations_unjudged += count,
            false => self.stale.operations += count,
        }
    }

    pub(super) fn is_gone(&self, shard: u32) -> bool {
        self.runs[self.shards[shard as usize].run as usize].deleted
    }

    /// Returns the deadline of `lease`; zero if it is not the last grant.
    pub(super) fn good_until(&self, lease: LeaseRef) -> u64 {
        let holder = self.shards[lease.shard as usize].holder;
        holder.filter(|holder| holder.grant == lease.grant).map_or(0, |holder| holder.deadline)
    }

    pub(super) fn recall(&self, log: Log, op_id: OpId) -> Option<Remembered> {
        self.history.get(&(log, op_id)).copied()
    }

    /// Returns whether `entry` is among the last `capacity` operations of its log.
    pub(super) fn is_fresh(&self, log: Log, entry: Remembered, capacity: usize) -> bool {
        let (logged, forgotten) = match log {
            Log::Shard(shard) => {
                let shard = &self.shards[shard as usize];
                (shard.logged, shard.forgotten)
            }
            Log::Run(run) => (self.runs[run as usize].logged, 0),
        };
        entry.place >= forgotten && (logged - entry.place) as usize <= capacity
    }

    /// Records an operation that took effect. A logged operation must not take effect twice.
    pub(super) fn remember(
        &mut self,
        log: Log,
        op: &Op,
        answer: u64,
        capacity: usize,
    ) -> Result<(), Violation> {
        if let Some(known) =
            self.recall(log, op.op_id).filter(|it| self.is_fresh(log, *it, capacity))
        {
            let same = known.payload == op.payload;
            let (rule, why) = match same {
                true => (Rule::Replay, "an operation took effect twice"),
                false => (Rule::OpIdReused, "an operation id was used for two operations"),
            };
            self.require(false, rule, why)?;
        }
        let logged = match log {
            Log::Shard(shard) => &mut self.shards[shard as usize].logged,
            Log::Run(run) => &mut self.runs[run as usize].logged,
        };
        let (payload, place, commit) = (op.payload, *logged, self.commits);
        *logged += 1;
        self.history.insert((log, op.op_id), Remembered { payload, answer, place, commit });
        Ok(())
    }
}
