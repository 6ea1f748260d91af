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
use super::{Finish, RunWorkerError, WorkerShared, claiming, sharing};
use crate::backoff::Backoff;
use crate::observer::Event;
use crate::op_ids::OpIds;
use crate::processor::Processor;
use crate::task::{ShardTask, TaskContext, TaskOutcome, TaskStep};

/// The first and the longest wait of a runner that found nothing, in ticks: short enough that a shard
/// that was split off starts at once, long enough that a hundred idle workers do not trouble a
/// store.
const IDLE_FIRST: u64 = 20;
const IDLE_LONGEST: u64 = 1_000;

/// The longest time between two steps of a runner that waits, in ticks, whatever it waits for.
pub const RUNNER_WAIT_MAX: u64 = 500;

const _: () = assert!(IDLE_FIRST < IDLE_LONGEST);

/// No time at all.
const NEVER: LogicalTime = LogicalTime::from_raw(u64::MAX);

/// Works until the worker ends.
pub(super) fn run<B: CoordinationFacade>(shared: &WorkerShared<'_, B>, number: usize) {
    let mut runner = ShardRunner::new(shared, number);
    loop {
        let (heard, now) = (shared.notify().count(), shared.parts.clock.now());
        match runner.step(now) {
            Rest::No => {}
            Rest::Until(until) => {
                let ticks = until.as_raw().saturating_sub(now.as_raw()).min(RUNNER_WAIT_MAX);
                shared.notify().wait(heard, Duration::from_millis(ticks));
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
pub struct ShardRunner<'c, 'a, B> {
    shared: &'c WorkerShared<'a, B>,
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

impl<'c, 'a, B: CoordinationFacade> ShardRunner<'c, 'a, B> {
    /// Returns a runner without a shard. `number` is below the worker's number of threads, and no
    /// other runner of the worker has it.
    ///
    /// It opens its own coordinator handle and processor.
    pub fn new(shared: &'c WorkerShared<'a, B>, number: usize) -> Self {
        Self {
            shared,
            number,
            coordinator: (shared.parts.coordinator)(),
            processor: (shared.parts.processor)(number),
            scratch: Box::default(),
            task: None,
            idle: Backoff::new(IDLE_FIRST, IDLE_LONGEST, shared.config.seed ^ number as u64),
            store_fails_since: None,
            claims: 0,
        }
    }

    /// Claims a shard, or steps the one that it has.
    pub fn step(&mut self, now: LogicalTime) -> Rest {
        match self.task.take() {
            Some((task, since)) => self.work(now, task, since),
            None if self.shared.is_stopping() => self.shut_down(now),
            None => match self.shared.quarantine.enter(self.number, now) {
                Entry::Wait(until) => Rest::Until(until),
                entry @ (Entry::Shared | Entry::Exclusive) => {
                    self.seek(now, entry == Entry::Exclusive)
                }
            },
        }
    }

    /// Gives back what has arrived, and claims nothing more.
    fn shut_down(&mut self, now: LogicalTime) -> Rest {
        if let Some(mut task) = self.shared.inbox.take() {
            task.release();
            return self.begin(now, task, false);
        }
        self.leave_quarantine();
        Rest::Over
    }

    /// Takes what has arrived, or claims.
    fn seek(&mut self, now: LogicalTime, alone: bool) -> Rest {
        match self.shared.inbox.take() {
            Some(task) => self.begin(now, task, alone),
            None if alone => self.claim_exclusive(now),
            None => self.claim_shared(now),
        }
    }

    /// Claims what is above suspicion, or asks the others to rest if there is nothing else.
    fn claim_shared(&mut self, now: LogicalTime) -> Rest {
        let shared = self.shared;
        self.claims += 1;
        let restore = restore(shared, self.number, self.claims, now);
        let found = claiming::claim_shared(
            &mut self.coordinator,
            &shared.config,
            now,
            &mut self.scratch,
            restore,
        );
        match found.claimed {
            Ok(task) => self.begin(now, task, false),
            Err(ClaimError::NoneAvailable { .. })
                if found.passed_over && shared.quarantine.want(self.number, now) =>
            {
                self.store_fails_since = None;
                shared.notify().wake_all();
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
    fn claim_exclusive(&mut self, now: LogicalTime) -> Rest {
        let (shared, config) = (self.shared, &self.shared.config);
        self.claims += 1;
        let restore = restore(shared, self.number, self.claims, now);
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
        if self.shared.quarantine.left(self.number) {
            self.shared.notify().wake_all();
        }
    }

    fn begin(&mut self, now: LogicalTime, mut task: ShardTask, alone: bool) -> Rest {
        let suspicion = if task.is_suspect() { Suspicion::Suspect } else { Suspicion::None };
        if suspicion == Suspicion::Suspect && !alone {
            // It came from another worker, or between a look and the grant: given back, uncounted.
            task.release();
        }
        if self.shared.quarantine.claimed(self.number, suspicion) {
            self.shared.notify().wake_all();
        }
        self.answered();
        self.shared.slots[self.number].take(task.lease().clone());
        self.shared.busy.fetch_add(1, Ordering::SeqCst);
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
                self.shared.parts.observer.observe(Event::Paused);
                Rest::Until(now.saturating_add(self.idle.jitter(IDLE_LONGEST)))
            }
            ClaimError::RunTerminal { status } => self.finish(Ok(Finish::of_run(status))),
            ClaimError::BackendError(error) => self.store_failed(now, error),
            // The last two, and whatever the coordinator may add: there is nothing to claim from.
            ClaimError::RunNotFound | ClaimError::TenantMismatch { .. } | _ => {
                self.finish(Err(RunWorkerError::RunNotFound))
            }
        }
    }

    fn finish(&self, end: Result<Finish, RunWorkerError>) -> Rest {
        self.shared.finish(end);
        Rest::No
    }

    /// Everything is taken or finished: ends the run if it is settled, or waits for work.
    fn nothing_to_do(&mut self, now: LogicalTime, earliest: Option<LogicalTime>) -> Rest {
        self.store_fails_since = None;
        let shared = self.shared;
        // While somebody holds a shard the run is not settled, and counting it is not cheap.
        if earliest.is_none() && shared.busy.load(Ordering::SeqCst) == 0 {
            match self.settle_run(now) {
                Ok(Some(finish)) => return self.finish(Ok(finish)),
                Ok(None) => {}
                Err(error) => return self.store_failed(now, error),
            }
        }
        sharing::ask(shared, &mut self.coordinator, now);
        let wait = now.saturating_add(self.idle.wait());
        Rest::Until(earliest.map_or(wait, |deadline| wait.min(deadline.max(soon(now)))))
    }

    /// Ends the run if every shard is done; tells how it stands if it is settled.
    fn settle_run(&mut self, now: LogicalTime) -> Result<Option<Finish>, InfraError> {
        let config = &self.shared.config;
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

    /// Does the next thing for a shard, and gives the slot up when it is over.
    fn work(&mut self, now: LogicalTime, mut task: Box<ShardTask>, since: LogicalTime) -> Rest {
        let outcome = match catch_unwind(AssertUnwindSafe(|| self.step_task(now, &mut task))) {
            Ok(TaskStep::Over(outcome)) => outcome,
            Ok(turn) => {
                self.task = Some((task, since));
                return match turn {
                    TaskStep::Wait(until) => Rest::Until(until),
                    TaskStep::Continue | TaskStep::Over(_) => Rest::No,
                };
            }
            Err(_) => self.park_after_panic(now, task.lease()),
        };
        let shared = self.shared;
        self.processor.abandon();
        shared.slots[self.number].leave();
        shared.busy.fetch_sub(1, Ordering::SeqCst);
        self.leave_quarantine();
        shared.sharing.learn(now.as_raw().saturating_sub(since.as_raw()), task.finished());
        shared
            .parts
            .observer
            .observe(Event::Ended { shard: task.lease().key(), outcome: &outcome });
        self.account_for(outcome);
        // Others may wait for what was split off or given back.
        shared.notify().wake_all();
        Rest::No
    }

    fn step_task(&mut self, now: LogicalTime, task: &mut ShardTask) -> TaskStep {
        let shared = self.shared;
        let slot = &shared.slots[self.number];
        slot.tell(task);
        if shared.has_ended() {
            // Nobody moves it any more.
            task.unfreeze();
        }
        if shared.is_releasing() {
            task.release();
        }
        let word = shared.quarantine.word(self.number);
        task.request_pause(word.rest);
        let mut context = TaskContext {
            coordinator: &mut self.coordinator,
            connector: shared.parts.connector,
            processor: &mut *self.processor,
            throttle: &shared.throttle,
            observer: shared.parts.observer,
        };
        let turn = task.step(now, &mut context);
        let (still, suspect) = (task.is_paused(), task.is_suspect());
        let is_news = shared.quarantine.stepped(self.number, word, still, suspect);
        if slot.note(task) || is_news {
            shared.notify().wake_all();
        }
        turn
    }

    /// A broken invariant: nothing of it was stored. The shard is set aside, and whatever may be in
    /// a bad state is made anew.
    fn park_after_panic(&mut self, now: LogicalTime, lease: &Lease) -> TaskOutcome {
        let shared = self.shared;
        self.coordinator = (shared.parts.coordinator)();
        self.processor = (shared.parts.processor)(self.number);
        let reason = ParkReason::Poisoned;
        let op_id = OpIds::after_panic(lease);
        match self.coordinator.park_shard(now, shared.config.tenant, lease, reason, op_id) {
            Ok(_) => TaskOutcome::Parked(reason),
            Err(_) => TaskOutcome::Lost,
        }
    }

    fn account_for(&mut self, outcome: TaskOutcome) {
        let shared = self.shared;
        match outcome {
            TaskOutcome::Completed
            | TaskOutcome::Released
            | TaskOutcome::Moved
            | TaskOutcome::Lost => {}
            TaskOutcome::Parked(_) => {
                let parked = shared.parked.fetch_add(1, Ordering::SeqCst) + 1;
                let max = shared.config.max_parked;
                if parked > max {
                    shared.finish(Err(RunWorkerError::TooManyParked { parked, max }));
                }
            }
            TaskOutcome::RunOver(status) => shared.finish(Ok(Finish::of_run(status))),
            TaskOutcome::StoreFailed(error) => shared.finish(Err(RunWorkerError::Store(error))),
            TaskOutcome::Broken(broken) => shared.finish(Err(RunWorkerError::Broken(broken))),
        }
    }

    fn answered(&mut self) {
        self.idle.reset();
        self.store_fails_since = None;
    }

    fn store_failed(&mut self, now: LogicalTime, error: InfraError) -> Rest {
        let shared = self.shared;
        let since = *self.store_fails_since.get_or_insert(now);
        let patience = since.saturating_add(shared.config.task.store_patience);
        if !error.is_retryable() || now >= patience {
            return self.finish(Err(RunWorkerError::Store(error)));
        }
        shared.parts.observer.observe(Event::StoreFailed { error: &error });
        Rest::Until(now.saturating_add(self.idle.wait()))
    }
}

/// Makes a task of a grant.
fn restore<B>(
    shared: &WorkerShared<'_, B>,
    number: usize,
    claims: u64,
    now: LogicalTime,
) -> impl FnOnce(&AcquireResultView<'_>) -> ShardTask {
    move |acquired| {
        let (shard, attempts) = (acquired.lease.key(), acquired.attempts);
        let seed = shared.config.seed ^ claims.rotate_left(32) ^ number as u64;
        shared.parts.observer.observe(Event::Claimed { shard, attempts });
        ShardTask::restore(shared.config.task, acquired, now, seed)
            .with_result_cache(&shared.result_cache)
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
