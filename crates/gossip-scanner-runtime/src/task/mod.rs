//! Processes one shard under one lease.
//!
//! ```text
//!  restore ─► list ─► process ─► checkpoint ─► … ─► complete
//!               │        │                           park · split · release · lost
//!               └────────┴── retry with backoff
//! ```
//!
//! A [`ShardTask`] is a state machine. Each step performs at most one operation that takes time: it
//! lists a page, submits items to the processor, waits for reports, or calls the coordinator once.
//! Coordinator, connector, processor, time and the seed of its jitter are arguments, so threads and
//! a simulator run the same code.
//!
//! It never renews its lease: a worker renews all of its leases together and reports the result to
//! the task ([`ShardTask::renewed`], [`ShardTask::lost`]).
//!
//! # Invariants
//!
//! - The cursor that is stored never covers an item whose results are not durable.
//! - No item is submitted to the processor after the lease deadline has passed on the task's clock.
//! - An operation that may have been applied is retried with the same id until it is answered.
//! - A task ends with its shard completed, parked, split or released, or without the lease.

mod checkpoint_pace;
mod covered_keys;
mod items;
mod listing;
mod operations;
mod refusal;
mod requests;
mod result_cache;
mod side_records;

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod hint_tests;
#[cfg(test)]
mod pace_tests;
#[cfg(test)]
mod replace_tests;
#[cfg(test)]
mod task_tests;
#[cfg(test)]
mod waiting_tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gossip_contracts::connector::{
    CheckedEnumeration, Connector, DEFAULT_PAGE_ITEMS, MAX_PAGE_BYTES, MAX_PAGE_ITEMS,
    MIN_PAGE_BYTES, Page, PageError, PageLimits, ParkCause, Reaction,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpec};
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    CoordinationFacade, FailureRecord, InfraError, Lease, ParkReason, SessionState, ShardAction,
};

use self::checkpoint_pace::CheckpointPace;
use self::covered_keys::CoveredKeys;
pub use self::items::COLLECT_PATIENCE;
use self::listing::Ahead;
pub(crate) use self::result_cache::ResultCache;
use self::side_records::TaskRecords;
use crate::backoff::Backoff;
use crate::host::ProcessName;
use crate::observer::{Event, Observer};
use crate::op_ids::OpIds;
use crate::processor::{Broken, ItemFailure, Processor, Report};
use crate::task::requests::SPLIT_SAMPLE_KEYS;
use crate::throttle::Throttle;
use crate::watermark::ItemWatermark;

/// The settings of a task; the same for all tasks of a worker.
#[derive(Clone, Copy, Debug)]
pub struct TaskConfig {
    /// Checkpoint after this many items.
    pub checkpoint_items: u64,
    /// Checkpoint after this many ticks, if there is progress.
    pub checkpoint_ticks: u64,
    /// Checkpoint slow items sooner, as often as costs 2 % of the time, but not before this many
    /// ticks. From `checkpoint_ticks` on the interval is fixed.
    pub checkpoint_ticks_min: u64,
    /// How often an item is tried before it fails for good; at least one.
    pub item_tries: u32,
    /// How often in a row listing may fail before the shard is parked.
    pub listing_tries: u32,
    /// How often a worker unparks a shard that is parked as `TooManyErrors`; zero for never.
    pub parked_retries: u32,
    /// How long a worker with nothing else to do waits before it unparks such shards, in ticks.
    pub parked_retry_delay: u64,
    /// The first wait before another try, in ticks.
    pub retry_first: u64,
    /// The longest wait before another try, in ticks.
    pub retry_longest: u64,
    /// How many grants without progress a shard of the run survives, as its settings say.
    pub shard_retries: Option<u32>,
    /// Where a shard is split if the request names no key.
    pub cut: Cut,
    /// From this many remaining keys on, a split makes four parts instead of two: a shard that is
    /// far behind then serves several idle workers at once, instead of one per request. A sample of
    /// the source has at most `SPLIT_SAMPLE_KEYS` keys, so a larger number means as many.
    pub many_parts_from: usize,
}

/// Where a shard is split if the request names no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "known keys, or bytes alone")]
pub enum Cut {
    /// In the middle of the remaining keys, from the listed page or a sample of the remaining
    /// range.
    #[default]
    Learned,
    /// Halfway between cursor and end as byte strings, wherever the keys are: the fallback for a
    /// source that cannot be sampled, and the baseline of the makespan table.
    Bytes,
}

impl TaskConfig {
    /// Returns whether this number of grants without progress uses up the attempts of a shard: one
    /// more grant would park it (DESIGN Q13).
    #[must_use]
    pub(crate) fn is_last_chance(&self, attempts: u32) -> bool {
        self.shard_retries.is_some_and(|max| attempts > max)
    }
}

impl Default for TaskConfig {
    /// A crash repeats at most a second of work or ten thousand items. At 10⁶ items per second that
    /// is a hundred checkpoints per second, well within the capacity of the embedded store, and
    /// their syncs take a small part of the time.
    fn default() -> Self {
        Self {
            checkpoint_items: 100_000,
            checkpoint_ticks: 1000,
            // Fixed: the pace of a store is that of a real clock, and simulations have none.
            checkpoint_ticks_min: u64::MAX,
            item_tries: 3,
            listing_tries: 5,
            // Off: a run that cannot finish should say so at once.
            parked_retries: 0,
            parked_retry_delay: 30_000,
            retry_first: 100,
            retry_longest: 5_000,
            shard_retries: None,
            cut: Cut::Learned,
            many_parts_from: SPLIT_SAMPLE_KEYS,
        }
    }
}

/// The collaborators of a task. The worker lends them for each step.
pub struct TaskContext<'g, B> {
    /// The handle of the task's thread.
    pub coordinator: &'g mut B,
    /// The source.
    pub connector: &'g dyn Connector,
    /// Processes each item.
    pub processor: &'g mut dyn Processor,
    /// How fast items may be started, all threads together.
    pub throttle: &'g Throttle,
    /// Receives the events.
    pub observer: &'g dyn Observer,
    /// Whether the store may be used. A caller that does not track outages passes
    /// [`StoreAccess::Usable`]; the task then retries a failed operation without end.
    pub store: StoreAccess,
}

/// Whether a task may use the store in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a task must handle each of them")]
pub enum StoreAccess {
    /// It is usable, as far as is known.
    #[default]
    Usable,
    /// It is unusable, and not used before this time. No item is started.
    Wait(LogicalTime),
    /// It was unusable: operations are tried. No item is started until the store is usable.
    Retry,
    /// It is unusable, and the task must end: it releases its shard after its in-flight items. The
    /// first operation that fails ends it.
    Last,
}

impl<B> fmt::Debug for TaskContext<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}

/// The result of a step.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a driver must handle each of them")]
pub enum TaskStep {
    /// Step again.
    Continue,
    /// There is nothing to do before this time, unless a request arrives.
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
    /// The shard was parked.
    Parked(ParkReason),
    /// The shard was replaced by several, which cover its range and have its progress.
    Split,
    /// The shard was released with its progress.
    Released,
    /// The shard was handed off to another worker with its progress.
    Moved,
    /// The lease is lost, or the shard has ended.
    Lost,
    /// The record of the shard is damaged.
    Damaged,
    /// The store failed permanently, or in a step with [`StoreAccess::Last`]. The shard is not
    /// released: its lease expires.
    StoreFailed(InfraError),
    /// The processor is unusable; the shard was released.
    Broken(Broken),
}

/// One shard under one lease.
pub struct ShardTask {
    config: TaskConfig,
    shard: ShardKey,
    /// Lease and range, which never grows under a lease. Attached to the coordinator for each
    /// operation. `None` during an operation, and after one that ended the shard.
    session: Option<SessionState>,
    /// Grants since the last progress, as stored: 0 after a checkpoint with progress.
    attempts: u32,
    /// Whether another shard of the process is to be processed alone.
    pause_requested: bool,
    /// Whether progress is to be stored as soon as there is some.
    save_soon: bool,
    covered: CoveredKeys,
    /// Dropped after an error and when the range is narrowed; opened again from `covered`.
    listing: Option<CheckedEnumeration>,
    page: Page,
    /// The page behind `page`, listed while the last items of that are processed.
    ahead: Option<Ahead>,
    /// The memory of the page before `page`, for the next one.
    spare: Option<Page>,
    mark: ItemWatermark,
    /// Failed items of the page, by index. Each waits for its next try or is with the processor.
    retrying: BTreeMap<usize, Retrying>,
    /// How many items are with the processor.
    submitted: usize,
    /// How many items were settled in this lease.
    settles: u64,
    reports: Vec<Report>,
    ops: OpIds,
    /// The operation in flight, with its id: it is retried until it is answered.
    pending: Option<(Operation, OpId)>,
    /// Whether the store may be used in this step.
    store: StoreAccess,
    /// When the lease was granted.
    begun: LogicalTime,
    saved_at: LogicalTime,
    /// How soon a checkpoint follows the last one.
    pace: CheckpointPace,
    backoff: Backoff,
    listing_failures: u32,
    /// The task waits until this time.
    wait_until: Option<LogicalTime>,
    /// The decision about the shard as a whole; the first one is kept.
    decision: Option<Decision>,
    /// The item behind a decision to park; its record is stored with the parking.
    failed_item: Option<Box<FailureRecord>>,
    /// The error behind a decision to park, stored with the shard for people.
    park_text: String,
    /// How many items are still to be processed one by one, each checkpointed before the next
    /// starts.
    cautious: u64,
    /// Whether the next grant without progress would park the shard.
    last_chance: bool,
    /// A requested split that was not served yet.
    split: Option<ShardAction>,
    /// Split points that are still to be used, in ascending order; the last one is used first.
    cuts: Vec<Box<[u8]>>,
    /// The outcome, if the task ended without an operation of its own.
    ended: Option<TaskOutcome>,
    /// What the next checkpoint stores beside the cursor.
    records: TaskRecords,
    /// The process that failure records name.
    process: Arc<ProcessName>,
    /// Results of items that other threads of the process had processed before a split.
    result_cache: Option<Arc<ResultCache>>,
}

/// An item that failed.
#[derive(Clone, Debug, Default)]
struct Retrying {
    /// How often it failed.
    failures: u32,
    /// The last error; empty if it did not fail. Cut to the length that a parked shard stores.
    error: Box<str>,
    /// The last failure as the processor reported it, for the failure record.
    failure: Option<Box<ItemFailure>>,
    /// How often it was returned untried since another item was settled.
    undone: u32,
    /// How many items were settled when it was last returned untried.
    settles: u64,
    /// When it may be tried again; `None` while it is with the processor.
    retry_at: Option<LogicalTime>,
}

/// What happens to the shard when its in-flight items are settled.
#[derive(Clone, Debug)]
enum Decision {
    /// Park it.
    Park(ParkReason),
    /// Park the item at this index of the page, alone if possible.
    ParkItem(usize),
    /// Release it.
    Release,
    /// Release it, because the processor is unusable.
    GiveUp(Broken),
    /// Do nothing until the handoff has ended.
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
    /// Replace the shard by several, cut at these keys in ascending order.
    Replace(Vec<Box<[u8]>>),
}

/// From this many grants without progress on, a key of the shard may be killing its workers. Items
/// are then processed one by one, so that the cursor stops right before that key.
const CAUTION_FROM: u32 = 2;

/// How often a frozen or paused task is stepped, in ticks; a notification wakes it earlier.
const FROZEN_POLL_TICKS: u64 = 100;

/// How many items are processed one by one. The fatal key is among those that were listed and not
/// checkpointed at the last crash, which are fewer than two pages.
const CAUTIOUS_ITEMS: u64 = 2 * MAX_PAGE_ITEMS as u64;

impl ShardTask {
    /// Returns the task of a shard that was acquired at `now`, from the state that the acquire
    /// restored.
    ///
    /// If the cursor's token was not written by the runtime, it is unknown which keys the cursor
    /// covers. The task then parks the shard as poisoned and does nothing else.
    #[must_use]
    pub fn restore(config: TaskConfig, session: SessionState, now: LogicalTime, seed: u64) -> Self {
        // The cursor semantics need no case: the cursor passes finished items only, which
        // `Completed` requires and `Dispatched` permits.
        let restored = CoveredKeys::restore(session.restored().cursor.as_update());
        let decision = restored.is_err().then_some(Decision::Park(ParkReason::Poisoned));
        let restored_error = restored.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let covered = restored.or_else(|_| CoveredKeys::restore(CursorUpdate::initial()));
        let attempts = session.attempts();
        Self {
            config,
            shard: session.lease().key(),
            attempts,
            pause_requested: false,
            save_soon: false,
            covered: covered.expect("a cursor without a token has nothing to misread"),
            listing: None,
            page: Page::default(),
            ahead: None,
            spare: None,
            mark: ItemWatermark::default(),
            retrying: BTreeMap::new(),
            submitted: 0,
            settles: 0,
            reports: Vec::new(),
            ops: OpIds::of(session.lease().clone()),
            session: Some(session),
            pending: None,
            store: StoreAccess::Usable,
            begun: now,
            saved_at: now,
            pace: CheckpointPace::default(),
            backoff: Backoff::new(config.retry_first, config.retry_longest, seed),
            listing_failures: 0,
            wait_until: None,
            decision,
            failed_item: None,
            park_text: restored_error,
            cautious: if attempts >= CAUTION_FROM { CAUTIOUS_ITEMS } else { 0 },
            last_chance: config.is_last_chance(attempts),
            split: None,
            cuts: Vec::new(),
            ended: None,
            records: TaskRecords::default(),
            process: Arc::default(),
            result_cache: None,
        }
    }

    /// Returns the task with the result cache of its process.
    pub(crate) fn with_result_cache(self, result_cache: &Arc<ResultCache>) -> Self {
        Self { result_cache: Some(Arc::clone(result_cache)), ..self }
    }

    /// Returns the task with the process that its failure records name.
    pub(crate) fn with_process(self, process: &Arc<ProcessName>) -> Self {
        Self { process: Arc::clone(process), ..self }
    }

    /// Performs the next step: ends the task, waits for the store or for its backoff, sends the
    /// operation in flight, carries out a decision, or lists and processes items, in this order.
    ///
    /// Returns when to step again, or the outcome. It must not be stepped after that.
    pub fn step<B>(&mut self, now: LogicalTime, context: &mut TaskContext<'_, B>) -> TaskStep
    where
        B: CoordinationFacade,
    {
        self.store = context.store;
        self.pace.step(now);
        // An operation in flight is still retried after the deadline: its first try may have been
        // applied, and only the store can say so.
        let has_ended = self.session.as_ref().is_none_or(|it| now >= it.lease().deadline());
        let is_over = has_ended && self.pending.is_none();
        if let Some(outcome) = self.ended.take().or_else(|| is_over.then_some(TaskOutcome::Lost)) {
            self.forget_items(context);
            return TaskStep::Over(outcome);
        }
        if self.store == StoreAccess::Last {
            self.release_unretried();
        }
        // A decision does not wait for the next item, and a request does not wait for the throttle.
        // A failed operation keeps its backoff.
        let is_decided = self.is_decided() && (self.submitted == 0 || self.splits_after_started());
        match self.store {
            StoreAccess::Usable => {}
            // A retry has the payload of the first try, so reports that would move the cursor are
            // not applied while an operation is in flight.
            StoreAccess::Wait(until) if self.pending.is_some() => return TaskStep::Wait(until),
            StoreAccess::Wait(until) => return self.wait_for_store(now, until, context),
            StoreAccess::Retry | StoreAccess::Last if self.pending.is_some() => {
                self.wait_until = None;
            }
            StoreAccess::Retry | StoreAccess::Last if is_decided => {}
            StoreAccess::Retry | StoreAccess::Last => {
                let until = now.saturating_add(FROZEN_POLL_TICKS);
                return self.wait_for_store(now, until, context);
            }
        }
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

    /// Starts neither an item nor an operation: applies the reports of in-flight items, or waits.
    fn wait_for_store<B>(
        &mut self,
        now: LogicalTime,
        until: LogicalTime,
        context: &mut TaskContext<'_, B>,
    ) -> TaskStep {
        if self.submitted == 0 {
            return TaskStep::Wait(until);
        }
        match self.collect(now, COLLECT_PATIENCE, context) {
            Ok(()) => TaskStep::Continue,
            Err(broken) => self.give_up(broken, context),
        }
    }

    /// Returns the shard.
    #[must_use]
    pub(crate) const fn shard(&self) -> ShardKey {
        self.shard
    }

    /// Returns the lease; its deadline follows the renewals.
    ///
    /// # Panics
    ///
    /// If the task has ended its shard: the lease ended with it.
    #[must_use]
    pub(crate) fn lease(&self) -> &Lease {
        self.session().lease()
    }

    fn session(&self) -> &SessionState {
        self.session.as_ref().expect("only an operation that ends the shard consumes the session")
    }

    fn spec(&self) -> &ShardSpec {
        &self.session().restored().spec
    }

    /// Lists a page if the current one is finished; otherwise submits items, collects reports, and
    /// begins a checkpoint if one is due. Pauses if that is requested and no item is in flight.
    fn work<B>(&mut self, now: LogicalTime, context: &mut TaskContext<'_, B>) -> TaskStep {
        // Only without items in flight, because a pause never interrupts an item.
        if self.is_pausing() && self.submitted == 0 {
            return self.pause(now);
        }
        if self.submitted == 0 && self.mark.is_finished() {
            return self.next_page(now, context);
        }
        let throttled = match self.submit(now, context) {
            Ok(throttled) => throttled,
            Err(broken) => return self.give_up(broken, context),
        };
        if self.submitted == 0 {
            return self.wait_for_items(now, throttled);
        }
        if let Err(broken) = self.collect_beside_listing(now, context) {
            return self.give_up(broken, context);
        }
        if self.checkpoint_is_due(now) {
            self.begin(Operation::Checkpoint);
        }
        TaskStep::Continue
    }

    /// Starts no item: checkpoints pending progress, then waits.
    fn pause(&mut self, now: LogicalTime) -> TaskStep {
        if self.covered.unsaved > 0 {
            self.begin(Operation::Checkpoint);
            return TaskStep::Continue;
        }
        TaskStep::Wait(now.saturating_add(FROZEN_POLL_TICKS))
    }

    /// Drops all items and releases the shard, because the processor is unusable.
    fn give_up<B>(&mut self, broken: Broken, context: &mut TaskContext<'_, B>) -> TaskStep {
        self.forget_items(context);
        self.decide(Decision::GiveUp(broken))
    }

    /// Lists the next page, or completes the shard after the last one.
    fn next_page<B>(&mut self, now: LogicalTime, context: &TaskContext<'_, B>) -> TaskStep {
        // A page is exhausted only in the listing that filled it. After a split or an error
        // `listing` is `None` and the range must be listed again.
        if self.listing.is_some() && self.page.is_exhausted() {
            self.begin(Operation::Complete);
            return TaskStep::Continue;
        }
        let listed = match self.ahead.take() {
            Some(Ahead { page, listed }) => {
                self.spare = Some(std::mem::replace(&mut self.page, page));
                listed
            }
            None => {
                let limits = page_limits(context.processor.capacity());
                if self.page.limits() != limits {
                    self.page = Page::with_limits(limits);
                }
                self.list(context.connector)
            }
        };
        match listed {
            Ok(()) => {
                self.listing_failures = 0;
                self.backoff.reset();
                self.mark.begin(self.page.len());
                self.retrying.clear();
                self.isolate_suspect();
                TaskStep::Continue
            }
            Err(error) => self.listing_failed(now, error, context.observer),
        }
    }

    /// On the last attempt of a shard, splits off everything after its next key. If that key
    /// crashes the worker again, it is parked alone and the rest gets attempts of its own.
    fn isolate_suspect(&mut self) {
        if !std::mem::take(&mut self.last_chance) {
            return;
        }
        let is_last = self.page.is_exhausted() && self.page.len() <= 1;
        if let Some(point) = self.point_behind(0).filter(|_| !is_last) {
            self.begin(Operation::Split(point));
        }
    }

    /// Handles a listing that failed: waits for a retry, or parks the range that cannot be listed
    /// if the error is permanent or `listing_tries` failed in a row.
    fn listing_failed(
        &mut self,
        now: LogicalTime,
        error: PageError,
        observer: &dyn Observer,
    ) -> TaskStep {
        assert!(self.ahead.is_none(), "the page that failed is the one behind the last");
        let listing = self.listing.take();
        let at = listing.as_ref().and_then(CheckedEnumeration::failed_at);
        observer.observe(Event::ListingFailed { shard: self.shard, error: &error, at });
        let park_text = match at {
            Some(at) => format!("{}: {error}", String::from_utf8_lossy(at)),
            None => error.to_string(),
        };
        // The failed listing left the page empty, and its items were settled before.
        self.forget_page();
        let behind = listing.as_ref().and_then(CheckedEnumeration::behind_failure);
        match error.reaction() {
            Reaction::Park(cause) => {
                self.park_text = park_text;
                self.park_in_front_of(behind, park_reason(cause))
            }
            // Skipping applies to items. A source that returns it for a whole listing is retried.
            Reaction::Retry | Reaction::SkipGone | Reaction::SkipUnread | _ => {
                self.listing_failures += 1;
                if self.listing_failures >= self.config.listing_tries {
                    self.park_text = park_text;
                    return self.park_in_front_of(behind, ParkReason::TooManyErrors);
                }
                self.wait(now)
            }
        }
    }

    /// Parks a range that cannot be listed. If the key where the failure ends is known, splits off
    /// everything from there first.
    fn park_in_front_of(&mut self, behind: Option<&[u8]>, reason: ParkReason) -> TaskStep {
        if let Some(point) = behind.and_then(|behind| self.admissible(behind)) {
            self.begin(Operation::Split(point));
        }
        self.decide(Decision::Park(reason))
    }

    /// Carries out the decision: checkpoints pending progress first, so that no finished item is
    /// repeated.
    fn settle<B>(&mut self, now: LogicalTime, context: &TaskContext<'_, B>) -> TaskStep {
        if matches!(self.decision, Some(Decision::Freeze)) {
            // The cursor travels with the offer, but side records do not: they are stored before
            // the shard counts as frozen. From then on the coordinator may refuse operations.
            if !self.records.is_stored() {
                self.begin(Operation::Checkpoint);
                return TaskStep::Continue;
            }
            return TaskStep::Wait(now.saturating_add(FROZEN_POLL_TICKS));
        }
        if self.covered.unsaved > 0 {
            self.begin(Operation::Checkpoint);
            return TaskStep::Continue;
        }
        match self.decision.clone() {
            None => self.serve_split(now, context),
            Some(Decision::Release | Decision::GiveUp(_)) => {
                self.begin(Operation::Release(ReleaseMode::Clean));
            }
            Some(Decision::Park(reason)) => self.begin(Operation::Park(reason)),
            Some(Decision::ParkItem(index)) => self.isolate(now, index, context),
            Some(Decision::Freeze) => {}
        }
        TaskStep::Continue
    }

    /// Returns whether no more items are to be tried.
    ///
    /// Retries before a failed item are still made, so that it is parked alone. Retries before a
    /// split, release or handoff are made, too, so that the next lease holder does not repeat items
    /// after the cursor.
    fn is_decided(&self) -> bool {
        match self.decision {
            None => (self.split.is_some() || !self.cuts.is_empty()) && !self.has_retries(),
            Some(Decision::ParkItem(index)) => self.retries_before(index).next().is_none(),
            // Without a store no item is started, also none that waits for a retry. If items after
            // it are finished, its lease runs out first: a release never repeats a finished item.
            Some(Decision::Release) if self.store == StoreAccess::Last => {
                !self.has_retries() || !self.has_finished_ahead()
            }
            Some(Decision::Release | Decision::Freeze) => !self.has_retries(),
            Some(Decision::Park(_) | Decision::GiveUp(_)) => true,
        }
    }

    fn decide(&mut self, decision: Decision) -> TaskStep {
        self.decision.get_or_insert(decision);
        TaskStep::Continue
    }

    // A fresh id per operation, and the same id for its retries: a retry of an operation that was
    // applied returns the first result.
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
        // One by one: the cursor must stop right before a fatal key. Pause requested: the task may
        // pause only after its first progress is stored.
        let is_urgent = self.cautious > 0 || self.pause_requested || self.save_soon;
        if is_urgent && self.covered.unsaved > 0 {
            return true;
        }
        let by_time = self.checkpoint_due_at().is_some_and(|due| now >= due);
        by_time || self.records.is_due() || self.covered.unsaved >= self.config.checkpoint_items
    }

    /// Returns when a checkpoint is due by time; `None` if there is no progress to store.
    fn checkpoint_due_at(&self) -> Option<LogicalTime> {
        let TaskConfig { checkpoint_ticks, checkpoint_ticks_min, .. } = self.config;
        let unsaved = self.covered.unsaved;
        let ticks = self.pace.interval(unsaved, checkpoint_ticks_min, checkpoint_ticks);
        (unsaved > 0).then_some(self.saved_at.saturating_add(ticks))
    }

    fn drop_lease<B>(&mut self, context: &mut TaskContext<'_, B>) -> TaskStep {
        self.forget_items(context);
        TaskStep::Over(TaskOutcome::Lost)
    }

    fn forget_items<B>(&mut self, context: &mut TaskContext<'_, B>) {
        context.processor.abandon();
        self.submitted = 0;
        self.forget_page();
    }

    /// Drops the unstarted items of the page; they are listed again, after the started ones.
    fn forget_unstarted(&mut self) {
        self.mark.cut_short();
        self.drop_listing();
    }

    /// Drops the page; it is listed again from the cursor.
    fn forget_page(&mut self) {
        debug_assert!(self.submitted == 0, "items are settled or abandoned first");
        self.mark.abandon();
        self.page.clear();
        self.retrying.clear();
        self.records.forget_page();
        self.drop_listing();
    }
}

impl fmt::Debug for ShardTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardTask")
            .field("session", &self.session)
            .field("covered", &self.covered)
            .field("submitted", &self.submitted)
            .field("pending", &self.pending.as_ref().map(|(_, op_id)| op_id))
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Returns the limits of a page for a processor of this capacity: whole batches, because the last
/// batch of a page is not filled up from the next page.
fn page_limits(capacity: usize) -> PageLimits {
    let batch = capacity.clamp(1, MAX_PAGE_ITEMS);
    let items = batch * (DEFAULT_PAGE_ITEMS / batch).max(1);
    let bytes = (items * PAGE_BYTES_PER_ITEM).min(MAX_PAGE_BYTES);
    PageLimits::try_new(items, bytes).expect("the numbers lie within the limits of a page")
}

/// Bytes of a page for each of its items: most paths are shorter, so the items fill the page first.
const PAGE_BYTES_PER_ITEM: usize = 256;

const _: () = assert!(PAGE_BYTES_PER_ITEM * DEFAULT_PAGE_ITEMS / 2 >= MIN_PAGE_BYTES);

/// Returns the coordinator's reason for a connector's cause.
const fn park_reason(cause: ParkCause) -> ParkReason {
    match cause {
        ParkCause::PermissionDenied => ParkReason::PermissionDenied,
        ParkCause::NotFound => ParkReason::NotFound,
        ParkCause::Poisoned => ParkReason::Poisoned,
        // The connector's enum may grow. An unknown cause needs an operator.
        _ => ParkReason::Other,
    }
}
