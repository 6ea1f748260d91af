//! What commands of a script work on: a coordinator, a clock, and things that have names.

use std::collections::BTreeMap;

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::{AcquireScratch, Lease, StateTransitionEvent};

use super::ScriptBackend;
use super::answer::{Answer, plain};
use super::arguments::{Arguments, Range, number};
use super::stage::Performed;

/// Operations without a number get one from here on, far from those that scripts write.
const FRESH_OP_FIRST: u64 = 1_000_000;

/// Everything that one script has.
pub(super) struct World<B: ScriptBackend> {
    coordinator: B::Coordinator,
    pub(super) said: Said,
    scratch: Box<AcquireScratch>,
    /// Events of the command under way.
    events: Vec<StateTransitionEvent>,
}

/// What a script has said so far and later commands refer to.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// What `now=` said last; never zero, which no clock reports.
    pub(super) clock: LogicalTime,
    /// Grants by the names that `as=` gave them. A later grant takes the name over.
    pub(super) leases: BTreeMap<String, Held>,
    /// Names of shards that were cut from others.
    pub(super) names: BTreeMap<ShardId, String>,
    /// The last number that was given to an operation without one.
    pub(super) last_op: u64,
}

impl Default for Said {
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
    /// As it was then, so that a retried split names the range it named before.
    pub(super) range: Range,
}

impl<B: ScriptBackend> World<B> {
    /// A script that begins with `coordinator`.
    pub(super) fn new(coordinator: B::Coordinator) -> Self {
        let scratch = Box::new(AcquireScratch::new());
        Self { coordinator, said: Said::default(), scratch, events: Vec::new() }
    }

    /// Runs one command and tells what came of it.
    pub(super) fn perform(&mut self, line: &str) -> Result<Performed, String> {
        let mut arguments = Arguments::parse(line)?;
        if let Some(now) = arguments.number("now")? {
            self.said.clock = LogicalTime::from_raw(now);
        }
        let answer = self.command(&mut arguments)?;
        arguments.finish()?;
        let events = std::mem::take(&mut self.events);
        let shown = |event: &StateTransitionEvent| self.named(&plain(&format!("{:?}", event.kind)));
        Ok(Performed {
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
            None => Err(format!("there is no command `{}`", arguments.command)),
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

    /// For commands about which nothing is told.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// `tenant=`, or the first one.
    pub(super) fn tenant(arguments: &mut Arguments) -> Result<TenantId, String> {
        arguments.number("tenant")?.map_or_else(|| tenant(1), tenant)
    }

    /// `run=`, or the first one.
    pub(super) fn run(arguments: &mut Arguments) -> Result<RunId, String> {
        Ok(RunId::from_raw(arguments.number("run")?.unwrap_or(1)))
    }

    pub(super) fn worker(arguments: &mut Arguments) -> Result<WorkerId, String> {
        arguments.need_number("worker").map(WorkerId::from_raw)
    }

    /// `op=`, or a fresh number.
    pub(super) fn op(&mut self, arguments: &mut Arguments) -> Result<OpId, String> {
        if let Some(op) = arguments.number("op")? {
            return Ok(OpId::from_raw(op));
        }
        self.said.last_op += 1;
        Ok(OpId::from_raw(self.said.last_op))
    }

    /// `shard=` in `run=`.
    pub(super) fn shard(&self, arguments: &mut Arguments) -> Result<ShardKey, String> {
        let shard = self.shard_called(&arguments.need("shard")?)?;
        Ok(ShardKey::new(Self::run(arguments)?, shard))
    }

    /// A shard by its number, or by its name if it was cut from another.
    pub(super) fn shard_called(&self, name: &str) -> Result<ShardId, String> {
        match self.said.names.iter().find(|(_, known)| *known == name) {
            Some((shard, _)) => Ok(*shard),
            None => number(name).map(ShardId::from_raw),
        }
    }

    /// Gives names to shards cut from `parent`, unless they have names already.
    pub(super) fn christen(&mut self, parent: ShardId, children: &[ShardId]) {
        let prefix = format!("{}.", self.name(parent));
        for child in children {
            let born = self.said.names.values().filter(|name| name.starts_with(&prefix)).count();
            self.said.names.entry(*child).or_insert_with(|| format!("{prefix}{born}"));
        }
    }

    pub(super) fn name(&self, shard: ShardId) -> String {
        self.said.names.get(&shard).cloned().unwrap_or_else(|| shard.to_string())
    }

    /// `text` with derived shards called by their names.
    fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // Numbers of derived shards have bit 63 set: nothing else in an answer is as long.
        for (shard, name) in &self.said.names {
            text = text.replace(&shard.to_string(), name);
        }
        text
    }

    /// Keeps a grant under the name that `as=` gives, if any.
    pub(super) fn keep(&mut self, arguments: &mut Arguments, held: Held) {
        if let Some(name) = arguments.take("as") {
            self.said.leases.insert(name, held);
        }
    }

    /// The lease called `name`.
    pub(super) fn held(&self, name: &str) -> Result<Held, String> {
        self.said.leases.get(name).cloned().ok_or_else(|| format!("there is no lease `{name}`"))
    }

    /// The lease that `lease=` names, forged as the other arguments say.
    pub(super) fn presented(&self, arguments: &mut Arguments) -> Result<Held, String> {
        let Held { lease, range } = self.held(&arguments.need("lease")?)?;
        let owner = arguments.number("owner")?.map(WorkerId::from_raw);
        let fence = arguments.number("fence")?.map(FenceEpoch::from_raw);
        let owned_by = arguments.number("lease_tenant")?.map(tenant).transpose()?;
        let shard = arguments.number("lease_shard")?.map(ShardId::from_raw);
        let lease = Lease::new(
            owned_by.unwrap_or_else(|| lease.tenant()),
            ShardKey::new(lease.run(), shard.unwrap_or_else(|| lease.shard())),
            owner.unwrap_or_else(|| lease.owner()),
            fence.unwrap_or_else(|| lease.fence()),
            lease.deadline(),
            lease.token(),
        );
        Ok(Held { lease, range })
    }
}

/// Tenants of scripts differ in every byte.
fn tenant(number: u64) -> Result<TenantId, String> {
    let byte = u8::try_from(number).map_err(|_| "tenants are small numbers".to_owned())?;
    Ok(TenantId::from_bytes([byte; 32]))
}
