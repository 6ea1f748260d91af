//! The oracle of effects: what each worker was allowed to do, kept apart from the records.
//!
//! It hears every command and its answer, and keeps its own history: who was granted what, until
//! when, which ranges there are, which keys were handed to a worker whose write was accepted. It
//! never reads a record to learn any of this. Records are held against it afterwards
//! (`check`).
//!
//! # Rules
//! See [`Rule`]; each one can fail, and the tests show histories that break it.

use gossip_coordination::{OP_LOG_CAP, RunStatus, ShardStatus};

use super::kernel::{Granted, Step, Verdict};
use super::vocabulary::{
    Act, AdminAct, Command, Cursor, KeyNo, LeaseRef, Mark, Op, RequestedAction, Tick, Way,
};

/// A law of the protocol, as the oracle names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// No effect is accepted from anybody but the last grant.
    StaleFence,
    /// No effect is accepted at or after the deadline.
    Expired,
    /// No shard is granted while another's lease is live, but by its own offer.
    TwoOwners,
    /// An offer is accepted by its destination, in time, while it stands.
    Handoff,
    /// While an offer stands, its source does nothing but renew and withdraw.
    FrozenSource,
    /// A planned move redoes no key.
    MoveRedoesNothing,
    /// What happened is answered again as before, and not done again.
    Replay,
    /// A retry with other parameters is refused.
    OpIdReused,
    /// Every key at or below a cursor was handed to a worker whose write was accepted.
    LostKey,
    /// The whole range of a shard that is done was covered.
    DoneUncovered,
    /// The writes accepted for a key carry fences that never fall, and one fence has one writer.
    SinkOrder,
    /// The ranges of the leaves tile the roots.
    Tiling,
    /// There are never more shards than there may be.
    Limit,
    /// A fence never falls, and rises with every grant, unpark and revocation.
    FenceFell,
    /// Progress never falls.
    ProgressFell,
    /// What was acknowledged is in the records.
    Acknowledged,
    /// The holder of a live lease is not refused for want of one.
    OwnerShutOut,
    /// A free shard of an active run is handed out to whoever asks.
    FreeShardWithheld,
    /// Attempts are counted, and parking follows from the count.
    Attempts,
    /// A run that is over or paused starts and grows nothing, and ends once.
    RunOver,
    /// A run completes only when its shards have ended.
    RunUnsettled,
    /// A deleted run never comes back.
    RunReborn,
    /// A tenant's answers do not depend on the other tenant.
    Tenants,
    /// What was refused did not happen, and does not happen later. Of the simulator: in the model
    /// a refusal and its decision are one.
    RefusedHappened,
    /// The reason that a refusal tells was true. Of the simulator.
    Unfounded,
    /// Damaged bytes are told as corruption, and nothing is decided about them. Of the simulator.
    Undetected,
    /// After faults stop everything finishes, within a bound. Of the simulator.
    NeverFinishes,
    /// The kernel and the codec do not panic.
    Panicked,
}

/// A law was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// How.
    pub why: String,
}

/// Refuses unless `condition` holds.
pub(super) fn require(condition: bool, rule: Rule, why: &str) -> Result<(), Violation> {
    if condition { Ok(()) } else { Err(Violation { rule, why: why.to_owned() }) }
}

/// Who holds a shard, by the order of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) worker: u8,
    pub(super) fence: u8,
    pub(super) deadline: Tick,
}

/// An offer that was accepted by the kernel and not ended since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Standing {
    pub(super) handoff: u8,
    pub(super) to: u8,
    pub(super) until: Tick,
    pub(super) cursor: Cursor,
}

/// A request that was stored and not ended since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub(super) op_id: u16,
    /// Its parameters, by the number of its payload.
    pub(super) payload: u32,
    pub(super) what: RequestedAction,
    pub(super) expires: Tick,
}

/// An operation that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Remembered {
    pub(super) op_id: u16,
    /// Its parameters, by the number of its payload.
    pub(super) payload: u32,
    pub(super) answer: u32,
}

/// What the oracle knows of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OracleShard {
    pub(super) range: (KeyNo, KeyNo),
    pub(super) status: ShardStatus,
    pub(super) holder: Option<Holder>,
    pub(super) fence: u8,
    pub(super) done: Mark,
    pub(super) attempts: u8,
    pub(super) offer: Option<Standing>,
    pub(super) request: Option<Asked>,
    /// The last [`OP_LOG_CAP`] operations, oldest first.
    pub(super) remembered: Vec<Remembered>,
    /// Residual splits, which are never forgotten.
    pub(super) residuals: Vec<Remembered>,
}

impl OracleShard {
    pub(super) const fn newborn(
        range: (KeyNo, KeyNo),
        fence: u8,
        done: Mark,
        attempts: u8,
    ) -> Self {
        Self {
            range,
            status: ShardStatus::Active,
            holder: None,
            fence,
            done,
            attempts,
            offer: None,
            request: None,
            remembered: Vec::new(),
            residuals: Vec::new(),
        }
    }

    fn is_held_by(&self, lease: LeaseRef) -> bool {
        let holder = self.holder;
        holder.is_some_and(|held| held.worker == lease.worker && held.fence == lease.fence)
    }

    fn is_live(&self, now: Tick) -> bool {
        self.holder.is_some_and(|held| now < held.deadline)
    }

    fn end(&mut self, status: ShardStatus) {
        self.status = status;
        self.holder = None;
        (self.offer, self.request) = (None, None);
    }

    fn remember(&mut self, entry: Remembered, never_forget: bool) {
        if self.remembered.len() == OP_LOG_CAP {
            self.remembered.remove(0);
        }
        self.remembered.push(entry);
        if never_forget {
            self.residuals.push(entry);
        }
    }
}

/// The last accepted writer of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Writer {
    pub(super) shard: u8,
    pub(super) worker: u8,
    pub(super) fence: u8,
}

/// What the oracle knows of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OracleRun {
    /// Absent until the run is made, and after it was deleted.
    pub(super) status: Option<RunStatus>,
    pub(super) deleted: bool,
    pub(super) paused: bool,
    pub(super) made_at: Tick,
    pub(super) roots: Vec<(KeyNo, KeyNo)>,
    /// For each key, who last wrote it. A key without one was handed to nobody.
    pub(super) writers: Vec<Option<Writer>>,
    pub(super) remembered: Vec<Remembered>,
    /// Never forgotten.
    pub(super) registered: Option<Remembered>,
    /// The manifest that was registered.
    pub(super) manifest: Option<u8>,
}

impl OracleRun {
    pub(super) fn unmade(key_count: u8) -> Self {
        Self {
            status: None,
            deleted: false,
            paused: false,
            made_at: 0,
            roots: Vec::new(),
            writers: vec![None; key_count.into()],
            remembered: Vec::new(),
            registered: None,
            manifest: None,
        }
    }

    pub(super) fn is_covered(&self, keys: (KeyNo, KeyNo)) -> bool {
        (keys.0..keys.1).all(|key| self.writers[usize::from(key)].is_some())
    }
}

/// A command about a shard and how it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard<'a> {
    pub(super) command: Command,
    /// Number of the command's payload.
    pub(super) payload: u32,
    pub(super) now: Tick,
    pub(super) step: &'a Step,
    /// Name of the outcome.
    pub(super) outcome: &'a str,
    pub(super) retries: Option<u32>,
    pub(super) lease: u64,
}

/// What the oracle makes of an answer: the shard, its run, and the ranges of newborn shards, each
/// with what is done of it.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    pub(super) shard: OracleShard,
    pub(super) run: OracleRun,
    pub(super) born: Vec<OracleShard>,
}

/// Hears one command about a shard.
///
/// # Errors
///
/// The rule that the answer breaks.
pub(super) fn hear(
    shard: &OracleShard,
    run: &OracleRun,
    heard: Heard<'_>,
) -> Result<Learned, Violation> {
    if let Some(fault) = &heard.step.fault {
        return Err(Violation { rule: Rule::Panicked, why: fault.clone() });
    }
    judge_replay(shard, heard)?;
    let mut learned = Learned { shard: shard.clone(), run: run.clone(), born: Vec::new() };
    match (heard.step.verdict, heard.command) {
        (Verdict::Replayed, _) => {}
        (Verdict::Refused, _) => judge_refusal(shard, run, heard)?,
        (Verdict::GaveUp, _) => give_up(&mut learned, heard)?,
        (Verdict::Executed, Command::Held { tenant, lease, act, .. }) => {
            require(tenant == lease.tenant, Rule::Tenants, "another tenant's lease was accepted")?;
            hear_holder(&mut learned, heard, lease, act)?;
        }
        (Verdict::Executed, Command::Claim { worker, way, .. }) => {
            hear_grant(&mut learned, heard, worker, way)?;
        }
        (Verdict::Executed, Command::Admin { act, .. }) => {
            hear_administrator(&mut learned, heard, act)?;
        }
        (Verdict::Executed, Command::Run { .. }) => {
            unreachable!("commands about runs are heard elsewhere")
        }
    }
    if heard.step.verdict == Verdict::Executed {
        remember(&mut learned.shard, heard);
    }
    Ok(learned)
}

/// A request has its own memory, and the grants have none.
fn remember(shard: &mut OracleShard, heard: Heard<'_>) {
    let Some(op_id) = heard.command.op_id() else { return };
    if heard.step.op == Op::RequestAction {
        return;
    }
    let entry = Remembered { op_id, payload: heard.payload, answer: heard.step.answer };
    shard.remember(entry, heard.step.op == Op::SplitResidual);
}

/// What is remembered is answered from memory, whatever became of the lease.
fn judge_replay(shard: &OracleShard, heard: Heard<'_>) -> Result<(), Violation> {
    let Some(op_id) = heard.command.op_id() else { return Ok(()) };
    if heard.step.op == Op::RequestAction {
        return judge_request(shard, heard, op_id);
    }
    let of_residuals = (heard.step.op == Op::SplitResidual).then_some(&shard.residuals);
    let mut memories = shard.remembered.iter().rev().chain(of_residuals.into_iter().flatten());
    let replayed = heard.step.verdict == Verdict::Replayed;
    match memories.find(|entry| entry.op_id == op_id) {
        Some(known) if known.payload == heard.payload => {
            require(replayed, Rule::Replay, "a retry was not answered from memory")?;
            let same = known.answer == heard.step.answer;
            require(same, Rule::Replay, "a retry was answered differently")
        }
        Some(_) => require(
            heard.outcome == "OpIdConflict",
            Rule::OpIdReused,
            "an operation id came with other parameters and was not refused for that",
        ),
        None => {
            let same_offer = repeats_standing_offer(shard, heard.command);
            let honest = !replayed || same_offer;
            require(honest, Rule::Replay, "something that never happened was replayed")
        }
    }
}

/// A request is its own memory for as long as it stands.
fn judge_request(shard: &OracleShard, heard: Heard<'_>, op_id: u16) -> Result<(), Violation> {
    let standing = shard.request.filter(|it| it.op_id == op_id);
    let replayed = heard.step.verdict == Verdict::Replayed;
    let conflict = heard.outcome == "OpIdConflict";
    match standing.map(|it| it.payload == heard.payload) {
        Some(true) => require(replayed, Rule::Replay, "a request that stands was not known again"),
        Some(false) => {
            let why = "a request under another's id was not refused for that";
            require(conflict, Rule::OpIdReused, why)
        }
        None => {
            require(!replayed, Rule::Replay, "a request was replayed that did not stand")?;
            require(!conflict, Rule::Replay, "a request's id was not another's")
        }
    }
}

/// The same offer under another operation id is the same offer.
fn repeats_standing_offer(shard: &OracleShard, command: Command) -> bool {
    match (shard.offer, command) {
        (Some(standing), Command::Held { act: Act::Offer { handoff, to, until, cursor }, .. }) => {
            standing == Standing { handoff, to, until, cursor }
        }
        (Some(_) | None, _) => false,
    }
}

/// A refusal must have a reason.
fn judge_refusal(shard: &OracleShard, run: &OracleRun, heard: Heard<'_>) -> Result<(), Violation> {
    match heard.command {
        Command::Held { tenant, lease, .. } if tenant == lease.tenant => {
            let good = shard.is_held_by(lease) && shard.is_live(heard.now);
            let shut_out = matches!(heard.outcome, "StaleFence" | "LeaseExpired" | "ShardTerminal");
            require(
                !(good && shut_out),
                Rule::OwnerShutOut,
                "the holder of a live lease was refused",
            )
        }
        Command::Claim { way: Way::Acquire { alive: false }, .. } => {
            let runs = run.status == Some(RunStatus::Active) && !run.paused;
            let free = shard.status == ShardStatus::Active && !shard.is_live(heard.now);
            require(!(runs && free), Rule::FreeShardWithheld, "a free shard was not handed out")
        }
        Command::Held { .. } | Command::Claim { .. } | Command::Admin { .. } => Ok(()),
        Command::Run { .. } => unreachable!("commands about runs are heard elsewhere"),
    }
}

/// An acquire parks a shard that has used up its attempts.
fn give_up(learned: &mut Learned, heard: Heard<'_>) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    check_grantable(shard, &learned.run)?;
    require(!shard.is_live(heard.now), Rule::TwoOwners, "a leased shard was parked by a claim")?;
    let used_up = heard.retries.is_some_and(|max| u32::from(shard.attempts) > max);
    require(used_up, Rule::Attempts, "a shard was parked before its attempts were used up")?;
    shard.end(ShardStatus::Parked);
    Ok(())
}

fn check_grantable(shard: &OracleShard, run: &OracleRun) -> Result<(), Violation> {
    let active = shard.status == ShardStatus::Active;
    require(active, Rule::StaleFence, "a shard that ended was granted")?;
    let runs = run.status == Some(RunStatus::Active) && !run.paused;
    require(runs, Rule::RunOver, "a shard of a run that is over or paused was granted")
}

fn hear_grant(
    learned: &mut Learned,
    heard: Heard<'_>,
    worker: u8,
    way: Way,
) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    check_grantable(shard, &learned.run)?;
    let attempts = match way {
        Way::Acquire { .. } => {
            let live = shard.is_live(heard.now);
            require(!live, Rule::TwoOwners, "a shard was granted while its lease was live")?;
            let used_up = heard.retries.is_some_and(|max| u32::from(shard.attempts) > max);
            require(!used_up, Rule::Attempts, "a shard was granted beyond its attempts")?;
            shard.attempts + 1
        }
        Way::Accept(handoff) => {
            let offer = shard.offer.filter(|offer| offer.handoff == handoff);
            let stands = offer.is_some_and(|offer| offer.to == worker && heard.now < offer.until);
            require(stands, Rule::Handoff, "a move was accepted that was not offered so")?;
            shard.attempts
        }
    };
    let Granted { fence, deadline, attempts: result, range, done } =
        heard.step.grant.expect("a grant was answered");
    require(fence > shard.fence, Rule::FenceFell, "a grant did not raise the fence")?;
    require(result == attempts, Rule::Attempts, "a grant returned a wrong number of attempts")?;
    let restored = range == shard.range && done == shard.done;
    require(restored, Rule::Acknowledged, "a grant did not return the completed position")?;
    let lasts = u64::from(deadline) == u64::from(heard.now) + heard.lease;
    require(lasts, Rule::Acknowledged, "a lease does not last as long as the run says")?;
    shard.holder = Some(Holder { worker, fence, deadline });
    (shard.fence, shard.attempts) = (fence, attempts);
    (shard.offer, shard.request) = (None, None);
    Ok(())
}

fn hear_administrator(
    learned: &mut Learned,
    heard: Heard<'_>,
    act: AdminAct,
) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    let over = learned.run.status != Some(RunStatus::Active);
    match act {
        AdminAct::Unpark => {
            let parked = shard.status == ShardStatus::Parked;
            require(parked, Rule::Acknowledged, "a shard was unparked that was not parked")?;
            require(!over, Rule::RunOver, "a shard of a run that is over was unparked")?;
            shard.status = ShardStatus::Active;
            shard.attempts = 0;
            shard.fence += 1;
        }
        AdminAct::Revoke => {
            let held = shard.holder.is_some();
            require(held, Rule::Acknowledged, "a lease was revoked that nobody held")?;
            (shard.holder, shard.offer, shard.request) = (None, None, None);
            shard.fence += 1;
        }
        AdminAct::Request { what, expires } => {
            require(!over, Rule::RunOver, "a run that is over was asked for something")?;
            let live = shard.is_live(heard.now);
            require(live, Rule::Acknowledged, "nobody was asked for something")?;
            let pending = shard.request.is_some_and(|it| heard.now < it.expires);
            require(!pending, Rule::Acknowledged, "a request took the place of another")?;
            let op_id = heard.command.op_id().expect("a request has an id");
            shard.request = Some(Asked { op_id, payload: heard.payload, what, expires });
        }
    }
    Ok(())
}

/// An effect: it must come from the last grant, in time, and not from a frozen source.
fn hear_holder(
    learned: &mut Learned,
    heard: Heard<'_>,
    lease: LeaseRef,
    act: Act,
) -> Result<(), Violation> {
    let shard = &learned.shard;
    require(shard.is_held_by(lease), Rule::StaleFence, "an effect came from an old grant")?;
    require(shard.is_live(heard.now), Rule::Expired, "an effect came after the deadline")?;
    let thaws = matches!(act, Act::Renew | Act::Withdraw { .. });
    let frozen = shard.offer.is_some() && !thaws;
    require(!frozen, Rule::FrozenSource, "a source worked on while its offer stood")?;
    let grows =
        matches!(act, Act::Renew | Act::Replace { .. } | Act::Residual { .. } | Act::Offer { .. });
    let runs = learned.run.status == Some(RunStatus::Active);
    require(runs || !grows, Rule::RunOver, "a run that is over was worked on for longer")?;
    apply(learned, heard, lease, act)?;
    heed(&mut learned.shard, heard, act)
}

/// The owner is shown what is asked of it with every renewal and checkpoint, and what it does ends
/// a request that asks for that. One that is late goes with the next renewal or checkpoint.
fn heed(shard: &mut OracleShard, heard: Heard<'_>, act: Act) -> Result<(), Violation> {
    let Some(Asked { what, expires, .. }) = shard.request else {
        let nothing = heard.step.shown.is_none();
        return require(nothing, Rule::Acknowledged, "an owner was shown what nobody asks");
    };
    let late = heard.now >= expires;
    let ends = match act {
        Act::Renew | Act::Checkpoint(_) => {
            let shown = heard.step.shown == (!late).then_some((what, expires));
            require(shown, Rule::Acknowledged, "an owner was not shown what is asked of it")?;
            late
        }
        Act::Residual { .. } => what == RequestedAction::Split,
        Act::Offer { .. } => what == RequestedAction::HandOff,
        Act::Withdraw { .. } => what == RequestedAction::Withdraw,
        Act::Complete(_) | Act::Park(_) | Act::Replace { .. } | Act::Release { .. } => true,
    };
    shard.request = shard.request.filter(|_| !ends);
    Ok(())
}

fn apply(
    learned: &mut Learned,
    heard: Heard<'_>,
    lease: LeaseRef,
    act: Act,
) -> Result<(), Violation> {
    match act {
        Act::Renew => return renew(&mut learned.shard, heard),
        Act::Checkpoint(cursor) => advance(learned, lease, cursor.mark())?,
        Act::Complete(cursor) => {
            advance(learned, lease, cursor.mark())?;
            // Whoever completes a shard has seen to its end.
            write(
                &mut learned.run,
                lease,
                (lease.from.max(learned.shard.range.0), learned.shard.range.1),
            )?;
            learned.shard.end(ShardStatus::Done);
        }
        Act::Park(_) => learned.shard.end(ShardStatus::Parked),
        Act::Replace { start, cut, end, carried, .. } => {
            replace(learned, heard, (start, cut, end), carried.mark())?;
        }
        Act::Residual { start, cut, end } => shrink(learned, heard, (start, cut, end))?,
        Act::Release { clean } => {
            let shard = &mut learned.shard;
            shard.attempts = shard.attempts.saturating_sub(u8::from(clean));
            (shard.holder, shard.request) = (None, None);
        }
        Act::Offer { handoff, to, until, cursor } => {
            if cursor != Cursor::Absent {
                advance(learned, lease, cursor.mark())?;
            }
            let sane = to != lease.worker && until > heard.now;
            require(sane, Rule::Handoff, "an offer nobody can accept was taken")?;
            learned.shard.offer = Some(Standing { handoff, to, until, cursor });
        }
        Act::Withdraw { handoff } => {
            let other = learned.shard.offer.is_some_and(|offer| offer.handoff != handoff);
            require(!other, Rule::Handoff, "another offer was withdrawn")?;
            learned.shard.offer = None;
        }
    }
    Ok(())
}

fn renew(shard: &mut OracleShard, heard: Heard<'_>) -> Result<(), Violation> {
    let until = heard.step.renewed_until.expect("a renewal was answered");
    let holder = shard.holder.as_mut().expect("an effect came from a holder");
    let shortens = until < holder.deadline;
    require(!shortens, Rule::Acknowledged, "a renewal shortened a lease")?;
    // A frozen shard is not held for ever: one lease beyond its offer is the end.
    let frozen_until = shard.offer.map_or(u64::MAX, |offer| u64::from(offer.until) + heard.lease);
    let wanted = (u64::from(heard.now) + heard.lease).min(frozen_until);
    let lasts = u64::from(until) == wanted.max(holder.deadline.into());
    require(lasts, Rule::Acknowledged, "a renewal does not last as long as the run says")?;
    holder.deadline = until;
    Ok(())
}

/// The holder says that everything up to `mark` is done; it did what it was not told to be done.
fn advance(learned: &mut Learned, lease: LeaseRef, mark: Mark) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    require(mark >= shard.done, Rule::ProgressFell, "a cursor went back")?;
    let inside = mark > shard.range.0 && mark <= shard.range.1;
    require(inside, Rule::ProgressFell, "a cursor left its range")?;
    if mark > shard.done {
        shard.attempts = 0;
    }
    shard.done = mark;
    write(&mut learned.run, lease, (lease.from.max(shard.range.0), mark))
}

/// Keys handed to the holder of `lease`, whose write was accepted.
fn write(run: &mut OracleRun, lease: LeaseRef, keys: (KeyNo, KeyNo)) -> Result<(), Violation> {
    let LeaseRef { shard, worker, fence, .. } = lease;
    for key in keys.0..keys.1 {
        let place = &mut run.writers[usize::from(key)];
        let ordered =
            place.is_none_or(|last| last.fence < fence || last == Writer { shard, worker, fence });
        require(ordered, Rule::SinkOrder, "a sink would meet a fence it cannot order")?;
        *place = Some(Writer { shard, worker, fence });
    }
    Ok(())
}

fn replace(
    learned: &mut Learned,
    heard: Heard<'_>,
    (start, cut, end): (KeyNo, KeyNo, KeyNo),
    carried: Mark,
) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    let whole = (start, end) == shard.range && start < cut && cut < end;
    require(whole, Rule::Tiling, "a split was accepted that is not the shard's")?;
    let kept = carried == shard.done && carried <= cut;
    require(kept, Rule::ProgressFell, "a split forgot what was done")?;
    let attempts = inherited(shard.attempts, heard.retries);
    learned.born = vec![
        OracleShard::newborn((start, cut), shard.fence, carried, attempts),
        OracleShard::newborn((cut, end), shard.fence, 0, attempts),
    ];
    shard.end(ShardStatus::Split);
    Ok(())
}

fn shrink(
    learned: &mut Learned,
    heard: Heard<'_>,
    (start, cut, end): (KeyNo, KeyNo, KeyNo),
) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    let whole = (start, end) == shard.range && start < cut && cut < end;
    require(whole, Rule::Tiling, "a split was accepted that is not the shard's")?;
    require(shard.done <= cut, Rule::ProgressFell, "a cut went through what was done")?;
    let attempts = inherited(shard.attempts, heard.retries);
    learned.born = vec![OracleShard::newborn((cut, end), shard.fence, 0, attempts)];
    shard.range.1 = cut;
    Ok(())
}

/// One try is left for each part of a split (DESIGN Q13).
fn inherited(attempts: u8, retries: Option<u32>) -> u8 {
    let left = retries.map_or(u32::MAX, |max| max.saturating_sub(1));
    u8::try_from(u32::from(attempts).min(left)).expect("not more than there were")
}
