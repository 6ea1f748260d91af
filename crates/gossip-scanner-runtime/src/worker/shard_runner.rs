//! One thread of a worker: claims a shard, processes it, claims the next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, ShardId};
use gossip_coordination::protocol::ClaimScope;
use gossip_coordination::{
    AcquireScratch, ClaimError, CoordinationBackend as _, CoordinationFacade, GetRunError,
    InfraError, ParkContext, ParkReason, RunManagement as _, RunTerminalEvaluation,
    RunTransitionError, SessionState, ShardClaiming as _, ShardFilter, evaluate_run_terminal,
};

use super::quarantine::{Entry, Suspicion};
use super::sync::Ordering;
use super::{Finish, RunWorkerError, WorkerShared, orphans, sharing};
use crate::backoff::Backoff;
use crate::monitored::Monitored;
use crate::observer::Event;
use crate::op_ids::{self, OpIds};
use crate::processor::Processor;
use crate::task::{ShardTask, StoreAccess, TaskContext, TaskOutcome, TaskStep};
use crate::wall_time::WallTime;

/// The text of a shard that was parked because its task panicked. The message of the panic is not
/// stored: it describes a bug of this program, and the log has it.
const PANICKED: &str = "the task of this shard panicked";

/// The first and the longest wait of an idle runner, in ticks: short enough that a shard that was
/// split off starts promptly, long enough that a hundred idle workers do not load the store.
const IDLE_FIRST: u64 = 20;
const IDLE_LONGEST: u64 = 1_000;

/// The longest time between two steps of a runner that waits, in ticks, whatever it waits for.
pub const RUNNER_WAIT_MAX: u64 = 500;

/// On a server an idle runner lists the shards of the run no sooner than this after it had one, in
/// ticks.
const FIRST_LOOK: u64 = 50;

const _: () = assert!(IDLE_FIRST < IDLE_LONGEST);

/// A time that is never reached.
const NEVER: LogicalTime = LogicalTime::from_raw(u64::MAX);

/// Steps a runner until the worker ends.
pub(super) fn run<B: CoordinationFacade>(shared: &WorkerShared<'_, B>, number: usize) {
    let mut runner = ShardRunner::new(shared, number);
    loop {
        // The count is read before the step: a notification during the step makes the wait below
        // return at once.
        let (seen, now) = (shared.notify().count(), shared.parts.clock.now());
        match runner.step(now) {
            Rest::No => {}
            Rest::Until(until) => {
                let ticks = until.as_raw().saturating_sub(now.as_raw()).min(RUNNER_WAIT_MAX);
                shared.notify().wait(seen, Duration::from_millis(ticks));
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
    coordinator: Monitored<WallTime<'a, B>>,
    processor: Box<dyn Processor + 'a>,
    scratch: Box<AcquireScratch>,
    /// The shard it processes, and when it got the shard.
    task: Option<(Box<ShardTask>, LogicalTime)>,
    /// Whether it counts as busy. Between two shards it does: a worker is idle only when there is
    /// nothing to claim.
    is_busy: bool,
    idle: Backoff,
    /// How many shards it was given; part of the seed of each task.
    given: u64,
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
            coordinator: shared.coordinator(),
            processor: (shared.parts.processor)(number),
            scratch: Box::default(),
            task: None,
            is_busy: false,
            idle: Backoff::new(IDLE_FIRST, IDLE_LONGEST, shared.config.seed ^ number as u64),
            given: 0,
        }
    }

    /// Claims a shard, or steps the task of the current one.
    pub fn step(&mut self, now: LogicalTime) -> Rest {
        let rest = match self.task.take() {
            Some((task, since)) => self.work(now, task, since),
            None if self.shared.is_stopping() => self.shut_down(now),
            None => match self.shared.store_access(now) {
                StoreAccess::Wait(until) => self.wait_without_shard(until),
                StoreAccess::Usable | StoreAccess::Retry | StoreAccess::Last => self.enter(now),
            },
        };
        self.shared.report(self.number, now, self.coordinator.take_report());
        rest
    }

    fn wait_without_shard(&mut self, until: LogicalTime) -> Rest {
        self.set_busy(false);
        Rest::Until(until)
    }

    fn set_busy(&mut self, is_busy: bool) {
        let shared = self.shared;
        match (std::mem::replace(&mut self.is_busy, is_busy), is_busy) {
            (false, true) => drop(shared.busy.fetch_add(1, Ordering::SeqCst)),
            // The first idle runner makes the worker idle, which the renewer reports.
            (true, false) => {
                if shared.busy.fetch_sub(1, Ordering::SeqCst) == shared.slots.len() {
                    shared.notify().wake_all();
                }
            }
            (false, false) | (true, true) => {}
        }
    }

    /// Claims a shard, unless the quarantine of a suspect makes it wait.
    fn enter(&mut self, now: LogicalTime) -> Rest {
        match self.shared.quarantine.enter(self.number, now) {
            Entry::Wait(until) => self.wait_without_shard(until),
            entry @ (Entry::Shared | Entry::Exclusive) => self.seek(now, entry == Entry::Exclusive),
        }
    }

    /// Releases shards that were accepted but not started, and claims nothing more.
    fn shut_down(&mut self, now: LogicalTime) -> Rest {
        // The lease of an accepted shard is ours. Leaving it in the inbox would block the shard
        // until the lease expires.
        if let Some(session) = self.shared.inbox.take() {
            let mut task = self.restore(now, session);
            task.release();
            return self.begin(now, task, false);
        }
        self.shared.store.gave_up(self.number);
        self.leave_quarantine();
        self.set_busy(false);
        Rest::Over
    }

    /// Takes an accepted shard from the inbox, or claims one.
    fn seek(&mut self, now: LogicalTime, exclusive: bool) -> Rest {
        match self.shared.inbox.take() {
            Some(session) => {
                let task = self.restore(now, session);
                self.begin(now, task, exclusive)
            }
            None if exclusive => self.claim_exclusive(now),
            None => self.claim_shared(now),
        }
    }

    /// Claims a shard that is not on its last attempt, or asks the other threads to pause if there
    /// are only suspects.
    fn claim_shared(&mut self, now: LogicalTime) -> Rest {
        let shared = self.shared;
        match self.claim(now, ClaimScope::SpareLastAttempts) {
            Ok(session) => self.claimed(now, session, false),
            Err(ClaimError::OnlyLastAttempts) if shared.quarantine.want(self.number, now) => {
                shared.notify().wake_all();
                Rest::No
            }
            Err(ClaimError::OnlyLastAttempts) => {
                // Another thread has the exclusive phase, or it is too early for one. There is work
                // left, so the run is not settled, and no deadline to wait for.
                self.leave_quarantine();
                self.set_busy(false);
                self.nothing_to_do(now, Some(NEVER))
            }
            Err(error) => {
                self.leave_quarantine();
                self.claim_refused(now, error)
            }
        }
    }

    /// Claims any shard: no other thread has items in flight.
    fn claim_exclusive(&mut self, now: LogicalTime) -> Rest {
        match self.claim(now, ClaimScope::Any) {
            Ok(session) => self.claimed(now, session, true),
            Err(error) => {
                self.leave_quarantine();
                self.claim_refused(now, error)
            }
        }
    }

    fn claim(&mut self, now: LogicalTime, scope: ClaimScope) -> Result<SessionState, ClaimError> {
        let (config, scratch) = (&self.shared.config, &mut self.scratch);
        let claimed = self.coordinator.claim_within(
            scope,
            now,
            config.tenant,
            config.run,
            config.worker,
            scratch,
        );
        claimed.map(SessionState::new)
    }

    fn claimed(&mut self, now: LogicalTime, session: SessionState, exclusive: bool) -> Rest {
        self.shared.sharing.claimed(now);
        let task = self.restore(now, session);
        self.begin(now, task, exclusive)
    }

    fn restore(&mut self, now: LogicalTime, session: SessionState) -> ShardTask {
        let shared = self.shared;
        self.given += 1;
        let seed = shared.config.seed ^ self.given.rotate_left(32) ^ self.number as u64;
        ShardTask::restore(shared.config.task, session, now, seed)
            .with_result_cache(&shared.result_cache)
            .with_process(&shared.process)
    }

    fn leave_quarantine(&self) {
        if self.shared.quarantine.left(self.number) {
            self.shared.notify().wake_all();
        }
    }

    /// Makes `task` the task of this runner. `exclusive` says that no other thread has items in
    /// flight; without that a shard on its last attempt is released again.
    fn begin(&mut self, now: LogicalTime, mut task: ShardTask, exclusive: bool) -> Rest {
        let suspicion = if task.is_suspect() { Suspicion::Suspect } else { Suspicion::None };
        if suspicion == Suspicion::Suspect && !exclusive {
            // A suspect while others run was handed off to us. A clean release does not count as an
            // attempt.
            task.release();
        }
        if self.shared.quarantine.claimed(self.number, suspicion) {
            self.shared.notify().wake_all();
        }
        self.idle.reset();
        // After the release decision above: as soon as the lease is in the slot, the renewer and
        // the handoff thread see it.
        self.shared.slots[self.number].take(task.lease().clone(), now);
        self.set_busy(true);
        self.task = Some((Box::new(task), now));
        Rest::No
    }

    /// Handles a claim that returned no shard. Returns when to claim again; ends the worker if the
    /// run has ended, does not exist, or the store fails for good.
    fn claim_refused(&mut self, now: LogicalTime, error: ClaimError) -> Rest {
        if self.is_busy && self.coordinator.change_count().is_none() {
            // A shard may come free at once, and at the end of a run nothing is left to look for.
            let soon = now.saturating_add(FIRST_LOOK);
            self.shared.sharing.not_before(soon);
            self.shared.orphans.not_before(soon);
        }
        self.set_busy(false);
        match error {
            ClaimError::NoneAvailable { earliest_deadline } => {
                self.nothing_to_do(now, earliest_deadline)
            }
            ClaimError::Throttled { retry_after } => Rest::Until(retry_after),
            ClaimError::RunPaused => {
                self.idle.reset();
                self.shared.parts.observer.observe(Event::Paused);
                Rest::Until(now.saturating_add(self.idle.jitter(IDLE_LONGEST)))
            }
            ClaimError::RunTerminal { status } => self.finish(Ok(Finish::of_run(status))),
            // The reply to a grant was lost, and then its record was damaged. Its lease expires,
            // and the next claim skips the shard.
            ClaimError::BackendError(error) if error.is_of_shard() => {
                Rest::Until(now.saturating_add(self.idle.wait()))
            }
            ClaimError::BackendError(error) => self.store_failed(now, error),
            // These two, and whatever variants the coordinator adds: there is nothing to claim
            // from.
            ClaimError::RunNotFound | ClaimError::TenantMismatch { .. } | _ => {
                self.finish(Err(RunWorkerError::RunNotFound))
            }
        }
    }

    fn finish(&self, end: Result<Finish, RunWorkerError>) -> Rest {
        self.shared.finish(end);
        Rest::No
    }

    /// Handles that no shard is claimable: completes the run if all shards are done, revokes leases
    /// of workers that are gone, or requests a split of a busy shard. Returns when to claim again:
    /// after a backoff, or at `earliest`, the first deadline of a held lease, if that is sooner.
    fn nothing_to_do(&mut self, now: LogicalTime, earliest: Option<LogicalTime>) -> Rest {
        let shared = self.shared;
        // While a shard is held the run is not settled, and counting its shards costs a scan. A
        // deadline that no correct clock has stored may be that of a damaged record, which no claim
        // takes over: the worker would wait for it for hours.
        let is_held = earliest.is_some_and(|it| it <= sharing::latest_deadline(shared, now));
        if !is_held && shared.busy.load(Ordering::SeqCst) == 0 {
            match self.settle_run(now) {
                Ok(Some(finish)) => return self.finish(Ok(finish)),
                Ok(None) => {}
                Err(error) => return self.store_failed(now, error),
            }
        }
        // One listing for both.
        let listed = sharing::list_if_due(shared, &mut self.coordinator, now);
        let shards = listed.as_deref();
        if earliest.is_some() && orphans::revoke(shared, &mut self.coordinator, now, shards) {
            self.idle.reset();
            return Rest::No;
        }
        if let Some(shards) = shards {
            sharing::ask(shared, &mut self.coordinator, now, shards);
        }
        let wait = now.saturating_add(self.idle.wait());
        Rest::Until(earliest.map_or(wait, |deadline| wait.min(deadline.max(retry_time(now)))))
    }

    /// Completes the run if every shard is done. Returns how the run ended, or `None` if it is not
    /// settled.
    fn settle_run(&mut self, now: LogicalTime) -> Result<Option<Finish>, InfraError> {
        let config = &self.shared.config;
        let progress = match self.coordinator.get_run_progress(now, config.tenant, config.run) {
            Ok(progress) => progress,
            Err(GetRunError::BackendError(error)) => return Err(error),
            // The run was deleted concurrently; the next claim reports it.
            Err(_) => return Ok(None),
        };
        match evaluate_run_terminal(&progress) {
            RunTerminalEvaluation::StillActive => return Ok(None),
            RunTerminalEvaluation::HasFailures => {
                let (subject, retry) = ((config.tenant, config.run), &self.shared.parked_retry);
                if retry.step(&mut self.coordinator, now, subject, &config.task)? {
                    return Ok(None);
                }
                // Listed to name the shards, and as a second read: one bad read ends no worker.
                let damaged = self.damaged_shards(now)?;
                let (parked, damaged) = (progress.parked, damaged.len() as u64);
                let finish = Finish::Incomplete { parked, damaged };
                return Ok((damaged == progress.damaged).then_some(finish));
            }
            RunTerminalEvaluation::AllDone => {}
        }
        // One id for all workers, so concurrent completions are one operation.
        let op_id = op_ids::of_run(b"complete_run", config.run);
        match self.coordinator.complete_run(now, config.tenant, config.run, op_id) {
            Ok(_) => Ok(Some(Finish::Complete)),
            Err(RunTransitionError::RunTerminal { status }) => Ok(Some(Finish::of_run(status))),
            // A record was damaged since the count; the next look finds it.
            Err(RunTransitionError::BackendError(error)) if error.is_of_shard() => Ok(None),
            Err(RunTransitionError::BackendError(error)) => Err(error),
            // A shard was unparked or split concurrently; the next claim finds it.
            Err(_) => Ok(None),
        }
    }

    /// Returns the damaged shards of the run, and reports them.
    fn damaged_shards(&mut self, now: LogicalTime) -> Result<Vec<ShardId>, InfraError> {
        let (config, mut rows) = (&self.shared.config, Vec::new());
        let (tenant, run, filter) = (config.tenant, config.run, ShardFilter::damaged());
        let listed = self.coordinator.list_shards_into(now, tenant, run, filter, &mut rows);
        // Any other error: the run was deleted concurrently, which the next claim reports.
        if let Err(GetRunError::BackendError(error)) = listed {
            return Err(error);
        }
        rows.iter().for_each(|row| self.report_damaged(row.shard));
        Ok(rows.iter().map(|row| row.shard).collect())
    }

    fn report_damaged(&self, shard: ShardId) {
        let shared = self.shared;
        shared.damage_reports.report(shared.config.run, shard, shared.parts.observer);
    }

    /// Steps the task once. When the task is over, empties the slot, reports the outcome, and wakes
    /// the other threads; a panic in the step parks the shard.
    ///
    /// Returns when the next step is due.
    fn work(&mut self, now: LogicalTime, mut task: Box<ShardTask>, since: LogicalTime) -> Rest {
        let outcome = match catch_unwind(AssertUnwindSafe(|| self.step_task(now, &mut task))) {
            Ok(TaskStep::Over(outcome)) => outcome,
            Ok(step) => {
                self.task = Some((task, since));
                return match step {
                    TaskStep::Wait(until) => Rest::Until(until),
                    TaskStep::Continue | TaskStep::Over(_) => Rest::No,
                };
            }
            Err(_) => self.park_after_panic(now),
        };
        let shared = self.shared;
        // Reports that arrive later must not be credited to the next shard, so the processor drops
        // its items before the slot is reused.
        self.processor.abandon();
        shared.slots[self.number].leave();
        self.leave_quarantine();
        shared.sharing.learn(now.as_raw().saturating_sub(since.as_raw()), task.finished());
        if outcome == TaskOutcome::Damaged {
            self.report_damaged(task.shard().shard());
        }
        shared.parts.observer.observe(Event::Ended { shard: task.shard(), outcome: &outcome });
        self.account_for(outcome);
        // Idle runners may be waiting for a range that was split off or released.
        shared.notify().wake_all();
        Rest::No
    }

    /// Delivers pending messages to the task, steps it, and publishes what other threads wait for:
    /// that it has frozen or paused.
    fn step_task(&mut self, now: LogicalTime, task: &mut ShardTask) -> TaskStep {
        let shared = self.shared;
        let slot = &shared.slots[self.number];
        slot.deliver(task);
        if shared.has_ended() {
            // The handoff thread has stopped, so a frozen shard would never be unfrozen.
            task.unfreeze();
        }
        if shared.is_releasing() {
            task.release();
        }
        let signal = shared.quarantine.signal(self.number);
        task.request_pause(signal.pause);
        let mut context = TaskContext {
            coordinator: &mut self.coordinator,
            connector: shared.parts.connector,
            processor: &mut *self.processor,
            throttle: &shared.throttle,
            observer: shared.parts.observer,
            store: shared.store_access(now),
        };
        let step = task.step(now, &mut context);
        let (paused, suspect) = (task.is_paused(), task.is_suspect());
        let changed = shared.quarantine.stepped(self.number, signal, paused, suspect);
        if slot.record_frozen(task) || changed {
            shared.notify().wake_all();
        }
        step
    }

    /// Parks the shard after a panic in its task. No result of the failed step was stored. The
    /// coordinator handle and the processor may be in an inconsistent state and are replaced. The
    /// session may be lost with the step, so the lease is the slot's.
    fn park_after_panic(&mut self, now: LogicalTime) -> TaskOutcome {
        let shared = self.shared;
        self.coordinator = shared.coordinator();
        self.processor = (shared.parts.processor)(self.number);
        let reason = ParkReason::Poisoned;
        let Some(lease) = shared.slots[self.number].lease() else { return TaskOutcome::Lost };
        let op_id = OpIds::after_panic(&lease);
        let (tenant, text) = (shared.config.tenant, ParkContext::new(PANICKED));
        let coordinator = &mut self.coordinator;
        match coordinator.park_shard_with_context(now, tenant, &lease, reason, text, op_id) {
            Ok(_) => TaskOutcome::Parked(reason),
            Err(_) => TaskOutcome::Lost,
        }
    }

    /// Ends the worker if the outcome of one of its shards requires it: the run is over, the store
    /// or the processor failed, or too many shards were parked.
    fn account_for(&mut self, outcome: TaskOutcome) {
        let shared = self.shared;
        match outcome {
            TaskOutcome::Completed
            | TaskOutcome::Split
            | TaskOutcome::Released
            | TaskOutcome::Moved
            | TaskOutcome::Lost
            | TaskOutcome::Damaged => {}
            TaskOutcome::Parked(_) => {
                let parked = shared.parked.fetch_add(1, Ordering::SeqCst) + 1;
                let max = shared.config.max_parked;
                if parked > max {
                    shared.finish(Err(RunWorkerError::TooManyParked { parked, max }));
                }
            }
            // Only a worker that ends does not retry these.
            TaskOutcome::StoreFailed(error) if error.is_retryable() => {
                shared.unsaved.store(true, Ordering::SeqCst);
            }
            TaskOutcome::StoreFailed(error) => shared.finish(Err(RunWorkerError::Store(error))),
            TaskOutcome::Broken(broken) => shared.finish(Err(RunWorkerError::Broken(broken))),
        }
    }

    /// Handles a failure of the store outside of a task. The report of this step makes all parts
    /// of the worker wait for the store.
    fn store_failed(&self, now: LogicalTime, error: InfraError) -> Rest {
        match error.is_retryable() {
            true => Rest::Until(retry_time(now)),
            false => self.finish(Err(RunWorkerError::Store(error))),
        }
    }
}

/// Returns the earliest time of the next claim. A deadline that has passed on our clock may not
/// have passed on the store's; an immediate retry would spin.
fn retry_time(now: LogicalTime) -> LogicalTime {
    now.saturating_add(IDLE_FIRST)
}
