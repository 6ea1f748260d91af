//! What the jobs of this process work on.
//!
//! A job notes its items in a slot of its own, so that noting costs an uncontended lock and a short
//! copy; only the painter reads the slots.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gossip::runtime::{Broken, Processor, Report, Silence, Work};
use gossip::sources::KeyFormat;

use super::text::escaped;
use super::view::Lane;

/// Items of a job whose keys are kept; of a job with more only their number is known.
const KEPT_MAX: usize = 8;

/// Bytes kept of a key: no lane shows more.
const KEY_MAX: usize = 512;

/// The jobs of this process.
#[derive(Debug)]
pub(crate) struct Jobs {
    slots: Vec<Mutex<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Items in the order of their start.
    kept: Vec<Kept>,
    /// Items that were started while the slot was full.
    others: usize,
}

#[derive(Debug)]
struct Kept {
    ticket: usize,
    since: Instant,
    key: Box<[u8]>,
}

impl Jobs {
    pub(crate) fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns a processor that notes the items of `inner` in the slot of a job.
    pub(crate) fn noting<'a>(
        &'a self,
        job: usize,
        inner: Box<dyn Processor + 'a>,
    ) -> Box<dyn Processor + 'a> {
        match self.slots.get(job) {
            Some(slot) => Box::new(Noting { slot, inner }),
            None => inner,
        }
    }

    /// Returns the jobs that have items, those with the longest-running item first.
    pub(crate) fn lanes(&self, now: Instant, keys_shown_as: KeyFormat) -> Vec<Lane> {
        let lane = |(index, slot): (usize, &Mutex<Slot>)| {
            let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = slot.kept.iter().min_by_key(|kept| kept.since)?;
            Some(Lane {
                job: index + 1,
                item: escaped(&keys_shown_as.text(&oldest.key)),
                lasted: now.saturating_duration_since(oldest.since),
                more: slot.kept.len() - 1 + slot.others,
            })
        };
        let mut lanes: Vec<Lane> = self.slots.iter().enumerate().filter_map(lane).collect();
        lanes.sort_by(|one, other| other.lasted.cmp(&one.lasted).then(one.job.cmp(&other.job)));
        lanes
    }
}

/// Notes the items that a processor has.
struct Noting<'a> {
    slot: &'a Mutex<Slot>,
    inner: Box<dyn Processor + 'a>,
}

impl Noting<'_> {
    fn change(&self, change: impl FnOnce(&mut Slot)) {
        change(&mut self.slot.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Processor for Noting<'_> {
    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let (ticket, key) = (work.ticket, work.key());
        self.change(|slot| slot.start(ticket, key, Instant::now()));
        self.inner.submit(work)
    }

    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        let before = reports.len();
        let collected = self.inner.collect(patience, reports);
        if let Some(new) = reports.get(before..).filter(|new| !new.is_empty()) {
            self.change(|slot| new.iter().for_each(|report| slot.end(report.ticket)));
        }
        collected
    }

    fn opens_items(&self) -> bool {
        self.inner.opens_items()
    }

    fn silence(&mut self) -> Option<Silence> {
        self.inner.silence()
    }

    fn abandon(&mut self) {
        self.change(|slot| *slot = Slot::default());
        self.inner.abandon();
    }
}

impl Slot {
    fn start(&mut self, ticket: usize, key: &[u8], now: Instant) {
        if self.kept.len() >= KEPT_MAX {
            self.others += 1;
            return;
        }
        let key = key.get(..KEY_MAX).unwrap_or(key).into();
        self.kept.push(Kept { ticket, since: now, key });
    }

    fn end(&mut self, ticket: usize) {
        match self.kept.iter().position(|kept| kept.ticket == ticket) {
            Some(index) => drop(self.kept.swap_remove(index)),
            None => self.others = self.others.saturating_sub(1),
        }
    }
}
