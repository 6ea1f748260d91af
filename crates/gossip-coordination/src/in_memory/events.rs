//! The stored lifecycle events of a run: one ring, because there is one writer.

use std::collections::VecDeque;

use gossip_contracts::identity::LogicalTime;

use crate::stored_events::{EVENTS_PER_WRITER, EventNumber, EventWriter, Lifecycle, StoredEvent};

/// The only writer of a run's events.
const WRITER: EventWriter = EventWriter::from_raw(0);

/// The last events of a run, in their order.
#[derive(Debug, Default)]
pub(super) struct EventRing(VecDeque<StoredEvent>);

impl EventRing {
    /// Appends an event, and drops the oldest if there are too many.
    pub(super) fn push(&mut self, at: LogicalTime, event: Lifecycle) {
        let sequence = self.0.back().map_or(0, |last| last.sequence + 1);
        if self.0.len() >= usize::from(EVENTS_PER_WRITER) {
            self.0.pop_front();
        }
        // Every number is used, and every event before is stored.
        let number = EventNumber { writer: WRITER, sequence, earlier: sequence };
        self.0.push_back(event.numbered(number, at));
    }

    /// Returns the events in the order of their slots, if the writer is behind `after`.
    pub(super) fn list(&self, after: Option<EventWriter>) -> Vec<StoredEvent> {
        let mut events: Vec<_> =
            self.0.iter().filter(|_| after.is_none_or(|after| after < WRITER)).cloned().collect();
        // As a store lists them: its keys end with the slot.
        events.sort_by_key(|event| StoredEvent::slot_of(event.sequence));
        events
    }
}
