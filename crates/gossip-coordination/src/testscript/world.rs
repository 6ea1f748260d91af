//! One script being played: its coordinator, its clock and the things it gave names to.

use std::collections::BTreeMap;

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};

use super::answer::{Answer, plain};
use super::arguments::{Arguments, Range, count, number};
use super::coverage::{Cell, FileCoverage, Order, Watch};
use super::script::{ScriptError, blocks};
use super::{ScriptBackend, WorldSettings};
use crate::events::StateTransitionEvent;
use crate::lease::Lease;
use crate::scratch::AcquireScratch;

/// Operations without a number get one from here on, far from those that scripts write.
const FRESH_OP_FIRST: u64 = 1_000_000;

/// The command that sets limits, if a script begins with it.
const WORLD: &str = "world";

/// What became of a script.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a script is played to its end or not at all")]
pub enum Played {
    /// The backend cannot have the settings that the script asks for.
    Skipped,
    /// It was played.
    Done {
        /// The script with the output that really came.
        text: String,
        /// What it covers; the name is for the caller to fill in.
        coverage: FileCoverage,
    },
}

/// Plays a script.
///
/// # Errors
///
/// [`ScriptError`] if the script cannot be understood or does not show an order that it announces.
/// A wrong answer is no error: it stands in the text.
pub fn play<B: ScriptBackend>(backend: &mut B, text: &str) -> Result<Played, ScriptError> {
    let mut world = World::<B>::new();
    let mut written = String::new();
    let mut line_count = 0;
    for block in blocks(text)? {
        let mut output = Vec::new();
        for (line, instruction) in block.instructions() {
            line_count = line;
            let done = world.instruct(backend, instruction, &mut output);
            match done.map_err(|message| ScriptError { line, message })? {
                Progress::Skipped => return Ok(Played::Skipped),
                Progress::Going => {}
            }
        }
        if !written.is_empty() {
            written.push('\n');
        }
        block.write(&output, &mut written);
    }
    world.close_watch().map_err(|message| ScriptError { line: line_count, message })?;
    Ok(Played::Done { text: written, coverage: world.coverage })
}

/// Whether a script can go on.
enum Progress {
    Going,
    /// The backend has no coordinator for it.
    Skipped,
}

/// Everything that one script has.
pub(super) struct World<B: ScriptBackend> {
    /// Made by the first command, because that one may set limits.
    coordinator: Option<B::Coordinator>,
    /// What `now=` said last; never zero, which no clock reports.
    pub(super) clock: LogicalTime,
    /// Grants by the names that `as=` gave them. A later grant takes the name over.
    leases: BTreeMap<String, Held>,
    /// Names of shards that were cut from others.
    names: BTreeMap<ShardId, String>,
    /// The last number that was given to an operation without one.
    next_op: u64,
    scratch: Box<AcquireScratch>,
    /// Events of the command under way.
    events: Vec<StateTransitionEvent>,
    /// The order that the script is about to show.
    watch: Option<Watch>,
    coverage: FileCoverage,
}

/// A lease with the range it was granted for.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) lease: Lease,
    /// As it was then, so that a retried split names the range it named before.
    pub(super) range: Range,
}

impl<B: ScriptBackend> World<B> {
    fn new() -> Self {
        Self {
            coordinator: None,
            clock: LogicalTime::from_raw(1),
            leases: BTreeMap::new(),
            names: BTreeMap::new(),
            next_op: FRESH_OP_FIRST,
            scratch: Box::new(AcquireScratch::new()),
            events: Vec::new(),
            watch: None,
            coverage: FileCoverage::default(),
        }
    }

    /// Does what one line says and adds its output.
    fn instruct(
        &mut self,
        backend: &mut B,
        line: &str,
        output: &mut Vec<String>,
    ) -> Result<Progress, String> {
        if let Some(order) = line.strip_prefix("order ") {
            self.close_watch()?;
            self.watch = Some(Watch::new(Order::parse(order)?));
            return Ok(Progress::Going);
        }
        if self.coordinator.is_none() {
            self.coordinator = backend.start(settings(line)?);
            if self.coordinator.is_none() {
                return Ok(Progress::Skipped);
            }
        }
        if line.split_whitespace().next() == Some(WORLD) {
            output.push("ok".to_owned());
            return Ok(Progress::Going);
        }
        match line.strip_prefix("repeat ") {
            Some(rest) => output.extend(self.repeat(rest)?),
            None => output.extend(self.perform(line)?),
        }
        Ok(Progress::Going)
    }

    /// Runs one command and tells what came of it.
    fn perform(&mut self, line: &str) -> Result<Vec<String>, String> {
        let answer = self.answer(line)?;
        let mut lines = vec![self.named(&answer.text)];
        let events = std::mem::take(&mut self.events);
        lines.extend(events.iter().map(|event| {
            let kind = plain(&format!("{:?}", event.kind));
            format!("event {}", self.named(&kind))
        }));
        Ok(lines)
    }

    /// Runs a command for every number of a range and counts the answers.
    fn repeat(&mut self, rest: &str) -> Result<Vec<String>, String> {
        const USAGE: &str = "`repeat` reads `repeat 01..16 COMMAND`";
        let (range, command) = rest.split_once(' ').ok_or(USAGE)?;
        let (first, last) = range.split_once("..").ok_or(USAGE)?;
        let (width, first, last) = (first.len(), number(first)?, number(last)?);
        let mut answers: Vec<(String, usize)> = Vec::new();
        for step in 0..=first.abs_diff(last) {
            let number = if first < last { first + step } else { first - step };
            let next = format!("{:0width$}", number + 1);
            let command = command.replace("$+", &next);
            let label = self.answer(&command.replace('$', &format!("{number:0width$}")))?.label;
            self.events.clear();
            match answers.last_mut() {
                Some((known, times)) if *known == label => *times += 1,
                _ => answers.push((label, 1)),
            }
        }
        Ok(answers.into_iter().map(|(label, times)| format!("{times} times {label}")).collect())
    }

    /// Runs one command and remembers what it covers.
    fn answer(&mut self, line: &str) -> Result<Answer, String> {
        let whole = Arguments::parse(line)?;
        let mut arguments = whole.clone();
        if let Some(now) = arguments.number("now")? {
            self.clock = LogicalTime::from_raw(now);
        }
        let mut answer = self.command(&mut arguments)?;
        arguments.finish()?;
        // A refusal that changed something is a rule of its own.
        if answer.text.starts_with("refused") && !self.events.is_empty() {
            answer.label.push_str(".committed");
        }
        self.record(&whole, &answer);
        Ok(answer)
    }

    fn record(&mut self, arguments: &Arguments, answer: &Answer) {
        // What only prepares or looks is no operation of the protocol.
        if arguments.command != "given" && arguments.command != "show" {
            let (operation, answer) = (arguments.command.clone(), answer.label.clone());
            self.coverage.cells.insert(Cell { operation, answer });
        }
        if let Some(watch) = &mut self.watch {
            watch.note(arguments, &answer.label);
        }
    }

    /// Ends the part of the script that shows an order.
    fn close_watch(&mut self) -> Result<(), String> {
        if let Some(watch) = self.watch.take() {
            self.coverage.orders.insert(watch.close()?);
        }
        Ok(())
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
        let coordinator = self.coordinator.as_mut().expect("a command comes after the start");
        let scratch = &mut self.scratch;
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
        self.next_op += 1;
        Ok(OpId::from_raw(self.next_op))
    }

    /// `shard=` in `run=`.
    pub(super) fn shard(&self, arguments: &mut Arguments) -> Result<ShardKey, String> {
        let shard = self.shard_called(&arguments.need("shard")?)?;
        Ok(ShardKey::new(Self::run(arguments)?, shard))
    }

    /// A shard by its number, or by its name if it was cut from another.
    pub(super) fn shard_called(&self, name: &str) -> Result<ShardId, String> {
        match self.names.iter().find(|(_, known)| *known == name) {
            Some((shard, _)) => Ok(*shard),
            None => number(name).map(ShardId::from_raw),
        }
    }

    /// Gives names to shards cut from `parent`, unless they have names already.
    pub(super) fn christen(&mut self, parent: ShardId, children: &[ShardId]) {
        let prefix = format!("{}.", self.name(parent));
        for child in children {
            let born = self.names.values().filter(|name| name.starts_with(&prefix)).count();
            self.names.entry(*child).or_insert_with(|| format!("{prefix}{born}"));
        }
    }

    pub(super) fn name(&self, shard: ShardId) -> String {
        self.names.get(&shard).cloned().unwrap_or_else(|| shard.to_string())
    }

    /// `text` with derived shards called by their names.
    fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // Numbers of derived shards have bit 63 set: nothing else in an answer is as long.
        for (shard, name) in &self.names {
            text = text.replace(&shard.to_string(), name);
        }
        text
    }

    /// Keeps a grant under the name that `as=` gives, if any.
    pub(super) fn keep(&mut self, arguments: &mut Arguments, held: Held) {
        if let Some(name) = arguments.take("as") {
            self.leases.insert(name, held);
        }
    }

    /// The lease called `name`.
    pub(super) fn held(&self, name: &str) -> Result<Held, String> {
        self.leases.get(name).cloned().ok_or_else(|| format!("there is no lease `{name}`"))
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

/// The settings of a script: those of `world`, if it begins so.
fn settings(line: &str) -> Result<WorldSettings, String> {
    if line.split_whitespace().next() != Some(WORLD) {
        return Ok(WorldSettings::default());
    }
    let mut arguments = Arguments::parse(line)?;
    let mut size = |name| arguments.take(name).map(|value| count(&value)).transpose();
    let settings = WorldSettings {
        max_shards_per_tenant: size("tenant_max")?,
        max_total_shards: size("total_max")?,
        slab_bytes: size("slab")?,
        claim_cooldown: arguments.number("cooldown")?,
    };
    arguments.finish()?;
    Ok(settings)
}

/// Tenants of scripts differ in every byte.
fn tenant(number: u64) -> Result<TenantId, String> {
    let byte = u8::try_from(number).map_err(|_| "tenants are small numbers".to_owned())?;
    Ok(TenantId::from_bytes([byte; 32]))
}
