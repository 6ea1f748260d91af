//! One thread of a worker: claims a shard, works on it, claims the next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gossip_contracts::identity::{CanonicalBytes as _, CanonicalHasher, Domain, LogicalTime, OpId};
use gossip_coordination::{
    AcquireResultView, AcquireScratch, ClaimError, CoordinationFacade, GetRunError, InfraError,
    Lease, ParkReason, RunTransitionError,
};

use super::quarantine::{Entry, Suspicion};
use super::sync::Ordering;
use super::{Crew, Finish, WorkerError, claiming, sharing};
use crate::backoff::Backoff;
use crate::observer::Event;
use crate::op_ids::OpIds;
use crate::processor::Processor;
use crate::task::{Ending, Gear, ShardTask, Turn};

/// The first and the longest wait of a slot that found nothing, in ticks: short enough that a shard
/// that was split off starts at once, long enough that a hundred idle workers do not trouble a
/// store.
const IDLE_FIRST: u64 = 20;
const IDLE_LONGEST: u64 = 1_000;

/// The longest time between two steps of a runner that waits, in ticks, whatever it waits for.
pub const NAP_LONGEST: u64 = 500;

const _: () = assert!(IDLE_FIRST < IDLE_LONGEST);

/// No time at all.
const NEVER: LogicalTime = LogicalTime::from_raw(u64::MAX);

/// Works until the worker ends.
pub(super) fn run<B: CoordinationFacade>(crew: &Crew<'_, B>, number: usize) {
    let mut slot = Slot::new(crew, number);
    loop {
        let (heard, now) = (crew.bell().heard(), crew.parts.clock.now());
        match slot.step(now) {
            Rest::No => {}
            Rest::Until(until) => {
                let ticks = until.as_raw().saturating_sub(now.as_raw()).min(NAP_LONGEST);
                crew.bell().wait(heard, Duration::from_millis(ticks));
            }
            Rest::Over => return,
        }
    }
}

/// When a part of a worker must be stepped again.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "schedulers match it; shuttle tests include it privately"
)]
pub enum Rest {
    /// At once.
    No,
    /// At this time, or earlier if the worker was notified (see `WorkerShared::notifications`).
    Until(LogicalTime),
    /// Never: this part has finished.
    Over,
}

/// Claims shards and works on one at a time, for one thread of a worker.
pub struct Slot<'c, 'a, B> {
    crew: &'c Crew<'a, B>,
    number: usize,
    coordinator: B,
    processor: Box<dyn Processor + 'a>,
    scratch: Box<AcquireScratch>,
    /// The shard it works on, and since when.
    task: Option<(Box<ShardTask>, LogicalTime)>,
    idle: Backoff,
    /// Since when claiming fails; `None` if the store answered.
    store_fails_since: Option<LogicalTime>,
    claims: u64,
}

impl<'c, 'a, B: CoordinationFacade> Slot<'c, 'a, B> {
    /// Returns a runner without a shard. `number` is below the worker's number of threads, and no
    /// other runner of the worker has it.
    ///
    /// It opens its own coordinator handle and processor.
    pub fn new(crew: &'c Crew<'a, B>, number: usize) -> Self {
        Self {
            crew,
            number,
            coordinator: (crew.parts.coordinator)(),
            processor: (crew.parts.processor)(number),
            scratch: Box::default(),
            task: None,
            idle: Backoff::new(IDLE_FIRST, IDLE_LONGEST, crew.config.seed ^ number as u64),
            store_fails_since: None,
            claims: 0,
        }
    }

    /// Claims a shard, or steps the one that it has.
    pub fn step(&mut self, now: LogicalTime) -> Rest {
        match self.task.take() {
            Some((task, since)) => self.work(now, task, since),
            None if self.crew.is_stopping() => self.go_home(now),
            None => match self.crew.quarantine.enter(self.number, now) {
                Entry::Wait(until) => Rest::Until(until),
                entry @ (Entry::InCompany | Entry::Alone) => self.seek(now, entry == Entry::Alone),
            },
        }
    }

    /// Gives back what has arrived, and claims nothing more.
    fn go_home(&mut self, now: LogicalTime) -> Rest {
        if let Some(mut task) = self.crew.porch.take() {
            task.release();
            return self.begin(now, task, false);
        }
        self.leave_quarantine();
        Rest::Over
    }

    /// Takes what has arrived, or claims.
    fn seek(&mut self, now: LogicalTime, alone: bool) -> Rest {
        match self.crew.porch.take() {
            Some(task) => self.begin(now, task, alone),
            None if alone => self.claim_alone(now),
            None => self.claim_in_company(now),
        }
    }

    /// Claims what is above suspicion, or asks the others to rest if there is nothing else.
    fn claim_in_company(&mut self, now: LogicalTime) -> Rest {
        let crew = self.crew;
        self.claims += 1;
        let restore = restore(crew, self.number, self.claims, now);
        let found = claiming::claim_in_company(
            &mut self.coordinator,
            &crew.config,
            now,
            &mut self.scratch,
            restore,
        );
        match found.claimed {
            Ok(task) => self.begin(now, task, false),
            Err(ClaimError::NoneAvailable { .. })
                if found.passed_over && crew.quarantine.want(self.number, now) =>
            {
                self.store_fails_since = None;
                crew.bell().ring();
                Rest::No
            }
            Err(ClaimError::NoneAvailable { .. }) if found.passed_over => {
                // Not its turn. There is work left, and nothing that could be waited for.
                self.leave_quarantine();
                self.nothing_to_do(now, Some(NEVER))
            }
            Err(error) => {
                self.leave_quarantine();
                self.claim_refused(now, error)
            }
        }
    }

    /// Claims anything: nobody else has anything under way.
    fn claim_alone(&mut self, now: LogicalTime) -> Rest {
        let (crew, config) = (self.crew, &self.crew.config);
        self.claims += 1;
        let restore = restore(crew, self.number, self.claims, now);
        let claimed = self.coordinator.claim_next_available(
            now,
            config.tenant,
            config.run,
            config.worker,
            &mut self.scratch,
        );
        match claimed.map(|acquired| restore(&acquired)) {
            Ok(task) => self.begin(now, task, true),
            Err(error) => {
                self.leave_quarantine();
                self.claim_refused(now, error)
            }
        }
    }

    fn leave_quarantine(&self) {
        if self.crew.quarantine.left(self.number) {
            self.crew.bell().ring();
        }
    }

    fn begin(&mut self, now: LogicalTime, mut task: ShardTask, alone: bool) -> Rest {
        let suspicion = if task.is_suspect() { Suspicion::Suspect } else { Suspicion::None };
        if suspicion == Suspicion::Suspect && !alone {
            // It came from another worker, or between a look and the grant: given back, uncounted.
            task.release();
        }
        if self.crew.quarantine.claimed(self.number, suspicion) {
            self.crew.bell().ring();
        }
        self.answered();
        self.crew.seats[self.number].take(task.lease().clone());
        self.crew.busy.fetch_add(1, Ordering::SeqCst);
        self.task = Some((Box::new(task), now));
        Rest::No
    }

    fn claim_refused(&mut self, now: LogicalTime, error: ClaimError) -> Rest {
        match error {
            ClaimError::NoneAvailable { earliest_deadline } => {
                self.nothing_to_do(now, earliest_deadline)
            }
            ClaimError::Throttled { retry_after } => Rest::Until(retry_after),
            ClaimError::RunPaused => {
                self.answered();
                self.crew.parts.observer.observe(Event::Paused);
                Rest::Until(now.saturating_add(self.idle.jitter(IDLE_LONGEST)))
            }
            ClaimError::RunTerminal { status } => self.finish(Ok(Finish::of_run(status))),
            ClaimError::BackendError(error) => self.store_failed(now, error),
            // The last two, and whatever the coordinator may add: there is nothing to claim from.
            ClaimError::RunNotFound | ClaimError::TenantMismatch { .. } | _ => {
                self.finish(Err(WorkerError::RunNotFound))
            }
        }
    }

    fn finish(&self, end: Result<Finish, WorkerError>) -> Rest {
        self.crew.finish(end);
        Rest::No
    }

    /// Everything is taken or finished: ends the run if it is settled, or waits for work.
    fn nothing_to_do(&mut self, now: LogicalTime, earliest: Option<LogicalTime>) -> Rest {
        self.store_fails_since = None;
        let crew = self.crew;
        // While somebody holds a shard the run is not settled, and counting it is not cheap.
        if earliest.is_none() && crew.busy.load(Ordering::SeqCst) == 0 {
            match self.settle_run(now) {
                Ok(Some(finish)) => return self.finish(Ok(finish)),
                Ok(None) => {}
                Err(error) => return self.store_failed(now, error),
            }
        }
        sharing::ask(crew, &mut self.coordinator, now);
        let wait = now.saturating_add(self.idle.wait());
        Rest::Until(earliest.map_or(wait, |deadline| wait.min(deadline.max(soon(now)))))
    }

    /// Ends the run if every shard is done; tells how it stands if it is settled.
    fn settle_run(&mut self, now: LogicalTime) -> Result<Option<Finish>, InfraError> {
        let config = &self.crew.config;
        let progress = match self.coordinator.get_run_progress(now, config.tenant, config.run) {
            Ok(progress) => progress,
            Err(GetRunError::BackendError(error)) => return Err(error),
            // Deleted meanwhile; the next claim says so.
            Err(_) => return Ok(None),
        };
        if !progress.is_settled() {
            return Ok(None);
        }
        if progress.has_failures() {
            return Ok(Some(Finish::Incomplete { parked: progress.parked }));
        }
        let op_id = completion_id(config.run);
        match self.coordinator.complete_run(now, config.tenant, config.run, op_id) {
            Ok(_) => Ok(Some(Finish::Complete)),
            Err(RunTransitionError::RunTerminal { status }) => Ok(Some(Finish::of_run(status))),
            Err(RunTransitionError::BackendError(error)) => Err(error),
            // A shard was unparked or split meanwhile: it is claimed next.
            Err(_) => Ok(None),
        }
    }

    /// Does the next thing for a shard, and gives the seat up when it is over.
    fn work(&mut self, now: LogicalTime, mut task: Box<ShardTask>, since: LogicalTime) -> Rest {
        let ending = match catch_unwind(AssertUnwindSafe(|| self.step_task(now, &mut task))) {
            Ok(Turn::Over(ending)) => ending,
            Ok(turn) => {
                self.task = Some((task, since));
                return match turn {
                    Turn::Wait(until) => Rest::Until(until),
                    Turn::Going | Turn::Over(_) => Rest::No,
                };
            }
            Err(_) => self.park_after_panic(now, task.lease()),
        };
        let crew = self.crew;
        self.processor.abandon();
        crew.seats[self.number].leave();
        crew.busy.fetch_sub(1, Ordering::SeqCst);
        self.leave_quarantine();
        crew.sharing.learn(now.as_raw().saturating_sub(since.as_raw()), task.finished());
        crew.parts.observer.observe(Event::Ended { shard: task.lease().key(), ending: &ending });
        self.account_for(ending);
        // Others may wait for what was split off or given back.
        crew.bell().ring();
        Rest::No
    }

    fn step_task(&mut self, now: LogicalTime, task: &mut ShardTask) -> Turn {
        let crew = self.crew;
        let seat = &crew.seats[self.number];
        seat.tell(task);
        if crew.has_ended() {
            // Nobody moves it any more.
            task.go_on();
        }
        if crew.is_let_go() {
            task.release();
        }
        let word = crew.quarantine.word(self.number);
        task.hold(word.rest);
        let mut gear = Gear {
            coordinator: &mut self.coordinator,
            connector: crew.parts.connector,
            processor: &mut *self.processor,
            throttle: &crew.throttle,
            observer: crew.parts.observer,
        };
        let turn = task.step(now, &mut gear);
        let (still, suspect) = (task.is_still(), task.is_suspect());
        let is_news = crew.quarantine.stepped(self.number, word, still, suspect);
        if seat.note(task) || is_news {
            crew.bell().ring();
        }
        turn
    }

    /// A broken invariant: nothing of it was stored. The shard is set aside, and whatever may be in
    /// a bad state is made anew.
    fn park_after_panic(&mut self, now: LogicalTime, lease: &Lease) -> Ending {
        let crew = self.crew;
        self.coordinator = (crew.parts.coordinator)();
        self.processor = (crew.parts.processor)(self.number);
        let reason = ParkReason::Poisoned;
        let op_id = OpIds::after_panic(lease);
        match self.coordinator.park_shard(now, crew.config.tenant, lease, reason, op_id) {
            Ok(_) => Ending::Parked(reason),
            Err(_) => Ending::Lost,
        }
    }

    fn account_for(&mut self, ending: Ending) {
        let crew = self.crew;
        match ending {
            Ending::Completed | Ending::Released | Ending::Moved | Ending::Lost => {}
            Ending::Parked(_) => {
                let parked = crew.parked.fetch_add(1, Ordering::SeqCst) + 1;
                let max = crew.config.max_parked;
                if parked > max {
                    crew.finish(Err(WorkerError::TooManyParked { parked, max }));
                }
            }
            Ending::RunOver(status) => crew.finish(Ok(Finish::of_run(status))),
            Ending::StoreFailed(error) => crew.finish(Err(WorkerError::Store(error))),
            Ending::Broken(broken) => crew.finish(Err(WorkerError::Broken(broken))),
        }
    }

    fn answered(&mut self) {
        self.idle.reset();
        self.store_fails_since = None;
    }

    fn store_failed(&mut self, now: LogicalTime, error: InfraError) -> Rest {
        let crew = self.crew;
        let since = *self.store_fails_since.get_or_insert(now);
        let patience = since.saturating_add(crew.config.task.store_patience);
        if !error.is_retryable() || now >= patience {
            return self.finish(Err(WorkerError::Store(error)));
        }
        crew.parts.observer.observe(Event::StoreFailed { error: &error });
        Rest::Until(now.saturating_add(self.idle.wait()))
    }
}

/// Makes a task of a grant.
fn restore<B>(
    crew: &Crew<'_, B>,
    number: usize,
    claims: u64,
    now: LogicalTime,
) -> impl FnOnce(&AcquireResultView<'_>) -> ShardTask {
    move |acquired| {
        let (shard, attempts) = (acquired.lease.key(), acquired.attempts);
        let seed = crew.config.seed ^ claims.rotate_left(32) ^ number as u64;
        crew.parts.observer.observe(Event::Claimed { shard, attempts });
        ShardTask::restore(crew.config.task, acquired, now, seed).knowing(&crew.remnants)
    }
}

/// A deadline that has passed on our clock may be live on that of the store: not at once again.
fn soon(now: LogicalTime) -> LogicalTime {
    now.saturating_add(IDLE_FIRST)
}

/// Whoever completes a run does the same thing, so all of them use the same id.
fn completion_id(run: gossip_contracts::identity::RunId) -> OpId {
    let mut hasher = CanonicalHasher::for_domain(Domain::RUNTIME_OP_ID_V1);
    hasher.write_raw(b"complete_run");
    run.write_canonical(&mut hasher);
    OpId::from_raw(hasher.finalize_64())
}
