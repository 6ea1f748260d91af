//! The oracle of effects: what each worker was allowed to do, whatever the records say.
//!
//! It hears every command, the instant at which a commit of it took effect, and what its caller was
//! told in the end, and keeps its own history of that: who was granted what, until when, which
//! ranges there are, how far each has come. A grant is known by its place in the order of commits
//! and not by a fence that somebody read somewhere, so mutual exclusion is stated over accepted
//! effects and can fail. Of a transaction it looks at the keys, and at the ranges of newborn shards
//! to learn their names; it never learns from a record who may do what.
//!
//! # Rules
//!
//! The names are those of [`Rule`], which the model checker and the specification in TLA+ share:
//!
//! | rule | what |
//! |---|---|
//! | StaleFence | no effect is accepted from anybody but the last grant |
//! | Expired | no effect is accepted at or after the deadline, by the clock that was presented |
//! | TwoOwners | no shard is granted while another's lease is live, but by its own offer |
//! | Handoff | an offer is accepted by its destination, in time, while it stands |
//! | FrozenSource | while an offer stands, its source does nothing but renew and withdraw |
//! | MoveRedoesNothing | a planned move redoes no key |
//! | Replay | what happened is answered again as before, and not done again |
//! | OpIdReused | a retry with other parameters is refused |
//! | LostKey | every key at or below a cursor was handed to a worker whose write was accepted |
//! | DoneUncovered | the whole range of a shard that is done was covered |
//! | SinkOrder | the writes accepted for a key carry fences that never fall; one fence, one writer |
//! | Tiling | the ranges of the leaves tile the roots, at every instant |
//! | Limit | there are never more shards than there may be |
//! | FenceFell | a fence never falls, and rises with every grant, unpark and revocation |
//! | ProgressFell | progress never falls |
//! | Acknowledged | what was acknowledged happened, and is there for whoever comes next |
//! | RefusedHappened | what was refused did not happen, and does not happen later |
//! | Unfounded | the reason that a refusal tells was true |
//! | OwnerShutOut | the holder of a live lease is not refused for want of one |
//! | FreeShardWithheld | a free shard of an active run is handed out to whoever asks |
//! | Attempts | attempts are counted, and parking follows from the count |
//! | RunOver | a run that is over or paused starts and grows nothing, and ends once |
//! | RunUnsettled | a run completes only when its shards have ended |
//! | RunReborn | a deleted run never comes back |
//! | Tenants | a tenant's answers do not depend on the other tenant |
//! | Undetected | damaged bytes are told as corruption, and nothing is decided about them |
//! | NeverFinishes | after faults stop everything finishes, within a bound |
//! | Panicked | the kernel, the codec and the store layer do not panic |

use std::rc::Rc;

use foldhash::fast::FixedState;
use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{OpId, RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::{ParkReason, PendingRequest, RunConfig, RunStatus, ShardStatus};
use hashbrown::HashMap;

use super::keyspace::Keyspace;
use super::op::{LeaseRef, Op, Terms};
use super::queries::Registry;
use super::sink::Sink;
pub use crate::model::{Rule, Violation};

/// Who holds a shard, by the order of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) grant: u32,
    pub(super) worker: u64,
    /// Only grows.
    pub(super) deadline: u64,
}

/// What the oracle knows of a shard.
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
    pub(super) offer: Option<Terms>,
    /// Operations with an id that took effect.
    pub(super) logged: u32,
    /// The planned moves that were withdrawn.
    pub(super) withdrawn: Vec<u64>,
    /// What its owner is asked for and has not done.
    pub(super) request: Option<PendingRequest>,
    /// Every request that was stored, in their order; only the last one may stand.
    pub(super) asked: Vec<Asked>,
    /// Why it is parked; nothing if that is not known, or it is not.
    pub(super) reason: Option<ParkReason>,
    /// How often it was granted.
    pub(super) granted: u32,
    /// The planned move that raised its fence last, if one did.
    pub(super) moved_by: Option<u64>,
    /// How many commits there were with the last renewal.
    pub(super) renewed_at: u64,
    /// The shard that it was cut from, and those that were cut from it.
    pub(super) parent: Option<ShardId>,
    pub(super) spawned: Vec<ShardId>,
    /// Whether a guest had a hand in it: then its token and its metadata are not known.
    pub(super) foreign: bool,
    /// Whether it was taken away with its run.
    pub(super) swept: bool,
    /// When anything of it last changed, in commits.
    pub(super) changed_at: u64,
}

/// A request that was stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) op_id: OpId,
    pub(super) payload: u64,
    /// When it was stored, in commits.
    pub(super) stored_at: u64,
    /// When it ended; absent while it stands.
    pub(super) ended_at: Option<u64>,
}

/// What the oracle knows of a run.
#[derive(Clone, Debug)]
pub(super) struct RunFacts {
    pub(super) tenant: u32,
    pub(super) id: RunId,
    /// Absent until the run is made.
    pub(super) status: Option<RunStatus>,
    pub(super) deleted: bool,
    pub(super) paused: bool,
    pub(super) lease: u64,
    pub(super) retries: Option<u32>,
    /// What the cursors of its shards mean; a label that the product only carries.
    pub(super) semantics: CursorSemantics,
    pub(super) key_count: u32,
    /// Where its roots begin; the first is zero.
    pub(super) cuts: Vec<u32>,
    pub(super) roots_born: u32,
    /// From which root to which each chunk of its registration goes; nothing once it was taken
    /// away.
    pub(super) chunks: Vec<Option<(u32, u32)>>,
    /// The operation that deleted it.
    pub(super) deleted_by: Option<OpId>,
    /// Shards that are active or parked.
    pub(super) unsettled: u32,
    pub(super) logged: u32,
    /// Its shards, in the order of their making.
    pub(super) shards: Vec<u32>,
    /// When anything of the run itself last changed, in commits.
    pub(super) changed_at: u64,
    /// When anything of one of its shards last changed, in commits.
    pub(super) touched_at: u64,
}

impl RunFacts {
    /// Whether all of its roots are there. Before that none of them is shown to anybody.
    pub(super) const fn is_whole(&self) -> bool {
        self.roots_born as usize > self.cuts.len()
    }

    /// Roots for which the run has reserved room and that were never made. The first chunk of a
    /// registration reserves for all, and the deletion of the run gives back what is left of that.
    pub(super) fn reserved(&self) -> u64 {
        let begun = self.roots_born > 0 && !self.deleted;
        let roots = self.cuts.len() as u64 + 1;
        if begun { roots.saturating_sub(self.roots_born.into()) } else { 0 }
    }

    /// Whether its shards may be taken away: it is deleted, or was given up before anybody could
    /// find them.
    pub(super) fn may_be_swept(&self) -> bool {
        self.deleted || self.status == Some(RunStatus::Cancelled) && !self.is_whole()
    }

    /// Whether names of its roots are left. They are taken away last, so they tell that a sweep is
    /// not over.
    pub(super) fn is_named(&self) -> bool {
        self.chunks.iter().any(Option::is_some)
    }

    /// Whether these are the settings that it was to be made with.
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
    /// Its place among the operations of its shard or run.
    pub(super) place: u32,
    /// Its place among all commits.
    pub(super) commit: u64,
}

/// Whose log an operation stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Log {
    Shard(u32),
    Run(u32),
}

/// How many shards a tenant may have.
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
    pub(super) stale: StaleTally,
    pub(super) live_shards: Vec<u32>,
    pub(super) limits: Limits,
    pub(super) grants: u32,
    /// For each grant, the first key whose result its worker does not know to be taken.
    pub(super) worked: Vec<u32>,
    /// The runs and the shards of each tenant, in the order of their making.
    pub(super) runs_of: Vec<Vec<u32>>,
    pub(super) shards_of: Vec<Vec<u32>>,
    /// The workers of each tenant.
    pub(super) registries: Vec<Registry>,
    /// When the shards that are counted last became fewer, in commits.
    pub(super) shrunk_at: u64,
    /// Rules that are suspended since a fault broke what they rest on, a bit for each.
    suspended: u64,
    shard_index: HashMap<(TenantId, ShardKey), u32, FixedState>,
    history: HashMap<(Log, OpId), Remembered, FixedState>,
}

/// Writes under fences that are not the last.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaleTally {
    /// Operations that were sent under a fence below the shard's, with no rule about them
    /// suspended.
    pub operations: u64,
    /// The same after a fault had suspended the rule; what becomes of them shows nothing.
    pub operations_unjudged: u64,
    /// Of those, how many took effect although the store kept its promises.
    pub operations_accepted: u64,
    /// How many took effect because the store had forgotten the newer grant.
    pub operations_excused: u64,
    /// Keys that reached the sink after a later grant had written them. It is the simulated sink
    /// that decides about them, so they show that fences are in the order of the grants and no
    /// more.
    pub keys: u64,
    /// Of those, how many were accepted while no rule about them was suspended.
    pub keys_accepted: u64,
    /// Keys from such leases that nobody newer had written yet; whoever follows writes them again.
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
            stale: StaleTally::default(),
            live_shards: vec![0; tenants as usize],
            limits,
            grants: 0,
            worked: vec![0],
            runs_of: vec![Vec::new(); tenants as usize],
            shards_of: vec![Vec::new(); tenants as usize],
            registries: (0..tenants).map(|_| Registry::default()).collect(),
            shrunk_at: 0,
            suspended: 0,
            shard_index: HashMap::default(),
            history: HashMap::default(),
        }
    }

    /// Refuses unless `condition` holds, or a fault that happened excuses it.
    #[inline]
    pub(super) fn require(&self, condition: bool, rule: Rule, why: &str) -> Result<(), Violation> {
        if condition || self.is_suspended(rule) {
            return Ok(());
        }
        Err(Violation { rule, why: why.to_owned() })
    }

    /// From now on nobody is held to `rules`: a fault has broken what they rest on.
    pub(super) fn suspend(&mut self, rules: &[Rule]) {
        for rule in rules {
            self.suspended |= 1 << *rule as u32;
        }
    }

    pub(super) const fn is_suspended(&self, rule: Rule) -> bool {
        self.suspended >> rule as u32 & 1 == 1
    }

    /// Whether any rule is suspended.
    pub(super) const fn excuses(&self) -> bool {
        self.suspended != 0
    }

    /// A run that somebody is about to make. Answers its number.
    pub(super) fn expect_run(&mut self, run: RunFacts) -> u32 {
        let number = u32::try_from(self.runs.len()).expect("a world has few runs");
        self.sink.add_run(run.key_count);
        self.runs_of[run.tenant as usize].push(number);
        self.runs.push(run);
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
        let number = u32::try_from(self.shards.len()).expect("a world has few shards");
        self.shard_index.insert((tenant, facts.key), number);
        let run = &mut self.runs[facts.run as usize];
        run.shards.push(number);
        self.shards_of[run.tenant as usize].push(number);
        self.shards.push(facts);
    }

    pub(super) fn is_held_by(&self, lease: LeaseRef) -> bool {
        let holder = self.shards[lease.shard as usize].holder;
        holder.is_some_and(|holder| holder.grant == lease.grant)
    }

    /// Whether the shard was granted, revoked or unparked since `lease` was granted, by the
    /// oracle's own count. A shard that is deleted has no fence to be behind of.
    fn is_stale(&self, lease: LeaseRef) -> bool {
        self.shards[lease.shard as usize].fence > lease.fence && !self.is_gone(lease.shard)
    }

    /// Counts an operation that reaches the store under an old fence, once; of a batch of renewals
    /// each one that does.
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

    /// Until when `lease` is good; zero if it is not the last grant.
    pub(super) fn good_until(&self, lease: LeaseRef) -> u64 {
        let holder = self.shards[lease.shard as usize].holder;
        holder.filter(|holder| holder.grant == lease.grant).map_or(0, |holder| holder.deadline)
    }

    pub(super) fn recall(&self, log: Log, op_id: OpId) -> Option<Remembered> {
        self.history.get(&(log, op_id)).copied()
    }

    /// Whether `entry` is still within the last `capacity` operations of its log.
    pub(super) fn is_fresh(&self, log: Log, entry: Remembered, capacity: usize) -> bool {
        let logged = match log {
            Log::Shard(shard) => self.shards[shard as usize].logged,
            Log::Run(run) => self.runs[run as usize].logged,
        };
        (logged - entry.place) as usize <= capacity
    }

    /// Remembers an operation that took effect; nothing is done twice that is still remembered.
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
                true => (Rule::Replay, "an operation was done again"),
                false => (Rule::OpIdReused, "an operation id was used for two things"),
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
