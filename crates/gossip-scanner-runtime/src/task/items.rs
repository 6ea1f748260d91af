//! Submits items to the processor and handles their results.

use std::num::NonZeroU32;
use std::time::Duration;

use gossip_contracts::connector::{OpenError, Reaction};
use gossip_contracts::coordination::{MAX_KEY_SIZE, key_successor_into};
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{ExitCause, FailureKind, FailureRecord, ParkContext, ParkReason};

use super::result_cache::CachedResult;
use super::side_records::Left;
use super::{
    Decision, Operation, Retrying, ShardTask, StoreAccess, TaskContext, TaskStep, park_reason,
};
use crate::observer::Event;
use crate::processor::{Broken, CommandStatus, ItemFailure, ItemResult, Report, Work};
use crate::results::ITEM_RESULTS_MAX;
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
    /// Submits items until the processor is full or no item may be started now.
    ///
    /// Returns the time at which the throttle permits the next item if the throttle stopped the
    /// loop, and `None` otherwise. It does not wait and collects no reports. Fails if the processor
    /// is unusable.
    pub(super) fn submit<B>(
        &mut self,
        now: LogicalTime,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Option<LogicalTime>, Broken> {
        // After grants without progress a key may be killing its workers. With one item in flight
        // at a time, the cursor then lies right before that key.
        let is_cautious = self.cautious > 0;
        loop {
            // Each time, because a processor may refuse more items when those it has take long.
            let most = if is_cautious { 1 } else { context.processor.capacity() };
            if self.submitted >= most {
                break;
            }
            let Some(index) = self.next_item(now, most) else { break };
            if self.apply_cached_result(now, index) {
                self.advance(context);
                continue;
            }
            let item = self.page.item(index).expect("the mark follows this page");
            // Before the item is marked as started, so that a split can still move a delayed item
            // to another shard.
            if let Some(until) = context.throttle.take(now, item.size_hint().unwrap_or(0)) {
                return Ok(Some(until));
            }
            if !self.mark.is_in_flight(index) {
                self.mark.start();
            }
            // The failures stay counted, but the item no longer waits: its report must count.
            if let Some(retrying) = self.retrying.get_mut(&index) {
                retrying.retry_at = None;
            }
            // Before the call, because a processor that fails may have started the item.
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
    /// before it was split off.
    ///
    /// Returns whether the item needs no further try: it is settled or parked. `false` means that
    /// the caller submits it; the failures that the cache knows of are counted then.
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
            CachedResult::Settled(settled, left) => {
                self.mark.start();
                if let Some(left) = left {
                    self.records.leave(index, left);
                }
                self.settle_item(index, settled);
                true
            }
            CachedResult::Failed { failures, error, failure } => {
                let item = self.retrying.entry(index).or_default();
                (item.failures, item.error, item.failure) = (failures, error, failure);
                let hopeless = failures >= self.config.item_tries;
                if hopeless {
                    self.mark.start();
                    self.park_item(index);
                }
                hopeless
            }
        }
    }

    /// Caches the results of the items from `point` on, which belong to another shard now, so that
    /// the runner of this process that claims it does not process them again. Without a cache it
    /// does nothing.
    pub(super) fn cache_results(&self, now: LogicalTime, point: &[u8]) {
        let Some(result_cache) = &self.result_cache else { return };
        let is_split_off = |index: &usize| self.key_at(*index) >= point;
        // Items below the mark are covered by the cursor of this shard and cannot be split off.
        for index in (self.mark.mark()..self.page.len()).filter(is_split_off) {
            let failed = self.retrying.get(&index).filter(|item| item.failures > 0);
            let result = match (self.mark.settled(index), failed) {
                (Some(settled), _) => {
                    CachedResult::Settled(settled, self.records.left_by(index).cloned())
                }
                (None, Some(Retrying { failures, error, failure, .. })) => CachedResult::Failed {
                    failures: *failures,
                    error: error.clone(),
                    failure: failure.clone(),
                },
                (None, None) => continue,
            };
            result_cache.insert(now, self.key_at(index), result);
        }
    }

    /// Waits up to `patience` for reports, applies them and advances the watermark.
    ///
    /// Fails if the processor is unusable; the reports that it returned before are applied.
    pub(super) fn collect<B>(
        &mut self,
        now: LogicalTime,
        patience: Duration,
        context: &mut TaskContext<'_, B>,
    ) -> Result<(), Broken> {
        let mut reports = std::mem::take(&mut self.reports);
        let collected = context.processor.collect(patience, &mut reports);
        for report in reports.drain(..) {
            self.take_report(now, report, context);
        }
        self.reports = reports;
        // Even after an error: the reports that were collected before it are valid.
        self.advance(context);
        if let Some(silence) = context.processor.silence() {
            let (key, lasted) = (self.key_at(silence.ticket), silence.lasted);
            context.observer.observe(Event::NoReply { key, lasted, is_first: silence.is_first });
        }
        collected
    }

    /// Returns the step of a task that has no item with the processor: a wait for the throttle or
    /// the next retry, whichever is sooner.
    ///
    /// If a checkpoint is due, it is begun instead. Returns [`TaskStep::Continue`] if there is
    /// nothing to wait for.
    pub(super) fn wait_for_items(
        &mut self,
        now: LogicalTime,
        throttled: Option<LogicalTime>,
    ) -> TaskStep {
        if self.checkpoint_is_due(now) {
            self.begin(Operation::Checkpoint);
            return TaskStep::Continue;
        }
        // Retries after an item that is to be parked are left to the shard that is split off, so
        // this step must not wait for them.
        let end = match self.decision {
            Some(Decision::ParkItem(index)) => index,
            None
            | Some(Decision::Park(_) | Decision::Release)
            | Some(Decision::GiveUp(_) | Decision::Freeze) => self.page.len(),
        };
        let retries = self.retries_before(end).map(|(_, at)| at);
        match throttled.into_iter().chain(retries).min() {
            Some(until) => {
                // A retry may be far away, and a crash meanwhile repeats the unsaved items.
                let until = self.checkpoint_due_at().map_or(until, |due| until.min(due));
                self.wait_until = Some(until);
                TaskStep::Wait(until)
            }
            None => TaskStep::Continue,
        }
    }

    /// Moves the watermark over the finished items, as far as their records have room.
    pub(super) fn advance<B>(&mut self, context: &TaskContext<'_, B>) {
        let advanced = self.covered.advance(&mut self.mark, &self.page, &mut self.records);
        let (items, bytes) = advanced;
        self.cautious = self.cautious.saturating_sub(items);
        if items > 0 {
            context.observer.observe(Event::Covered { items, bytes });
        }
    }

    /// Applies the result of one item: settles it, schedules a retry, or decides to park it.
    ///
    /// Ignores a report of an item that the processor does not have. It does not advance the
    /// watermark.
    fn take_report<B>(&mut self, now: LogicalTime, report: Report, context: &TaskContext<'_, B>) {
        let Report { ticket, result } = report;
        // An item that waits for a retry is in flight for the watermark, but the processor does not
        // have it. Counting a report of it would make `submitted` smaller than the number of items
        // that the processor has, and a shard could be released or offered while one is running.
        let waits_for_retry =
            self.retrying.get(&ticket).is_some_and(|item| item.retry_at.is_some());
        if waits_for_retry || !self.mark.is_in_flight(ticket) {
            return;
        }
        self.submitted -= 1;
        let failed = matches!(result, ItemResult::Failed(_) | ItemResult::Hopeless(_));
        if let Some(error) = failed.then(|| self.open_error(ticket, context)).flatten() {
            return self.unopened(now, ticket, error, context);
        }
        match result {
            ItemResult::Done => self.settle_item(ticket, Settled::Done),
            ItemResult::Found(number) => self.settle_item(ticket, Settled::Found(number)),
            ItemResult::Results { findings, content } => {
                self.take_results(ticket, findings, content, context);
            }
            ItemResult::CommandFound(found) => {
                let place = context.processor.place(self.key_at(ticket)).unwrap_or_default();
                let (findings, content) = (found.findings.get(), found.encode(&place));
                self.take_results(ticket, findings, content, context);
            }
            ItemResult::Unopened(error) => self.unopened(now, ticket, error, context),
            ItemResult::Failed(failure) => self.failed(now, ticket, &failure, context),
            ItemResult::Hopeless(failure) => self.hopeless(ticket, &failure, context),
            ItemResult::Undone => self.undone(now, ticket, context),
        }
    }

    /// Settles an item with results, which the checkpoint that passes it stores.
    fn take_results<B>(
        &mut self,
        index: usize,
        findings: u32,
        content: Box<[u8]>,
        context: &TaskContext<'_, B>,
    ) {
        if content.len() > ITEM_RESULTS_MAX {
            let len = content.len();
            let message = format!("{len} bytes of results exceed the limit of {ITEM_RESULTS_MAX}");
            return self.hopeless(index, &message.into(), context);
        }
        if !content.is_empty() {
            self.records.leave(index, Left::Results(content));
        }
        let found = NonZeroU32::new(findings);
        self.settle_item(index, found.map_or(Settled::Done, Settled::Found));
    }

    /// Returns why the source cannot open an item that failed, if that may be the cause: the
    /// processor has not opened it.
    fn open_error<B>(&self, index: usize, context: &TaskContext<'_, B>) -> Option<OpenError> {
        if context.processor.opens_items() {
            return None;
        }
        let item = self.page.item(index)?;
        context.connector.open(item, &mut Vec::new()).err()
    }

    fn settle_item(&mut self, index: usize, settled: Settled) {
        self.retrying.remove(&index);
        self.settles += 1;
        self.mark.settle(index, settled);
    }

    /// Applies the reaction that the contract prescribes for an item that could not be opened: the
    /// item is settled as gone or unread, tried again, or the whole shard is parked.
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
                let failure =
                    self.failure(now, index, FailureKind::Unread, &error.to_string(), context);
                self.records.leave(index, Left::Unread(Box::new(failure)));
                self.settle_item(index, Settled::Unread);
            }
            Reaction::Park(cause) => {
                // The cause (such as a missing permission) concerns all items of the shard, so all
                // of it is parked. The item stays unsettled, so that the cursor stops before it.
                if self.decision.is_none() {
                    self.decision = Some(Decision::Park(park_reason(cause)));
                    self.park_text = error.to_string();
                    let text = self.park_text.clone();
                    let failure = self.failure(now, index, FailureKind::Failed, &text, context);
                    self.failed_item = Some(Box::new(failure));
                }
                self.put_off(index);
            }
            // The contract's enum may grow. A retry loses nothing, and `item_tries` bounds it.
            Reaction::Retry | _ => self.failed(now, index, &error.to_string().into(), context),
        }
    }

    /// Schedules an item that the processor returned untried for an immediate retry, which does not
    /// count as a failure. After [`MAX_UNDONE`] times in a row it fails for good.
    fn undone<B>(&mut self, now: LogicalTime, index: usize, context: &TaskContext<'_, B>) {
        let settles = self.settles;
        let item = self.retrying.entry(index).or_default();
        // Another item was settled since the last time. A handler that makes progress will reach
        // this item, so only returns without progress are counted.
        if item.settles != settles {
            (item.settles, item.undone) = (settles, 0);
        }
        item.undone += 1;
        if item.undone >= MAX_UNDONE {
            return self.hopeless(index, &"handed back untried too often".into(), context);
        }
        item.retry_at = Some(now);
    }

    /// Schedules an item for a retry after a backoff, or fails it for good after `item_tries`
    /// failures. The observer receives the `failure`.
    fn failed<B>(
        &mut self,
        now: LogicalTime,
        index: usize,
        failure: &ItemFailure,
        context: &TaskContext<'_, B>,
    ) {
        let retry_at = Some(now.saturating_add(self.backoff.wait()));
        let item = self.retrying.entry(index).or_default();
        item.failures += 1;
        item.error = ParkContext::new(&failure.message).as_str().into();
        item.failure = Some(Box::new(failure.clone()));
        item.retry_at = retry_at;
        if item.failures >= self.config.item_tries {
            return self.hopeless(index, failure, context);
        }
        let key = self.key_at(index);
        context.observer.observe(Event::Failed { key, failure, again: true });
    }

    /// Reports that an item failed for good, and decides to park it.
    fn hopeless<B>(&mut self, index: usize, failure: &ItemFailure, context: &TaskContext<'_, B>) {
        let key = self.key_at(index);
        context.observer.observe(Event::Failed { key, failure, again: false });
        let item = self.retrying.entry(index).or_default();
        item.error = ParkContext::new(&failure.message).as_str().into();
        item.failure = Some(Box::new(failure.clone()));
        self.park_item(index);
    }

    /// Decides to park the item at `index`, unless the shard has already been decided to end in
    /// another way. The item stays unsettled in any case.
    fn park_item(&mut self, index: usize) {
        self.put_off(index);
        // The smallest index wins, because the split after it moves the later failed items to
        // another shard, and that shard parks them.
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

    /// Returns the index of the item to submit next: first a retry that is due, then the next
    /// unstarted item. `None` if the page has none, or if the task is pausing, without a store or
    /// about to end and may not start one. `most` is the capacity of the processor. It does not
    /// change the task.
    fn next_item(&self, now: LogicalTime, most: usize) -> Option<usize> {
        if self.is_pausing() || self.store != StoreAccess::Usable {
            return None;
        }
        match self.decision {
            None if self.split.is_none() && self.cuts.is_empty() => {
                self.due_before(now, self.page.len()).or_else(|| self.fresh_item(most))
            }
            // Everything before the item must be settled first, so that the shard that is parked
            // holds the item alone. Items after it are left to the shard that is split off.
            Some(Decision::ParkItem(index)) => self.due_before(now, index),
            // Pending retries are made although the lease ends soon: without them the cursor stops
            // before the first, and the next lease holder repeats the finished items after it.
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
        self.mark.next().filter(|_| room && self.records.has_room_ahead())
    }

    /// Returns whether an item waits for a retry.
    pub(super) fn has_retries(&self) -> bool {
        self.retries_before(self.page.len()).next().is_some()
    }

    /// Returns whether items after the first unfinished one are finished.
    pub(super) fn has_finished_ahead(&self) -> bool {
        (self.mark.mark()..self.page.len()).any(|index| self.mark.settled(index).is_some())
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

    /// Returns the failure record of the item at `index`.
    fn failure<B>(
        &self,
        now: LogicalTime,
        index: usize,
        kind: FailureKind,
        message: &str,
        context: &TaskContext<'_, B>,
    ) -> FailureRecord {
        let item = self.retrying.get(&index);
        let failure = item.and_then(|item| item.failure.as_deref());
        let exit = failure.and_then(|failure| failure.status).map(|status| match status {
            CommandStatus::Exited(code) => ExitCause::Code(code),
            CommandStatus::Signaled(signal) => ExitCause::Signal(signal),
        });
        let key = self.key_at(index);
        let record = FailureRecord {
            key: key.into(),
            place: context.processor.place(key).unwrap_or_default(),
            kind,
            exit,
            tries: item.map_or(1, |item| item.failures.max(1)),
            at: now,
            host: self.process.host.clone(),
            pid: self.process.pid,
            message: message.into(),
            stderr: failure.map(|failure| failure.stderr.clone()).unwrap_or_default(),
        };
        record.cut()
    }

    /// Parks the item at `index`: splits off everything after it, then parks the rest.
    ///
    /// Everything before the item is checkpointed, so the rest is the item alone.
    pub(super) fn isolate<B>(
        &mut self,
        now: LogicalTime,
        index: usize,
        context: &TaskContext<'_, B>,
    ) {
        let reason = ParkReason::Poisoned;
        let is_last = self.page.is_exhausted() && index + 1 == self.page.len();
        self.decision = Some(Decision::Park(reason));
        self.park_text =
            self.retrying.get(&index).map(|item| item.error.to_string()).unwrap_or_default();
        let failure = self.failure(now, index, FailureKind::Failed, &self.park_text, context);
        self.failed_item = Some(Box::new(failure));
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
