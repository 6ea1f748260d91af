//! Submits items to the processor and handles their results.

use std::time::Duration;

use gossip_contracts::connector::{OpenError, Reaction};
use gossip_contracts::coordination::{MAX_KEY_SIZE, key_successor_into};
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{ParkContext, ParkReason};

use super::result_cache::CachedResult;
use super::{Decision, Operation, Retrying, ShardTask, TaskContext, TaskStep, park_reason};
use crate::observer::Event;
use crate::processor::{Broken, ItemResult, Report, Work};
use crate::split_specs;
use crate::watermark::Settled;

/// The longest time that a step waits for reports. A request or the loss of the lease takes effect
/// in the next step, so this bounds the delay.
pub const COLLECT_PATIENCE: Duration = Duration::from_millis(100);

/// How often in a row an item may be returned untried, without another being settled, before it
/// fails for good: a handler that makes no progress at all will not process this item either.
const MAX_UNDONE: u32 = 16;

/// The retry time of an item that is not tried again under this lease.
const NEVER: LogicalTime = LogicalTime::from_raw(u64::MAX);

impl ShardTask {
    /// Submits items until the processor is full. Returns when the throttle permits more, if it
    /// stopped the loop.
    pub(super) fn submit<B>(
        &mut self,
        now: LogicalTime,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Option<LogicalTime>, Broken> {
        // One by one after crashes: the cursor must stop right before the fatal key.
        let most = if self.cautious > 0 { 1 } else { context.processor.capacity() };
        while self.submitted < most {
            let Some(index) = self.next_item(now, most) else { break };
            if self.apply_cached_result(now, index) {
                self.advance(context);
                continue;
            }
            let item = self.page.item(index).expect("the mark follows this page");
            // The throttle is asked before the item is marked as started: an item that is delayed
            // can still be split off.
            if let Some(until) = context.throttle.take(now, item.size_hint().unwrap_or(0)) {
                return Ok(Some(until));
            }
            if !self.mark.is_in_flight(index) {
                self.mark.start();
            }
            if let Some(retrying) = self.retrying.get_mut(&index) {
                retrying.retry_at = None;
            }
            // Counted before the call: a processor that fails may have started the item.
            self.submitted += 1;
            context.processor.submit(Work {
                ticket: index,
                item,
                shard: self.shard,
                fence: self.lease().fence(),
                connector: context.connector,
            })?;
        }
        Ok(None)
    }

    /// Applies the cached result of the item at `index`, if a thread of this process processed it
    /// before it was split off. Returns whether the item needs no further try.
    fn apply_cached_result(&mut self, now: LogicalTime, index: usize) -> bool {
        // A started item has its own result; the cache is only for the first try.
        if self.mark.is_in_flight(index) {
            return false;
        }
        let Some(cached) =
            self.result_cache.as_ref().and_then(|it| it.take(now, self.key_at(index)))
        else {
            return false;
        };
        match cached {
            CachedResult::Settled(settled) => {
                self.mark.start();
                self.settle_item(index, settled);
                true
            }
            CachedResult::Failed { failures, error } => {
                let item = self.retrying.entry(index).or_default();
                (item.failures, item.error) = (failures, error);
                let hopeless = failures >= self.config.item_tries;
                if hopeless {
                    self.mark.start();
                    self.park_item(index);
                }
                hopeless
            }
        }
    }

    /// Caches the results of the items from `point` on, which belong to another shard now.
    pub(super) fn cache_results(&self, now: LogicalTime, point: &[u8]) {
        let Some(result_cache) = &self.result_cache else { return };
        let is_split_off = |index: &usize| self.key_at(*index) >= point;
        for index in (self.mark.mark()..self.page.len()).filter(is_split_off) {
            let failed = self.retrying.get(&index).filter(|item| item.failures > 0);
            let result = match (self.mark.settled(index), failed) {
                (Some(settled), _) => CachedResult::Settled(settled),
                (None, Some(Retrying { failures, error, .. })) => {
                    CachedResult::Failed { failures: *failures, error: error.clone() }
                }
                (None, None) => continue,
            };
            result_cache.insert(now, self.key_at(index), result);
        }
    }

    /// Collects reports, and advances the watermark.
    pub(super) fn collect<B>(
        &mut self,
        now: LogicalTime,
        context: &mut TaskContext<'_, B>,
    ) -> Result<(), Broken> {
        let mut reports = std::mem::take(&mut self.reports);
        let collected = context.processor.collect(COLLECT_PATIENCE, &mut reports);
        for report in reports.drain(..) {
            self.take_report(now, report, context);
        }
        // Reports that were collected before an error are valid, so the watermark advances in any
        // case.
        self.reports = reports;
        self.advance(context);
        collected
    }

    /// Waits for the throttle or the next retry while no item is with the processor; checkpoints
    /// first if that is due.
    pub(super) fn wait_for_items(
        &mut self,
        now: LogicalTime,
        throttled: Option<LogicalTime>,
    ) -> TaskStep {
        if self.checkpoint_is_due(now) {
            self.begin(Operation::Checkpoint);
            return TaskStep::Continue;
        }
        let end = match self.decision {
            Some(Decision::ParkItem(index)) => index,
            None
            | Some(Decision::Park(_) | Decision::Release)
            | Some(Decision::GiveUp(_) | Decision::Freeze) => self.page.len(),
        };
        let retries = self.retries_before(end).map(|(_, at)| at);
        match throttled.into_iter().chain(retries).min() {
            Some(until) => {
                let until = self.checkpoint_due_at().map_or(until, |due| until.min(due));
                self.wait_until = Some(until);
                TaskStep::Wait(until)
            }
            None => TaskStep::Continue,
        }
    }

    fn advance<B>(&mut self, context: &TaskContext<'_, B>) {
        let (items, bytes) = self.covered.advance(&mut self.mark, &self.page);
        self.cautious = self.cautious.saturating_sub(items);
        if items > 0 {
            context.observer.observe(Event::Covered { items, bytes });
        }
    }

    fn take_report<B>(&mut self, now: LogicalTime, report: Report, context: &TaskContext<'_, B>) {
        let Report { ticket, result } = report;
        let waits = self.retrying.get(&ticket).is_some_and(|item| item.retry_at.is_some());
        // A report about an item that is not with the processor is a handler's mistake. Counting it
        // would make `submitted` wrong and settle an item that may still be in flight.
        if waits || !self.mark.is_in_flight(ticket) {
            return;
        }
        self.submitted -= 1;
        match result {
            ItemResult::Done => self.settle_item(ticket, Settled::Done),
            ItemResult::Found(number) => self.settle_item(ticket, Settled::Found(number)),
            ItemResult::Unopened(error) => self.unopened(now, ticket, error, context),
            ItemResult::Failed(message) => self.failed(now, ticket, &message, context),
            ItemResult::Hopeless(message) => self.hopeless(ticket, &message, context),
            ItemResult::Undone => self.undone(now, ticket, context),
        }
    }

    fn settle_item(&mut self, index: usize, settled: Settled) {
        self.retrying.remove(&index);
        self.settles += 1;
        self.mark.settle(index, settled);
    }

    fn unopened<B>(
        &mut self,
        now: LogicalTime,
        index: usize,
        error: OpenError,
        context: &TaskContext<'_, B>,
    ) {
        match error.reaction() {
            Reaction::SkipGone => self.settle_item(index, Settled::Gone),
            Reaction::SkipUnread => {
                context.observer.observe(Event::Unread { key: self.key_at(index), error });
                self.settle_item(index, Settled::Unread);
            }
            Reaction::Park(cause) => {
                // The whole shard is parked: the cause (such as a missing permission) concerns all
                // of its items. The item stays unsettled, so the cursor stops before it.
                if self.decision.is_none() {
                    self.decision = Some(Decision::Park(park_reason(cause)));
                    self.park_text = error.to_string();
                }
                self.put_off(index);
            }
            // The contract's enum may grow. A retry is safe and bounded.
            Reaction::Retry | _ => self.failed(now, index, &error.to_string(), context),
        }
    }

    /// Schedules an item that was returned untried. After [`MAX_UNDONE`] times it fails for good.
    fn undone<B>(&mut self, now: LogicalTime, index: usize, context: &TaskContext<'_, B>) {
        let settles = self.settles;
        let item = self.retrying.entry(index).or_default();
        // Another item was settled since, so the handler makes progress: count from the start.
        if item.settles != settles {
            (item.settles, item.undone) = (settles, 0);
        }
        item.undone += 1;
        if item.undone >= MAX_UNDONE {
            return self.hopeless(index, "handed back untried too often", context);
        }
        item.retry_at = Some(now);
    }

    fn failed<B>(
        &mut self,
        now: LogicalTime,
        index: usize,
        message: &str,
        context: &TaskContext<'_, B>,
    ) {
        let retry_at = Some(now.saturating_add(self.backoff.wait()));
        let item = self.retrying.entry(index).or_default();
        item.failures += 1;
        item.error = ParkContext::new(message).as_str().into();
        item.retry_at = retry_at;
        if item.failures >= self.config.item_tries {
            return self.hopeless(index, message, context);
        }
        let key = self.key_at(index);
        context.observer.observe(Event::Failed { key, message, again: true });
    }

    fn hopeless<B>(&mut self, index: usize, message: &str, context: &TaskContext<'_, B>) {
        let key = self.key_at(index);
        context.observer.observe(Event::Failed { key, message, again: false });
        self.retrying.entry(index).or_default().error = ParkContext::new(message).as_str().into();
        self.park_item(index);
    }

    /// Decides to park an item.
    fn park_item(&mut self, index: usize) {
        self.put_off(index);
        // The smallest index is parked first, because the split after it moves the others to
        // another shard, where they fail again.
        match &mut self.decision {
            None => self.decision = Some(Decision::ParkItem(index)),
            Some(Decision::ParkItem(first)) => *first = index.min(*first),
            Some(
                Decision::Park(_) | Decision::Release | Decision::GiveUp(_) | Decision::Freeze,
            ) => {}
        }
    }

    /// Keeps an item unsettled without another try, so that the cursor stops before it.
    fn put_off(&mut self, index: usize) {
        let item = self.retrying.entry(index).or_default();
        item.retry_at = Some(NEVER);
    }

    /// Returns the first item that was put off, if there is one.
    pub(super) fn hopeless_item(&self) -> Option<usize> {
        let mut items = self.retrying.iter();
        items.find(|(_, item)| item.retry_at == Some(NEVER)).map(|(index, _)| *index)
    }

    /// Returns the item to submit next, if there is one.
    fn next_item(&self, now: LogicalTime, most: usize) -> Option<usize> {
        if self.is_pausing() {
            return None;
        }
        match self.decision {
            None if self.split.is_none() && self.cuts.is_empty() => {
                self.due_before(now, self.page.len()).or_else(|| self.fresh_item(most))
            }
            Some(Decision::ParkItem(index)) => self.due_before(now, index),
            // No new item is started. Pending retries are made, so that the next lease holder does
            // not repeat the finished items after them.
            None | Some(Decision::Release | Decision::Freeze) => {
                self.due_before(now, self.page.len())
            }
            Some(Decision::Park(_) | Decision::GiveUp(_)) => None,
        }
    }

    /// Returns the next unstarted item of the page. After an item that waits for a retry, at most
    /// as many items are started as a checkpoint covers or the processor holds, because a crash
    /// repeats all of them.
    fn fresh_item(&self, most: usize) -> Option<usize> {
        let ahead = self.mark.ahead();
        let room =
            ahead < most || self.covered.unsaved + (ahead as u64) < self.config.checkpoint_items;
        self.mark.next().filter(|_| room)
    }

    /// Returns whether an item waits for a retry.
    pub(super) fn has_retries(&self) -> bool {
        self.retries_before(self.page.len()).next().is_some()
    }

    fn due_before(&self, now: LogicalTime, index: usize) -> Option<usize> {
        self.retries_before(index).find(|(_, at)| *at <= now).map(|(index, _)| index)
    }

    /// Returns the items before `index` that wait for a retry, and their times.
    pub(super) fn retries_before(
        &self,
        index: usize,
    ) -> impl Iterator<Item = (usize, LogicalTime)> {
        let waiting = self.retrying.range(..index);
        waiting.filter_map(|(index, item)| Some((*index, item.retry_at.filter(|at| *at < NEVER)?)))
    }

    fn key_at(&self, index: usize) -> &[u8] {
        self.page.item(index).map_or(&[], |item| item.key())
    }

    /// Parks the item at `index`: splits off everything after it, then parks the rest.
    ///
    /// Everything before the item is checkpointed, so the rest is the item alone.
    pub(super) fn isolate(&mut self, index: usize) {
        let reason = ParkReason::Poisoned;
        let is_last = self.page.is_exhausted() && index + 1 == self.page.len();
        self.decision = Some(Decision::Park(reason));
        self.park_text =
            self.retrying.get(&index).map(|item| item.error.to_string()).unwrap_or_default();
        self.begin(match self.point_behind(index).filter(|_| !is_last) {
            Some(point) => Operation::Split(point),
            None => Operation::Park(reason),
        });
    }

    /// Returns the split point right after the item at `index`; `None` if the range ends there.
    pub(super) fn point_behind(&self, index: usize) -> Option<Box<[u8]>> {
        let mut point = [0; MAX_KEY_SIZE];
        let len = key_successor_into(self.key_at(index), &mut point)?;
        let point = split_specs::aligned(self.spec().as_spec_ref(), &point[..len])?;
        self.spec().contains_key(&point).then(|| (*point).into())
    }
}
