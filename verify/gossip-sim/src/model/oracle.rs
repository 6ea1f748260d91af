//! The oracle of effects: decides what each worker was allowed to do, independently of the records.
//!
//! It observes every command and its answer, and keeps its own history: grants and deadlines,
//! ranges, and the keys that were assigned to a worker whose write was accepted. It never reads a
//! record to learn any of this. The records are compared with the history afterwards (`check`).
//!
//! # Rules
//! See [`Rule`]. The tests contain a history that breaks each rule.

use gossip_coordination::{OP_LOG_CAP, RunStatus, ShardStatus};

use super::kernel::{Granted, Step, Verdict};
use super::vocabulary::{
    Act, AdminAct, ClaimBy, Command, Cursor, KeyNo, LeaseRef, Mark, Op, RequestedAction, Tick,
};

/// A rule of the protocol. The table in [`crate::oracle`] says which failure each rule guards
/// against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// Only the last grant of a shard has effects.
    StaleFence,
    /// No effect is accepted at or after the deadline.
    Expired,
    /// No shard is granted while another lease is live, except by its own offer.
    TwoOwners,
    /// An offer is accepted by its destination, in time, while it is open.
    Handoff,
    /// While an offer is open, its source can only renew and withdraw.
    FrozenSource,
    /// A handoff redoes no key.
    MoveRedoesNothing,
    /// A retry returns the first result and has no second effect.
    Replay,
    /// A retry with other parameters is rejected.
    OpIdReused,
    /// Every key at or below a cursor was assigned to a worker whose write was accepted.
    LostKey,
    /// The whole range of a completed shard was covered.
    DoneUncovered,
    /// Accepted writes of a key have non-decreasing fences, and one fence has one writer.
    SinkOrder,
    /// The ranges of the leaves tile the roots.
    Tiling,
    /// The shard quota is never exceeded.
    Limit,
    /// A fence never decreases, and rises with every grant, unpark and revocation.
    FenceFell,
    /// Progress never decreases.
    ProgressFell,
    /// An acknowledged operation is in the records.
    Acknowledged,
    /// The holder of a live lease is not rejected for lack of one.
    OwnerShutOut,
    /// A free shard of an active run is granted to any claimer.
    FreeShardWithheld,
    /// Attempts are counted, and parking follows from the count.
    Attempts,
    /// A finished or paused run starts and grows nothing, and finishes once.
    RunOver,
    /// A run completes only when its shards have ended.
    RunUnsettled,
    /// A deleted run never comes back.
    RunReborn,
    /// A tenant's results do not depend on another tenant.
    Tenants,
    /// A rejected operation has no effect, then or later. Simulator only: in the model a rejection
    /// and its decision are one step.
    RefusedHappened,
    /// The reason of a rejection was true. Simulator only.
    Unfounded,
    /// Damaged bytes are reported as corruption, and no decision uses them. Simulator only.
    Undetected,
    /// After the last fault everything finishes within a bound. Simulator only.
    NeverFinishes,
    /// The kernel and the codec do not panic.
    Panicked,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// How it was broken.
    pub why: String,
}

/// Returns a violation unless `condition` holds.
pub(super) fn require(condition: bool, rule: Rule, why: &str) -> Result<(), Violation> {
    if condition { Ok(()) } else { Err(Violation { rule, why: why.to_owned() }) }
}

/// The holder of a shard, by the order of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) worker: u8,
    pub(super) fence: u8,
    pub(super) deadline: Tick,
}

/// An open offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Standing {
    pub(super) handoff: u8,
    pub(super) to: u8,
    pub(super) until: Tick,
    pub(super) cursor: Cursor,
}

/// A pending request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub(super) op_id: u16,
    /// Number of its payload.
    pub(super) payload: u32,
    pub(super) what: RequestedAction,
    pub(super) expires: Tick,
}

/// An operation that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Remembered {
    pub(super) op_id: u16,
    /// Number of its payload.
    pub(super) payload: u32,
    pub(super) answer: u32,
}

/// The history of a shard.
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
    /// Residual splits, which are never evicted.
    pub(super) residuals: Vec<Remembered>,
    /// The highest sequence executed since the last grant.
    pub(super) sequence: u8,
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
            sequence: 0,
        }
    }

    /// Returns whether an operation with this sequence was executed or overtaken.
    const fn has_passed(&self, sequence: u8) -> bool {
        sequence != 0 && sequence <= self.sequence
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

/// The history of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OracleRun {
    /// Absent until the run is created, and after it was deleted.
    pub(super) status: Option<RunStatus>,
    pub(super) deleted: bool,
    pub(super) paused: bool,
    pub(super) made_at: Tick,
    pub(super) roots: Vec<(KeyNo, KeyNo)>,
    /// The last writer of each key; `None` if it was not assigned yet.
    pub(super) writers: Vec<Option<Writer>>,
    pub(super) remembered: Vec<Remembered>,
    /// Never evicted.
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

/// A command about a shard and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
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

/// The history after an answer: the shard, its run, and the ranges of new shards with their
/// progress.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    pub(super) shard: OracleShard,
    pub(super) run: OracleRun,
    pub(super) born: Vec<OracleShard>,
}

/// Checks one command about a shard and its answer.
///
/// # Errors
///
/// Returns the rule that the answer breaks.
pub(super) fn check_command(
    shard: &OracleShard,
    run: &OracleRun,
    observed: Observed<'_>,
) -> Result<Learned, Violation> {
    if let Some(fault) = &observed.step.fault {
        return Err(Violation { rule: Rule::Panicked, why: fault.clone() });
    }
    judge_replay(shard, observed)?;
    let mut learned = Learned { shard: shard.clone(), run: run.clone(), born: Vec::new() };
    match (observed.step.verdict, observed.command) {
        (Verdict::Replayed, _) => {}
        (Verdict::Refused, _) => judge_refusal(shard, run, observed)?,
        (Verdict::GaveUp, _) => give_up(&mut learned, observed)?,
        (Verdict::Executed, Command::Held { tenant, lease, act, sequence, .. }) => {
            require(tenant == lease.tenant, Rule::Tenants, "another tenant's lease was accepted")?;
            check_holder(&mut learned, observed, lease, act)?;
            if observed.command.op_id().is_some() {
                let passed = shard.has_passed(sequence);
                require(!passed, Rule::Replay, "an operation was executed that was overtaken")?;
                learned.shard.sequence = learned.shard.sequence.max(sequence);
            }
        }
        (Verdict::Executed, Command::Claim { worker, way, .. }) => {
            check_grant(&mut learned, observed, worker, way)?;
        }
        (Verdict::Executed, Command::Admin { act, .. }) => {
            check_admin(&mut learned, observed, act)?;
        }
        (Verdict::Executed, Command::Run { .. }) => {
            unreachable!("commands about runs are checked elsewhere")
        }
    }
    if observed.step.verdict == Verdict::Executed {
        remember(&mut learned.shard, observed);
    }
    Ok(learned)
}

/// Logs an operation. A request is its own log, and grants have none.
fn remember(shard: &mut OracleShard, observed: Observed<'_>) {
    let Some(op_id) = observed.command.op_id() else { return };
    if observed.step.op == Op::RequestAction {
        return;
    }
    let entry = Remembered { op_id, payload: observed.payload, answer: observed.step.answer };
    shard.remember(entry, observed.step.op == Op::SplitResidual);
}

/// Checks that a logged operation is replayed, even after its lease has ended.
fn judge_replay(shard: &OracleShard, observed: Observed<'_>) -> Result<(), Violation> {
    let Some(op_id) = observed.command.op_id() else { return Ok(()) };
    if observed.step.op == Op::RequestAction {
        return judge_request(shard, observed, op_id);
    }
    let of_residuals = (observed.step.op == Op::SplitResidual).then_some(&shard.residuals);
    let mut memories = shard.remembered.iter().rev().chain(of_residuals.into_iter().flatten());
    let replayed = observed.step.verdict == Verdict::Replayed;
    match memories.find(|entry| entry.op_id == op_id) {
        Some(known) if known.payload == observed.payload => {
            require(replayed, Rule::Replay, "a retry was not replayed from the log")?;
            let same = known.answer == observed.step.answer;
            require(same, Rule::Replay, "a retry returned a different result")
        }
        Some(_) => require(
            observed.outcome == "OpIdConflict",
            Rule::OpIdReused,
            "a reused operation id was not rejected for that",
        ),
        None => {
            let same_offer = repeats_standing_offer(shard, observed.command);
            let honest = !replayed || same_offer;
            require(honest, Rule::Replay, "an operation was replayed that never took effect")
        }
    }
}

/// Checks a request: it is its own log while it is pending.
fn judge_request(shard: &OracleShard, observed: Observed<'_>, op_id: u16) -> Result<(), Violation> {
    let standing = shard.request.filter(|it| it.op_id == op_id);
    let replayed = observed.step.verdict == Verdict::Replayed;
    let conflict = observed.outcome == "OpIdConflict";
    match standing.map(|it| it.payload == observed.payload) {
        Some(true) => require(replayed, Rule::Replay, "a pending request was not replayed"),
        Some(false) => {
            let why = "a request under a reused id was not rejected for that";
            require(conflict, Rule::OpIdReused, why)
        }
        None => {
            require(!replayed, Rule::Replay, "a request was replayed that was not pending")?;
            require(!conflict, Rule::Replay, "a request id was rejected as reused but was not")
        }
    }
}

/// Returns whether the command repeats the open offer. Another operation id does not make it
/// another offer.
fn repeats_standing_offer(shard: &OracleShard, command: Command) -> bool {
    match (shard.offer, command) {
        (Some(standing), Command::Held { act: Act::Offer { handoff, to, until, cursor }, .. }) => {
            standing == Standing { handoff, to, until, cursor }
        }
        (Some(_) | None, _) => false,
    }
}

/// Checks that a rejection has a valid reason.
fn judge_refusal(
    shard: &OracleShard,
    run: &OracleRun,
    observed: Observed<'_>,
) -> Result<(), Violation> {
    match observed.command {
        Command::Held { tenant, lease, sequence, .. } if tenant == lease.tenant => {
            let good = shard.is_held_by(lease) && shard.is_live(observed.now);
            let shut_out = match observed.outcome {
                "StaleFence" | "LeaseExpired" | "ShardTerminal" => true,
                "OperationTooOld" => !shard.has_passed(sequence),
                _ => false,
            };
            require(
                !(good && shut_out),
                Rule::OwnerShutOut,
                "the holder of a live lease was rejected",
            )
        }
        Command::Claim { way: ClaimBy::Acquire { alive: false }, .. } => {
            let runs = run.status == Some(RunStatus::Active) && !run.paused;
            let free = shard.status == ShardStatus::Active && !shard.is_live(observed.now);
            require(!(runs && free), Rule::FreeShardWithheld, "a free shard was not granted")
        }
        Command::Admin { act: AdminAct::Revoke { fence }, .. } => {
            let meant = fence.is_none_or(|fence| fence == shard.fence);
            let why = "the lease that was to be revoked was not found";
            require(!(meant && observed.outcome == "StaleFence"), Rule::Acknowledged, why)
        }
        Command::Held { .. } | Command::Claim { .. } | Command::Admin { .. } => Ok(()),
        Command::Run { .. } => unreachable!("commands about runs are checked elsewhere"),
    }
}

/// Checks an acquire that parks a shard, which must have used up its attempts.
fn give_up(learned: &mut Learned, observed: Observed<'_>) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    check_grantable(shard, &learned.run)?;
    require(!shard.is_live(observed.now), Rule::TwoOwners, "a leased shard was parked by a claim")?;
    let used_up = observed.retries.is_some_and(|max| u32::from(shard.attempts) > max);
    require(used_up, Rule::Attempts, "a shard was parked before its attempts were used up")?;
    shard.end(ShardStatus::Parked);
    Ok(())
}

fn check_grantable(shard: &OracleShard, run: &OracleRun) -> Result<(), Violation> {
    let active = shard.status == ShardStatus::Active;
    require(active, Rule::StaleFence, "a terminal shard was granted")?;
    let runs = run.status == Some(RunStatus::Active) && !run.paused;
    require(runs, Rule::RunOver, "a shard of a finished or paused run was granted")
}

fn check_grant(
    learned: &mut Learned,
    observed: Observed<'_>,
    worker: u8,
    way: ClaimBy,
) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    check_grantable(shard, &learned.run)?;
    let attempts = match way {
        ClaimBy::Acquire { .. } => {
            let live = shard.is_live(observed.now);
            require(!live, Rule::TwoOwners, "a shard was granted while its lease was live")?;
            let used_up = observed.retries.is_some_and(|max| u32::from(shard.attempts) > max);
            require(!used_up, Rule::Attempts, "a shard was granted beyond its attempts")?;
            shard.attempts + 1
        }
        ClaimBy::Accept(handoff) => {
            let offer = shard.offer.filter(|offer| offer.handoff == handoff);
            let is_open =
                offer.is_some_and(|offer| offer.to == worker && observed.now < offer.until);
            require(is_open, Rule::Handoff, "a handoff was accepted that was not offered")?;
            shard.attempts
        }
    };
    let Granted { fence, deadline, attempts: result, range, done } =
        observed.step.grant.expect("a grant was answered");
    require(fence > shard.fence, Rule::FenceFell, "a grant did not raise the fence")?;
    require(result == attempts, Rule::Attempts, "a grant returned a wrong number of attempts")?;
    let restored = range == shard.range && done == shard.done;
    require(restored, Rule::Acknowledged, "a grant did not return the completed position")?;
    let lasts = u64::from(deadline) == u64::from(observed.now) + observed.lease;
    require(lasts, Rule::Acknowledged, "a lease has a wrong duration")?;
    shard.holder = Some(Holder { worker, fence, deadline });
    (shard.fence, shard.attempts, shard.sequence) = (fence, attempts, 0);
    (shard.offer, shard.request) = (None, None);
    Ok(())
}

fn check_admin(
    learned: &mut Learned,
    observed: Observed<'_>,
    act: AdminAct,
) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    let over = learned.run.status != Some(RunStatus::Active);
    match act {
        AdminAct::Unpark => {
            let parked = shard.status == ShardStatus::Parked;
            require(parked, Rule::Acknowledged, "a shard was unparked that was not parked")?;
            require(!over, Rule::RunOver, "a shard of a finished run was unparked")?;
            shard.status = ShardStatus::Active;
            shard.attempts = 0;
            shard.fence += 1;
        }
        AdminAct::Revoke { fence } => {
            let meant = fence.is_none_or(|fence| fence == shard.fence);
            require(meant, Rule::StaleFence, "a lease was revoked that was not meant")?;
            let held = shard.holder.is_some();
            require(held, Rule::Acknowledged, "a lease was revoked that was not held")?;
            (shard.holder, shard.offer, shard.request) = (None, None, None);
            shard.fence += 1;
        }
        AdminAct::Request { what, expires } => {
            require(!over, Rule::RunOver, "a request was stored for a finished run")?;
            let live = shard.is_live(observed.now);
            require(live, Rule::Acknowledged, "a request was stored without a lease holder")?;
            let pending = shard.request.is_some_and(|it| observed.now < it.expires);
            require(!pending, Rule::Acknowledged, "a request replaced a pending one")?;
            let op_id = observed.command.op_id().expect("a request has an id");
            shard.request = Some(Asked { op_id, payload: observed.payload, what, expires });
        }
    }
    Ok(())
}

/// Checks an effect: it must come from the last grant, in time, and not from a frozen source.
fn check_holder(
    learned: &mut Learned,
    observed: Observed<'_>,
    lease: LeaseRef,
    act: Act,
) -> Result<(), Violation> {
    let shard = &learned.shard;
    require(shard.is_held_by(lease), Rule::StaleFence, "an effect came from an old grant")?;
    require(shard.is_live(observed.now), Rule::Expired, "an effect came after the deadline")?;
    let thaws = matches!(act, Act::Renew | Act::Withdraw { .. });
    let frozen = shard.offer.is_some() && !thaws;
    require(!frozen, Rule::FrozenSource, "a source changed the shard while its offer was open")?;
    let grows =
        matches!(act, Act::Renew | Act::Replace { .. } | Act::Residual { .. } | Act::Offer { .. });
    let runs = learned.run.status == Some(RunStatus::Active);
    require(
        runs || !grows,
        Rule::RunOver,
        "a shard of a finished run was renewed, split or offered",
    )?;
    apply(learned, observed, lease, act)?;
    check_request_shown(&mut learned.shard, observed, act)
}

/// Checks the request that a renewal or checkpoint shows, and ends a request that the operation
/// fulfils. An expired request ends with the next renewal or checkpoint.
fn check_request_shown(
    shard: &mut OracleShard,
    observed: Observed<'_>,
    act: Act,
) -> Result<(), Violation> {
    let Some(Asked { what, expires, .. }) = shard.request else {
        let nothing = observed.step.shown.is_none();
        return require(
            nothing,
            Rule::Acknowledged,
            "a lease holder was shown a request that is not pending",
        );
    };
    let late = observed.now >= expires;
    let ends = match act {
        Act::Renew | Act::Checkpoint(_) => {
            let shown = observed.step.shown == (!late).then_some((what, expires));
            require(shown, Rule::Acknowledged, "a lease holder was not shown its pending request")?;
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
    observed: Observed<'_>,
    lease: LeaseRef,
    act: Act,
) -> Result<(), Violation> {
    match act {
        Act::Renew => return renew(&mut learned.shard, observed),
        Act::Checkpoint(cursor) => advance(learned, lease, cursor.mark())?,
        Act::Complete(cursor) => {
            advance(learned, lease, cursor.mark())?;
            // The holder that completes a shard has processed it to its end.
            write(
                &mut learned.run,
                lease,
                (lease.from.max(learned.shard.range.0), learned.shard.range.1),
            )?;
            learned.shard.end(ShardStatus::Done);
        }
        Act::Park(_) => learned.shard.end(ShardStatus::Parked),
        Act::Replace { start, cut, end, carried, .. } => {
            replace(learned, observed, (start, cut, end), carried.mark())?;
        }
        Act::Residual { start, cut, end } => shrink(learned, observed, (start, cut, end))?,
        Act::Release { clean } => {
            let shard = &mut learned.shard;
            shard.attempts = shard.attempts.saturating_sub(u8::from(clean));
            (shard.holder, shard.request) = (None, None);
        }
        Act::Offer { handoff, to, until, cursor } => {
            if cursor != Cursor::Absent {
                advance(learned, lease, cursor.mark())?;
            }
            let sane = to != lease.worker && until > observed.now;
            require(sane, Rule::Handoff, "an offer without a valid destination was accepted")?;
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

fn renew(shard: &mut OracleShard, observed: Observed<'_>) -> Result<(), Violation> {
    let until = observed.step.renewed_until.expect("a renewal was answered");
    let holder = shard.holder.as_mut().expect("an effect came from a holder");
    let shortens = until < holder.deadline;
    require(!shortens, Rule::Acknowledged, "a renewal shortened a lease")?;
    // A frozen shard is held for one lease duration beyond its offer at most.
    let frozen_until =
        shard.offer.map_or(u64::MAX, |offer| u64::from(offer.until) + observed.lease);
    let wanted = (u64::from(observed.now) + observed.lease).min(frozen_until);
    let lasts = u64::from(until) == wanted.max(holder.deadline.into());
    require(lasts, Rule::Acknowledged, "a renewal has a wrong duration")?;
    holder.deadline = until;
    Ok(())
}

/// Advances the cursor to `mark`. The holder wrote the keys that were not completed when its lease
/// was granted.
fn advance(learned: &mut Learned, lease: LeaseRef, mark: Mark) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    require(mark >= shard.done, Rule::ProgressFell, "a cursor moved backwards")?;
    let inside = mark > shard.range.0 && mark <= shard.range.1;
    require(inside, Rule::ProgressFell, "a cursor left its range")?;
    if mark > shard.done {
        shard.attempts = 0;
    }
    shard.done = mark;
    write(&mut learned.run, lease, (lease.from.max(shard.range.0), mark))
}

/// Records accepted writes of `keys` by the holder of `lease`.
fn write(run: &mut OracleRun, lease: LeaseRef, keys: (KeyNo, KeyNo)) -> Result<(), Violation> {
    let LeaseRef { shard, worker, fence, .. } = lease;
    for key in keys.0..keys.1 {
        let place = &mut run.writers[usize::from(key)];
        let ordered =
            place.is_none_or(|last| last.fence < fence || last == Writer { shard, worker, fence });
        require(
            ordered,
            Rule::SinkOrder,
            "accepted writes have fences that do not follow the order of grants",
        )?;
        *place = Some(Writer { shard, worker, fence });
    }
    Ok(())
}

fn replace(
    learned: &mut Learned,
    observed: Observed<'_>,
    (start, cut, end): (KeyNo, KeyNo, KeyNo),
    carried: Mark,
) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    let whole = (start, end) == shard.range && start < cut && cut < end;
    require(whole, Rule::Tiling, "a split was accepted that does not tile the shard")?;
    let kept = carried == shard.done && carried <= cut;
    require(kept, Rule::ProgressFell, "a split lost progress")?;
    let attempts = inherited(shard.attempts, observed.retries);
    learned.born = vec![
        OracleShard::newborn((start, cut), shard.fence, carried, attempts),
        OracleShard::newborn((cut, end), shard.fence, 0, attempts),
    ];
    shard.end(ShardStatus::Split);
    Ok(())
}

fn shrink(
    learned: &mut Learned,
    observed: Observed<'_>,
    (start, cut, end): (KeyNo, KeyNo, KeyNo),
) -> Result<(), Violation> {
    let shard = &mut learned.shard;
    let whole = (start, end) == shard.range && start < cut && cut < end;
    require(whole, Rule::Tiling, "a split was accepted that does not tile the shard")?;
    require(shard.done <= cut, Rule::ProgressFell, "a split point lies before the cursor")?;
    let attempts = inherited(shard.attempts, observed.retries);
    learned.born = vec![OracleShard::newborn((cut, end), shard.fence, 0, attempts)];
    shard.range.1 = cut;
    Ok(())
}

/// Returns the attempts that a part of a split inherits. One attempt is left for each part (DESIGN
/// Q13).
fn inherited(attempts: u8, retries: Option<u32>) -> u8 {
    let left = retries.map_or(u32::MAX, |max| max.saturating_sub(1));
    u8::try_from(u32::from(attempts).min(left)).expect("not more than there were")
}
