//! What the jobs of this process work on.
//!
//! A job notes its items in a slot of its own, so that noting costs an uncontended lock and a short
//! copy; only the painter reads the slots.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gossip::runtime::{Broken, Processor, Report, Silence, Work};
use gossip::sources::ItemNames;

use super::frame::LANES_MAX;
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
    /// Its name, once a lane has shown it.
    name: Option<String>,
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

    /// Returns the jobs that have items, those with the longest-running item first. Only the items
    /// that a frame shows have names.
    pub(crate) fn lanes(&self, now: Instant, names: &ItemNames) -> Vec<Lane> {
        let lane = |(index, slot): (usize, &Mutex<Slot>)| {
            let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = slot.oldest()?;
            Some(Lane {
                job: index + 1,
                item: String::new(),
                lasted: now.saturating_duration_since(oldest.since),
                more: slot.kept.len() - 1 + slot.others,
            })
        };
        let mut lanes: Vec<Lane> = self.slots.iter().enumerate().filter_map(lane).collect();
        // The job decides between equal times, so that lanes do not swap places.
        lanes.sort_by(|one, other| other.lasted.cmp(&one.lasted).then(one.job.cmp(&other.job)));
        for lane in lanes.iter_mut().take(LANES_MAX) {
            lane.item = self.name_of_oldest(lane.job - 1, names).unwrap_or_default();
        }
        lanes
    }

    /// Names the longest-running item of a job. The name may have to be read from the source, so
    /// the slot is not locked meanwhile: its job would wait.
    fn name_of_oldest(&self, job: usize, names: &ItemNames) -> Option<String> {
        let slot =
            || self.slots.get(job).map(|it| it.lock().unwrap_or_else(PoisonError::into_inner));
        let (ticket, since, key) = {
            let slot = slot()?;
            let oldest = slot.oldest()?;
            if let Some(name) = &oldest.name {
                return Some(name.clone());
            }
            // With the time, because tickets are used again.
            (oldest.ticket, oldest.since, oldest.key.clone())
        };
        let name = escaped(&names.brief(&key));
        let mut slot = slot()?;
        let is_it = |kept: &&mut Kept| (kept.ticket, kept.since) == (ticket, since);
        if let Some(kept) = slot.kept.iter_mut().find(is_it) {
            kept.name = Some(name.clone());
        }
        Some(name)
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
        // Before the work is passed on: a processor may finish it at once.
        self.change(|slot| slot.start(ticket, key, Instant::now()));
        self.inner.submit(work)
    }

    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        // The list may have reports of an earlier call.
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
    fn oldest(&self) -> Option<&Kept> {
        self.kept.iter().min_by_key(|kept| kept.since)
    }

    fn start(&mut self, ticket: usize, key: &[u8], now: Instant) {
        if self.kept.len() >= KEPT_MAX {
            self.others += 1;
            return;
        }
        let key = key.get(..KEY_MAX).unwrap_or(key).into();
        self.kept.push(Kept { ticket, since: now, key, name: None });
    }

    fn end(&mut self, ticket: usize) {
        match self.kept.iter().position(|kept| kept.ticket == ticket) {
            Some(index) => drop(self.kept.swap_remove(index)),
            // It was started while the slot was full, so that only its number is known.
            None => self.others = self.others.saturating_sub(1),
        }
    }
}
