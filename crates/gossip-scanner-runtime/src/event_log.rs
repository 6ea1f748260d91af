//! The stored lifecycle events of a run, merged by time, with their gaps.

use std::collections::{BTreeMap, BTreeSet};

use gossip_contracts::identity::{LogicalTime, Redacted, RunId, TenantId, WorkerId};
use gossip_coordination::{EventWriter, InfraError, RunManagement, StoredEvent};

/// An entry of a log of events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN Q37: events, and gaps per writer")]
pub enum LogEntry {
    /// A stored event.
    Event(StoredEvent),
    /// Earlier events of a writer are not stored any more.
    Gap {
        /// The writer.
        writer: EventWriter,
        /// A worker of that process, if an event names one.
        worker: Option<Redacted<WorkerId>>,
        /// How many at least.
        lost: u64,
        /// The time of the first event behind the gap.
        at: LogicalTime,
    },
}

impl LogEntry {
    /// Returns the time of an event, or of the first one behind a gap.
    #[must_use]
    pub const fn at(&self) -> LogicalTime {
        match self {
            Self::Event(event) => event.at,
            Self::Gap { at, .. } => *at,
        }
    }

    /// Returns what entries are sorted by: time, then writer, a gap first.
    fn order(&self) -> (LogicalTime, EventWriter, Option<u64>) {
        match self {
            Self::Event(event) => (event.at, event.writer, Some(event.sequence)),
            Self::Gap { writer, at, .. } => (*at, *writer, None),
        }
    }
}

/// A reader of the events of a run, which returns each event once.
///
/// A read takes the rings of all writers, page by page. It holds at most
/// [`EVENTS_PER_WRITER`](gossip_coordination::EVENTS_PER_WRITER) events for each.
#[derive(Debug)]
pub struct EventLog {
    tenant: TenantId,
    run: RunId,
    writers: BTreeMap<EventWriter, Known>,
}

/// A writer, as far as it was read.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Numbers in its ring at the last read. One that was overwritten does not come back.
    ring: BTreeSet<u64>,
    /// Events read in all.
    read: u64,
    /// The largest number of events that were stored before one of these.
    earlier: u64,
    /// Events reported as lost.
    lost: u64,
    worker: Option<Redacted<WorkerId>>,
}

impl EventLog {
    /// Returns a reader that has read nothing.
    #[must_use]
    pub const fn new(tenant: TenantId, run: RunId) -> Self {
        Self { tenant, run, writers: BTreeMap::new() }
    }

    /// Returns the events that were not returned before, and new gaps, in the order of their times.
    ///
    /// # Errors
    ///
    /// The store fails, or a record is damaged. The next read returns what this one did not.
    pub fn read<B>(&mut self, backend: &mut B) -> Result<Vec<LogEntry>, InfraError>
    where
        B: RunManagement + ?Sized,
    {
        let mut stored: Vec<StoredEvent> = Vec::new();
        loop {
            let (after, before) = (stored.last().map(|event| event.writer), stored.len());
            backend.list_events_into(self.tenant, self.run, after, &mut stored)?;
            if stored.len() == before {
                break;
            }
        }
        let mut entries = Vec::new();
        for ring in stored.chunk_by(|one, other| one.writer == other.writer) {
            let Some(first) = ring.first() else { continue };
            self.writers.entry(first.writer).or_default().take(ring, &mut entries);
        }
        entries.sort_by_key(LogEntry::order);
        Ok(entries)
    }
}

impl Known {
    /// Adds the new events in the ring of one writer to `entries`, and a gap if some are lost.
    fn take(&mut self, ring: &[StoredEvent], entries: &mut Vec<LogEntry>) {
        let is_new = |event: &&StoredEvent| !self.ring.contains(&event.sequence);
        let new: Vec<&StoredEvent> = ring.iter().filter(is_new).collect();
        self.ring = ring.iter().map(|event| event.sequence).collect();
        let Some(first) = new.iter().min_by_key(|event| event.sequence) else { return };
        self.read += new.len() as u64;
        let earlier = new.iter().map(|event| event.earlier).max();
        self.earlier = self.earlier.max(earlier.unwrap_or_default());
        self.worker = self.worker.or_else(|| new.iter().find_map(|event| event.worker));
        // Others than the one that counts them. Some of them may not be among those it counts, so
        // the difference is a lower bound.
        let lost = self.earlier.saturating_sub(self.read - 1);
        if lost > self.lost {
            let (writer, worker, at) = (first.writer, self.worker, first.at);
            entries.push(LogEntry::Gap { writer, worker, lost: lost - self.lost, at });
            self.lost = lost;
        }
        entries.extend(new.into_iter().cloned().map(LogEntry::Event));
    }
}

#[cfg(test)]
#[path = "event_log_tests.rs"]
mod tests;
