//! A world: processes that are started, stepped, stopped and killed, until the run has settled.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, ShardId, WorkerId};
use gossip_coordination::{RunConfig, RunManagement as _, ShardStatus};
use gossip_handoff::Repository;
use gossip_scanner_runtime::stepping::{
    COLLECT_PATIENCE, HANDOFF_WAIT_MAX, HandoffThread, Limits, RUNNER_WAIT_MAX, Renewer, Rest,
    ShardRunner, WorkerShared,
};
use gossip_scanner_runtime::{Clock as _, Finish, Parts, WorkerConfig, initial_shards, worker_of};
use gossip_sim::{FaultKind, Stream};

use super::admin::Admin;
use super::oracle::Rule;
use super::plan::Setting;
use super::source::ROOT;
use super::stage::{ADMIN, Coordinator, Door, RUN, Stage, TENANT, keeps_name};
use super::{Outcome, Plan, settle};
use crate::timeline::Timeline;

/// Ticks within which a run must settle after the last fault: leases of six seconds and moves of
/// fifteen may have to run out, keys that kill do so a few times with a lease each, and what was
/// set aside on their account is given another chance. The slowest of many worlds takes a quarter.
pub const CALM_TICKS_MAX: u64 = 400_000;

/// Processes that can be started in a world.
const LIVES_MAX: u32 = 240;

/// Processes after which faults stop.
const LIVES_ROUGH: u32 = 60;

/// Steps after which a world is taken for one that goes in circles.
const STEPS_MAX: u64 = 2_000_000;

/// How often shards with innocent keys, set aside because their owners died, get another chance.
const CHANCES_MAX: u32 = 8;

/// Between two acts of the administrator, in ticks, at most.
const ADMIN_TICKS: u64 = 1_000;

/// Plays a world to its end.
pub(super) fn play(plan: Plan) -> Outcome {
    let stage = Stage::new(Setting::of(&plan), plan.tells);
    register(&stage);
    let doors: Vec<Door<'_>> = (0..LIVES_MAX).map(|life| Door::new(&stage, life)).collect();
    let doors = &doors;
    let handles: Vec<_> = doors.iter().map(|door| move || door.coordinator()).collect();
    let desks: Vec<_> = doors.iter().map(|door| move |slot| door.desk(slot)).collect();
    let records: Vec<_> = doors.iter().map(|door| move || open_records(door)).collect();
    let parts: Vec<Option<Parts<'_, Coordinator>>> = doors
        .iter()
        .zip(handles.iter().zip(&desks).zip(&records))
        .map(|(door, ((coordinator, processor), records))| {
            Some(Parts {
                coordinator,
                connector: &*stage.source,
                processor,
                records: stage.setting.moves.then_some(records as _),
                clock: door,
                drain: &door.drain,
                observer: door,
            })
        })
        .collect();
    let crews: Vec<OnceCell<WorkerShared<'_, Coordinator>>> =
        (0..LIVES_MAX).map(|_| OnceCell::new()).collect();
    World::new(&stage, doors, parts, &crews).run()
}

fn open_records<'w>(door: &'w Door<'w>) -> Box<dyn Repository + 'w> {
    door.records()
}

fn register(stage: &Stage) {
    let mut admin = stage.admin();
    let (now, setting) = (stage.disk.clock(ADMIN), &stage.setting);
    let (lease, retries) = (setting.nature.lease, setting.task.shard_retries);
    let config = RunConfig::try_new(CursorSemantics::Completed, lease, retries);
    let config = config.expect("a setting makes a run");
    admin.create_run(now, TENANT, RUN, config).expect("the store is new");
    let root = ShardSpecRef::new(ROOT.0, ROOT.1, b"");
    let shards = initial_shards(stage.source.plain(), root, setting.roots);
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

/// What happens at an instant, in the order in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cue {
    /// Faults stop.
    Calm,
    /// A process is started at this place, under this number or a new one.
    Start { place: usize, number: u64 },
    /// The store notices that a process is gone.
    Vanish(u32),
    /// A part of a process goes on.
    Act { life: u32, part: usize },
    /// The administrator does something.
    Admin,
}

/// One life of a process. Its parts are its slots, then the renewer, then the porter.
struct Process<'c, 'w> {
    /// Which of the processes of the setting it is; none if it is a second one of that name.
    place: Option<usize>,
    number: u64,
    crew: &'c WorkerShared<'w, Coordinator>,
    slots: Vec<Option<ShardRunner<'c, 'w, Coordinator>>>,
    renewer: Option<Renewer<'c, 'w, Coordinator>>,
    porter: Option<HandoffThread<'c, 'w, Coordinator>>,
    parts: Vec<Pace>,
    /// When the renewer went round last.
    round_at: u64,
    /// Rings of the bell that were heard.
    heard: u64,
}

/// When a part goes on.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    due: u64,
    /// Whether it rests and a ring wakes it.
    rests: bool,
    /// The time that it had read when it was stopped.
    stale: Option<LogicalTime>,
}

struct World<'c, 'w> {
    stage: &'w Stage,
    doors: &'w [Door<'w>],
    /// What each life is made of, until it begins.
    parts: Vec<Option<Parts<'w, Coordinator>>>,
    crews: &'c [OnceCell<WorkerShared<'w, Coordinator>>],
    timeline: Timeline<Cue>,
    processes: BTreeMap<u32, Process<'c, 'w>>,
    admin: Admin<'w>,
    luck: Stream,
    now: u64,
    /// Processes that were started.
    lives: u32,
    /// Numbers that were given to processes.
    numbers: u64,
    /// Places where a process is going to be started.
    awaited: usize,
    calm_since: Option<u64>,
    is_complete: bool,
    chances: u32,
    steps: u64,
    deaths: u64,
    drains: u64,
}

impl<'c, 'w> World<'c, 'w> {
    fn new(
        stage: &'w Stage,
        doors: &'w [Door<'w>],
        parts: Vec<Option<Parts<'w, Coordinator>>>,
        crews: &'c [OnceCell<WorkerShared<'w, Coordinator>>],
    ) -> Self {
        Self {
            stage,
            doors,
            parts,
            crews,
            timeline: Timeline::new(),
            processes: BTreeMap::new(),
            admin: Admin::new(stage),
            luck: Stream::named(stage.setting.nature.seed, "world", 0),
            now: 0,
            lives: 0,
            numbers: 0,
            awaited: 0,
            calm_since: None,
            is_complete: false,
            chances: 0,
            steps: 0,
            deaths: 0,
            drains: 0,
        }
    }

    fn run(mut self) -> Outcome {
        for place in 0..self.stage.setting.processes.len() {
            let after = self.luck.below(100);
            self.await_start(after, place, None);
        }
        self.timeline.push(self.stage.setting.rough_ticks, Cue::Calm);
        self.timeline.push(1 + self.luck.below(ADMIN_TICKS), Cue::Admin);
        while let Some((at, cue)) = self.timeline.pop() {
            self.now = at;
            self.stage.now.store(at, Ordering::Relaxed);
            self.stage.disk.set_now(at);
            self.happen(cue);
            self.look_at_time();
            if self.stage.oracle().broken.is_some() || self.is_over() {
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
            Cue::Vanish(life) => self.stage.disk.vanish(life),
            Cue::Act { life, part } => self.act(life, part),
            Cue::Admin => self.let_admin_act(),
        }
    }

    /// Whether everybody has left and nobody comes.
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
        self.chances == CHANCES_MAX || self.is_as_it_should_be()
    }

    /// Whether an operator sees nothing to do. A worker may have left when a shard was unparked,
    /// and whoever shares a process with a key that kills may be set aside for it: then workers are
    /// started again, and shards whose owners died get another chance.
    fn is_as_it_should_be(&mut self) -> bool {
        let rows = settle::rows(self.stage, self.stage.disk.clock(ADMIN));
        let innocent = rows.iter().filter(|row| self.admin.is_innocent(row));
        let innocent: Vec<ShardId> = innocent.map(|row| row.shard).collect();
        if innocent.is_empty() && !rows.iter().any(|row| row.status == ShardStatus::Active) {
            return true;
        }
        self.chances += 1;
        self.admin.unpark(|row| innocent.contains(&row.shard));
        self.fill_places();
        false
    }

    fn look_at_time(&mut self) {
        let late = self.calm_since.is_some_and(|since| self.now - since > CALM_TICKS_MAX);
        let steps = self.steps;
        self.stage.oracle().require(!late && steps < STEPS_MAX, Rule::NeverSettles, || {
            format!("shards are left long after the last fault, at step {steps}")
        });
    }

    /// Faults stop; what was set aside gets another chance, and every place has a process.
    fn calm(&mut self) {
        if self.calm_since.is_some() {
            return;
        }
        self.stage.say(|| "faults stop".to_owned());
        self.calm_since = Some(self.now);
        self.stage.disk.calm();
        self.admin.resume();
        self.admin.unpark(|_| true);
        self.fill_places();
    }

    /// Starts a process wherever none is and none is awaited.
    fn fill_places(&mut self) {
        if self.awaited > 0 {
            return;
        }
        for place in 0..self.stage.setting.processes.len() {
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
        let life = self.lives;
        if life == LIVES_MAX {
            let why = || "too many processes died".to_owned();
            return self.stage.oracle().require(false, Rule::NeverSettles, why);
        }
        self.lives += 1;
        if self.lives == LIVES_ROUGH {
            self.timeline.push(self.now, Cue::Calm);
        }
        self.stage.say(|| format!("p{life} starts as {number}"));
        self.stage.disk.start(life);
        let slots = place.map_or(1, |place| self.stage.setting.processes[place]);
        let config = self.config(number, slots, life);
        let parts = self.parts[life as usize].take().expect("a life begins once");
        let crew = self.crews[life as usize].get_or_init(|| WorkerShared::new(&config, parts));
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
            self.timeline.push(self.now, Cue::Act { life, part });
        }
        self.processes.insert(life, process);
    }

    fn config(&self, number: u64, slots: usize, life: u32) -> WorkerConfig {
        let Setting { nature, task, auto_split, .. } = &self.stage.setting;
        WorkerConfig {
            tenant: TENANT,
            run: RUN,
            worker: worker_of(RUN, number),
            lease_ticks: nature.lease,
            threads: slots,
            task: *task,
            limits: Limits::default(),
            max_parked: usize::MAX,
            auto_split: *auto_split,
            seed: nature.seed ^ u64::from(life) << 16,
        }
    }

    /// Lets a part of a process do the next thing.
    fn act(&mut self, life: u32, part: usize) {
        let Some(mut process) = self.processes.remove(&life) else { return };
        let pace = process.parts[part];
        let paused_until = self.stage.disk.paused_until(life);
        if pace.due != self.now || paused_until > self.now {
            if pace.due == self.now {
                // It may have read its clock before it was stopped.
                if pace.stale.is_none() && self.luck.one_in(2) {
                    process.parts[part].stale = Some(self.doors[life as usize].now());
                }
                process.parts[part].due = paused_until;
                self.timeline.push(paused_until, Cue::Act { life, part });
            }
            self.processes.insert(life, process);
            return;
        }
        self.steps += 1;
        let next = self.step(life, part, &mut process);
        self.stage.oracle().note(u64::from(life) << 8 | part as u64, self.now);
        if self.stage.disk.is_dead(life) {
            return self.bury(life, process);
        }
        if let Some(after) = next {
            process.parts[part].due = self.now + after;
            self.timeline.push(self.now + after, Cue::Act { life, part });
        }
        self.wake(life, &mut process);
        if process.is_over() {
            return self.see_off(life, &process);
        }
        let number = process.number;
        self.processes.insert(life, process);
        if self.stage.disk.takes_twin(life) && self.lives < LIVES_ROUGH {
            self.stage.disk.felt(FaultKind::Twin);
            self.start(None, number);
        }
    }

    /// Answers after how many ticks the part goes on; `None` if it is over.
    fn step(&mut self, life: u32, part: usize, process: &mut Process<'c, 'w>) -> Option<u64> {
        let door = &self.doors[life as usize];
        let now = process.parts[part].stale.take().unwrap_or_else(|| door.now());
        door.stepping_at.store(now.as_raw(), Ordering::Relaxed);
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
        let busy = self.stage.disk.take_busy(life);
        process.parts[part].rests = matches!(rest, Rest::Until(_));
        match rest {
            Rest::No => Some(busy + self.until_ready(life, part)),
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
    fn until_ready(&self, life: u32, part: usize) -> u64 {
        let ready = self.doors[life as usize].ready.get(part);
        match ready.map_or(u64::MAX, |ready| ready.load(Ordering::Relaxed)) {
            u64::MAX => 0,
            at => at.saturating_sub(self.now).min(COLLECT_PATIENCE.as_millis() as u64),
        }
    }

    /// Wakes whoever rests in a process whose bell was rung.
    fn wake(&mut self, life: u32, process: &mut Process<'c, 'w>) {
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
                self.timeline.push(self.now, Cue::Act { life, part });
            }
        }
    }

    /// A process has died, with all it knew.
    fn bury(&mut self, life: u32, process: Process<'c, 'w>) {
        self.stage.say(|| format!("p{life} dies"));
        self.deaths += 1;
        let lease = self.stage.setting.nature.lease;
        self.timeline.push(self.now + 1 + self.luck.below(lease), Cue::Vanish(life));
        let (place, number) = (process.place, process.number);
        drop(process);
        let Some(place) = place else { return };
        let number = keeps_name(self.stage, &mut self.luck).then_some(number);
        let after = 1 + self.luck.below(lease);
        self.await_start(after, place, number);
    }

    /// A process has come to its end, and may be followed by another.
    fn see_off(&mut self, life: u32, process: &Process<'c, 'w>) {
        let end = process.crew.ended();
        self.stage.say(|| format!("p{life} ends: {end:?}"));
        self.stage.disk.kill(life);
        self.stage.disk.vanish(life);
        let follows = match end {
            Ok(Finish::Complete) => {
                self.is_complete = true;
                false
            }
            Ok(Finish::Incomplete { .. } | Finish::RunOver(_)) => false,
            Ok(Finish::Drained) | Err(_) => true,
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
        let lives: Vec<u32> = self.processes.keys().copied().collect();
        let named = self.processes.values().map(|process| worker_of(RUN, process.number));
        let workers: Vec<WorkerId> = named.collect();
        if self.admin.act(&workers) && !lives.is_empty() {
            let life = lives[self.luck.below(lives.len() as u64) as usize];
            self.stage.say(|| format!("p{life} is told to drain"));
            self.drains += 1;
            self.doors[life as usize].drain.ask();
            if let Some(mut process) = self.processes.remove(&life) {
                self.wake(life, &mut process);
                self.processes.insert(life, process);
            }
        }
        self.timeline.push(self.now + 1 + self.luck.below(ADMIN_TICKS), Cue::Admin);
    }

    fn outcome(self) -> Outcome {
        let stage = self.stage;
        let (steps, ticks, now) = (self.steps, self.now, stage.disk.clock(ADMIN));
        let (started, deaths, drains) = (self.lives.into(), self.deaths, self.drains);
        let calm_ticks = self.calm_since.map_or(0, |since| self.now - since);
        let requests = self.admin.requests;
        let is_sound = stage.oracle().broken.is_none();
        let judged = if is_sound { settle::judge(stage, now) } else { Ok(false) };
        drop(self);
        let is_complete = *judged.as_ref().unwrap_or(&false);
        let mut oracle = stage.oracle();
        if let Err(violation) = judged {
            oracle.broken = Some(violation);
        }
        let (broken, trace, seen) = (oracle.broken.clone(), oracle.trace, oracle.seen);
        drop(oracle);
        let (faults, story) = (stage.disk.tally(), stage.take_story());
        Outcome {
            seed: stage.setting.nature.seed,
            broken,
            trace,
            steps,
            ticks,
            calm_ticks,
            started,
            deaths,
            drains,
            requests,
            is_complete,
            seen,
            faults,
            story,
        }
    }
}

impl Process<'_, '_> {
    /// A part has come to its end. When every slot has, the renewer goes home.
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
