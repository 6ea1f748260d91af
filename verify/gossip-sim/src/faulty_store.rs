//! A blocking store on the simulated disk, with injected faults.
//!
//! The simulator's own programs are asynchronous, and each of their messages is an event. A worker
//! of the runtime blocks: it calls a [`Store`] and has the answer when the call returns. This
//! module is that store. It uses the same disk, fault kinds, rates and dice as the simulator.
//! Latencies are not waited for but summed up ([`FaultyDisk::take_busy`]); the driver of the
//! processes advances the time.
//!
//! A *process* here is one incarnation: it has its own clock and connection to the store, and is
//! never restarted. After its death its calls have no effect, so a process that dies in the middle
//! of an operation behaves like a killed one; its driver drops the rest of it.
//!
//! # Never
//! - applies a commit that was answered by an error or a conflict;
//! - damages a stored value other than a part of a shard: an operator can repair nothing else.
//!   [`Simulator`](super::Simulator) damages all kinds;
//! - overlaps calls: only late messages come between a read and a commit.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::store::{
    Answer, CommitOutcome, Key, Read, Store, StoreLimits, Txn, Write,
};
use gossip_coordination::{InfraError, StoreRefusal};

use super::backend::SimulationBackend;
use super::context::EPOCH;
use super::disk::Disk;
use super::faults::{Dice, FaultKind, FaultSet, FaultTally, Place};
use super::process_clock::{ClockErrors, ProcessClock};
use super::random::Stream;
use super::wire::{LATENCY_MAX, OVERTAKEN_MAX, Roll, TIMEOUT_TICKS, refusal, transient};

/// Parameters of the faults of a [`FaultyDisk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plan is written down in full")]
pub struct Nature {
    /// Seed of all random choices.
    pub seed: u64,
    /// Kinds of faults that may be injected; kinds that are not in [`FaultyDisk::KINDS`] are
    /// ignored.
    pub faults: FaultSet,
    /// Multiplier of the fault rates.
    pub roughness: u64,
    /// Whether the store binds owner keys to the lifetime of a process.
    pub binds: bool,
    /// Lease duration in ticks, at least eight: pauses and partitions are proportional to it.
    pub lease: u64,
}

/// A transaction at the instant it is applied.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an observation in full")]
pub struct Applied<'t> {
    /// The transaction.
    pub txn: &'t Txn,
    /// The true time.
    pub at: u64,
    /// Its process.
    pub process: u32,
    /// By how much the wall clock of its process was ahead of the true time when the process read
    /// its offset last.
    pub clock_error: i64,
    /// The same for the worker time.
    pub worker_error: i64,
}

/// Observer of every applied transaction.
type Watcher = dyn FnMut(Applied<'_>) + Send;

/// A disk, the connections of processes to it, and the time.
#[derive(Clone)]
pub struct FaultyDisk(Arc<Mutex<FaultyState>>);

struct FaultyState {
    nature: Nature,
    disk: Disk,
    dice: [Dice; 3],
    tally: FaultTally,
    lines: BTreeMap<u32, Line>,
    late: Vec<Late>,
    /// Number of calls of all processes.
    calls: u64,
    now: u64,
    leaderless_until: u64,
    /// Whether no more faults are injected.
    is_calm: bool,
    watcher: Option<Box<Watcher>>,
}

/// A commit that arrives late.
struct Late {
    /// The number of the call before which it arrives.
    due: u64,
    process: u32,
    errors: ClockErrors,
    txn: Txn,
}

/// The connection of a process.
struct Line {
    /// Whether the process is exempt from faults.
    is_spared: bool,
    is_dead: bool,
    clock: ProcessClock,
    /// The errors of its clocks when it read its offset last, as it does for every request.
    noted: ClockErrors,
    requests_cut_until: u64,
    replies_cut_until: u64,
    paused_until: u64,
    throttled_until: u64,
    /// Whether a twin with the same worker id is to be started.
    wants_twin: bool,
    binding: Option<u64>,
    /// Latency of its calls that the driver has not accounted for yet.
    busy: u64,
    luck: Stream,
    latency: Stream,
}

impl FaultyDisk {
    /// The kinds of faults that this store injects.
    pub const KINDS: &'static [FaultKind] = &[
        FaultKind::MessageDrop,
        FaultKind::MessageDuplicate,
        FaultKind::MessageReorder,
        FaultKind::MessageDelay,
        FaultKind::CutRequests,
        FaultKind::CutReplies,
        FaultKind::CutBoth,
        FaultKind::Throttle,
        FaultKind::ReplyLost,
        FaultKind::PastLifeReply,
        FaultKind::CrashBeforeStore,
        FaultKind::CrashAfterStore,
        FaultKind::PauseShort,
        FaultKind::PauseLong,
        FaultKind::SameName,
        FaultKind::Twin,
        FaultKind::ClockSkew,
        FaultKind::ClockDrift,
        FaultKind::ClockBack,
        FaultKind::ClockForward,
        FaultKind::TornWrite,
        FaultKind::FsyncError,
        FaultKind::BitFlip,
        FaultKind::TruncatedRead,
        FaultKind::DiskFull,
        FaultKind::LeaderChange,
        FaultKind::EarlyRevoke,
        FaultKind::Compaction,
        FaultKind::TxnTooLarge,
    ];

    /// Returns an empty disk.
    #[must_use]
    pub fn new(nature: Nature) -> Self {
        let possible = Self::KINDS.iter().copied().filter(|kind| nature.faults.has(*kind));
        let faults = possible.fold(FaultSet::NONE, FaultSet::with);
        let dice = [Place::Message, Place::Commit, Place::Read]
            .map(|place| Dice::new(place, faults, nature.roughness));
        Self(Arc::new(Mutex::new(FaultyState {
            nature: Nature { faults, ..nature },
            disk: Disk::default(),
            dice,
            tally: FaultTally::default(),
            lines: BTreeMap::new(),
            late: Vec::new(),
            calls: 0,
            now: 0,
            leaderless_until: 0,
            is_calm: false,
            watcher: None,
        })))
    }

    /// Calls `watcher` for every transaction from now on, at the instant it is applied.
    pub fn watch(&self, watcher: impl FnMut(Applied<'_>) + Send + 'static) {
        self.state().watcher = Some(Box::new(watcher));
    }

    /// Starts `process`, whose number was not used before.
    pub fn start(&self, process: u32) {
        let mut state = self.state();
        let line = state.new_line(process);
        state.lines.insert(process, line);
    }

    /// Starts a process that is exempt from faults, for observers and administrators.
    pub fn start_spared(&self, process: u32) {
        let mut state = self.state();
        let (clock, noted) = (ProcessClock::default(), ClockErrors::default());
        let line = Line { is_spared: true, clock, noted, ..state.new_line(process) };
        state.lines.insert(process, line);
    }

    /// Returns a handle for `process`, which must be started.
    #[must_use]
    pub fn store(&self, process: u32) -> FaultyStore {
        FaultyStore { disk: self.clone(), process, loses_reply: false }
    }

    /// Sets the time to `now`. Time never goes back.
    pub fn set_now(&self, now: u64) {
        let mut state = self.state();
        state.now = state.now.max(now);
    }

    /// Returns the worker time of a process, which may be wrong and is never set.
    #[must_use]
    pub fn clock(&self, process: u32) -> LogicalTime {
        let state = self.state();
        let (now, line) = (state.now, state.lines.get(&process));
        LogicalTime::from_raw(line.map_or(EPOCH + now, |line| line.clock.worker(now)))
    }

    /// Returns how far the wall clock of a process is ahead of its worker time. What the process
    /// requests next has these times.
    #[must_use]
    pub fn clock_offset(&self, process: u32) -> i64 {
        let mut state = self.state();
        let now = state.now;
        let Some(line) = state.lines.get_mut(&process) else { return 0 };
        line.noted = line.clock.errors(now);
        line.clock.offset()
    }

    /// Returns the latency of the calls of a process since the last call of this function.
    #[must_use]
    pub fn take_busy(&self, process: u32) -> u64 {
        self.state().lines.get_mut(&process).map_or(0, |line| std::mem::take(&mut line.busy))
    }

    /// Returns whether a process has died.
    #[must_use]
    pub fn is_dead(&self, process: u32) -> bool {
        self.state().lines.get(&process).is_none_or(|line| line.is_dead)
    }

    /// Returns the time until which a process is paused.
    #[must_use]
    pub fn paused_until(&self, process: u32) -> u64 {
        self.state().lines.get(&process).map_or(0, |line| line.paused_until)
    }

    /// Returns whether a twin of a process is to be started, once.
    #[must_use]
    pub fn takes_twin(&self, process: u32) -> bool {
        let mut state = self.state();
        let asked = state.lines.get_mut(&process);
        asked.is_some_and(|line| std::mem::take(&mut line.wants_twin))
    }

    /// Kills a process.
    pub fn kill(&self, process: u32) {
        if let Some(line) = self.state().lines.get_mut(&process) {
            line.is_dead = true;
        }
    }

    /// Expires the keys that are bound to a process.
    pub fn vanish(&self, process: u32) {
        self.state().disk.vanish(process);
    }

    /// Counts a fault that the driver injected.
    pub fn felt(&self, kind: FaultKind) {
        self.state().tally.count(kind);
    }

    /// Returns whether `kind` may be injected now.
    #[must_use]
    pub fn allows(&self, kind: FaultKind) -> bool {
        let state = self.state();
        !state.is_calm && state.nature.faults.has(kind)
    }

    /// Stops injecting faults, and ends partitions, pauses and throttling. Clocks stay wrong.
    pub fn calm(&self) {
        let mut state = self.state();
        (state.is_calm, state.leaderless_until) = (true, 0);
        for line in state.lines.values_mut() {
            (line.requests_cut_until, line.replies_cut_until) = (0, 0);
            (line.paused_until, line.throttled_until) = (0, 0);
        }
    }

    /// Returns the number of injected faults of each kind.
    #[must_use]
    pub fn tally(&self) -> FaultTally {
        self.state().tally.clone()
    }

    fn state(&self) -> MutexGuard<'_, FaultyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyDisk").field("nature", &self.state().nature).finish_non_exhaustive()
    }
}

/// The delivery of a message.
enum Sent {
    /// It arrives.
    Arrives,
    /// It arrives twice.
    Twice,
    /// It is lost.
    Never,
    /// It arrives after its sender's timeout.
    Late,
}

impl FaultyState {
    /// Returns the connection of a new process, with the clock error that the plan allows.
    fn new_line(&mut self, process: u32) -> Line {
        let Nature { seed, faults, lease, binds, .. } = self.nature;
        let mut luck = Stream::named(seed, "luck", process.into());
        let mut clock = ProcessClock::default();
        // Also after faults have stopped: a new process does not make its machine's clock right.
        if faults.has(FaultKind::ClockSkew) && luck.one_in(2) {
            clock.skew(lease, &mut luck);
            self.tally.count(FaultKind::ClockSkew);
        }
        if faults.has(FaultKind::ClockDrift) && luck.one_in(2) {
            clock.drift(&mut luck);
            self.tally.count(FaultKind::ClockDrift);
        }
        Line {
            is_spared: false,
            is_dead: false,
            clock,
            noted: clock.errors(self.now),
            requests_cut_until: 0,
            replies_cut_until: 0,
            paused_until: 0,
            throttled_until: 0,
            wants_twin: false,
            binding: binds.then_some(1),
            busy: 0,
            luck,
            latency: Stream::named(seed, "latency", process.into()),
        }
    }

    fn line(&mut self, process: u32) -> &mut Line {
        self.lines.get_mut(&process).expect("a process is started before it calls")
    }

    fn roll(&mut self, process: u32, roll: Roll) -> Option<FaultKind> {
        if self.is_calm {
            return None;
        }
        let draw = self.line(process).luck.draw();
        self.dice[roll as usize].roll(draw)
    }

    /// Begins a call: delivers late messages, and sends this one.
    fn send(&mut self, process: u32, commits: bool) -> Sent {
        self.calls += 1;
        self.deliver_late();
        let latency = self.line(process).latency.below(LATENCY_MAX + 1);
        self.line(process).busy += latency;
        let fault = self.roll(process, Roll::Message);
        let now = self.now;
        if self.line(process).requests_cut_until > now {
            return self.lose(process, Sent::Never);
        }
        match fault {
            Some(FaultKind::MessageDrop) => {
                self.tally.count(FaultKind::MessageDrop);
                self.lose(process, Sent::Never)
            }
            Some(FaultKind::MessageDuplicate) if commits => {
                self.tally.count(FaultKind::MessageDuplicate);
                Sent::Twice
            }
            Some(FaultKind::MessageReorder) if commits => {
                self.tally.count(FaultKind::MessageReorder);
                self.lose(process, Sent::Late)
            }
            Some(FaultKind::MessageDelay) => {
                self.tally.count(FaultKind::MessageDelay);
                let line = self.line(process);
                line.busy += line.luck.below(TIMEOUT_TICKS);
                Sent::Arrives
            }
            Some(FaultKind::CrashBeforeStore) => self.die(process, fault, Sent::Never),
            Some(FaultKind::PastLifeReply) if commits => self.die(process, fault, Sent::Late),
            Some(kind) => {
                self.apply_to_process(kind, process);
                Sent::Arrives
            }
            None => Sent::Arrives,
        }
    }

    /// Adds the timeout that the sender waits.
    fn lose(&mut self, process: u32, sent: Sent) -> Sent {
        self.line(process).busy += TIMEOUT_TICKS;
        sent
    }

    fn die(&mut self, process: u32, fault: Option<FaultKind>, sent: Sent) -> Sent {
        fault.into_iter().for_each(|kind| self.tally.count(kind));
        self.line(process).is_dead = true;
        sent
    }

    /// Applies a fault that affects the process and not its message.
    fn apply_to_process(&mut self, kind: FaultKind, process: u32) {
        let (now, lease) = (self.now, self.nature.lease);
        let line = self.line(process);
        let until = now + 1 + line.luck.below(lease);
        match kind {
            FaultKind::CutRequests => line.requests_cut_until = until,
            FaultKind::CutReplies => line.replies_cut_until = until,
            FaultKind::CutBoth => {
                (line.requests_cut_until, line.replies_cut_until) = (until, until);
            }
            FaultKind::Throttle => line.throttled_until = until,
            FaultKind::PauseShort => line.paused_until = now + 1 + line.luck.below(lease / 3),
            FaultKind::PauseLong => {
                line.paused_until = now + line.luck.between(lease + lease / 10, 3 * lease);
            }
            FaultKind::Twin => line.wants_twin = true,
            FaultKind::ClockBack | FaultKind::ClockForward => {
                let sign = if kind == FaultKind::ClockBack { -1 } else { 1 };
                line.clock.step(sign, now, lease, &mut line.luck);
            }
            FaultKind::LeaderChange => self.leaderless_until = now + TIMEOUT_TICKS,
            FaultKind::EarlyRevoke => {
                if line.luck.one_in(2) {
                    line.binding = line.binding.map(|binding| binding + 1);
                }
                if !self.disk.vanish(process) {
                    return;
                }
            }
            // A duplicate or late message that is not a commit has no effect.
            _ => return,
        }
        if kind != FaultKind::Twin {
            self.tally.count(kind);
        }
    }

    fn read(&mut self, process: u32, reads: &[Read]) -> Result<Vec<Answer>, InfraError> {
        match self.send(process, false) {
            Sent::Arrives | Sent::Twice => {}
            Sent::Never | Sent::Late => return Err(transient("no reply to a read")),
        }
        if self.leaderless_until > self.now {
            return Err(transient("there is no leader"));
        }
        let now = self.now;
        if self.line(process).throttled_until > now {
            return Err(transient("too many requests"));
        }
        let fault = self.roll(process, Roll::Read);
        if fault == Some(FaultKind::Compaction) {
            self.tally.count(FaultKind::Compaction);
            return Err(transient("the revision was compacted"));
        }
        if self.cuts_reply(process) {
            return Err(transient("no reply to a read"));
        }
        let mut answers = self.disk.read(reads, LIMITS.page);
        if let Some(kind @ (FaultKind::BitFlip | FaultKind::TruncatedRead)) = fault {
            self.damage(kind, process, &mut answers);
        }
        Ok(answers)
    }

    /// Damages one value of the answers.
    fn damage(&mut self, kind: FaultKind, process: u32, answers: &mut [Answer]) {
        let mut values: Vec<&mut Vec<u8>> = Vec::new();
        for answer in answers {
            match answer {
                Answer::Value(Some(value)) => values.push(&mut value.bytes),
                Answer::Page(page) => values.extend(page.iter_mut().map(|(_, it)| &mut it.bytes)),
                Answer::Value(None) | Answer::Count(_) => {}
            }
        }
        values.retain(|bytes| !bytes.is_empty());
        if values.is_empty() {
            return;
        }
        let luck = &mut self.line(process).luck;
        let place = luck.below(values.len() as u64) as usize;
        spoil(values[place], kind == FaultKind::BitFlip, luck);
        self.tally.count(kind);
    }

    /// Damages one part of a shard that `txn` has written; it stays damaged until it is written
    /// again.
    fn tear(&mut self, process: u32, txn: &Txn) {
        let written = txn.writes().iter().filter_map(|write| match write {
            Write::Put(key @ (Key::ShardHot { .. } | Key::ShardCold { .. }), _) => Some(*key),
            Write::Put(..) | Write::Bind(..) | Write::Delete(..) => None,
        });
        let written: Vec<Key> = written.collect();
        if written.is_empty() {
            return;
        }
        let line = self.lines.get_mut(&process).expect("a process is started before it calls");
        let key = written[line.luck.below(written.len() as u64) as usize];
        let flips = line.luck.one_in(2);
        self.disk.overwrite(&key, |bytes| spoil(bytes, flips, &mut line.luck));
        self.tally.count(FaultKind::TornWrite);
    }

    fn commit(&mut self, process: u32, txns: &[Txn]) -> Vec<Result<CommitOutcome, InfraError>> {
        let unknown = || txns.iter().map(|_| Ok(CommitOutcome::Unknown)).collect();
        let sent = self.send(process, true);
        let errors = self.line(process).noted;
        if matches!(sent, Sent::Twice | Sent::Late) {
            let due = self.calls + 1 + self.line(process).luck.below(OVERTAKEN_MAX);
            let late = txns.iter().map(|txn| Late { due, process, errors, txn: txn.clone() });
            self.late.extend(late);
        }
        if matches!(sent, Sent::Never | Sent::Late) {
            return unknown();
        }
        let now = self.now;
        if self.line(process).throttled_until > now && matches!(sent, Sent::Arrives) {
            return txns.iter().map(|_| Err(transient("too many requests"))).collect();
        }
        let fault = self.roll(process, Roll::Commit);
        let refused = match fault {
            Some(FaultKind::DiskFull) => Some(StoreRefusal::NoSpace),
            Some(FaultKind::TxnTooLarge) => Some(StoreRefusal::TooLarge),
            Some(_) | None => None,
        };
        // A refusal means that the transaction will never be applied, which no transport can say
        // about one of two copies.
        if let Some(why) = refused.filter(|_| matches!(sent, Sent::Arrives)) {
            fault.into_iter().for_each(|kind| self.tally.count(kind));
            return txns.iter().map(|_| Err(refusal(why))).collect();
        }
        let unsure = self.leaderless_until > self.now || fault == Some(FaultKind::FsyncError);
        let outcomes: Vec<_> = txns
            .iter()
            .map(|txn| match unsure && self.line(process).luck.one_in(2) {
                true => Ok(CommitOutcome::Unknown),
                false => Ok(self.apply(process, errors, txn)),
            })
            .collect();
        if fault == Some(FaultKind::TornWrite)
            && let Some((txn, Ok(CommitOutcome::Applied { .. }))) =
                txns.iter().zip(&outcomes).next_back()
        {
            self.tear(process, txn);
        }
        if let Some(FaultKind::FsyncError | FaultKind::ReplyLost | FaultKind::CrashAfterStore) =
            fault
        {
            fault.into_iter().for_each(|kind| self.tally.count(kind));
            self.line(process).is_dead |= fault == Some(FaultKind::CrashAfterStore);
            self.line(process).busy += TIMEOUT_TICKS;
            return unknown();
        }
        if unsure || self.cuts_reply(process) { unknown() } else { outcomes }
    }

    fn cuts_reply(&mut self, process: u32) -> bool {
        let now = self.now;
        let line = self.line(process);
        let cut = line.replies_cut_until > now;
        line.busy += if cut { TIMEOUT_TICKS } else { 0 };
        cut
    }

    fn apply(&mut self, process: u32, errors: ClockErrors, txn: &Txn) -> CommitOutcome {
        if let Some(conflict) = self.disk.conflict(txn) {
            return CommitOutcome::Conflict(conflict);
        }
        let revision = self.disk.apply(txn, process);
        let ClockErrors { wall: clock_error, worker: worker_error } = errors;
        let at = self.now;
        if let Some(watcher) = &mut self.watcher {
            watcher(Applied { txn, at, process, clock_error, worker_error });
        }
        CommitOutcome::Applied { revision }
    }

    /// Applies late commits, whose replies are dropped.
    fn deliver_late(&mut self) {
        let calls = self.calls;
        while let Some(place) = self.late.iter().position(|late| late.due <= calls) {
            let Late { process, errors, txn, .. } = self.late.remove(place);
            self.apply(process, errors, &txn);
        }
    }
}

/// Flips one bit of a value that is not empty, or cuts its end off.
fn spoil(bytes: &mut Vec<u8>, flips: bool, luck: &mut Stream) {
    if flips {
        let bit = luck.below(8 * bytes.len() as u64);
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
    } else {
        bytes.truncate(luck.below(bytes.len() as u64) as usize);
    }
}

/// The limits of transactions and pages in the simulator, so that operations take several steps
/// here, too.
const LIMITS: StoreLimits = StoreLimits { txn_ops: 64, txn_bytes: 256 << 10, page: 16 };

/// The disk as one process sees it.
#[derive(Clone, Debug)]
pub struct FaultyStore {
    disk: FaultyDisk,
    process: u32,
    /// Whether the reply to the next commit is lost, regardless of the dice.
    loses_reply: bool,
}

/// A store without faults and without bound keys.
impl SimulationBackend for FaultyStore {
    const NAME: &'static str = "faulty store";

    fn fresh() -> Self {
        let (faults, lease) = (FaultSet::NONE, 1_000);
        let disk = FaultyDisk::new(Nature { seed: 1, faults, roughness: 1, binds: false, lease });
        disk.start(1);
        disk.store(1)
    }

    fn another_handle(&self) -> Self {
        let last = self.disk.state().lines.keys().next_back().copied();
        let next = last.map_or(1, |last| last + 1);
        self.disk.start(next);
        self.disk.store(next)
    }

    fn lose_next_reply(&mut self) {
        self.loses_reply = true;
    }
}

impl Store for FaultyStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let mut state = self.disk.state();
        if state.line(self.process).is_spared {
            return Ok(state.disk.read(&reads, LIMITS.page));
        }
        if state.line(self.process).is_dead {
            return Err(transient("the process is dead"));
        }
        state.read(self.process, &reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let mut state = self.disk.state();
        if state.line(self.process).is_spared {
            let errors = ClockErrors::default();
            return txns.iter().map(|txn| Ok(state.apply(self.process, errors, txn))).collect();
        }
        if state.line(self.process).is_dead {
            return txns.iter().map(|_| Ok(CommitOutcome::Unknown)).collect();
        }
        let mut outcomes = state.commit(self.process, &txns);
        if let Some(first) = outcomes.first_mut()
            && std::mem::take(&mut self.loses_reply)
        {
            *first = Ok(CommitOutcome::Unknown);
        }
        outcomes
    }

    fn wait(&mut self, ticks: u64) {
        self.disk.state().line(self.process).busy += ticks;
    }

    fn limits(&self) -> StoreLimits {
        LIMITS
    }

    fn binding(&self) -> Option<u64> {
        self.disk.state().line(self.process).binding
    }
}
