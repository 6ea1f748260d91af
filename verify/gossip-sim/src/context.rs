//! A simulated process's view of the simulation: clock, random choices, sink and oracle.
//!
//! A program is an ordinary `async` function on the production coordinator. It announces each
//! operation to its [`Cx`] before the call and reports the result afterwards. The oracle observes
//! both, and the commits in between at the store.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::rc::Rc;

use gossip_contracts::identity::{LogicalTime, OpId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::OLDER;
use gossip_coordination::{IdempotentOutcome, InfraError, ShardAction};

use super::answers::OpResult;
use super::bugs::Bug;
use super::op::{Ending, Label, LeaseRef, MayBeInfra, Member, Op, Said, Terms, Verb, ending};
use super::oracle::{Oracle, Violation};
use super::pairs::Turns;
use super::port::{Ask, Reply, SimStore, SinkWrite};
use super::random::{Stream, mix};
use super::report::Coverage;

/// The time at which every simulation begins. Clock errors are smaller, so no clock ever reads
/// zero.
pub const EPOCH: u64 = 1 << 24;

/// Maximum number of posted offers; older ones are dropped.
const BOARD_MAX: usize = 16;

/// One accept in this many is for an offer to another worker, and must be rejected.
const WRONG_ACCEPT_ONE_IN: u64 = 32;

/// The phase of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Faults are injected.
    Faulty,
    /// No more faults are injected, and all runs must finish.
    Calm,
}

/// A clock that may be wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// Added to the true time.
    pub(super) offset: i64,
    /// Thousandths by which the clock runs too fast.
    pub(super) drift: i64,
}

impl Clock {
    pub(super) fn read(&self, now: u64) -> u64 {
        let drifted = (now as i64 * self.drift) / 1_000;
        let local = (EPOCH + now) as i64 + self.offset + drifted;
        u64::try_from(local).unwrap_or(1).max(1)
    }
}

/// An offer that its destination can discover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) target: LeaseRef,
    pub(super) run: u32,
    pub(super) terms: Terms,
}

/// State that all processes of a simulation share with the simulator.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) oracle: Oracle,
    /// The true time.
    pub(super) now: u64,
    pub(super) phase: Phase,
    pub(super) clocks: Vec<Clock>,
    pub(super) tenants: Vec<TenantId>,
    /// The worker ids of each tenant.
    pub(super) names: Vec<Vec<u64>>,
    /// The runs of each tenant that are not known to be finished, by the oracle's numbers.
    pub(super) directory: Vec<Vec<u32>>,
    /// Whether each tenant's administrator has found nothing left to do since the last fault.
    pub(super) tidy: Vec<bool>,
    pub(super) board: Vec<VecDeque<Posted>>,
    /// Finished operations.
    pub(super) ops: u64,
    /// Of those, the number that finished while some rule was suspended.
    pub(super) ops_excused: u64,
    pub(super) op_count: u64,
    pub(super) coverage: Coverage,
    /// Hash over every event.
    pub(super) hash: u64,
    /// Hash over the results of each tenant.
    pub(super) tenant_hashes: Vec<u64>,
    /// Counted in simulations that compare tenants.
    pub(super) turns: Turns,
    /// The operation in progress of each process.
    pub(super) current: Vec<Option<Rc<Op>>>,
    pub(super) violation: Option<Violation>,
    /// Operations that returned a corruption error.
    pub(super) corruption_reported: u64,
    /// Of those, the number that detected a decreased revision.
    pub(super) older_reported: u64,
    pub(super) trace: Option<Vec<String>>,
    pub(super) bug: Option<Bug>,
    /// Whether the results of tenants are compared. Workers then send no operations to other
    /// tenants on purpose, because their results would differ.
    pub(super) compares_tenants: bool,
}

impl Shared {
    /// Adds an event to the trace hash.
    #[inline]
    pub(super) const fn note(&mut self, what: u64, more: u64) {
        self.hash =
            mix(self.hash ^ what.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ more.rotate_left(32));
    }

    /// Records a verdict. The first violation is kept.
    pub(super) fn judge(&mut self, verdict: Result<(), Violation>) {
        if let Err(violation) = verdict
            && self.violation.is_none()
        {
            self.add_trace(|| format!("{:?}: {}", violation.rule, violation.why));
            self.violation = Some(violation);
        }
    }

    /// Adds a line to the trace, if tracing is on.
    pub(super) fn add_trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>7} {}", self.now, line()));
        }
    }
}

/// An operation that is about to be called.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) verb: Verb,
    pub(super) run: Option<u32>,
    pub(super) lease: Option<LeaseRef>,
    pub(super) target: Option<LeaseRef>,
    pub(super) op_id: OpId,
    pub(super) said: Said,
}

impl Draft {
    pub(super) fn new(verb: Verb) -> Self {
        let (run, lease, target, op_id) = (None, None, None, OpId::from_raw(0));
        Self { verb, run, lease, target, op_id, said: Said::default() }
    }

    pub(super) fn of_run(verb: Verb, run: u32, op_id: OpId) -> Self {
        Self { run: Some(run), op_id, ..Self::new(verb) }
    }

    pub(super) fn under(verb: Verb, lease: LeaseRef, op_id: OpId) -> Self {
        Self { lease: Some(lease), op_id, ..Self::new(verb) }
    }

    pub(super) fn about(verb: Verb, target: LeaseRef, op_id: OpId) -> Self {
        Self { target: Some(target), op_id, ..Self::new(verb) }
    }

    fn payload(&self) -> u64 {
        let mut hash = mix(self.verb as u64 + 1) ^ u64::from(self.said.clean);
        hash ^= self.said.reason.map_or(0, |reason| mix(reason as u64 + 1));
        hash ^= self.said.flaw.map_or(0, |flaw| mix(flaw as u64 + 1).rotate_left(3));
        hash ^= self.said.allotment.map_or(0, |max| mix(u64::from(max) + 1).rotate_left(11));
        hash ^= self.said.fence.map_or(0, |fence| mix(fence + 1).rotate_left(5));
        hash = mix(hash ^ self.said.to.map_or(u64::MAX, u64::from));
        for cut in &self.said.cuts {
            hash = mix(hash ^ u64::from(*cut));
        }
        if let Some(Terms { handoff, destination, until }) = self.said.terms {
            hash = mix(hash ^ mix(handoff) ^ mix(destination).rotate_left(7) ^ until);
        }
        if let Some((action, until)) = &self.said.asked {
            hash = mix(hash ^ digest(action) ^ until.rotate_left(9));
        }
        hash
    }
}

/// Returns a distinct number for each requested action.
fn digest(action: &ShardAction) -> u64 {
    match action {
        ShardAction::Split(None) => 1,
        ShardAction::Release => 2,
        ShardAction::HandOff(None) => 3,
        ShardAction::Withdraw => 4,
        ShardAction::Split(Some(at)) => {
            at.as_bytes().iter().fold(5, |hash, byte| mix(hash ^ u64::from(*byte)))
        }
        ShardAction::HandOff(Some(to)) => mix(mix(6) ^ to.as_raw()),
        other => unreachable!("{} has no number", other.label()),
    }
}

/// A process's view of the simulation.
#[derive(Debug)]
pub(super) struct Cx {
    pub(super) shared: Rc<RefCell<Shared>>,
    pub(super) store: SimStore,
    pub(super) process: u32,
    pub(super) tenant: u32,
    pub(super) tenant_id: TenantId,
    pub(super) worker: WorkerId,
    pub(super) choices: RefCell<Stream>,
    /// Random choices of malformed and unusual input. A stream of its own, so that they do not
    /// shift the other choices.
    pub(super) oddities: RefCell<Stream>,
}

impl Cx {
    /// Returns the time of the process's own clock.
    pub(super) fn now(&self) -> LogicalTime {
        let shared = self.shared.borrow();
        LogicalTime::from_raw(shared.clocks[self.process as usize].read(shared.now))
    }

    pub(super) fn phase(&self) -> Phase {
        self.shared.borrow().phase
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.choices.borrow_mut().below(bound)
    }

    pub(super) fn one_in(&self, bound: u64) -> bool {
        self.choices.borrow_mut().one_in(bound)
    }

    /// Returns a number below `bound` for malformed or unusual input.
    pub(super) fn odd_below(&self, bound: u64) -> u64 {
        self.oddities.borrow_mut().below(bound)
    }

    pub(super) async fn sleep(&self, ticks: u64) {
        self.store.ask(Ask::Wait(ticks)).await;
    }

    /// Sends results to the sink. Returns whether they were accepted; `None` if the reply was lost.
    pub(super) async fn write(&self, write: SinkWrite) -> Option<bool> {
        match self.store.ask(Ask::Write(write)).await {
            Reply::Written(taken) => taken,
            Reply::Read(_) | Reply::Committed(_) | Reply::Waited => {
                unreachable!("the reply has the type of the request")
            }
        }
    }

    /// Announces an operation.
    pub(super) fn begin(&self, draft: Draft) -> Rc<Op> {
        self.begin_at(self.now(), draft)
    }

    /// Announces an operation whose caller passes its own time.
    pub(super) fn begin_at(&self, now: LogicalTime, draft: Draft) -> Rc<Op> {
        let payload = draft.payload();
        let Draft { verb, run, lease, target, op_id, said } = draft;
        let mut shared = self.shared.borrow_mut();
        shared.op_count += 1;
        let good_until = lease.map_or(0, |lease| shared.oracle.good_until(lease));
        let begun_true = shared.now;
        let clock_error = now.as_raw() as i64 - (EPOCH + begun_true) as i64;
        let op = Rc::new(Op {
            number: shared.op_count,
            process: self.process,
            verb,
            now,
            begun_true,
            clock_error,
            tenant: self.tenant,
            run,
            worker: self.worker.as_raw(),
            lease,
            target,
            op_id,
            payload,
            said,
            begun_at: shared.oracle.commits,
            good_until,
            applied: Cell::new(0),
            begun: Cell::new(false),
            unsure: Cell::new(false),
            ended: Cell::new(None),
            misled: Cell::new(false),
            owner_key: Cell::new(false),
            stale: Cell::new(false),
            damaged: Cell::new(false),
            suspects: RefCell::default(),
            overwrote: Cell::new(false),
            found: Cell::new(None),
            granted: Cell::new(None),
            renewed: Cell::new(None),
            shown: RefCell::default(),
            born: RefCell::default(),
            batch: RefCell::default(),
        });
        let process = self.process as usize;
        shared.current[process] = Some(Rc::clone(&op));
        shared.add_trace(|| {
            let shard = lease.or(target).map(|it| it.shard);
            let (to, cuts) = (op.said.to, &op.said.cuts);
            format!(
                "p{process} op {} {verb:?} shard {shard:?} grant {:?} now {now} to {to:?} {cuts:?}",
                op.number,
                lease.map(|it| it.grant)
            )
        });
        op
    }

    /// Announces which leases `op` renews as a batch.
    pub(super) fn begin_batch(&self, op: &Op, leases: &[LeaseRef]) {
        let oracle = &mut self.shared.borrow_mut().oracle;
        let member = |lease: &LeaseRef| {
            let good_until = oracle.good_until(*lease);
            let (applied, refused, until, shown) = (false, false, None, None);
            Member { lease: *lease, good_until, applied, refused, until, shown }
        };
        op.batch.replace(leases.iter().map(member).collect());
    }

    /// Reports the result of an operation.
    pub(super) fn end<T: Debug, E: MayBeInfra>(
        &self,
        op: &Op,
        result: &Result<IdempotentOutcome<T>, E>,
        answer: Option<u64>,
    ) -> Ending {
        self.trace_answer(op, result);
        match result {
            Ok(IdempotentOutcome::Executed(_)) => {
                self.finish(op, Ending::Executed, Label::named("Executed"), answer)
            }
            Ok(IdempotentOutcome::Replayed(_)) => {
                self.finish(op, Ending::Replayed, Label::named("Replayed"), answer)
            }
            Err(error) => self.fail(op, error, answer),
        }
    }

    /// Reports the result of an operation that is never replayed.
    pub(super) fn end_plain<T: Debug, E: MayBeInfra>(
        &self,
        op: &Op,
        result: &Result<T, E>,
    ) -> Ending {
        self.trace_answer(op, result);
        match result {
            Ok(_) => self.finish(op, Ending::Executed, Label::named("Executed"), None),
            Err(error) => self.fail(op, error, None),
        }
    }

    /// Reports a query whose result marks a shard as damaged.
    pub(super) fn end_damaged(&self, op: &Op) -> Ending {
        let ending = Ending::Failed { doubtful: false, corrupt: true };
        self.finish(op, ending, Label::named("Damaged"), None)
    }

    fn fail(&self, op: &Op, error: &impl MayBeInfra, answer: Option<u64>) -> Ending {
        let cause = error.infra().map(InfraError::cause);
        if let Some(InfraError::Corruption { operation: OLDER, .. }) = cause {
            self.shared.borrow_mut().older_reported += 1;
        }
        self.finish(op, ending(error), Label::of(error), answer)
    }

    /// Adds a digest of a whole result to the trace, and to the tenant's hash in simulations that
    /// compare tenants.
    pub(super) fn trace_answer(&self, op: &Op, answer: &dyn Debug) {
        let shared = &mut *self.shared.borrow_mut();
        if shared.trace.is_none() && !shared.compares_tenants {
            return;
        }
        let text = format!("{answer:?}");
        let digest = text.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        if shared.compares_tenants {
            let of_tenant = &mut shared.tenant_hashes[self.tenant as usize];
            *of_tenant = mix(*of_tenant ^ digest);
        }
        shared.add_trace(|| format!("p{} op {} answer {digest:016x}", op.process, op.number));
    }

    pub(super) fn finish(
        &self,
        op: &Op,
        ending: Ending,
        label: Label,
        answer: Option<u64>,
    ) -> Ending {
        let shared = &mut *self.shared.borrow_mut();
        shared.ops += 1;
        shared.ops_excused += u64::from(shared.oracle.excuses() || op.misled.get());
        if shared.compares_tenants {
            shared.turns.count(self.tenant);
        }
        shared.coverage.count(op.verb, label);
        let corrupt = matches!(ending, Ending::Failed { corrupt: true, .. });
        shared.corruption_reported += u64::from(corrupt);
        let code = op.verb as u64 | (Label::code(label) << 8);
        shared.note(code, op.number);
        let of_tenant = &mut shared.tenant_hashes[self.tenant as usize];
        *of_tenant = mix(*of_tenant ^ code ^ answer.unwrap_or(0));
        let result = OpResult { ending, name: label.as_str(), answer };
        let verdict = shared.oracle.ended(op, result);
        shared.add_trace(|| {
            format!("p{} op {} {:?} returned {label:?}", op.process, op.number, op.verb)
        });
        shared.judge(verdict);
        // The result of a misled operation may be wrong; the simulated programs treat a rejection
        // as an unknown outcome.
        match ending {
            Ending::Refused if op.misled.get() => Ending::Failed { doubtful: true, corrupt: false },
            Ending::Executed | Ending::Replayed | Ending::Refused | Ending::Failed { .. } => ending,
        }
    }

    /// Adds values of a result to the hash of the tenant, beyond the name of the outcome: times,
    /// fences, positions and counts must not depend on another tenant either.
    pub(super) fn hash_values(&self, numbers: &[u64]) {
        let shared = &mut *self.shared.borrow_mut();
        let result = numbers.iter().fold(0, |hash, number| mix(hash ^ *number));
        let hash = &mut shared.tenant_hashes[self.tenant as usize];
        *hash = mix(*hash ^ result);
        shared.note(result, u64::from(self.tenant));
    }

    /// Records the verdict of an oracle check.
    pub(super) fn judge(&self, judge: impl FnOnce(&Oracle) -> Result<(), Violation>) {
        let shared = &mut *self.shared.borrow_mut();
        let verdict = judge(&shared.oracle);
        shared.judge(verdict);
    }

    /// Returns a run that may have work.
    pub(super) fn any_run(&self) -> Option<u32> {
        let shared = self.shared.borrow();
        let runs = &shared.directory[self.tenant as usize];
        let count = runs.len() as u64;
        (count > 0).then(|| runs[self.below(count) as usize])
    }

    /// Removes a run from the list if it is finished.
    pub(super) fn remove_if_finished(&self, run: u32) {
        let shared = &mut *self.shared.borrow_mut();
        if shared.oracle.runs[run as usize].is_over() {
            shared.directory[self.tenant as usize].retain(|other| *other != run);
        }
    }

    /// Makes an offer visible to its destination.
    pub(super) fn post(&self, posted: Posted) {
        let board = &mut self.shared.borrow_mut().board[self.tenant as usize];
        if board.len() == BOARD_MAX {
            board.pop_front();
        }
        board.push_back(posted);
    }

    /// Returns an offer to this worker, or sometimes one to another.
    pub(super) fn noticed(&self) -> Option<Posted> {
        let for_another = self.one_in(WRONG_ACCEPT_ONE_IN);
        let mut shared = self.shared.borrow_mut();
        let me = self.worker.as_raw();
        let board = &mut shared.board[self.tenant as usize];
        let place = board.iter().position(|it| for_another || it.terms.destination == me)?;
        // An offer to another worker stays on the board for its destination.
        if for_another { board.get(place).copied() } else { board.remove(place) }
    }

    pub(super) fn target(&self, shard: u32) -> LeaseRef {
        let key = self.shared.borrow().oracle.shards[shard as usize].key;
        LeaseRef::to(shard, key)
    }

    /// Returns the grant under which a shard is held.
    pub(super) fn holder(&self, shard: u32) -> Option<u32> {
        self.shared.borrow().oracle.shards[shard as usize].holder.map(|holder| holder.grant)
    }

    pub(super) fn find(&self, key: ShardKey) -> Option<u32> {
        self.shared.borrow().oracle.find_shard(self.tenant_id, key)
    }

    pub(super) fn key_of_run(&self, run: u32, shard: ShardId) -> ShardKey {
        ShardKey::new(self.shared.borrow().oracle.runs[run as usize].id, shard)
    }
}
