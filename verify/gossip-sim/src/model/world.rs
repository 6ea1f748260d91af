//! Applies a move: calls the kernel, checks the answer with the oracle, and returns the next state.

use foldhash::fast::FixedState;
use gossip_coordination::ShardStatus;
use hashbrown::HashMap;

use super::configurations::Config;
use super::interner::Interner;
use super::kernel::{Kernel, NOTHING, Question, Settings, Step, Verdict};
use super::oracle::{
    Learned, Observed, OracleRun, OracleShard, Rule, Violation, check_command, require,
};
use super::oracle_runs::check_run_command;
use super::state::{Move, RunEntry, ShardEntry, State};
use super::vocabulary::{Act, ClaimBy, Command, LeaseRef, ShardNo, Tick};

/// The transition function of one configuration, with all interned values.
pub(super) struct World {
    pub(super) config: Config,
    pub(super) kernel: Kernel,
    pub(super) shards: Interner<OracleShard>,
    pub(super) runs: Interner<OracleRun>,
    payloads: Interner<Command>,
    observed: HashMap<ObservedKey, NextHistory, FixedState>,
}

/// Oracle's shard and run, command, time, answer.
type ObservedKey = (u32, u32, u32, Tick, u32);

/// The history after an answer, in numbers.
#[derive(Clone, Debug)]
struct NextHistory {
    shard: u32,
    run: u32,
    born: Vec<u32>,
}

impl World {
    pub(super) fn new(config: Config) -> Self {
        let settings = Settings {
            lease: config.lease,
            retries: config.retries,
            manifests: config.manifests,
            shards_max: config.shards_max,
        };
        Self {
            config,
            kernel: Kernel::new(settings),
            shards: Interner::default(),
            runs: Interner::default(),
            payloads: Interner::default(),
            observed: HashMap::default(),
        }
    }

    /// Returns the first state of the search.
    ///
    /// # Errors
    ///
    /// If a rule is broken before the search begins.
    pub(super) fn first(&mut self) -> Result<State, Violation> {
        let unmade = OracleRun::unmade(self.config.keys);
        let run = RunEntry { value: NOTHING, oracle: self.runs.intern(unmade).0 };
        let runs = vec![run; self.config.tenants.into()];
        let mut state = State { now: 1, runs, shards: Vec::new(), held: Vec::new() };
        for command in self.config.setup() {
            let command = self.kernel.commands.intern(command).0;
            let deliver = Move::Deliver { command, at: 1, from: None };
            state = self.apply(&state, deliver)?.expect("every step of a setup changes the state");
        }
        if let Some(held) = state.held.first_mut() {
            held.sent = self.config.on_the_way;
        }
        Ok(state)
    }

    /// Returns the state after `step`; `None` if nothing changes.
    ///
    /// # Errors
    ///
    /// Returns the rule that an answer breaks.
    pub(super) fn apply(&mut self, state: &State, step: Move) -> Result<Option<State>, Violation> {
        match step {
            Move::Tick => Ok(Some(State { now: state.now + 1, ..state.clone() })),
            Move::Send { held, line } => {
                let mut next = state.clone();
                self.send(&mut next, held, line);
                self.tidy(&mut next);
                Ok(Some(next))
            }
            Move::Deliver { command, at, from } => self.deliver(state, command, at, from),
        }
    }

    fn deliver(
        &mut self,
        state: &State,
        number: u32,
        at: Tick,
        from: Option<(u8, u8)>,
    ) -> Result<Option<State>, Violation> {
        let command = *self.kernel.commands.get(number);
        let mut next = match command.shard() {
            Some(shard) => self.deliver_to_shard(state, number, command, shard, at)?,
            None => self.deliver_to_run(state, number, command, at)?,
        };
        if let Some((held, line)) = from {
            let sent = !state.held[usize::from(held)].has_sent(line);
            let thaws = self.thaws(state, held, number, command, at);
            if sent || thaws {
                let changed = next.get_or_insert_with(|| state.clone());
                self.send(changed, held, line);
                let held = &mut changed.held[usize::from(held)];
                held.frozen = if thaws { 0 } else { held.frozen };
            }
        }
        if let Some(next) = &mut next {
            self.tidy(next);
        }
        Ok(next)
    }

    /// Returns whether the sender of an offer learns that it is withdrawn, and may continue.
    fn thaws(&mut self, state: &State, held: u8, number: u32, command: Command, at: Tick) -> bool {
        let frozen = state.held[usize::from(held)].frozen;
        let Command::Held { act: Act::Withdraw { handoff }, lease, .. } = command else {
            return false;
        };
        let answer = self.ask_about_shard(state, number, command, lease.shard, at);
        frozen == handoff && self.kernel.step(answer).verdict != Verdict::Refused
    }

    fn deliver_to_shard(
        &mut self,
        state: &State,
        number: u32,
        command: Command,
        shard: ShardNo,
        at: Tick,
    ) -> Result<Option<State>, Violation> {
        let tenant = command.tenant();
        let answer = self.ask_about_shard(state, number, command, shard, at);
        let Some(place) = state.find(tenant, shard) else {
            let step = self.kernel.step(answer);
            let refused = step.verdict == Verdict::Refused && step.fault.is_none();
            require(refused, Rule::Tenants, "a missing shard was changed")?;
            return Ok(None);
        };
        let entry = state.shards[place];
        let run = state.runs[usize::from(tenant)];
        self.check_move(state, entry, command, answer)?;
        let understood = self.check_answer(entry, run, number, at, answer)?;
        let step = self.kernel.step(answer);
        let record = step.record.unwrap_or(entry.record);
        let changes_nothing = (record, understood.shard) == (entry.record, entry.oracle)
            && understood.run == run.oracle
            && step.born.is_empty();
        if changes_nothing {
            return Ok(None);
        }
        let mut next = state.clone();
        next.shards[place] = ShardEntry { record, oracle: understood.shard, ..entry };
        next.runs[usize::from(tenant)].oracle = understood.run;
        add_newborns(&mut next, tenant, step, &understood.born)?;
        if let (Some(grant), Command::Claim { tenant, shard, worker, .. }) = (step.grant, command) {
            let (fence, from) = (grant.fence, grant.done);
            next.add_lease(LeaseRef { tenant, shard, worker, fence, from });
        }
        Ok(Some(next))
    }

    /// Calls the kernel.
    fn ask_about_shard(
        &mut self,
        state: &State,
        number: u32,
        command: Command,
        shard: ShardNo,
        at: Tick,
    ) -> u32 {
        let tenant = command.tenant();
        let found = state.find(tenant, shard).map(|place| state.shards[place]);
        let makes_shards = matches!(
            command,
            Command::Held { act: Act::Replace { .. } | Act::Residual { .. }, .. }
        );
        let kin = if makes_shards { self.kin(state, tenant) } else { 0 };
        self.kernel.ask(Question {
            command: number,
            now: at,
            record: found.map_or(NOTHING, |it| it.record),
            run: state.runs[usize::from(tenant)].value,
            shard_count: if makes_shards { shard_count(state, tenant) } else { 0 },
            unsettled: (0, 0),
            kin,
        })
    }

    fn kin(&mut self, state: &State, tenant: u8) -> u32 {
        let split_hash = |it: &ShardEntry| self.kernel.facts(it.record).split_hash;
        let kin = state.shards_of(tenant).map(|it| (it.shard, split_hash(it))).collect();
        self.kernel.kin.intern(kin).0
    }

    fn check_answer(
        &mut self,
        entry: ShardEntry,
        run: RunEntry,
        number: u32,
        at: Tick,
        answer: u32,
    ) -> Result<NextHistory, Violation> {
        let key = (entry.oracle, run.oracle, number, at, answer);
        if let Some(known) = self.observed.get(&key) {
            return Ok(known.clone());
        }
        let command = *self.kernel.commands.get(number);
        let payload = self.payloads.intern(command.payload()).0;
        let step = self.kernel.step(answer);
        let outcome = self.kernel.names.get(step.outcome);
        let (retries, lease) = (self.config.retries, self.config.lease);
        let observed = Observed { command, payload, now: at, step, outcome, retries, lease };
        let Learned { shard, run, born } =
            check_command(self.shards.get(entry.oracle), self.runs.get(run.oracle), observed)?;
        let understood = NextHistory {
            shard: self.shards.intern(shard).0,
            run: self.runs.intern(run).0,
            born: born.into_iter().map(|it| self.shards.intern(it).0).collect(),
        };
        self.observed.insert(key, understood.clone());
        Ok(understood)
    }

    /// Checks that an honest source has done nothing that must be redone when its handoff is
    /// accepted.
    fn check_move(
        &self,
        state: &State,
        entry: ShardEntry,
        command: Command,
        answer: u32,
    ) -> Result<(), Violation> {
        let Command::Claim { way: ClaimBy::Accept(_), .. } = command else { return Ok(()) };
        let holder = self.shards.get(entry.oracle).holder;
        let (Some(grant), Some(holder)) = (self.kernel.step(answer).grant, holder) else {
            return Ok(());
        };
        let source = state.held.iter().find(|held| {
            let lease = held.lease;
            (lease.tenant, lease.shard, lease.fence) == (entry.tenant, entry.shard, holder.fence)
        });
        let worked = source.filter(|_| self.config.honest).map_or(0, |held| self.worked(*held));
        let why = "the source had done more keys than the destination was granted";
        require(worked <= grant.done, Rule::MoveRedoesNothing, why)
    }

    fn deliver_to_run(
        &mut self,
        state: &State,
        number: u32,
        command: Command,
        at: Tick,
    ) -> Result<Option<State>, Violation> {
        let tenant = command.tenant();
        let run = state.runs[usize::from(tenant)];
        let answer = self.kernel.ask(Question {
            command: number,
            now: at,
            record: NOTHING,
            run: run.value,
            shard_count: shard_count(state, tenant),
            unsettled: self.unsettled(state, tenant),
            kin: 0,
        });
        let payload = self.payloads.intern(command.payload()).0;
        let step = self.kernel.step(answer);
        let outcome = self.kernel.names.get(step.outcome);
        let (retries, lease) = (self.config.retries, self.config.lease);
        let observed = Observed { command, payload, now: at, step, outcome, retries, lease };
        let left = state.shards_of(tenant).map(|it| self.shards.get(it.oracle).status);
        let left = left.filter(|it| matches!(it, ShardStatus::Active | ShardStatus::Parked));
        let known = self.runs.get(run.oracle);
        let learned = check_run_command(known, left.count(), self.config.manifests, observed)?;
        let value = step.run.unwrap_or(run.value);
        if value == run.value && learned.run == *known {
            return Ok(None);
        }
        let mut next = state.clone();
        let oracle = self.runs.intern(learned.run).0;
        next.runs[usize::from(tenant)] = RunEntry { value, oracle };
        if learned.drops_shards {
            next.shards.retain(|it| it.tenant != tenant);
        }
        let born: Vec<u32> = learned.born.into_iter().map(|it| self.shards.intern(it).0).collect();
        add_newborns(&mut next, tenant, self.kernel.step(answer), &born)?;
        Ok(Some(next))
    }

    /// Returns the numbers of active and parked shards, as a store counts them.
    fn unsettled(&self, state: &State, tenant: u8) -> (u8, u8) {
        let count = |status| {
            let entries = state.shards_of(tenant);
            let same = entries.filter(|it| self.kernel.facts(it.record).status == status);
            u8::try_from(same.count()).expect("a configuration has few shards")
        };
        (count(ShardStatus::Active), count(ShardStatus::Parked))
    }
}

fn shard_count(state: &State, tenant: u8) -> u8 {
    u8::try_from(state.shards_of(tenant).count()).expect("a configuration has few shards")
}

/// Adds new shards: records and their histories correspond by order.
fn add_newborns(
    state: &mut State,
    tenant: u8,
    step: &Step,
    oracles: &[u32],
) -> Result<(), Violation> {
    let whole = step.born.len() == oracles.len();
    require(whole, Rule::Tiling, "a split or a registration lost a shard")?;
    for (born, oracle) in step.born.iter().zip(oracles) {
        let taken = state.find(tenant, born.shard).is_some();
        require(!taken, Rule::Tiling, "a new shard replaced an existing one")?;
        let (shard, record, oracle) = (born.shard, born.record, *oracle);
        state.add_shard(ShardEntry { tenant, shard, record, oracle });
    }
    Ok(())
}
