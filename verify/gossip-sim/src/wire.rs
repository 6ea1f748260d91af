//! The simulated network between processes, store and sink, with its faults.

use std::rc::Rc;

use gossip_contracts::identity::FenceEpoch;
use gossip_coordination::store::{CommitOutcome, Key, Read, Txn, Write};
use gossip_coordination::{InfraError, StoreRefusal};

use super::bugs::Mutated;
use super::context::Clock;
use super::damage::Evidence;
use super::faults::FaultKind;
use super::op::{Op, Verb};
use super::oracle::Rule;
use super::pairs;
use super::port::{Ask, Reply, SinkWrite};
use super::sink::Taken;
use super::world::{EventKind, Request, Sender, World, bound_number};

/// Ticks after which a process stops waiting for a reply.
pub(super) const TIMEOUT_TICKS: u64 = 24;

/// Maximum latency of an ordinary message.
pub(super) const LATENCY_MAX: u64 = 3;

/// Maximum delay of a reordered message after its sender's timeout.
pub(super) const OVERTAKEN_MAX: u64 = 300;

/// Maximum duration of a network partition or of a store without a leader.
const CUT_MAX: u64 = 300;

/// Maximum duration of a short pause, which a fresh lease survives.
const PAUSE_SHORT_MAX: u64 = 100;

/// Duration of a long pause, which no lease survives.
const PAUSE_LONG: (u64, u64) = (320, 900);

/// Maximum step of a clock.
pub(super) const CLOCK_STEP_MAX: u64 = 2_000;

/// Transaction limit while the server accepts less than it stated: this many operations are always
/// accepted, and up to this many more at random.
const SMALL_TXN: (u64, u64) = (2, 10);

/// Exchange number of the duplicate of a message; no process waits for its reply.
const COPY: u64 = u64::MAX;

/// The dice to roll.
#[derive(Clone, Copy)]
pub(super) enum Roll {
    Message = 0,
    Commit = 1,
    Read = 2,
}

impl World {
    /// Rolls the dice for a process. The fault is counted where it changes something.
    pub(super) fn roll(&mut self, process: u32, roll: Roll) -> Option<FaultKind> {
        if !self.is_faulty() {
            return None;
        }
        let luck = &mut self.processes[process as usize];
        luck.chances += 1;
        let number = (process as u64) << 32 | luck.chances;
        luck.luck = luck.fate.fork(luck.chances);
        let of_first = luck.tenant == 0;
        let kind = self.dice[roll as usize].roll(luck.luck.draw())?;
        if self.plan.paired_until.is_some() && !pairs::may_happen(kind, of_first) {
            return None;
        }
        if let Some(only) = &self.plan.only
            && !only.contains(&number)
        {
            let mut shared = self.shared.borrow_mut();
            shared.add_trace(|| format!("p{process} spared {} (number {number:x})", kind.name()));
            return None;
        }
        // Before the last quarter, the simulation is checked against every rule, and nothing is
        // damaged for good.
        if (!kind.suspends().is_empty() || kind.lasts()) && !self.is_late() {
            return None;
        }
        self.injected.push(number);
        let mut shared = self.shared.borrow_mut();
        shared.note(kind as u64 + 0x100, number);
        shared.add_trace(|| format!("p{process} fault {} (number {number:x})", kind.name()));
        Some(kind)
    }

    /// Counts a fault that has just changed something, and suspends the rules that it violates.
    pub(super) fn count_fault(&mut self, kind: FaultKind) {
        self.tally.count(kind);
        if !kind.suspends().is_empty() {
            self.shared.borrow_mut().oracle.suspend(kind.suspends());
        }
    }

    /// Returns whether faults that suspend rules may be injected.
    fn is_late(&self) -> bool {
        match self.plan.paired_until {
            Some(until) => self.now >= until / 4 * 3,
            None => self.shared.borrow().ops >= self.plan.operations / 4 * 3,
        }
    }

    pub(super) fn luck(&mut self, process: u32, bound: u64) -> u64 {
        self.processes[process as usize].luck.below(bound)
    }

    /// Returns whether the process waits for the reply to this request.
    fn waits(&self, who: Sender) -> bool {
        let it = &self.processes[who.process as usize];
        (it.life, it.exchange) == (who.life, who.exchange) && it.program.is_some()
    }

    /// Returns whether the process waits for the reply and is not partitioned.
    pub(super) fn awaits_reply(&self, who: Sender) -> bool {
        self.waits(who) && self.processes[who.process as usize].replies_cut_until <= self.now
    }

    /// Returns whether a request of the process is lost. A partition counts as a fault when it
    /// loses its first message.
    fn cuts_request(&mut self, process: u32) -> bool {
        let it = &mut self.processes[process as usize];
        let cut = it.requests_cut_until > self.now;
        if let Some(kind) = it.cut.take_if(|_| cut) {
            self.count_fault(kind);
        }
        cut
    }

    /// Returns whether a reply to the process is lost.
    fn cuts_reply(&mut self, to: Sender) -> bool {
        let waits = self.waits(to);
        let it = &mut self.processes[to.process as usize];
        let cut = it.replies_cut_until > self.now;
        if let Some(kind) = it.cut.take_if(|_| cut && waits) {
            self.count_fault(kind);
        }
        cut
    }

    /// Returns whether there is no leader. This counts as a fault when it fails its first request.
    fn is_leaderless(&mut self, asked_by: Sender) -> bool {
        let leaderless = self.leaderless_until > self.now;
        if leaderless && self.awaits_reply(asked_by) && std::mem::take(&mut self.leader_lost) {
            self.count_fault(FaultKind::LeaderChange);
        }
        leaderless
    }

    /// Returns whether the request is rejected as one too many. This counts as a fault when it
    /// rejects its first request. One of two copies cannot be rejected for both.
    fn is_throttled(&mut self, asked_by: Sender) -> bool {
        let awaited = self.awaits_reply(asked_by);
        let it = &mut self.processes[asked_by.process as usize];
        let throttled = it.throttled_until > self.now && awaited && !asked_by.doubled;
        if throttled && std::mem::take(&mut it.throttle) {
            self.count_fault(FaultKind::Throttle);
        }
        throttled
    }

    fn sender(&self, process: u32) -> Sender {
        let it = &self.processes[process as usize];
        Sender { process, life: it.life, exchange: it.exchange, doubled: false }
    }

    /// Takes the request of a process and sends it.
    pub(super) fn send(&mut self, process: u32, ask: Ask) {
        let from = self.sender(process);
        match ask {
            Ask::Wait(ticks) => {
                let tell = EventKind::Reply { to: from, reply: Reply::Waited, evidence: None };
                self.schedule(ticks.max(1), process, tell);
            }
            Ask::Write(write) => self.send_results(from, write),
            Ask::Result { lease, key } => {
                let user_worker = self.processes[process as usize].user_worker.as_ref();
                match user_worker.and_then(|user_worker| user_worker.result(&lease, &key)) {
                    Some(write) => self.send_results(from, write),
                    None => self.awaits_foreign_future(),
                }
            }
            Ask::Read(reads) => self.send_request(from, Request::Read(reads)),
            Ask::Commit(txns) => self.send_request(from, Request::Commit(txns)),
        }
    }

    fn latency(&mut self, process: u32) -> u64 {
        1 + self.processes[process as usize].latency.below(LATENCY_MAX)
    }

    fn send_request(&mut self, mut from: Sender, request: Request) {
        let process = from.process;
        let op = self.shared.borrow().current[process as usize].clone();
        let latency = self.latency(process);
        let fault = self.roll(process, Roll::Message);
        if self.cuts_request(process) {
            return self.time_out(from, &request);
        }
        // A late or duplicate read has no effect.
        let commits = matches!(request, Request::Commit(_));
        match fault {
            Some(FaultKind::MessageDrop) => {
                self.count_fault(FaultKind::MessageDrop);
                return self.time_out(from, &request);
            }
            Some(FaultKind::MessageDuplicate) => {
                // The fault is counted when the duplicate arrives.
                let (op, request) = (op.clone(), request.clone());
                let again = latency + 1 + self.luck(process, 2 * TIMEOUT_TICKS);
                from.doubled = true;
                // The transport delivers one reply; that to the duplicate is dropped.
                let from = Sender { exchange: COPY, ..from };
                self.schedule(again, process, EventKind::Arrive { from, op, request });
            }
            Some(FaultKind::MessageReorder) => {
                if commits {
                    self.count_fault(FaultKind::MessageReorder);
                }
                self.time_out(from, &request);
                let late = TIMEOUT_TICKS + 1 + self.luck(process, OVERTAKEN_MAX);
                return self.schedule(late, process, EventKind::Arrive { from, op, request });
            }
            Some(FaultKind::MessageDelay) => {
                self.count_fault(FaultKind::MessageDelay);
                let late = latency + 1 + self.luck(process, TIMEOUT_TICKS - 2 * LATENCY_MAX - 2);
                return self.schedule(late, process, EventKind::Arrive { from, op, request });
            }
            Some(FaultKind::CrashBeforeStore) => return self.crash_unsent(process),
            Some(FaultKind::PastLifeReply) if commits => {
                // The fault is counted when the message arrives, if its process was restarted by
                // then.
                let late = self.crash(process) + 1 + self.luck(process, TIMEOUT_TICKS);
                return self.schedule(late, process, EventKind::Arrive { from, op, request });
            }
            Some(FaultKind::PastLifeReply) | None => {}
            Some(kind) => self.apply_to_process(kind, process),
        }
        if latency == 0 {
            self.arrive(from, op, request);
        } else {
            self.schedule(latency, process, EventKind::Arrive { from, op, request });
        }
    }

    fn crash_unsent(&mut self, process: u32) {
        self.count_fault(FaultKind::CrashBeforeStore);
        self.crash(process);
    }

    /// Applies a fault that affects the process and not its message.
    fn apply_to_process(&mut self, kind: FaultKind, process: u32) {
        let until = self.now + 1 + self.luck(process, CUT_MAX);
        let it = &mut self.processes[process as usize];
        match kind {
            FaultKind::CutRequests => (it.requests_cut_until, it.cut) = (until, Some(kind)),
            FaultKind::CutReplies => (it.replies_cut_until, it.cut) = (until, Some(kind)),
            FaultKind::CutBoth => {
                (it.requests_cut_until, it.replies_cut_until) = (until, until);
                it.cut = Some(kind);
            }
            FaultKind::Throttle => (it.throttled_until, it.throttle) = (until, true),
            FaultKind::PauseShort => {
                it.paused_until = self.now + 1 + it.luck.below(PAUSE_SHORT_MAX);
                it.pause = Some(kind);
            }
            FaultKind::PauseLong => {
                it.paused_until = self.now + it.luck.between(PAUSE_LONG.0, PAUSE_LONG.1);
                it.pause = Some(kind);
            }
            FaultKind::Twin => self.make_twin(process),
            FaultKind::ClockBack => self.step_clock(kind, process, -1),
            FaultKind::ClockForward => self.step_clock(kind, process, 1),
            FaultKind::LeaderChange => {
                self.leaderless_until = until.min(self.now + TIMEOUT_TICKS);
                self.leader_lost = true;
            }
            FaultKind::EarlyRevoke => {
                let had_some = self.disk.vanish(bound_number(process, it.life));
                if it.luck.one_in(2) {
                    it.store.bind_anew();
                }
                if had_some {
                    self.count_fault(kind);
                }
            }
            other => unreachable!("{} does not affect a process", other.name()),
        }
    }

    fn step_clock(&mut self, kind: FaultKind, process: u32, sign: i64) {
        self.count_fault(kind);
        let step = 1 + self.luck(process, CLOCK_STEP_MAX) as i64;
        let clock: &mut Clock = &mut self.shared.borrow_mut().clocks[process as usize];
        clock.offset += sign * step;
    }

    /// Schedules a timeout reply with an unknown outcome.
    fn time_out(&mut self, to: Sender, request: &Request) {
        let reply = match request {
            Request::Read(_) => Reply::Read(Err(transient("no reply to a read"))),
            Request::Commit(txns) => {
                Reply::Committed(txns.iter().map(|_| Ok(CommitOutcome::Unknown)).collect())
            }
        };
        self.schedule(TIMEOUT_TICKS, to.process, EventKind::Reply { to, reply, evidence: None });
    }

    fn send_results(&mut self, from: Sender, write: SinkWrite) {
        let process = from.process;
        let latency = self.latency(process).max(1);
        let lost = EventKind::Reply { to: from, reply: Reply::Written(None), evidence: None };
        let fault = self.roll(process, Roll::Message);
        if self.cuts_request(process) {
            return self.schedule(TIMEOUT_TICKS, process, lost);
        }
        match fault {
            Some(FaultKind::MessageDrop) => {
                self.count_fault(FaultKind::MessageDrop);
                return self.schedule(TIMEOUT_TICKS, process, lost);
            }
            Some(FaultKind::MessageReorder) => {
                self.count_fault(FaultKind::MessageReorder);
                self.schedule(TIMEOUT_TICKS, process, lost);
                let late = TIMEOUT_TICKS + 1 + self.luck(process, OVERTAKEN_MAX);
                return self.schedule(late, process, EventKind::Sink { from, write });
            }
            Some(FaultKind::MessageDuplicate) => {
                let again = latency + 1 + self.luck(process, OVERTAKEN_MAX);
                let from = Sender { exchange: COPY, doubled: true, ..from };
                self.schedule(again, process, EventKind::Sink { from, write });
            }
            Some(FaultKind::MessageDelay) => {
                self.count_fault(FaultKind::MessageDelay);
                let late = latency + 1 + self.luck(process, TIMEOUT_TICKS / 2);
                return self.schedule(late, process, EventKind::Sink { from, write });
            }
            Some(FaultKind::CrashBeforeStore) => return self.crash_unsent(process),
            Some(FaultKind::PastLifeReply) | None => {}
            Some(kind) => self.apply_to_process(kind, process),
        }
        self.schedule(latency, process, EventKind::Sink { from, write });
    }

    /// Delivers results to the sink.
    pub(super) fn sink(&mut self, from: Sender, write: SinkWrite) {
        self.count_fault_if(from.exchange == COPY, Some(FaultKind::MessageDuplicate));
        let SinkWrite { run, keys, shard, grant, fence } = write;
        let taken = {
            let shared = &mut *self.shared.borrow_mut();
            let oracle = &mut shared.oracle;
            let holder = oracle.shards[shard as usize].holder;
            let current = holder.is_some_and(|holder| holder.grant == grant);
            let judged = !oracle.is_suspended(Rule::SinkOrder);
            let (mut taken, mut crossed) = (true, false);
            for key in keys.0..keys.1 {
                // By the order of grants, which is unknown to the sink.
                let stale = grant < oracle.sink.cell(run, key).grant;
                let fate = match &mut self.user_sink {
                    Some(sink) => {
                        let (id, name) = (oracle.runs[run as usize].id, oracle.keys.key(key));
                        match sink.write(id, name, FenceEpoch::from_raw(fence)) {
                            true => oracle.sink.force(run, key, fence, grant),
                            false => Taken::Stale,
                        }
                    }
                    None if Mutated::sink_takes_anything(shared.bug) => {
                        oracle.sink.force(run, key, fence, grant)
                    }
                    None => oracle.sink.write(run, key, fence, grant),
                };
                oracle.stale.keys += u64::from(stale);
                oracle.stale.keys_accepted += u64::from(stale && judged && fate == Taken::Accepted);
                oracle.stale.keys_early += u64::from(!stale && !current);
                taken &= fate == Taken::Accepted;
                crossed |= fate == Taken::Crossed || stale && fate == Taken::Accepted;
            }
            let why = "the sink received fences that do not follow the order of grants";
            let ordered = !crossed || oracle.runs[run as usize].unprotected;
            let verdict = oracle.require(ordered, Rule::SinkOrder, why);
            shared.note(u64::from(keys.0) << 32 | u64::from(keys.1), fence << 1 | u64::from(taken));
            shared.add_trace(|| {
                let process = from.process;
                format!("sink p{process} run {run} keys {keys:?} fence {fence} taken {taken}")
            });
            shared.judge(verdict);
            taken
        };
        let after = self.latency(from.process).max(1);
        let cut = self.cuts_reply(from);
        let (after, taken) = if cut { (TIMEOUT_TICKS, None) } else { (after, Some(taken)) };
        let reply = Reply::Written(taken);
        self.schedule(after, from.process, EventKind::Reply { to: from, reply, evidence: None });
    }

    /// Delivers a request to the store.
    pub(super) fn arrive(&mut self, from: Sender, op: Option<Rc<Op>>, request: Request) {
        if let Some(op) = &op {
            self.shared.borrow_mut().oracle.count_stale(op);
        }
        match request {
            Request::Read(reads) => self.read(from, &reads),
            Request::Commit(txns) => self.commit(from, op, txns),
        }
    }

    fn reply(&mut self, to: Sender, reply: Reply, evidence: Option<Box<Evidence>>) {
        if self.cuts_reply(to) {
            let request = match &reply {
                Reply::Committed(outcomes) => {
                    Request::Commit(outcomes.iter().map(|_| Txn::new()).collect())
                }
                Reply::Read(_) | Reply::Waited | Reply::Written(_) => Request::Read(Vec::new()),
            };
            return self.time_out(to, &request);
        }
        let after = self.latency(to.process);
        let waits = &self.processes[to.process as usize];
        let is_paused = waits.paused_until > self.now;
        let is_current = (waits.life, waits.exchange) == (to.life, to.exchange);
        if after == 0 && is_current && !is_paused && evidence.is_none() {
            self.at_once = Some(reply);
        } else {
            self.schedule(after, to.process, EventKind::Reply { to, reply, evidence });
        }
    }

    fn read(&mut self, from: Sender, reads: &[Read]) {
        if self.is_leaderless(from) {
            let failed = Reply::Read(Err(transient("there is no leader")));
            return self.reply(from, failed, None);
        }
        if self.is_throttled(from) {
            let failed = Reply::Read(Err(transient("too many requests")));
            return self.reply(from, failed, None);
        }
        // A fault without an observer is not counted.
        let fault = self.roll(from.process, Roll::Read).filter(|_| self.awaits_reply(from));
        // A single value is read at the latest revision; only a range is read at a revision that
        // may be compacted.
        let in_pages = |read: &Read| matches!(read, Read::Scan { .. } | Read::ScanFirst { .. });
        let fault =
            fault.filter(|kind| *kind != FaultKind::Compaction || reads.iter().any(in_pages));
        if fault == Some(FaultKind::Compaction) {
            self.count_fault(FaultKind::Compaction);
            let failed = Reply::Read(Err(transient("the revision was compacted")));
            return self.reply(from, failed, None);
        }
        let mut answers = self.disk.read(reads, self.plan.store_limits().page);
        let mut shown: Vec<(Key, bool)> = Vec::new();
        if let Some(kind) = fault {
            shown.extend(self.damage(kind, from.process, reads, &mut answers));
        }
        self.shows_torn(from, reads, &answers, &mut shown);
        self.shows_halves(from, reads, &mut shown);
        // An older run head may have no shards yet; then the torn shard is not read.
        let is_older = fault == Some(FaultKind::OldVersionRead);
        let evidence = self.evidence(from.process, reads, shown, is_older);
        self.damaged_reads += u64::from(evidence.as_ref().is_some_and(|it| it.must));
        if let Some(bug) = self.plan.bug {
            let op = self.shared.borrow().current[from.process as usize].clone();
            if let Some(op) = op {
                Mutated::show(bug, &op, reads, &mut answers, &self.disk);
            }
        }
        self.reply(from, Reply::Read(Ok(answers)), evidence);
    }

    fn commit(&mut self, from: Sender, op: Option<Rc<Op>>, txns: Vec<Txn>) {
        let process = from.process;
        if self.is_throttled(from) {
            let failed = txns.iter().map(|_| Err(transient("too many requests"))).collect();
            return self.reply(from, Reply::Committed(failed), None);
        }
        let fault = self.roll(process, Roll::Commit);
        let (leaderless, waiting) = (self.is_leaderless(from), self.awaits_reply(from));
        self.count_fault_if(from.exchange == COPY, Some(FaultKind::MessageDuplicate));
        let room = SMALL_TXN.0 + self.luck(process, SMALL_TXN.1);
        // A refusal means that the transaction will never be applied, which no transport can say
        // about one of two copies.
        let refuses = fault.filter(|_| !from.doubled);
        let unsure = leaderless || fault == Some(FaultKind::FsyncError);
        let (mut applied, mut refused_some) = (false, false);
        let mut outcomes = Vec::with_capacity(txns.len());
        for txn in txns {
            if let Some(why) = refuses.and_then(|kind| refused(kind, &txn, room)) {
                refused_some = true;
                outcomes.push(Err(refusal(why)));
                continue;
            }
            // Durability is decided at random and not reported.
            let lost = unsure && self.luck(process, 2) == 0;
            let outcome = if lost { None } else { self.apply(from, op.as_deref(), txn, fault) };
            applied |= matches!(outcome, Some(Ok(CommitOutcome::Applied { .. })));
            outcomes.push(match outcome {
                Some(outcome) if !unsure => outcome,
                Some(_) | None => Ok(CommitOutcome::Unknown),
            });
        }
        self.count_fault_if(refused_some && waiting, fault);
        self.count_fault_if(applied && self.is_past_life(from), Some(FaultKind::PastLifeReply));
        match fault {
            Some(FaultKind::ReplyLost) => {
                self.count_fault_if(applied && waiting && !unsure, fault);
                let nobody_knows = Request::Commit(outcomes.iter().map(|_| Txn::new()).collect());
                self.time_out(from, &nobody_knows);
            }
            Some(FaultKind::CrashAfterStore) if applied && self.waits(from) => {
                self.count_fault(FaultKind::CrashAfterStore);
                self.crash(process);
            }
            Some(FaultKind::FsyncError) => {
                self.count_fault_if(waiting && !leaderless, fault);
                self.reply(from, Reply::Committed(outcomes), None);
            }
            Some(_) | None => self.reply(from, Reply::Committed(outcomes), None),
        }
    }

    pub(super) fn count_fault_if(&mut self, changed: bool, kind: Option<FaultKind>) {
        if let Some(kind) = kind.filter(|_| changed) {
            self.count_fault(kind);
        }
    }

    /// Returns whether the sender was killed and restarted since.
    fn is_past_life(&self, who: Sender) -> bool {
        let process = &self.processes[who.process as usize];
        let reborn = process.life != who.life && process.program.is_some();
        reborn && self.is_faulty() && self.plan.faults.has(FaultKind::PastLifeReply)
    }

    /// Applies one transaction if it has no conflict, and informs the oracle.
    fn apply(
        &mut self,
        from: Sender,
        op: Option<&Op>,
        txn: Txn,
        fault: Option<FaultKind>,
    ) -> Option<Result<CommitOutcome, InfraError>> {
        let op = op.expect("only operations commit");
        let mutated = Mutated::store(self.plan.bug, op, txn, &self.disk);
        let Mutated { txn, result } = mutated;
        if let Some(conflict) = self.disk.conflict(&txn) {
            return Some(Ok(CommitOutcome::Conflict(conflict)));
        }
        let tenant = self.shared.borrow().tenants[op.tenant as usize];
        if let Some(Write::Put(Key::ShardHot { tenant, shard }, _)) = txn.writes().first() {
            let owner = Key::Owner { tenant: *tenant, shard: *shard };
            op.owner_key.set(self.disk.get(&owner).is_some());
        }
        if let Some(target) = op.target.filter(|_| op.verb == Verb::RepairShard) {
            op.found.set(self.damage_of(tenant, target.key));
        }
        let revision = self.disk.apply(&txn, bound_number(from.process, from.life));
        {
            let shared = &mut *self.shared.borrow_mut();
            shared.note(revision, op.number);
            shared.add_trace(|| {
                let (process, verb, count) = (from.process, op.verb, txn.writes().len());
                format!("store p{process} op {} {verb:?}: {count} writes at {revision}", op.number)
            });
            shared.oracle.now = self.now;
            let verdict = shared.oracle.applied(op, tenant, &txn);
            shared.judge(verdict);
        }
        match fault {
            Some(FaultKind::TornWrite) => self.tear(from.process, &txn, revision),
            Some(FaultKind::LostWrite) => self.forget_write(from.process, op, &txn),
            Some(FaultKind::Restore) => self.restore(from.process),
            Some(_) | None => {}
        }
        Some(Ok(result.unwrap_or(CommitOutcome::Applied { revision })))
    }
}

/// Returns the reason to refuse `txn`, if the disk is full or the transaction exceeds the reduced
/// limit.
fn refused(kind: FaultKind, txn: &Txn, room: u64) -> Option<StoreRefusal> {
    match kind {
        FaultKind::DiskFull => {
            let grows = |write: &Write| !matches!(write, Write::Delete(_));
            txn.writes().iter().any(grows).then_some(StoreRefusal::NoSpace)
        }
        FaultKind::TxnTooLarge => {
            let operations = txn.compares().len() + txn.writes().len();
            (operations as u64 > room).then_some(StoreRefusal::TooLarge)
        }
        _ => None,
    }
}

pub(super) fn transient(message: &str) -> InfraError {
    InfraError::Transient { operation: "simulated store", message: message.to_owned() }
}

pub(super) fn refusal(why: StoreRefusal) -> InfraError {
    let message = "refused by an injected fault".to_owned();
    InfraError::Refused { operation: "simulated store", why, message }
}
