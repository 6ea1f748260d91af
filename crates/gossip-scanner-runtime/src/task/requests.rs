//! Requests to a lease holder: pause, freeze, release, split.

use gossip_contracts::connector::{Page, PageItem, PageLimits};
use gossip_contracts::coordination::{Cursor, ShardSpecRef};
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{ShardAction, SplitKey};
use gossip_frontier::{KeyBuf, KeyRange, split_points};

use super::{Cut, Decision, Operation, ShardTask, TaskContext, TaskOutcome};
use crate::split_policy::SPLIT_KEYS_MIN;
use crate::split_specs;

/// The parts of a split of [`TaskConfig::many_parts_from`](super::TaskConfig) keys or more.
const MANY_PARTS: usize = 4;

/// A split makes so many parts also if the remaining work takes this many ticks: each part is then
/// worth a claim.
const MANY_PARTS_TICKS: u64 = 2_000;

/// From this many cuts on, an untouched shard is replaced. With one cut a residual split is one
/// operation, too, and the rest needs no further claim.
const REPLACE_CUTS_MIN: usize = 2;

/// Keys that a split samples to find the middle of the remaining range.
pub(crate) const SPLIT_SAMPLE_KEYS: usize = 256;

/// Bytes of those keys: 128 for each.
const SPLIT_SAMPLE_BYTES: usize = 128 * SPLIT_SAMPLE_KEYS;

const _: () = assert!(MANY_PARTS <= SPLIT_SAMPLE_KEYS);
const _: () = assert!(SPLIT_SAMPLE_BYTES >= gossip_contracts::connector::MIN_PAGE_BYTES);

impl ShardTask {
    /// Extends the lease to `deadline`. A reply that arrives out of order never shortens it.
    pub fn renewed(&mut self, deadline: LogicalTime) {
        if let Some(session) = &mut self.session {
            session.extend_to(deadline);
        }
    }

    /// Marks the lease as lost: the next step drops all items and ends the task.
    pub fn lost(&mut self) {
        self.ended = Some(TaskOutcome::Lost);
    }

    /// Asks the shard to freeze for a handoff when its in-flight items are finished. An earlier
    /// decision takes precedence.
    pub(crate) fn freeze(&mut self) {
        self.decision.get_or_insert(Decision::Freeze);
    }

    /// Returns the cursor at which the shard is frozen: no item is in flight or waits for a retry,
    /// and everything up to the cursor is finished.
    #[must_use]
    pub(crate) fn frozen_at(&self) -> Option<Cursor> {
        let freezes = matches!(self.decision, Some(Decision::Freeze));
        let is_idle = self.submitted == 0 && self.pending.is_none();
        // A pending retry would be lost with the handoff, and the next holder would repeat every
        // item after it.
        let is_frozen = freezes && is_idle && self.records.is_stored() && !self.has_retries();
        is_frozen.then(|| self.covered.cursor().into())
    }

    /// Continues after a handoff that did not happen. An item that failed for good while the shard
    /// was freezing is parked now.
    pub(crate) fn unfreeze(&mut self) {
        if matches!(self.decision, Some(Decision::Freeze)) {
            self.decision = self.hopeless_item().map(Decision::ParkItem);
        }
    }

    /// Sets whether the shard must pause, because another shard of the process is to be processed
    /// alone. A shard without progress under its lease continues until some is stored: a crash
    /// during its pause would count as a failed attempt.
    pub(crate) fn request_pause(&mut self, pause: bool) {
        self.pause_requested = pause;
    }

    /// Stores progress as soon as there is some: another worker is idle, and the request to split
    /// comes with the answer. A shard is split only after progress that others can see.
    pub(crate) const fn save_soon(&mut self) {
        self.save_soon = true;
    }

    /// Returns whether the shard is paused with nothing in flight: a crash of the process is then
    /// not caused by this shard and adds no attempt to it.
    #[must_use]
    pub(crate) fn is_paused(&self) -> bool {
        let idle = self.submitted == 0 && self.pending.is_none() && self.covered.unsaved == 0;
        self.is_pausing() && idle
    }

    /// Returns whether a crash now would park the shard: it has had its last attempt and no
    /// progress since.
    #[must_use]
    pub(crate) fn is_suspect(&self) -> bool {
        self.config.is_last_chance(self.attempts)
    }

    pub(super) const fn is_pausing(&self) -> bool {
        self.pause_requested && self.attempts == 0
    }

    /// Ends the task at its next step. Called when the handoff of the frozen shard has ended it.
    pub(crate) fn end(&mut self, outcome: TaskOutcome) {
        self.ended = Some(outcome);
    }

    /// Asks the shard to release its lease when its in-flight items are finished.
    pub(crate) fn release(&mut self) {
        self.decision.get_or_insert(Decision::Release);
    }

    /// Decides to release the shard without further tries of its items. An item that failed for
    /// good is not parked if it would not be alone: items before it wait for a retry.
    pub(super) fn release_unretried(&mut self) {
        if matches!(self.decision, Some(Decision::ParkItem(_))) && self.has_retries() {
            self.decision = None;
        }
        self.release();
    }

    /// Applies a request of an administrator or an idle worker.
    ///
    /// Handoffs are not handled here: the worker receives them with a renewal.
    pub(crate) fn request(&mut self, action: &ShardAction) {
        match action {
            ShardAction::Release => self.release(),
            ShardAction::Split(_) => {
                self.split.get_or_insert_with(|| action.clone());
            }
            ShardAction::HandOff(_) | ShardAction::Withdraw => {}
            // The coordinator's enum may grow. An unknown action stays pending until it expires.
            _ => {}
        }
    }

    /// Returns whether items were finished since the lease was granted or since the last split.
    #[must_use]
    pub(crate) const fn has_progressed(&self) -> bool {
        self.covered.since_cut > 0
    }

    /// Returns the number of items finished under this lease.
    #[must_use]
    pub(crate) const fn finished(&self) -> u64 {
        self.covered.finished
    }

    /// Returns whether a split was requested that lies after all in-flight items, and nothing else
    /// was decided.
    ///
    /// Such a split is made at once, because an item may take minutes while another worker is idle.
    /// If the request names no key, the split point lies after every started item.
    pub(super) fn splits_after_started(&self) -> bool {
        let ahead = match &self.split {
            Some(ShardAction::Split(Some(asked))) => asked.as_bytes() > self.rest_from(),
            _ => true,
        };
        self.decision.is_none() && ahead
    }

    /// Serves a split, if there is an admissible split point. An untouched shard is replaced in one
    /// operation. Otherwise several cuts are made from the last to the first, one operation each,
    /// so that each leaves the range before it to this shard.
    pub(super) fn serve_split<B>(&mut self, now: LogicalTime, context: &TaskContext<'_, B>) {
        if let Some(ShardAction::Split(asked)) = self.split.take() {
            self.cuts = match asked {
                Some(asked) => self.admissible(asked.as_bytes()).into_iter().collect(),
                None => self.cuts_of_rest(now, context),
            };
        }
        if self.cuts.len() >= REPLACE_CUTS_MIN && self.is_untouched() {
            let cuts = std::mem::take(&mut self.cuts);
            return self.begin(Operation::Replace(cuts));
        }
        if let Some(point) = self.cuts.pop() {
            self.begin(Operation::Split(point));
        }
    }

    /// Returns whether no item was started under this lease, so that ending it repeats nothing, and
    /// the shard is not suspected of crashing its workers: the key that does is searched for here,
    /// item by item, and in each part the search would begin anew.
    fn is_untouched(&self) -> bool {
        let is_idle = self.covered.finished == 0 && self.mark.last_started().is_none();
        is_idle && self.cautious == 0 && !self.is_suspect()
    }

    /// Returns the split point at `key` if both sides of it may contain keys that are not covered.
    pub(super) fn admissible(&self, key: &[u8]) -> Option<Box<[u8]>> {
        let key = split_specs::aligned(self.spec().as_spec_ref(), key)?;
        let ahead = self.covered.key().is_none_or(|covered| *key > *covered);
        let inside = *key > *self.spec().start() && self.spec().contains_key(&key);
        (ahead && inside && SplitKey::try_new(&key).is_some()).then(|| (*key).into())
    }

    /// Returns split points in ascending order that divide the remaining keys evenly, as far as the
    /// keys are known.
    fn cuts_of_rest<B>(&self, now: LogicalTime, context: &TaskContext<'_, B>) -> Vec<Box<[u8]>> {
        match self.config.cut {
            Cut::Learned => self.cuts_by_keys(now, context).unwrap_or_default(),
            Cut::Bytes => self.middle_by_bytes().into_iter().collect(),
        }
    }

    /// Returns cuts by the keys of the page, if it is the last one and its keys are all that
    /// remain, and otherwise by a sample of the range after the last started item.
    ///
    /// A source that has no samples is cut in the middle by bytes. `None` if sampling failed.
    fn cuts_by_keys<B>(
        &self,
        now: LogicalTime,
        context: &TaskContext<'_, B>,
    ) -> Option<Vec<Box<[u8]>>> {
        let many_from = self.many_parts_from(now);
        if self.page.is_exhausted() && self.listing.is_some() {
            let open = self.mark.mark();
            let started = self.mark.next().unwrap_or(self.page.len()) - open;
            let key = |index| self.page.item(open + index);
            let count = self.page.len() - open;
            return Some(self.even_cuts((count, many_from), started, true, key));
        }
        let limits = PageLimits::try_new(SPLIT_SAMPLE_KEYS, SPLIT_SAMPLE_BYTES);
        let mut sample = Page::with_limits(limits.expect("constants within the limits of a page"));
        let rest = ShardSpecRef::new(self.rest_from(), self.spec().end(), self.spec().metadata());
        context.connector.sample_keys(rest, &mut sample).ok()?;
        if sample.is_empty() && !sample.is_exhausted() {
            return self.middle_by_bytes().map(|middle| vec![middle]);
        }
        let is_all = sample.is_exhausted();
        Some(self.even_cuts((sample.len(), many_from), 0, is_all, |index| sample.item(index)))
    }

    /// Returns from how many remaining keys on a split makes [`MANY_PARTS`].
    fn many_parts_from(&self, now: LogicalTime) -> usize {
        // A sample has at most `SPLIT_SAMPLE_KEYS` keys, so a larger setting could never be
        // reached.
        let by_keys = self.config.many_parts_from.min(SPLIT_SAMPLE_KEYS);
        let lasted = now.as_raw().saturating_sub(self.begun.as_raw());
        // By the keys that were finished under this lease; of none nothing is known.
        let by_time = MANY_PARTS_TICKS.saturating_mul(self.covered.finished).checked_div(lasted);
        let by_time = by_time.filter(|_| self.covered.finished > 0);
        let by_time =
            by_time.map_or(usize::MAX, |keys| usize::try_from(keys).unwrap_or(usize::MAX));
        by_keys.min(by_time.max(MANY_PARTS))
    }

    /// Returns cuts in ascending order that divide `count` keys evenly, of which the first
    /// `started` are in flight or finished: into [`MANY_PARTS`] from `many_from` keys on. `is_all`
    /// says whether the keys are all of the remaining ones.
    ///
    /// Empty if they are all and too few, or if no cut is admissible.
    fn even_cuts<'p>(
        &self,
        (count, many_from): (usize, usize),
        started: usize,
        is_all: bool,
        key: impl Fn(usize) -> Option<PageItem<'p>>,
    ) -> Vec<Box<[u8]>> {
        let parts = match count {
            0..SPLIT_KEYS_MIN if is_all => 1,
            _ if count < many_from => 2,
            _ => MANY_PARTS,
        };
        let points = (1..parts).filter_map(|part| key(started.max(count * part / parts)));
        let ahead = points.filter(|item| item.key() > self.rest_from());
        let mut cuts: Vec<_> = ahead.filter_map(|item| self.admissible(item.key())).collect();
        // If most keys were started, several cuts fall on the first key that was not.
        cuts.dedup();
        cuts
    }

    /// Returns the key halfway between the cursor and the end, if there is one.
    fn middle_by_bytes(&self) -> Option<Box<[u8]>> {
        let mut middle = KeyBuf::new();
        let range = KeyRange::try_new(self.rest_from(), self.spec().end()).ok()?;
        let points = split_points(range, 2, std::slice::from_mut(&mut middle)).ok()?;
        self.admissible(points.iter().next()?)
    }

    /// Returns the last started key: everything after it may be split off at any time.
    pub(super) fn rest_from(&self) -> &[u8] {
        let started = self.mark.last_started().and_then(|index| self.page.item(index));
        let started = started.map(|item| item.key()).or_else(|| self.covered.key());
        started.unwrap_or_else(|| self.spec().start())
    }
}
