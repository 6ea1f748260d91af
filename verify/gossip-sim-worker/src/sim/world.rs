//! A world: starts, steps, stops and kills processes until the run has settled.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, ShardId, WorkerId};
use gossip_coordination::{ParkReason, RunConfig, RunManagement as _, ShardStatus, ShardSummary};
use gossip_handoff::Repository;
use gossip_scanner_runtime::stepping::{
    COLLECT_PATIENCE, HANDOFF_WAIT_MAX, HandoffThread, RUNNER_WAIT_MAX, Renewer, Rest, ShardRunner,
    WorkerShared,
};
use gossip_scanner_runtime::{
    Clock as _, Finish, Limits, Parts, WorkerConfig, initial_shards, worker_of,
};
use gossip_sim::{FaultKind, Stream};

use super::admin::Admin;
use super::oracle::Rule;
use super::plan::Setting;
use super::shared_state::{ADMIN, Handle, ProcessContext, RUN, SharedState, TENANT, keeps_name};
use super::source::ROOT;
use super::{Outcome, Plan, settle};
use crate::timeline::Timeline;

/// Ticks within which a run must settle after the last fault: leases of six seconds and handoffs of
/// fifteen may have to expire, killer keys kill a few times with a lease each, and shards parked
/// because of them are unparked. The slowest of many worlds takes a quarter.
pub const CALM_TICKS_MAX: u64 = 400_000;

/// Processes that can be started in a world.
const PROCESSES_MAX: u32 = 240;

/// Processes after which faults stop.
const PROCESSES_FAULTY: u32 = 60;

/// Steps after which a world counts as a livelock.
const STEPS_MAX: u64 = 2_000_000;

/// Maximum number of times that an operator unparks shards and starts workers again.
const CHANCES_MAX: u32 = 8;

/// How long a worker waits for an unusable store, in ticks: less than the longest partition, so
/// that some workers stop.
const STORE_PATIENCE: u64 = 5_000;

/// Maximum interval between actions of the administrator, in ticks.
const ADMIN_TICKS: u64 = 1_000;

/// Runs a world to its end.
pub(super) fn run(plan: Plan) -> Outcome {
    let shared = SharedState::new(Setting::of(&plan), plan.is_traced);
    register(&shared);
    let doors: Vec<ProcessContext<'_>> =
        (0..PROCESSES_MAX).map(|pid| ProcessContext::new(&shared, pid)).collect();
    let doors = &doors;
    let handles: Vec<_> = doors.iter().map(|context| move || context.coordinator()).collect();
    let desks: Vec<_> = doors.iter().map(|context| move |slot| context.desk(slot)).collect();
    let records: Vec<_> = doors.iter().map(|context| move || open_records(context)).collect();
    let parts: Vec<Option<Parts<'_, Handle<'_>>>> = doors
        .iter()
        .zip(handles.iter().zip(&desks).zip(&records))
        .map(|(context, ((coordinator, processor), records))| {
            Some(Parts {
                coordinator,
                connector: &*shared.source,
                processor,
                records: shared.setting.moves.then_some(records as _),
                clock: context,
                host: &(),
                drain: &context.drain,
                observer: context,
            })
        })
        .collect();
    let crews: Vec<OnceCell<WorkerShared<'_, Handle<'_>>>> =
        (0..PROCESSES_MAX).map(|_| OnceCell::new()).collect();
    World::new(&shared, doors, parts, &crews).run()
}

fn open_records<'w>(context: &'w ProcessContext<'w>) -> Box<dyn Repository + 'w> {
    context.records()
}

fn register(shared: &SharedState) {
    let mut admin = shared.admin();
    let (now, setting) = (shared.disk.clock(ADMIN), &shared.setting);
    let (lease, retries) = (setting.nature.lease, setting.task.shard_retries);
    let config = RunConfig::try_new(CursorSemantics::Completed, lease, retries);
    let config = config.expect("a setting makes a run");
    admin.create_run(now, TENANT, RUN, config).expect("the store is new");
    let root = ShardSpecRef::new(ROOT.0, ROOT.1, b"");
    let shards = initial_shards(shared.source.plain(), root, setting.roots);
    let shards = shards.expect("a source in memory can be looked at");
    let inputs: Vec<_> = shards
        .iter()
        .zip(1..)
        .map(|(spec, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: spec.as_spec_ref(),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let op_id = OpId::from_raw(1);
    admin.register_shards(now, TENANT, RUN, &inputs, op_id).expect("cuts tile the root");
}

/// Scheduled events, in the order in which those of one instant run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cue {
    /// Faults stop.
    Calm,
    /// A process is started at this place, under this number or a new one.
    Start { place: usize, number: u64 },
    /// The store detects the end of a process.
    Vanish(u32),
    /// A part of a process runs its next step.
    Act { pid: u32, part: usize },
    /// The administrator does something.
    Admin,
}

/// One process. Its parts are its slots, then the renewer, then the handoff thread.
struct Process<'c, 'w> {
    /// Which of the processes of the setting it is; none if it is a second one of that name.
    place: Option<usize>,
    number: u64,
    crew: &'c WorkerShared<'w, Handle<'w>>,
    slots: Vec<Option<ShardRunner<'c, 'w, Handle<'w>>>>,
    renewer: Option<Renewer<'c, 'w, Handle<'w>>>,
    porter: Option<HandoffThread<'c, 'w, Handle<'w>>>,
    parts: Vec<Pace>,
    /// Time of the renewer's last round.
    round_at: u64,
    /// Notifications that were received.
    heard: u64,
}

/// When a part runs its next step.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    due: u64,
    /// Whether it is idle and a notification wakes it.
    rests: bool,
    /// The time that it had read when it was stopped, and when that was.
    stale: Option<(LogicalTime, u64)>,
}

struct World<'c, 'w> {
    shared: &'w SharedState,
    doors: &'w [ProcessContext<'w>],
    /// The parts of each process, until it starts.
    parts: Vec<Option<Parts<'w, Handle<'w>>>>,
    crews: &'c [OnceCell<WorkerShared<'w, Handle<'w>>>],
    timeline: Timeline<Cue>,
    processes: BTreeMap<u32, Process<'c, 'w>>,
    admin: Admin<'w>,
    luck: Stream,
    now: u64,
    /// Processes that were started.
    started_count: u32,
    /// Numbers that were given to processes.
    numbers: u64,
    /// Places where a process is going to be started.
    awaited: usize,
    calm_since: Option<u64>,
    is_complete: bool,
    chances: u32,
    /// The shards that the operator has unparked last, by their first keys.
    retried: Option<Vec<Box<[u8]>>>,
    retries: u64,
    /// Workers that ended with an error.
    failures: u64,
    steps: u64,
    deaths: u64,
    drains: u64,
}

impl<'c, 'w> World<'c, 'w> {
    fn new(
        shared: &'w SharedState,
        doors: &'w [ProcessContext<'w>],
        parts: Vec<Option<Parts<'w, Handle<'w>>>>,
        crews: &'c [OnceCell<WorkerShared<'w, Handle<'w>>>],
    ) -> Self {
        Self {
            shared,
            doors,
            parts,
            crews,
            timeline: Timeline::new(),
            processes: BTreeMap::new(),
            admin: Admin::new(shared),
            luck: Stream::named(shared.setting.nature.seed, "world", 0),
            now: 0,
            started_count: 0,
            numbers: 0,
            awaited: 0,
            calm_since: None,
            is_complete: false,
            chances: 0,
            retried: None,
            retries: 0,
            failures: 0,
            steps: 0,
            deaths: 0,
            drains: 0,
        }
    }

    fn run(mut self) -> Outcome {
        for place in 0..self.shared.setting.processes.len() {
            let after = self.luck.below(100);
            self.await_start(after, place, None);
        }
        self.timeline.push(self.shared.setting.rough_ticks, Cue::Calm);
        self.timeline.push(1 + self.luck.below(ADMIN_TICKS), Cue::Admin);
        while let Some((at, cue)) = self.timeline.pop() {
            self.now = at;
            self.shared.now.store(at, Ordering::Relaxed);
            self.shared.disk.set_now(at);
            self.happen(cue);
            self.look_at_time();
            if self.shared.oracle().broken.is_some() || self.is_over() {
                break;
            }
        }
        self.outcome()
    }

    fn happen(&mut self, cue: Cue) {
        match cue {
            Cue::Calm => self.calm(),
            Cue::Start { place, number } => {
                self.awaited -= 1;
                self.start(Some(place), number);
            }
            Cue::Vanish(pid) => self.shared.disk.vanish(pid),
            Cue::Act { pid, part } => self.act(pid, part),
            Cue::Admin => self.let_admin_act(),
        }
    }

    /// Returns whether all processes have ended and none is scheduled.
    fn is_over(&mut self) -> bool {
        if !self.processes.is_empty() || self.awaited > 0 {
            return false;
        }
        if self.is_complete {
            return true;
        }
        if self.calm_since.is_none() {
            return false;
        }
        self.chances == CHANCES_MAX || self.operator_is_done()
    }

    /// Returns whether the operator has nothing left to do. All workers have ended. An operator who
    /// sees an incomplete run unparks the shards that are listed as parked by the attempt count,
    /// whatever their keys are, repairs the damaged ones, and starts workers again (`gossip shard
    /// unpark`, `gossip shard repair`, `gossip worker`), until that changes nothing any more.
    fn operator_is_done(&mut self) -> bool {
        let rows = settle::rows(self.shared, self.shared.disk.clock(ADMIN));
        let counted = |row: &&ShardSummary| row.park_reason == Some(ParkReason::TooManyErrors);
        let parked: Vec<_> = rows.iter().filter(counted).map(|row| row.start.clone()).collect();
        let unfinished = rows.iter().any(|row| row.status == ShardStatus::Active);
        let damaged = rows.iter().any(|row| row.damage.is_some());
        if !unfinished && !damaged && (parked.is_empty() || self.retried.as_ref() == Some(&parked))
        {
            return true;
        }
        self.chances += 1;
        self.retries += 1;
        self.shared.record(|| format!("the operator unparks {} shards", parked.len()));
        self.retried = Some(parked);
        // Before shards are unparked: a repaired one may turn out to be parked.
        self.admin.repair();
        self.admin.unpark(|row| row.park_reason == Some(ParkReason::TooManyErrors));
        self.fill_places();
        false
    }

    fn look_at_time(&mut self) {
        let late = self.calm_since.is_some_and(|since| self.now - since > CALM_TICKS_MAX);
        let steps = self.steps;
        self.shared.oracle().require(!late && steps < STEPS_MAX, Rule::NeverSettles, || {
            format!("shards are left long after the last fault, at step {steps}")
        });
    }

    /// Stops faults. The administrator resumes the run that it paused; nothing else is done for the
    /// workers.
    fn calm(&mut self) {
        if self.calm_since.is_some() {
            return;
        }
        self.shared.record(|| "faults stop".to_owned());
        self.calm_since = Some(self.now);
        self.shared.disk.calm();
        self.admin.resume();
    }

    /// Starts a process in every place without a running or scheduled one.
    fn fill_places(&mut self) {
        if self.awaited > 0 {
            return;
        }
        for place in 0..self.shared.setting.processes.len() {
            if !self.processes.values().any(|process| process.place == Some(place)) {
                let after = 1 + self.luck.below(100);
                self.await_start(after, place, None);
            }
        }
    }

    fn await_start(&mut self, after: u64, place: usize, number: Option<u64>) {
        let number = number.unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers
        });
        self.awaited += 1;
        self.timeline.push(self.now + after, Cue::Start { place, number });
    }

    fn start(&mut self, place: Option<usize>, number: u64) {
        let pid = self.started_count;
        if pid == PROCESSES_MAX {
            let why = || "too many processes died".to_owned();
            return self.shared.oracle().require(false, Rule::NeverSettles, why);
        }
        self.started_count += 1;
        if self.started_count == PROCESSES_FAULTY {
            self.timeline.push(self.now, Cue::Calm);
        }
        self.shared.record(|| format!("p{pid} starts as {number}"));
        self.shared.disk.start(pid);
        let slots = place.map_or(1, |place| self.shared.setting.processes[place]);
        let config = self.config(number, slots, pid);
        let parts = self.parts[pid as usize].take().expect("a pid begins once");
        let crew = self.crews[pid as usize].get_or_init(|| WorkerShared::new(&config, parts));
        let porter = HandoffThread::new(crew);
        let pace = Pace { due: self.now, ..Pace::default() };
        let process = Process {
            place,
            number,
            crew,
            slots: (0..slots).map(|slot| Some(ShardRunner::new(crew, slot))).collect(),
            renewer: Some(Renewer::new(crew)),
            parts: vec![pace; slots + 1 + usize::from(porter.is_some())],
            porter,
            round_at: self.now,
            heard: crew.notifications(),
        };
        for part in 0..process.parts.len() {
            self.timeline.push(self.now, Cue::Act { pid, part });
        }
        self.processes.insert(pid, process);
    }

    fn config(&self, number: u64, slots: usize, pid: u32) -> WorkerConfig {
        let Setting { nature, task, auto_split, items_per_second, .. } = &self.shared.setting;
        WorkerConfig {
            tenant: TENANT,
            run: RUN,
            worker: worker_of(RUN, number),
            lease_ticks: nature.lease,
            threads: slots,
            task: *task,
            limits: Limits { items: *items_per_second, bytes: None },
            max_parked: usize::MAX,
            auto_split: *auto_split,
            store_patience: STORE_PATIENCE,
            seed: nature.seed ^ u64::from(pid) << 16,
        }
    }

    /// Runs the next step of a part of a process.
    fn act(&mut self, pid: u32, part: usize) {
        let Some(mut process) = self.processes.remove(&pid) else { return };
        let pace = process.parts[part];
        let paused_until = self.shared.disk.paused_until(pid);
        if pace.due != self.now || paused_until > self.now {
            if pace.due == self.now {
                // The part may have read its clock before it was stopped.
                if pace.stale.is_none() && self.luck.one_in(2) {
                    process.parts[part].stale = Some((self.doors[pid as usize].now(), self.now));
                }
                process.parts[part].due = paused_until;
                self.timeline.push(paused_until, Cue::Act { pid, part });
            }
            self.processes.insert(pid, process);
            return;
        }
        self.steps += 1;
        let next = self.step(pid, part, &mut process);
        self.shared.oracle().note(u64::from(pid) << 8 | part as u64, self.now);
        if self.shared.disk.is_dead(pid) {
            return self.bury(pid, process);
        }
        if let Some(after) = next {
            process.parts[part].due = self.now + after;
            self.timeline.push(self.now + after, Cue::Act { pid, part });
        }
        self.wake(pid, &mut process);
        if process.is_over() {
            return self.see_off(pid, &process);
        }
        let number = process.number;
        self.processes.insert(pid, process);
        if self.shared.disk.takes_twin(pid) && self.started_count < PROCESSES_FAULTY {
            self.shared.disk.felt(FaultKind::Twin);
            self.start(None, number);
        }
    }

    /// Returns the ticks until the part's next step; `None` if it has ended.
    fn step(&mut self, pid: u32, part: usize, process: &mut Process<'c, 'w>) -> Option<u64> {
        let context = &self.doors[pid as usize];
        let stale = process.parts[part].stale.take();
        let (now, read_at) = stale.unwrap_or_else(|| (context.now(), self.now));
        context.stepping_true.store(read_at, Ordering::Relaxed);
        context.stepping_at.store(now.as_raw(), Ordering::Relaxed);
        let slots = process.slots.len();
        let (rest, nap) = if let Some(slot) = process.slots.get_mut(part) {
            (slot.as_mut().map_or(Rest::Over, |slot| slot.step(now)), RUNNER_WAIT_MAX)
        } else if part == slots {
            process.round_at = self.now;
            let ticks = process.renewer.as_mut().map(|renewer| renewer.round(now));
            let rest = ticks.map_or(Rest::Over, |ticks| Rest::Until(now.saturating_add(ticks)));
            (rest, u64::MAX)
        } else {
            let rest = process.porter.as_mut().map_or(Rest::Over, |porter| porter.step(now));
            (rest, HANDOFF_WAIT_MAX)
        };
        let busy = self.shared.disk.take_busy(pid);
        process.parts[part].rests = matches!(rest, Rest::Until(_));
        match rest {
            Rest::No => Some(busy + self.until_ready(pid, part)),
            Rest::Until(until) => {
                Some(busy + until.as_raw().saturating_sub(now.as_raw()).clamp(1, nap))
            }
            Rest::Over => {
                process.part_is_over(part);
                None
            }
        }
    }

    /// How long a slot waits for its first report.
    fn until_ready(&self, pid: u32, part: usize) -> u64 {
        let ready = self.doors[pid as usize].ready.get(part);
        match ready.map_or(u64::MAX, |ready| ready.load(Ordering::Relaxed)) {
            u64::MAX => 0,
            at => at.saturating_sub(self.now).min(COLLECT_PATIENCE.as_millis() as u64),
        }
    }

    /// Wakes the idle parts of a process that was notified.
    fn wake(&mut self, pid: u32, process: &mut Process<'c, 'w>) {
        let heard = process.crew.notifications();
        if std::mem::replace(&mut process.heard, heard) == heard {
            return;
        }
        let since = Duration::from_millis(self.now - process.round_at);
        let news = process.renewer.as_ref().is_some_and(|renewer| renewer.has_news(since));
        for part in 0..process.parts.len() {
            let wakes = part != process.slots.len() || news;
            let pace = &mut process.parts[part];
            if pace.rests && wakes && pace.due > self.now {
                pace.due = self.now;
                self.timeline.push(self.now, Cue::Act { pid, part });
            }
        }
    }

    /// Handles the death of a process.
    fn bury(&mut self, pid: u32, process: Process<'c, 'w>) {
        self.shared.record(|| format!("p{pid} dies"));
        self.deaths += 1;
        let lease = self.shared.setting.nature.lease;
        self.timeline.push(self.now + 1 + self.luck.below(lease), Cue::Vanish(pid));
        let (place, number) = (process.place, process.number);
        drop(process);
        let Some(place) = place else { return };
        let number = keeps_name(self.shared, &mut self.luck).then_some(number);
        let after = 1 + self.luck.below(lease);
        self.await_start(after, place, number);
    }

    /// Handles the end of a process, which another may follow.
    fn see_off(&mut self, pid: u32, process: &Process<'c, 'w>) {
        let end = process.crew.ended();
        self.shared.record(|| format!("p{pid} ends: {end:?}"));
        self.shared.disk.kill(pid);
        self.shared.disk.vanish(pid);
        let follows = match end {
            Ok(Finish::Complete) => {
                self.is_complete = true;
                false
            }
            Ok(Finish::Incomplete { .. } | Finish::RunOver(_)) => false,
            Ok(Finish::Drained | Finish::DrainedUnsaved) => true,
            // A supervisor starts it again.
            Err(_) => {
                self.failures += 1;
                true
            }
        };
        if let Some(place) = process.place.filter(|_| follows) {
            let after = 1 + self.luck.below(2_000);
            self.await_start(after, place, None);
        }
    }

    fn let_admin_act(&mut self) {
        if self.calm_since.is_some() {
            return;
        }
        let running: Vec<u32> = self.processes.keys().copied().collect();
        let named = self.processes.values().map(|process| worker_of(RUN, process.number));
        let workers: Vec<WorkerId> = named.collect();
        if self.admin.act(&workers) && !running.is_empty() {
            let pid = running[self.luck.below(running.len() as u64) as usize];
            self.shared.record(|| format!("p{pid} is requested to drain"));
            self.drains += 1;
            self.doors[pid as usize].drain.ask();
            if let Some(mut process) = self.processes.remove(&pid) {
                self.wake(pid, &mut process);
                self.processes.insert(pid, process);
            }
        }
        self.timeline.push(self.now + 1 + self.luck.below(ADMIN_TICKS), Cue::Admin);
    }

    fn outcome(self) -> Outcome {
        let shared = self.shared;
        let (steps, ticks, now) = (self.steps, self.now, shared.disk.clock(ADMIN));
        let (started, deaths, drains) = (self.started_count.into(), self.deaths, self.drains);
        let calm_ticks = self.calm_since.map_or(0, |since| self.now - since);
        let (requests, retries, failures) = (self.admin.requests, self.retries, self.failures);
        let is_sound = shared.oracle().broken.is_none();
        let judged = if is_sound { settle::judge(shared, now) } else { Ok(false) };
        drop(self);
        let is_complete = *judged.as_ref().unwrap_or(&false);
        let mut oracle = shared.oracle();
        if let Err(violation) = judged {
            oracle.broken = Some(violation);
        }
        let (broken, trace, seen) = (oracle.broken.clone(), oracle.trace, oracle.seen);
        drop(oracle);
        let (faults, events) = (shared.disk.tally(), shared.take_story());
        Outcome {
            seed: shared.setting.nature.seed,
            broken,
            trace,
            steps,
            ticks,
            calm_ticks,
            started,
            deaths,
            drains,
            requests,
            retries,
            failures,
            is_complete,
            seen,
            faults,
            events,
        }
    }
}

impl Process<'_, '_> {
    /// Handles the end of a part. When every slot has ended, the renewer shuts down.
    fn part_is_over(&mut self, part: usize) {
        let slots = self.slots.len();
        match self.slots.get_mut(part) {
            Some(slot) => *slot = None,
            None if part > slots => self.porter = None,
            None => self.renewer = None,
        }
        if self.renewer.is_some() && self.slots.iter().all(Option::is_none) {
            self.renewer = None;
            self.crew.shut_down();
        }
    }

    fn is_over(&self) -> bool {
        self.slots.iter().all(Option::is_none) && self.porter.is_none()
    }
}
