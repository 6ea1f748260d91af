//! What others want of a shard's owner.

use gossip_contracts::connector::{Page, PageItem, PageLimits};
use gossip_contracts::coordination::{Cursor, ShardSpecRef};
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{ShardAction, SplitKey};
use gossip_frontier::{KeyBuf, KeyRange, split_points};

use super::{Cut, Decision, Operation, ShardTask, TaskContext, TaskOutcome};
use crate::split_policy::SPLIT_KEYS_MIN;

/// From this many keys on what remains is cut into [`LARGE_PARTS`] instead of two: whoever is far
/// behind the others serves several of them at once, instead of one in each round of asking.
const LARGE_FROM: usize = 256;
const LARGE_PARTS: usize = 4;

/// Keys that a split looks at to find the middle of what remains.
const SPLIT_SAMPLE_KEYS: usize = 256;

/// Bytes of those keys: 128 for each.
const SPLIT_SAMPLE_BYTES: usize = 128 * SPLIT_SAMPLE_KEYS;

// A sample that is full stands for a large rest.
const _: () = assert!(LARGE_FROM <= SPLIT_SAMPLE_KEYS && LARGE_PARTS <= LARGE_FROM);
const _: () = assert!(SPLIT_SAMPLE_BYTES >= gossip_contracts::connector::MIN_PAGE_BYTES);

impl ShardTask {
    /// The lease was renewed until `deadline`. A reply that was overtaken shortens nothing.
    pub fn renewed(&mut self, deadline: LogicalTime) {
        self.lease.set_deadline(self.lease.deadline().max(deadline));
    }

    /// The lease is gone: whatever is on its way is forgotten at the next step.
    pub fn lost(&mut self) {
        self.ended = Some(TaskOutcome::Lost);
    }

    /// Asks the shard to stand still when the items under way are finished, because it is to be
    /// moved. One that ends for another reason does not.
    pub fn freeze(&mut self) {
        self.decision.get_or_insert(Decision::Freeze);
    }

    /// Where the shard stands still, if it does: nothing of it is under way or waits for another
    /// try, and everything up to this cursor is finished.
    #[must_use]
    pub fn frozen_at(&self) -> Option<Cursor> {
        let stands = matches!(self.decision, Some(Decision::Freeze));
        let rests = self.submitted == 0 && self.pending.is_none();
        let still = stands && rests && !self.has_retries();
        still.then(|| self.covered.cursor().into())
    }

    /// It was not moved: goes on where it stood still. What turned out to be hopeless meanwhile is
    /// set aside, as it would have been.
    pub fn unfreeze(&mut self) {
        if matches!(self.decision, Some(Decision::Freeze)) {
            self.decision = self.hopeless_item().map(Decision::ParkItem);
        }
    }

    /// Asks the shard to rest, because another one of the process is to be worked on alone, or not
    /// to any more. One without progress under its lease goes on until some is recorded: if the
    /// process died while it rests, that would be held against it.
    pub fn request_pause(&mut self, held: bool) {
        self.pause_requested = held;
    }

    /// Whether the shard rests, with nothing under way: whatever ends the process now is not this
    /// shard's doing, and is not counted as such.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        let idle = self.submitted == 0 && self.pending.is_none() && self.covered.unsaved == 0;
        self.is_pausing() && idle
    }

    /// Whether the shard is parked if its owner dies now: it has come forward since, or not.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.config.is_last_chance(self.attempts)
    }

    pub(super) const fn is_pausing(&self) -> bool {
        self.pause_requested && self.attempts == 0
    }

    /// Somebody else took care of the shard, which stood still: the task is over at its next step.
    pub fn end(&mut self, outcome: TaskOutcome) {
        self.ended = Some(outcome);
    }

    /// Asks for the shard to be given back when the items under way are finished.
    pub fn release(&mut self) {
        self.decision.get_or_insert(Decision::Release);
    }

    /// Hears what an administrator asks.
    ///
    /// Moving a shard is not the task's business: a worker hears of that with a renewal.
    pub fn request(&mut self, action: &ShardAction) {
        match action {
            ShardAction::Release => self.release(),
            ShardAction::Split(_) => {
                self.split.get_or_insert_with(|| action.clone());
            }
            ShardAction::HandOff(_) | ShardAction::Withdraw => {}
            // The coordinator's enum may grow; what is not known here waits until it expires.
            _ => {}
        }
    }

    /// Whether items were finished since the lease was granted, or since the last split.
    #[must_use]
    pub const fn has_progressed(&self) -> bool {
        self.covered.since_cut > 0
    }

    /// Items finished under this lease.
    #[must_use]
    pub const fn finished(&self) -> u64 {
        self.covered.finished
    }

    /// Whether a split was asked for that concerns nothing under way, and nothing else was decided.
    ///
    /// It is then made at once: an item may take minutes, and whoever is idle waits. Where nobody
    /// names a key, the shard is cut behind everything that was started.
    pub(super) fn splits_ahead(&self) -> bool {
        let ahead = match &self.split {
            Some(ShardAction::Split(Some(asked))) => asked.as_bytes() > self.rest_from(),
            _ => true,
        };
        self.decision.is_none() && ahead
    }

    /// Splits what remains, if there is a place for it. Several cuts are made from behind, one
    /// operation each, so that every one of them leaves this shard what is in front of it.
    pub(super) fn serve_split<B>(&mut self, context: &TaskContext<'_, B>) {
        if let Some(ShardAction::Split(asked)) = self.split.take() {
            self.cuts = match asked {
                Some(asked) => self.admissible(asked.as_bytes()).into_iter().collect(),
                None => self.cuts_of_rest(context),
            };
        }
        if let Some(point) = self.cuts.pop() {
            self.begin(Operation::Split(point));
        }
    }

    /// `key`, if something may remain on both sides of it.
    pub(super) fn admissible(&self, key: &[u8]) -> Option<Box<[u8]>> {
        let ahead = self.covered.key().is_none_or(|covered| key > covered);
        let inside = key > self.spec.start() && self.spec.contains_key(key);
        (ahead && inside && SplitKey::try_new(key).is_some()).then(|| key.into())
    }

    /// Keys in order between which there is about as much each, from what is known of the keys.
    fn cuts_of_rest<B>(&self, context: &TaskContext<'_, B>) -> Vec<Box<[u8]>> {
        match self.config.cut {
            Cut::Learned => self.cuts_by_keys(context).unwrap_or_default(),
            Cut::Bytes => self.middle_by_bytes().into_iter().collect(),
        }
    }

    /// The rest of an exhausted page is known exactly. Otherwise the connector is asked for a
    /// sample of what lies behind the last item that was started; one that gives none is cut by
    /// bytes.
    fn cuts_by_keys<B>(&self, context: &TaskContext<'_, B>) -> Option<Vec<Box<[u8]>>> {
        if self.page.is_exhausted() && self.listing.is_some() {
            let open = self.mark.mark();
            let started = self.mark.next().unwrap_or(self.page.len()) - open;
            let key = |index| self.page.item(open + index);
            return Some(self.even_cuts(self.page.len() - open, started, true, key));
        }
        let limits = PageLimits::try_new(SPLIT_SAMPLE_KEYS, SPLIT_SAMPLE_BYTES);
        let mut sample = Page::with_limits(limits.expect("constants within the limits of a page"));
        let rest = ShardSpecRef::new(self.rest_from(), self.spec.end(), self.spec.metadata());
        context.connector.sample_keys(rest, &mut sample).ok()?;
        if sample.is_empty() && !sample.is_exhausted() {
            return self.middle_by_bytes().map(|middle| vec![middle]);
        }
        Some(self.even_cuts(sample.len(), 0, sample.is_exhausted(), |index| sample.item(index)))
    }

    /// Cuts between `count` keys, behind those that were started; none if these are all and too
    /// few.
    fn even_cuts<'p>(
        &self,
        count: usize,
        started: usize,
        is_all: bool,
        key: impl Fn(usize) -> Option<PageItem<'p>>,
    ) -> Vec<Box<[u8]>> {
        let parts = match count {
            0..SPLIT_KEYS_MIN if is_all => 1,
            0..LARGE_FROM => 2,
            LARGE_FROM.. => LARGE_PARTS,
        };
        let points = (1..parts).filter_map(|part| key(started.max(count * part / parts)));
        let ahead = points.filter(|item| item.key() > self.rest_from());
        let mut cuts: Vec<_> = ahead.filter_map(|item| self.admissible(item.key())).collect();
        // Where much was started, several of them fall on the first key that was not.
        cuts.dedup();
        cuts
    }

    /// Halfway between the cursor and the end, if the range has one.
    fn middle_by_bytes(&self) -> Option<Box<[u8]>> {
        let mut middle = KeyBuf::new();
        let range = KeyRange::try_new(self.rest_from(), self.spec.end()).ok()?;
        let points = split_points(range, 2, std::slice::from_mut(&mut middle)).ok()?;
        self.admissible(points.iter().next()?)
    }

    /// The last key that was started: what lies behind it may be given away at any time.
    pub(super) fn rest_from(&self) -> &[u8] {
        let started = self.mark.last_started().and_then(|index| self.page.item(index));
        let started = started.map(|item| item.key()).or_else(|| self.covered.key());
        started.unwrap_or_else(|| self.spec.start())
    }
}
