//! One thread of a worker: claims a shard, works on it, claims the next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use gossip_contracts::identity::{CanonicalBytes as _, CanonicalHasher, Domain, LogicalTime, OpId};
use gossip_coordination::{
    AcquireScratch, ClaimError, CoordinationFacade, GetRunError, InfraError, Lease, ParkReason,
    RunTransitionError,
};

use super::{Crew, Finish, WorkerError};
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

/// How long a thread sleeps at most before it looks at the world again, in ticks.
const NAP_LONGEST: u64 = 500;

const _: () = assert!(IDLE_FIRST < IDLE_LONGEST);

/// Works until the worker ends.
pub(super) fn run<B: CoordinationFacade>(crew: &Crew<'_, B>, number: usize) {
    let mut slot = Slot {
        crew,
        number,
        coordinator: (crew.parts.coordinator)(),
        processor: (crew.parts.processor)(number),
        scratch: Box::default(),
        idle: Backoff::new(IDLE_FIRST, IDLE_LONGEST, crew.config.seed ^ number as u64),
        store_fails_since: None,
        claims: 0,
    };
    while !crew.is_stopping() {
        slot.turn();
    }
}

struct Slot<'c, 'a, B> {
    crew: &'c Crew<'a, B>,
    number: usize,
    coordinator: B,
    processor: Box<dyn Processor + 'a>,
    scratch: Box<AcquireScratch>,
    idle: Backoff,
    /// Since when claiming fails; `None` if the store answered.
    store_fails_since: Option<LogicalTime>,
    claims: u64,
}

impl<B: CoordinationFacade> Slot<'_, '_, B> {
    /// Claims a shard and works on it, or waits.
    fn turn(&mut self) {
        let heard = self.crew.bell().heard();
        let config = &self.crew.config;
        let now = self.crew.parts.clock.now();
        let claimed = self.coordinator.claim_next_available(
            now,
            config.tenant,
            config.run,
            config.worker,
            &mut self.scratch,
        );
        match claimed {
            Ok(acquired) => {
                let shard = acquired.lease.key();
                let attempts = acquired.attempts;
                self.claims += 1;
                let seed = config.seed ^ self.claims.rotate_left(32) ^ self.number as u64;
                let task = ShardTask::restore(config.task, &acquired, now, seed);
                self.crew.parts.observer.observe(Event::Claimed { shard, attempts });
                self.answered();
                self.work_on(task);
            }
            Err(error) => self.claim_refused(now, heard, error),
        }
    }

    fn claim_refused(&mut self, now: LogicalTime, heard: u64, error: ClaimError) {
        match error {
            ClaimError::NoneAvailable { earliest_deadline } => {
                self.nothing_to_do(now, heard, earliest_deadline);
            }
            ClaimError::Throttled { retry_after } => self.nap(now, heard, retry_after),
            ClaimError::RunPaused => {
                self.answered();
                self.crew.parts.observer.observe(Event::Paused);
                let until = now.saturating_add(self.idle.jitter(IDLE_LONGEST));
                self.nap(now, heard, until);
            }
            ClaimError::RunTerminal { status } => self.crew.finish(Ok(Finish::of_run(status))),
            ClaimError::BackendError(error) => self.store_failed(now, heard, error),
            // The last two, and whatever the coordinator may add: there is nothing to claim from.
            ClaimError::RunNotFound | ClaimError::TenantMismatch { .. } | _ => {
                self.crew.finish(Err(WorkerError::RunNotFound));
            }
        }
    }

    /// Everything is taken or finished: ends the run if it is settled, or waits for work.
    fn nothing_to_do(
        &mut self,
        now: LogicalTime,
        heard: u64,
        earliest_deadline: Option<LogicalTime>,
    ) {
        self.store_fails_since = None;
        let crew = self.crew;
        // While this process has shards the run is not settled, and nobody need ask.
        if crew.busy.load(Ordering::SeqCst) == 0 {
            match self.settle_run(now) {
                Ok(Some(finish)) => return crew.finish(Ok(finish)),
                Ok(None) => {}
                Err(error) => return self.store_failed(now, heard, error),
            }
        } else {
            crew.ask_split();
        }
        crew.idle.fetch_add(1, Ordering::SeqCst);
        let wait = now.saturating_add(self.idle.wait());
        self.nap(
            now,
            heard,
            earliest_deadline.map_or(wait, |deadline| wait.min(deadline.max(soon(now)))),
        );
        crew.idle.fetch_sub(1, Ordering::SeqCst);
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

    /// Works on one shard to its end.
    fn work_on(&mut self, mut task: ShardTask) {
        let crew = self.crew;
        let (seat, lease) = (&crew.seats[self.number], task.lease().clone());
        seat.take(lease.clone());
        crew.busy.fetch_add(1, Ordering::SeqCst);
        let ending = match catch_unwind(AssertUnwindSafe(|| self.step_to_end(&mut task))) {
            Ok(ending) => ending,
            Err(_) => self.park_after_panic(&lease),
        };
        self.processor.abandon();
        seat.leave();
        crew.busy.fetch_sub(1, Ordering::SeqCst);
        crew.parts.observer.observe(Event::Ended { shard: lease.key(), ending: &ending });
        self.account_for(ending);
        // Others may wait for what was split off or given back.
        crew.bell().ring();
    }

    fn step_to_end(&mut self, task: &mut ShardTask) -> Ending {
        let crew = self.crew;
        let mut gear = Gear {
            coordinator: &mut self.coordinator,
            connector: crew.parts.connector,
            processor: &mut *self.processor,
            throttle: &crew.throttle,
            observer: crew.parts.observer,
        };
        loop {
            let heard = crew.bell().heard();
            crew.seats[self.number].tell(task);
            if crew.is_stopping() {
                task.release();
            }
            let now = crew.parts.clock.now();
            match task.step(now, &mut gear) {
                Turn::Going => {}
                Turn::Wait(until) => nap(crew, now, heard, until),
                Turn::Over(ending) => return ending,
            }
        }
    }

    /// A broken invariant: nothing of it was stored. The shard is set aside, and whatever may be in
    /// a bad state is made anew.
    fn park_after_panic(&mut self, lease: &Lease) -> Ending {
        let crew = self.crew;
        self.coordinator = (crew.parts.coordinator)();
        self.processor = (crew.parts.processor)(self.number);
        let reason = ParkReason::Poisoned;
        let op_id = OpIds::after_panic(lease);
        let (now, tenant) = (crew.parts.clock.now(), crew.config.tenant);
        match self.coordinator.park_shard(now, tenant, lease, reason, op_id) {
            Ok(_) => Ending::Parked(reason),
            Err(_) => Ending::Lost,
        }
    }

    fn account_for(&mut self, ending: Ending) {
        let crew = self.crew;
        match ending {
            Ending::Completed | Ending::Released | Ending::Lost => {}
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

    fn store_failed(&mut self, now: LogicalTime, heard: u64, error: InfraError) {
        let crew = self.crew;
        let since = *self.store_fails_since.get_or_insert(now);
        let patience = since.saturating_add(crew.config.task.store_patience);
        if !error.is_retryable() || now >= patience {
            return crew.finish(Err(WorkerError::Store(error)));
        }
        crew.parts.observer.observe(Event::StoreFailed { error: &error });
        let until = now.saturating_add(self.idle.wait());
        self.nap(now, heard, until);
    }

    fn nap(&self, now: LogicalTime, heard: u64, until: LogicalTime) {
        nap(self.crew, now, heard, until);
    }
}

/// Waits until `until`, a ring of the bell, or the longest nap.
fn nap<B>(crew: &Crew<'_, B>, now: LogicalTime, heard: u64, until: LogicalTime) {
    let ticks = until.as_raw().saturating_sub(now.as_raw()).min(NAP_LONGEST);
    crew.bell().wait(heard, Duration::from_millis(ticks));
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
