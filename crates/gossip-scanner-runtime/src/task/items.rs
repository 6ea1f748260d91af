//! Items on their way to the processor and back.

use std::time::Duration;

use gossip_contracts::connector::{OpenError, Reaction};
use gossip_contracts::coordination::{MAX_KEY_SIZE, key_successor_into};
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::ParkReason;

use super::result_cache::CachedResult;
use super::{Decision, Operation, Retrying, ShardTask, TaskContext, TaskStep, park_reason};
use crate::observer::Event;
use crate::processor::{Broken, ItemResult, Report, Work};
use crate::watermark::Settled;

/// The longest time that a step waits for reports. A request or the loss of the lease takes effect
/// in the next step, so this bounds the delay.
pub const COLLECT_PATIENCE: Duration = Duration::from_millis(100);

/// How often in a row an item may come back untried, without any other being settled meanwhile,
/// before it counts as failed: a handler that gets round to nothing does not get round to it
/// either.
const MAX_UNDONE: u32 = 16;

/// An item that is not tried again in this lease.
const NEVER: LogicalTime = LogicalTime::from_raw(u64::MAX);

impl ShardTask {
    /// Gives items to the processor until it has enough; tells when more may be given, if that was
    /// what stopped it.
    pub(super) fn submit<B>(
        &mut self,
        now: LogicalTime,
        context: &mut TaskContext<'_, B>,
    ) -> Result<Option<LogicalTime>, Broken> {
        let most = if self.cautious > 0 { 1 } else { context.processor.capacity() };
        while self.submitted < most {
            let Some(index) = self.next_item(now, most) else { break };
            if self.was_tried_before(now, index) {
                self.advance(context);
                continue;
            }
            let item = self.page.item(index).expect("the mark follows this page");
            if let Some(until) = context.throttle.take(now, item.size_hint().unwrap_or(0)) {
                return Ok(Some(until));
            }
            if !self.mark.is_in_flight(index) {
                self.mark.start();
            }
            if let Some(retrying) = self.retrying.get_mut(&index) {
                retrying.retry_at = None;
            }
            self.submitted += 1;
            context.processor.submit(Work {
                ticket: index,
                item,
                shard: self.lease.key(),
                fence: self.lease.fence(),
                connector: context.connector,
            })?;
        }
        Ok(None)
    }

    /// Whether a thread of this process has finished the item, or tried it often enough, before it
    /// was cut off with the rest of its shard. Then that is what becomes of it.
    fn was_tried_before(&mut self, now: LogicalTime, index: usize) -> bool {
        if self.mark.is_in_flight(index) {
            return false;
        }
        let Some(left) = self.result_cache.as_ref().and_then(|it| it.take(now, self.key_at(index)))
        else {
            return false;
        };
        match left {
            CachedResult::Settled(settled) => {
                self.mark.start();
                self.settle_item(index, settled);
                true
            }
            CachedResult::Failed(failures) => {
                self.retrying.entry(index).or_insert(Retrying::NEW).failures = failures;
                let hopeless = failures >= self.config.item_tries;
                if hopeless {
                    self.mark.start();
                    self.set_aside(index);
                }
                hopeless
            }
        }
    }

    /// Remembers what became of the items from `point` on, which are another shard's now.
    pub(super) fn leave_behind(&self, now: LogicalTime, point: &[u8]) {
        let Some(result_cache) = &self.result_cache else { return };
        let is_cut_off = |index: &usize| self.key_at(*index) >= point;
        for index in (self.mark.mark()..self.page.len()).filter(is_cut_off) {
            let failures = self.retrying.get(&index).map_or(0, |item| item.failures);
            let left = match self.mark.settled(index) {
                Some(settled) => CachedResult::Settled(settled),
                None if failures > 0 => CachedResult::Failed(failures),
                None => continue,
            };
            result_cache.leave(now, self.key_at(index), left);
        }
    }

    /// Takes reports in, and moves the mark.
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
        self.reports = reports;
        self.advance(context);
        collected
    }

    /// Nothing is with the processor: waits for the throttle, or for the next retry, and records
    /// progress meanwhile.
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
        // A report of something that is not with the processor cannot be about an item of ours.
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
                self.decision.get_or_insert_with(|| Decision::Park(park_reason(cause)));
                self.put_off(index);
            }
            // The enum of the contract may grow; trying again is safe, and bounded.
            Reaction::Retry | _ => self.failed(now, index, &error.to_string(), context),
        }
    }

    /// Given again at once: nothing was tried. A handler that never gets round to an item fails it.
    fn undone<B>(&mut self, now: LogicalTime, index: usize, context: &TaskContext<'_, B>) {
        let settles = self.settles;
        let item = self.retrying.entry(index).or_insert(Retrying::NEW);
        // Something was finished since: a program that is ended now and then gets on.
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
        let item = self.retrying.entry(index).or_insert(Retrying::NEW);
        item.failures += 1;
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
        self.set_aside(index);
    }

    /// Decides to set an item aside.
    fn set_aside(&mut self, index: usize) {
        self.put_off(index);
        // The smallest one is first; whoever takes what follows meets the others again.
        match &mut self.decision {
            None => self.decision = Some(Decision::ParkItem(index)),
            Some(Decision::ParkItem(first)) => *first = index.min(*first),
            Some(
                Decision::Park(_) | Decision::Release | Decision::GiveUp(_) | Decision::Freeze,
            ) => {}
        }
    }

    /// Keeps an item unsettled without trying it again.
    fn put_off(&mut self, index: usize) {
        let item = self.retrying.entry(index).or_insert(Retrying::NEW);
        item.retry_at = Some(NEVER);
    }

    /// The first item that was put off, if one was.
    pub(super) fn hopeless_item(&self) -> Option<usize> {
        let mut items = self.retrying.iter();
        items.find(|(_, item)| item.retry_at == Some(NEVER)).map(|(index, _)| *index)
    }

    /// What is to be given to the processor next, if anything is.
    fn next_item(&self, now: LogicalTime, most: usize) -> Option<usize> {
        if self.is_pausing() {
            return None;
        }
        match self.decision {
            None if self.split.is_none() && self.cuts.is_empty() => {
                self.due_before(now, self.page.len()).or_else(|| self.fresh_item(most))
            }
            Some(Decision::ParkItem(index)) => self.due_before(now, index),
            // Nothing new is begun. What waits for another try is tried, so that nothing behind it
            // is done once more by whoever goes on.
            None | Some(Decision::Release | Decision::Freeze) => {
                self.due_before(now, self.page.len())
            }
            Some(Decision::Park(_) | Decision::GiveUp(_)) => None,
        }
    }

    /// The next item of the page. Behind one that waits for another try no more is begun than a
    /// checkpoint would record, or than the processor takes at once: a crash repeats all of it.
    fn fresh_item(&self, most: usize) -> Option<usize> {
        let ahead = self.mark.ahead();
        let room =
            ahead < most || self.covered.unsaved + (ahead as u64) < self.config.checkpoint_items;
        self.mark.next().filter(|_| room)
    }

    /// Whether an item waits for another try.
    pub(super) fn has_retries(&self) -> bool {
        self.retries_before(self.page.len()).next().is_some()
    }

    fn due_before(&self, now: LogicalTime, index: usize) -> Option<usize> {
        self.retries_before(index).find(|(_, at)| *at <= now).map(|(index, _)| index)
    }

    /// The items before `index` that wait to be tried again, and until when.
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

    /// Sets the item at `index` aside: cuts off what follows it, then parks what is left.
    ///
    /// Everything before the item is recorded, so that what is left is the item alone.
    pub(super) fn isolate<B>(&mut self, index: usize, context: &TaskContext<'_, B>) {
        let (reason, key) = (ParkReason::Poisoned, Some(self.key_at(index)));
        let is_last = self.page.is_exhausted() && index + 1 == self.page.len();
        context.observer.observe(Event::Parking { shard: self.lease.key(), reason, key });
        self.decision = Some(Decision::Park(reason));
        self.begin(match self.point_behind(index).filter(|_| !is_last) {
            Some(point) => Operation::Split(point),
            None => Operation::Park(reason),
        });
    }

    /// Where to cut so that the item at `index` is the last in front of the cut; `None` if there is
    /// no key behind it in the range.
    pub(super) fn point_behind(&self, index: usize) -> Option<Box<[u8]>> {
        let mut point = [0; MAX_KEY_SIZE];
        let len = key_successor_into(self.key_at(index), &mut point)?;
        self.spec.contains_key(&point[..len]).then(|| point[..len].into())
    }
}

impl Retrying {
    const NEW: Self = Self { failures: 0, undone: 0, settles: 0, retry_at: None };
}
