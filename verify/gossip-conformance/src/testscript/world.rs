//! The state that the commands of a script work on: coordinator, clock, and named leases and
//! shards.

use std::collections::BTreeMap;

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::{AcquireScratch, Lease, OpSequence, StateTransitionEvent};

use super::ScriptBackend;
use super::answer::{Answer, plain};
use super::arguments::{Arguments, Range, number};
use super::executor::CommandOutput;

/// First operation id for commands without `op=`, far above those that scripts use.
const FRESH_OP_FIRST: u64 = 1_000_000;

/// State of one running script.
pub(super) struct World<B: ScriptBackend> {
    coordinator: B::Coordinator,
    pub(super) state: ScriptState,
    scratch: Box<AcquireScratch>,
    /// Events of the current command.
    events: Vec<StateTransitionEvent>,
}

/// The part of the state that later commands refer to.
#[derive(Clone, Debug)]
pub(super) struct ScriptState {
    /// The last `now=`; never zero, which no clock reports.
    pub(super) clock: LogicalTime,
    /// Leases by their `as=` names. A later grant replaces an earlier one.
    pub(super) leases: BTreeMap<String, Held>,
    /// Names of shards created by splits.
    pub(super) names: BTreeMap<ShardId, String>,
    /// The last operation id assigned to a command without `op=`.
    pub(super) last_op: u64,
}

impl Default for ScriptState {
    fn default() -> Self {
        Self {
            clock: LogicalTime::from_raw(1),
            leases: BTreeMap::new(),
            names: BTreeMap::new(),
            last_op: FRESH_OP_FIRST,
        }
    }
}

/// A lease with the range it was granted for.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) lease: Lease,
    /// The range at the time of the grant, so that a retried split uses the same range.
    pub(super) range: Range,
}

impl<B: ScriptBackend> World<B> {
    /// Creates the state of a script that starts with `coordinator`.
    pub(super) fn new(coordinator: B::Coordinator) -> Self {
        let scratch = Box::new(AcquireScratch::new());
        Self { coordinator, state: ScriptState::default(), scratch, events: Vec::new() }
    }

    /// Runs one command and returns its output.
    pub(super) fn execute(&mut self, line: &str) -> Result<CommandOutput, String> {
        let mut arguments = Arguments::parse(line)?;
        if let Some(now) = arguments.number("now")? {
            self.state.clock = LogicalTime::from_raw(now);
        }
        let answer = self.command(&mut arguments)?;
        arguments.finish()?;
        let events = std::mem::take(&mut self.events);
        let shown = |event: &StateTransitionEvent| self.named(&plain(&format!("{:?}", event.kind)));
        Ok(CommandOutput {
            label: answer.label,
            text: self.named(&answer.text),
            events: events.iter().map(shown).collect(),
        })
    }

    fn command(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        if let Some(answer) = self.shard_command(arguments)? {
            return Ok(answer);
        }
        if let Some(answer) = self.run_command(arguments)? {
            return Ok(answer);
        }
        match self.show_command(arguments)? {
            Some(answer) => Ok(answer),
            None => Err(format!("unknown command `{}`", arguments.command)),
        }
    }

    /// Runs `call` on the coordinator and keeps its events for the output.
    pub(super) fn observe<R>(
        &mut self,
        call: impl FnOnce(&mut B::Coordinator, &mut AcquireScratch) -> R,
    ) -> R {
        let (coordinator, scratch) = (&mut self.coordinator, &mut self.scratch);
        let (result, events) = B::observe(coordinator, |coordinator| call(coordinator, scratch));
        self.events.extend(events);
        result
    }

    /// Discards the events of a command that prints none.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// Returns `tenant=`, or the first tenant.
    pub(super) fn tenant(arguments: &mut Arguments) -> Result<TenantId, String> {
        arguments.number("tenant")?.map_or_else(|| tenant(1), tenant)
    }

    /// Returns `run=`, or the first run.
    pub(super) fn run(arguments: &mut Arguments) -> Result<RunId, String> {
        Ok(RunId::from_raw(arguments.number("run")?.unwrap_or(1)))
    }

    pub(super) fn worker(arguments: &mut Arguments) -> Result<WorkerId, String> {
        arguments.need_number("worker").map(WorkerId::from_raw)
    }

    /// Returns `op=`, or a fresh operation id.
    pub(super) fn op(&mut self, arguments: &mut Arguments) -> Result<OpId, String> {
        if let Some(op) = arguments.number("op")? {
            return Ok(OpId::from_raw(op));
        }
        self.state.last_op += 1;
        Ok(OpId::from_raw(self.state.last_op))
    }

    /// Returns the key of `shard=` in `run=`.
    pub(super) fn shard(&self, arguments: &mut Arguments) -> Result<ShardKey, String> {
        let shard = self.shard_called(&arguments.need("shard")?)?;
        Ok(ShardKey::new(Self::run(arguments)?, shard))
    }

    /// Returns a shard by its id, or by its name if a split created it.
    pub(super) fn shard_called(&self, name: &str) -> Result<ShardId, String> {
        match self.state.names.iter().find(|(_, known)| *known == name) {
            Some((shard, _)) => Ok(*shard),
            None => number(name).map(ShardId::from_raw),
        }
    }

    /// Names the children of `parent`, except those that have names already.
    pub(super) fn name_children(&mut self, parent: ShardId, children: &[ShardId]) {
        let prefix = format!("{}.", self.name(parent));
        for child in children {
            let born = self.state.names.values().filter(|name| name.starts_with(&prefix)).count();
            self.state.names.entry(*child).or_insert_with(|| format!("{prefix}{born}"));
        }
    }

    pub(super) fn name(&self, shard: ShardId) -> String {
        self.state.names.get(&shard).cloned().unwrap_or_else(|| shard.to_string())
    }

    /// Replaces the ids of derived shards in `text` by their names.
    fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // Ids of derived shards have bit 63 set: no other number in an answer is as long.
        for (shard, name) in &self.state.names {
            text = text.replace(&shard.to_string(), name);
        }
        text
    }

    /// Stores a lease under its `as=` name, if any.
    pub(super) fn keep(&mut self, arguments: &mut Arguments, held: Held) {
        if let Some(name) = arguments.take("as") {
            self.state.leases.insert(name, held);
        }
    }

    /// Returns the lease called `name`.
    pub(super) fn held(&self, name: &str) -> Result<Held, String> {
        self.state.leases.get(name).cloned().ok_or_else(|| format!("there is no lease `{name}`"))
    }

    /// Returns the lease that `lease=` names, changed by the forging arguments.
    pub(super) fn presented(&self, arguments: &mut Arguments) -> Result<Held, String> {
        let Held { lease, range } = self.held(&arguments.need("lease")?)?;
        let owner = arguments.number("owner")?.map(WorkerId::from_raw);
        let fence = arguments.number("fence")?.map(FenceEpoch::from_raw);
        let owned_by = arguments.number("lease_tenant")?.map(tenant).transpose()?;
        let shard = arguments.number("lease_shard")?.map(ShardId::from_raw);
        let sequence = OpSequence::try_from_raw(arguments.number("seq")?.unwrap_or(0));
        let mut lease = Lease::new(
            owned_by.unwrap_or_else(|| lease.tenant()),
            ShardKey::new(lease.run(), shard.unwrap_or_else(|| lease.shard())),
            owner.unwrap_or_else(|| lease.owner()),
            fence.unwrap_or_else(|| lease.fence()),
            lease.deadline(),
            lease.token(),
        );
        lease.set_sequence(sequence.ok_or("seq= is at most 2^48 - 1")?);
        Ok(Held { lease, range })
    }
}

/// Returns the id of a tenant; tenants differ in every byte.
fn tenant(number: u64) -> Result<TenantId, String> {
    let byte = u8::try_from(number).map_err(|_| "a tenant number is at most 255".to_owned())?;
    Ok(TenantId::from_bytes([byte; 32]))
}
