//! One shard's life under one lease.
//!
//! ```text
//!  restore ─► list ─► process ─► checkpoint ─► … ─► complete
//!               │        │                           park · release · lost
//!               └────────┴── retry with backoff
//! ```
//!
//! A [`ShardTask`] is a machine that is stepped. Each step does at most one thing that takes time:
//! it lists a page, gives items to the processor, waits for reports, or calls the coordinator once.
//! Coordinator, connector, processor, time and the seed of its jitter are arguments, so threads and
//! a simulator drive the same code.
//!
//! It never renews its lease: a worker renews all of its leases together, and tells the task
//! ([`ShardTask::renewed`], [`ShardTask::lost`]).
//!
//! # Invariants
//!
//! - The cursor that is stored never covers an item whose results are not durable.
//! - Nothing is given to the processor when the lease has ended by the task's own time.
//! - An operation that may have happened is repeated with its own id until it is answered.
//! - A shard that ends here was completed, parked or released, or somebody else decides about it.

mod covered_keys;
mod items;
mod operations;
mod refusal;
mod requests;
mod result_cache;

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod task_tests;
#[cfg(test)]
mod waiting_tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gossip_contracts::connector::{
    CheckedEnumeration, Connector, MAX_PAGE_ITEMS, Page, PageError, ParkCause, Reaction,
};
use gossip_contracts::coordination::ShardSpec;
use gossip_contracts::identity::{LogicalTime, OpId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireResultView, CoordinationFacade, InfraError, Lease, ParkReason, RunStatus, ShardAction,
};

use self::covered_keys::CoveredKeys;
pub use self::items::COLLECT_PATIENCE;
pub(crate) use self::result_cache::ResultCache;
use crate::backoff::Backoff;
use crate::observer::{Event, Observer};
use crate::op_ids::OpIds;
use crate::processor::{Broken, Processor, Report};
use crate::throttle::Throttle;
use crate::watermark::ItemWatermark;

/// How a task works; the same for all tasks of a worker.
#[derive(Clone, Copy, Debug)]
pub struct TaskConfig {
    /// Record progress after this many items.
    pub checkpoint_items: u64,
    /// Record progress after this many ticks, if there is any.
    pub checkpoint_ticks: u64,
    /// How often an item is tried before it is set aside; at least one.
    pub item_tries: u32,
    /// How often in a row listing may fail before the shard is parked.
    pub listing_tries: u32,
    /// The first wait before another try, in ticks.
    pub retry_first: u64,
    /// The longest wait before another try, in ticks.
    pub retry_longest: u64,
    /// How long a store that does not answer is asked again, in ticks.
    pub store_patience: u64,
    /// How many grants without progress a shard of the run survives, as its settings say.
    pub shard_retries: Option<u32>,
    /// Where a shard is split when nobody names a key.
    pub cut: Cut,
}

/// Where a shard is split when nobody names a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "known keys, or bytes alone")]
pub enum Cut {
    /// In the middle of the keys that are left, from the listed page or a sample of what remains.
    #[default]
    Learned,
    /// Halfway between the bytes of cursor and end, whatever lies there: what is left when a source
    /// cannot be sampled, and the baseline of the makespan table.
    Bytes,
}

impl TaskConfig {
    /// Whether a shard that was granted this often since its last progress is parked if that
    /// happens once more (DESIGN Q13).
    #[must_use]
    pub fn is_last_chance(&self, attempts: u32) -> bool {
        self.shard_retries.is_some_and(|max| attempts > max)
    }
}

impl Default for TaskConfig {
    /// A crash repeats at most a second of work, or a thousand items: at 10⁵ items a second that is
    /// a hundred checkpoints a second, which the embedded store takes with ease.
    fn default() -> Self {
        Self {
            checkpoint_items: 1000,
            checkpoint_ticks: 1000,
            item_tries: 3,
            listing_tries: 5,
            retry_first: 100,
            retry_longest: 5_000,
            store_patience: 60_000,
            shard_retries: None,
            cut: Cut::Learned,
        }
    }
}

/// What a task works with. The worker lends it for each step.
pub struct TaskContext<'g, B> {
    /// The handle of the task's thread.
    pub coordinator: &'g mut B,
    /// The source.
    pub connector: &'g dyn Connector,
    /// What is done with each item.
    pub processor: &'g mut dyn Processor,
    /// How fast items may be started, all threads together.
    pub throttle: &'g Throttle,
    /// Who is told.
    pub observer: &'g dyn Observer,
}

impl<B> fmt::Debug for TaskContext<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}

/// What a step came to.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a driver must handle each of them")]
pub enum TaskStep {
    /// Step again.
    Continue,
    /// There is nothing to do before this time, unless an order comes.
    Wait(LogicalTime),
    /// The task is over.
    Over(TaskOutcome),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskOutcome {
    /// Every item was covered.
    Completed,
    /// The shard was set aside.
    Parked(ParkReason),
    /// It was given back, with its progress recorded.
    Released,
    /// It was handed to another worker, with its progress.
    Moved,
    /// Somebody else owns it now, or it is over.
    Lost,
    /// The run ended meanwhile.
    RunOver(RunStatus),
    /// The store failed for too long, or for good.
    StoreFailed(InfraError),
    /// The processor cannot work; the shard was given back.
    Broken(Broken),
}

/// One shard under one lease.
pub struct ShardTask {
    config: TaskConfig,
    lease: Lease,
    /// Grants since the last progress, as the store has it: none when some was recorded.
    attempts: u32,
    /// Whether another shard of the process wants to be alone.
    pause_requested: bool,
    /// Only narrows.
    spec: ShardSpec,
    covered: CoveredKeys,
    /// Dropped after an error and when the range is narrowed; opened again from `covered`.
    listing: Option<CheckedEnumeration>,
    page: Page,
    mark: ItemWatermark,
    /// Failed items of the page, by index; each waits for its next try or is with the processor.
    retrying: BTreeMap<usize, Retrying>,
    /// How many items are with the processor.
    submitted: usize,
    /// How many items were settled in this lease.
    settles: u64,
    reports: Vec<Report>,
    ops: OpIds,
    /// The operation under way, with its id: it is repeated until it is answered.
    pending: Option<(Operation, OpId)>,
    /// Since when the store fails; `None` if its last answer was a good one.
    store_fails_since: Option<LogicalTime>,
    saved_at: LogicalTime,
    backoff: Backoff,
    listing_failures: u32,
    /// Nothing is done before this time.
    wait_until: Option<LogicalTime>,
    /// What was decided about the shard as a whole; the first decision stands.
    decision: Option<Decision>,
    /// Items left to be processed one by one, each recorded before the next begins.
    cautious: u64,
    /// Whether the next grant without progress would park the shard.
    last_chance: bool,
    /// What an administrator asked and was not done yet.
    split: Option<ShardAction>,
    /// Where it is still to be cut, in order; the last one first.
    cuts: Vec<Box<[u8]>>,
    /// How it ended without an operation of its own.
    ended: Option<TaskOutcome>,
    /// What other threads of the process have left of items that are this shard's now.
    result_cache: Option<Arc<ResultCache>>,
}

/// An item that failed.
#[derive(Clone, Copy, Debug)]
struct Retrying {
    /// How often it was tried in vain.
    failures: u32,
    /// How often it was handed back untried since something was settled.
    undone: u32,
    /// How many items were settled when it was last handed back.
    settles: u64,
    /// When it may be tried again; `None` while it is with the processor.
    retry_at: Option<LogicalTime>,
}

/// What is to become of the shard when the items under way are settled.
#[derive(Clone, Debug)]
enum Decision {
    /// Set it aside.
    Park(ParkReason),
    /// Set the item at this index of the page aside, alone if that is possible.
    ParkItem(usize),
    /// Give it back.
    Release,
    /// Give it back: the processor cannot work.
    GiveUp(Broken),
    /// Do nothing more until it is known who has it: it is being moved.
    Freeze,
}

/// A call of the coordinator.
#[derive(Clone, Debug)]
enum Operation {
    Checkpoint,
    Complete,
    Park(ParkReason),
    Release(ReleaseMode),
    /// Give everything from this key on to a new shard.
    Split(Box<[u8]>),
}

/// From this many grants on without progress something in the shard may be killing its owners: from
/// then on items are processed one by one, so that the cursor stops right in front of it.
const CAUTION_FROM: u32 = 2;

/// How long a task that stands still rests between two looks, in ticks; it is woken before.
const FROZEN_POLL_TICKS: u64 = 100;

/// How many items are processed so. The killer is among those that were listed and not recorded
/// when the last owner died, which are fewer than two pages.
const CAUTIOUS_ITEMS: u64 = 2 * MAX_PAGE_ITEMS as u64;

impl ShardTask {
    /// Takes over a shard that was just acquired, at `now`.
    ///
    /// A token that the runtime did not write is not believed: the task's first and only act is
    /// then to park the shard as poisoned, because what its cursor covers cannot be told.
    #[must_use]
    pub fn restore(
        config: TaskConfig,
        acquired: &AcquireResultView<'_>,
        now: LogicalTime,
        seed: u64,
    ) -> Self {
        let snapshot = &acquired.snapshot;
        let restored = CoveredKeys::restore(snapshot.cursor());
        let decision = restored.is_err().then_some(Decision::Park(ParkReason::Poisoned));
        let start = gossip_contracts::coordination::CursorUpdate::initial();
        let covered = restored.or_else(|_| CoveredKeys::restore(start));
        Self {
            config,
            lease: acquired.lease.clone(),
            attempts: acquired.attempts,
            pause_requested: false,
            spec: ShardSpec::try_from(snapshot.spec())
                .expect("a spec that a backend holds was checked on its way in"),
            covered: covered.expect("a cursor without a token has nothing to misread"),
            listing: None,
            page: Page::default(),
            mark: ItemWatermark::default(),
            retrying: BTreeMap::new(),
            submitted: 0,
            settles: 0,
            reports: Vec::new(),
            ops: OpIds::of(acquired.lease.clone()),
            pending: None,
            store_fails_since: None,
            saved_at: now,
            backoff: Backoff::new(config.retry_first, config.retry_longest, seed),
            listing_failures: 0,
            wait_until: None,
            decision,
            cautious: if acquired.attempts >= CAUTION_FROM { CAUTIOUS_ITEMS } else { 0 },
            last_chance: config.is_last_chance(acquired.attempts),
            split: None,
            cuts: Vec::new(),
            ended: None,
            result_cache: None,
        }
    }

    /// The same with what threads of one process leave to each other.
    pub(crate) fn with_result_cache(self, result_cache: &Arc<ResultCache>) -> Self {
        Self { result_cache: Some(Arc::clone(result_cache)), ..self }
    }

    /// Does the next thing.
    pub fn step<B>(&mut self, now: LogicalTime, context: &mut TaskContext<'_, B>) -> TaskStep
    where
        B: CoordinationFacade,
    {
        let has_ended = now >= self.lease.deadline();
        let is_over = has_ended && self.pending.is_none();
        if let Some(outcome) = self.ended.take().or_else(|| is_over.then_some(TaskOutcome::Lost)) {
            self.forget_items(context);
            return TaskStep::Over(outcome);
        }
        // A decision does not wait for the next item, nor an order for the throttle. An operation
        // that failed does wait.
        let is_decided = self.is_decided() && (self.submitted == 0 || self.splits_ahead());
        let until = self.wait_until.take().filter(|until| now < *until);
        if let Some(until) = until.filter(|_| self.pending.is_some() || !is_decided) {
            self.wait_until = Some(until);
            return TaskStep::Wait(until);
        }
        if self.pending.is_some() {
            return self.perform(now, context);
        }
        if is_decided {
            return self.settle(now, context);
        }
        self.work(now, context)
    }

    /// The lease, whose deadline follows the renewals.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Lists, or gives out items and takes reports in.
    fn work<B>(&mut self, now: LogicalTime, context: &mut TaskContext<'_, B>) -> TaskStep {
        if self.is_pausing() && self.submitted == 0 {
            return self.rest(now);
        }
        if self.submitted == 0 && self.mark.is_finished() {
            return self.turn_page(now, context);
        }
        let throttled = match self.submit(now, context) {
            Ok(throttled) => throttled,
            Err(broken) => return self.give_up(broken, context),
        };
        if self.submitted == 0 {
            return self.wait_for_items(now, throttled);
        }
        if let Err(broken) = self.collect(now, context) {
            return self.give_up(broken, context);
        }
        if self.checkpoint_is_due(now) {
            self.begin(Operation::Checkpoint);
        }
        TaskStep::Continue
    }

    /// Begins nothing for a while: records what is finished, and waits.
    fn rest(&mut self, now: LogicalTime) -> TaskStep {
        if self.covered.unsaved > 0 {
            self.begin(Operation::Checkpoint);
            return TaskStep::Continue;
        }
        TaskStep::Wait(now.saturating_add(FROZEN_POLL_TICKS))
    }

    /// No item can be processed: what was finished is recorded, and the shard given back.
    fn give_up<B>(&mut self, broken: Broken, context: &mut TaskContext<'_, B>) -> TaskStep {
        self.forget_items(context);
        self.decide(Decision::GiveUp(broken))
    }

    /// Everything that was started is settled: gets more, or ends the shard.
    fn turn_page<B>(&mut self, now: LogicalTime, context: &TaskContext<'_, B>) -> TaskStep {
        if self.listing.is_some() && self.page.is_exhausted() {
            self.begin(Operation::Complete);
            return TaskStep::Continue;
        }
        match self.list(context.connector) {
            Ok(()) => {
                self.listing_failures = 0;
                self.backoff.reset();
                self.mark.begin(self.page.len());
                self.retrying.clear();
                self.leave_suspect_alone();
                TaskStep::Continue
            }
            Err(error) => self.listing_failed(now, error, context.observer),
        }
    }

    /// On the last chance of a shard, cuts off everything behind its next key. If that key kills
    /// the owner again, it is parked alone, and what follows has a try of its own.
    fn leave_suspect_alone(&mut self) {
        if !std::mem::take(&mut self.last_chance) {
            return;
        }
        let is_last = self.page.is_exhausted() && self.page.len() <= 1;
        if let Some(point) = self.point_behind(0).filter(|_| !is_last) {
            self.begin(Operation::Split(point));
        }
    }

    fn list(&mut self, connector: &dyn Connector) -> Result<(), PageError> {
        let listing = match &mut self.listing {
            Some(listing) => listing,
            None => {
                let from = self.covered.listed_from();
                let opened = CheckedEnumeration::open(connector, self.spec.as_spec_ref(), from)?;
                self.listing.insert(opened)
            }
        };
        listing.next_page(&mut self.page)
    }

    fn listing_failed(
        &mut self,
        now: LogicalTime,
        error: PageError,
        observer: &dyn Observer,
    ) -> TaskStep {
        observer.observe(Event::ListingFailed { shard: self.lease.key(), error: &error });
        let listing = self.listing.take();
        // The page is empty now, and everything on it was settled.
        self.forget_page();
        let behind = listing.as_ref().and_then(CheckedEnumeration::behind_failure);
        match error.reaction() {
            Reaction::Park(cause) => self.park_in_front_of(behind, park_reason(cause)),
            // Skipping is for items; a source that answers so for a whole listing tries again.
            Reaction::Retry | Reaction::SkipGone | Reaction::SkipUnread | _ => {
                self.listing_failures += 1;
                if self.listing_failures >= self.config.listing_tries {
                    return self.park_in_front_of(behind, ParkReason::TooManyErrors);
                }
                self.wait(now)
            }
        }
    }

    /// Sets aside what cannot be listed: cuts off what lies behind it, if that is known, and parks
    /// what is left.
    fn park_in_front_of(&mut self, behind: Option<&[u8]>, reason: ParkReason) -> TaskStep {
        if let Some(point) = behind.and_then(|behind| self.admissible(behind)) {
            self.begin(Operation::Split(point));
        }
        self.decide(Decision::Park(reason))
    }

    /// Something was decided, and nothing that it concerns is under way: does it, progress first.
    fn settle<B>(&mut self, now: LogicalTime, context: &TaskContext<'_, B>) -> TaskStep {
        if matches!(self.decision, Some(Decision::Freeze)) {
            // The cursor travels with the offer, which is somebody else's business.
            return TaskStep::Wait(now.saturating_add(FROZEN_POLL_TICKS));
        }
        if self.covered.unsaved > 0 {
            self.begin(Operation::Checkpoint);
            return TaskStep::Continue;
        }
        match self.decision.clone() {
            None => self.serve_split(context),
            Some(Decision::Release | Decision::GiveUp(_)) => {
                self.begin(Operation::Release(ReleaseMode::Clean));
            }
            Some(Decision::Park(reason)) => self.begin(Operation::Park(reason)),
            Some(Decision::ParkItem(index)) => self.isolate(index, context),
            Some(Decision::Freeze) => {}
        }
        TaskStep::Continue
    }

    /// Whether no more items are to be tried.
    ///
    /// Those before an item that is set aside still are, so that it is set aside alone; and whoever
    /// goes on with a shard that is split, given back or moved finds nothing behind the cursor that
    /// was done.
    fn is_decided(&self) -> bool {
        match self.decision {
            None => (self.split.is_some() || !self.cuts.is_empty()) && !self.has_retries(),
            Some(Decision::ParkItem(index)) => self.retries_before(index).next().is_none(),
            Some(Decision::Release | Decision::Freeze) => !self.has_retries(),
            Some(Decision::Park(_) | Decision::GiveUp(_)) => true,
        }
    }

    fn decide(&mut self, decision: Decision) -> TaskStep {
        self.decision.get_or_insert(decision);
        TaskStep::Continue
    }

    fn begin(&mut self, operation: Operation) {
        debug_assert!(self.pending.is_none(), "one operation at a time");
        self.pending = Some((operation, self.ops.fresh()));
    }

    fn wait(&mut self, now: LogicalTime) -> TaskStep {
        let until = now.saturating_add(self.backoff.wait());
        self.wait_until = Some(until);
        TaskStep::Wait(until)
    }

    fn checkpoint_is_due(&self, now: LogicalTime) -> bool {
        // Who is to rest may do so when its first progress is recorded.
        if (self.cautious > 0 || self.pause_requested) && self.covered.unsaved > 0 {
            return true;
        }
        let by_time = self.checkpoint_due_at().is_some_and(|due| now >= due);
        by_time || self.covered.unsaved >= self.config.checkpoint_items
    }

    /// When what is not recorded has waited long enough; `None` if there is nothing.
    fn checkpoint_due_at(&self) -> Option<LogicalTime> {
        let due = self.saved_at.saturating_add(self.config.checkpoint_ticks);
        (self.covered.unsaved > 0).then_some(due)
    }

    fn drop_everything<B>(&mut self, context: &mut TaskContext<'_, B>) -> TaskStep {
        self.forget_items(context);
        TaskStep::Over(TaskOutcome::Lost)
    }

    fn forget_items<B>(&mut self, context: &mut TaskContext<'_, B>) {
        context.processor.abandon();
        self.submitted = 0;
        self.forget_page();
    }

    /// What was not started is listed again, behind what was.
    fn forget_unstarted(&mut self) {
        self.mark.cut_short();
        self.listing = None;
    }

    /// The page is listed again from the cursor.
    fn forget_page(&mut self) {
        debug_assert!(self.submitted == 0, "items are settled or abandoned first");
        self.mark.abandon();
        self.page.clear();
        self.retrying.clear();
        self.listing = None;
    }
}

impl fmt::Debug for ShardTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardTask")
            .field("lease", &self.lease)
            .field("covered", &self.covered)
            .field("submitted", &self.submitted)
            .field("pending", &self.pending.as_ref().map(|(_, op_id)| op_id))
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// The coordinator's name for what a connector says.
const fn park_reason(cause: ParkCause) -> ParkReason {
    match cause {
        ParkCause::PermissionDenied => ParkReason::PermissionDenied,
        ParkCause::NotFound => ParkReason::NotFound,
        ParkCause::Poisoned => ParkReason::Poisoned,
        // The connector's enum may grow; a cause that is not known here needs a person.
        _ => ParkReason::Other,
    }
}
