//! The stored events of a run: pages of them for clients, and the leases that changed hands before
//! the server followed the run.
//!
//! The writers of events number their own, so they are ordered by time, which is that of the
//! writer's clock, and then by writer and number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gossip::coordination::{EventKind, InfraError, RunManagement as _, StoredEvent};
use gossip::identity::{Redacted, RunId, ShardId, TenantId, WorkerId};

use crate::follow::reason_word;
use crate::sampler::Coordinator;
use crate::wire::{EventPage, EventRow, WorkerRow};

/// Events that are kept of a run, the newest: with about 150 bytes each three megabytes.
const EVENTS_MAX: usize = 20_000;

/// Requests to the store for the events of a run. Each has those of one writer at least.
const READS_MAX: usize = 32;

/// Runs whose events are kept, and for how long, also as a multiple of the time of the read.
const KEPT_MAX: usize = 4;
const KEPT_FOR: Duration = Duration::from_secs(3);
const READ_SHARE: u32 = 20;

/// After this time a read that was begun is taken for failed, and another client begins one.
const READ_TIME: Duration = Duration::from_secs(5);

/// The events of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    /// The oldest first.
    events: Vec<StoredEvent>,
    /// Events that the store has no more, at least.
    lost: u64,
    /// Whether there were more than are kept.
    is_cut: bool,
}

/// The events of the runs that clients looked at last.
#[derive(Debug, Default)]
pub(crate) struct EventCache(Mutex<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    run: RunId,
    events: Arc<Events>,
    read_at: Instant,
    /// Until when they are returned.
    until: Instant,
}

impl EventCache {
    /// Returns the events of a run. If it is time to read them again, one caller gets none and
    /// reads them, and meanwhile the others get the old ones: they must not queue for the store.
    pub(crate) fn get(&self, run: RunId, now: Instant) -> Option<Arc<Events>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter_mut().find(|known| known.run == run)?;
        if known.until <= now {
            // Moved ahead for the others: only this caller reads, and if it fails another one
            // tries after this time.
            known.until = now + READ_TIME;
            return None;
        }
        Some(Arc::clone(&known.events))
    }

    /// Returns the events of a run if they were read a moment ago.
    pub(crate) fn recent(&self, run: RunId, now: Instant) -> Option<Arc<Events>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent =
            |known: &&Kept| known.run == run && now.duration_since(known.read_at) < KEPT_FOR;
        kept.iter().find(is_recent).map(|known| Arc::clone(&known.events))
    }

    /// Keeps events that were read from `started` to `now`.
    pub(crate) fn put(
        &self,
        run: RunId,
        events: Events,
        started: Instant,
        now: Instant,
    ) -> Arc<Events> {
        let events = Arc::new(events);
        // In proportion to the read, so that a long history takes no larger share of the store.
        let until = now + KEPT_FOR.max((now - started) * READ_SHARE);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|known| known.run != run);
        kept.push_back(Kept { run, events: Arc::clone(&events), read_at: now, until });
        if kept.len() > KEPT_MAX {
            kept.pop_front();
        }
        events
    }
}

/// A lease that changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) at: u64,
    pub(crate) is_handoff: bool,
    pub(crate) shard: ShardId,
    pub(crate) from: WorkerId,
    pub(crate) to: WorkerId,
}

/// The place of an event in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventCursor {
    at: u64,
    writer: u64,
    sequence: u64,
}

impl EventCursor {
    const fn of(event: &StoredEvent) -> Self {
        let (at, writer) = (event.at.as_raw(), event.writer.as_raw());
        Self { at, writer, sequence: event.sequence }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut number = || {
            let part = parts.next().filter(|part| part.len() == 16)?;
            u64::from_str_radix(part, 16).ok()
        };
        let cursor = Self { at: number()?, writer: number()?, sequence: number()? };
        parts.next().is_none().then_some(cursor)
    }

    fn text(self) -> String {
        format!("{:016x}-{:016x}-{:016x}", self.at, self.writer, self.sequence)
    }
}

impl Events {
    /// Reads the events of a run.
    pub(crate) fn read(
        coordinator: &mut Coordinator,
        tenant: TenantId,
        run: RunId,
    ) -> Result<Self, InfraError> {
        let (mut all, mut page, mut after) = (Self::default(), Vec::new(), None);
        for _ in 0..READS_MAX {
            page.clear();
            coordinator.list_events_into(tenant, run, after, &mut page)?;
            // An empty page, and not a short one, is the last: a page has whole rings.
            let Some(last) = page.last() else { return Ok(all) };
            after = Some(last.writer);
            all.add(&page);
        }
        all.is_cut = true;
        Ok(all)
    }

    /// Adds the rings of some writers.
    fn add(&mut self, page: &[StoredEvent]) {
        for ring in page.chunk_by(|one, other| one.writer == other.writer) {
            // Others than the one that counts them.
            let stored = ring.len() as u64 - 1;
            let earlier = ring.iter().map(|event| event.earlier).max().unwrap_or_default();
            self.lost += earlier.saturating_sub(stored);
        }
        self.events.extend_from_slice(page);
        self.events.sort_by_key(EventCursor::of);
        let excess = self.events.len().saturating_sub(EVENTS_MAX);
        self.is_cut |= excess > 0;
        // The oldest ones, because a page begins with the newest.
        self.events.drain(..excess);
    }

    /// Returns the events before `before`, the newest first, at most `limit`.
    pub(crate) fn page(
        &self,
        before: Option<EventCursor>,
        limit: usize,
        workers: &[WorkerRow],
    ) -> EventPage {
        let end = before.map_or(self.events.len(), |before| {
            self.events.partition_point(|event| EventCursor::of(event) < before)
        });
        let start = end.saturating_sub(limit);
        let shown = &self.events[start..end];
        let next = shown.first().filter(|_| start > 0);
        EventPage {
            events: shown.iter().rev().map(|event| row(event, workers)).collect(),
            next: next.map(|event| EventCursor::of(event).text()),
            lost: self.lost,
            is_complete: !self.is_cut,
        }
    }

    /// Returns the leases that changed hands, the oldest first.
    pub(crate) fn moved(&self) -> Vec<Moved> {
        let mut before: BTreeMap<ShardId, &StoredEvent> = BTreeMap::new();
        let mut moved = Vec::new();
        for event in &self.events {
            let Some(shard) = shard_of(&event.kind) else { continue };
            let last = before.insert(shard, event);
            if !matches!(event.kind, EventKind::ShardAcquired { .. }) {
                continue;
            }
            // A grant that follows an offer accepts it; otherwise the lease had run out, or was
            // revoked, and then the grant found no holder.
            let is_handoff =
                last.is_some_and(|last| matches!(last.kind, EventKind::ShardOffered { .. }));
            let from =
                taken_over(event).or_else(|| revoked(last?).filter(|_| event.previous.is_none()));
            if let (Some(from), Some(to)) = (from, event.worker)
                && from != to
            {
                let (at, from, to) = (event.at.as_raw(), from.into_inner(), to.into_inner());
                moved.push(Moved { at, is_handoff, shard, from, to });
            }
        }
        moved
    }
}

/// Returns the worker from which a grant took the shard over.
fn taken_over(event: &StoredEvent) -> Option<Redacted<WorkerId>> {
    event.previous.filter(|previous| Some(*previous) != event.worker)
}

/// Returns the worker whose lease was revoked.
fn revoked(event: &StoredEvent) -> Option<Redacted<WorkerId>> {
    event.worker.filter(|_| matches!(event.kind, EventKind::ShardLeaseRevoked { .. }))
}

/// Returns the shard of an event.
fn shard_of(kind: &EventKind) -> Option<ShardId> {
    match kind {
        EventKind::ShardAcquired { shard, .. }
        | EventKind::ShardCheckpointed { shard, .. }
        | EventKind::ShardUnparked { shard, .. }
        | EventKind::ShardLeaseRenewed { shard, .. }
        | EventKind::ShardCompleted { shard }
        | EventKind::ShardParked { shard, .. }
        | EventKind::ShardReleased { shard }
        | EventKind::ShardOffered { shard, .. }
        | EventKind::ShardOfferWithdrawn { shard, .. }
        | EventKind::ShardActionRequested { shard, .. }
        | EventKind::ShardLeaseRevoked { shard, .. }
        | EventKind::ShardResidualCreated { parent: shard, .. }
        | EventKind::ShardSplit { parent: shard, .. } => Some(*shard),
        // Of the run. The coordinator's enum may grow.
        _ => None,
    }
}

/// Returns the kind of an event as `gossip events` writes it, and what happened in words.
fn described(kind: &EventKind) -> (&'static str, String) {
    let text = |name, text: &str| (name, text.to_owned());
    match kind {
        EventKind::ShardAcquired { fence_epoch, .. } => {
            ("acquired", format!("acquired, fence {}", fence_epoch.as_raw()))
        }
        EventKind::ShardCheckpointed { .. } => text("checkpoint", "checkpoint"),
        EventKind::ShardLeaseRenewed { .. } => text("renewed", "lease renewed"),
        EventKind::ShardResidualCreated { residual, .. } => {
            ("split_off", format!("split off shard {:016x}", residual.as_raw()))
        }
        EventKind::ShardSplit { children, .. } => {
            ("replaced", format!("replaced by {} shards", children.len()))
        }
        EventKind::ShardCompleted { .. } => text("done", "done"),
        EventKind::ShardParked { reason, .. } => {
            ("parked", format!("parked ({})", reason_word(*reason)))
        }
        EventKind::ShardUnparked { new_fence_epoch, .. } => {
            ("unparked", format!("unparked, fence {}", new_fence_epoch.as_raw()))
        }
        EventKind::ShardReleased { .. } => text("released", "released"),
        EventKind::ShardOffered { .. } => text("offered", "offered to another worker"),
        EventKind::ShardOfferWithdrawn { .. } => text("offer_withdrawn", "offer withdrawn"),
        EventKind::ShardActionRequested { action, .. } => {
            ("requested", format!("{action} requested"))
        }
        EventKind::ShardLeaseRevoked { new_fence_epoch, .. } => {
            ("revoked", format!("lease revoked, fence {}", new_fence_epoch.as_raw()))
        }
        EventKind::RunCreated => text("run_created", "created"),
        EventKind::RunActivated { shard_count } => {
            ("run_active", format!("active, {shard_count} shards"))
        }
        EventKind::RunCompleted => text("run_done", "every shard is done"),
        EventKind::RunFailed => text("run_failed", "marked as failed"),
        EventKind::RunCancelled => text("run_cancelled", "cancelled"),
        EventKind::RunPaused => text("run_paused", "paused"),
        EventKind::RunResumed => text("run_resumed", "resumed"),
        EventKind::RunDeleted => text("run_deleted", "deleted"),
        // The coordinator's enum may grow.
        _ => text("unknown", "an event of a newer version"),
    }
}

fn row(event: &StoredEvent, workers: &[WorkerRow]) -> EventRow {
    let (kind, text) = described(&event.kind);
    let id = |worker: Redacted<WorkerId>| format!("{:016x}", worker.into_inner().as_raw());
    let (worker, previous) = (event.worker.map(id), taken_over(event).map(id));
    let process = |worker: &Option<String>| {
        // Sorted by their ids.
        let worker = worker.as_deref()?;
        let at = workers.binary_search_by(|row| row.worker.as_str().cmp(worker)).ok()?;
        let row = workers.get(at)?;
        Some(format!("{} pid {}", row.host.as_ref()?, row.pid?))
    };
    EventRow {
        id: EventCursor::of(event).text(),
        at: event.at.as_raw(),
        event: kind,
        text,
        shard: shard_of(&event.kind).map(|shard| format!("{:016x}", shard.as_raw())),
        name: process(&worker),
        worker,
        previous_name: process(&previous),
        previous_worker: previous,
    }
}

#[cfg(test)]
mod tests {
    use gossip::coordination::{EventWriter, HandoffId};
    use gossip::identity::{FenceEpoch, LogicalTime};

    use super::*;

    fn event(writer: u64, sequence: u64, at: u64, kind: EventKind) -> StoredEvent {
        StoredEvent {
            writer: EventWriter::from_raw(writer),
            sequence,
            earlier: sequence,
            at: LogicalTime::from_raw(at),
            worker: Some(Redacted::new(WorkerId::from_raw(writer))),
            previous: None,
            kind,
        }
    }

    fn grant(writer: u64, sequence: u64, at: u64, from: u64) -> StoredEvent {
        let worker = Redacted::new(WorkerId::from_raw(writer));
        let (shard, fence_epoch) = (ShardId::from_raw(1), FenceEpoch::from_raw(at));
        let kind = EventKind::ShardAcquired { shard, worker, fence_epoch };
        let previous = (from > 0).then(|| Redacted::new(WorkerId::from_raw(from)));
        StoredEvent { previous, ..event(writer, sequence, at, kind) }
    }

    #[test]
    fn grant_behind_an_offer_is_a_handoff_and_others_are_takeovers() {
        let (shard, handoff) = (ShardId::from_raw(1), HandoffId::from_raw(9));
        let offer = event(1, 1, 20, EventKind::ShardOffered { shard, handoff });
        let mut events = Events::default();
        events.add(&[grant(1, 0, 10, 0), offer]);
        events.add(&[grant(2, 0, 30, 1), grant(2, 1, 35, 2)]);
        events.add(&[grant(3, 0, 40, 2)]);
        let moved: Vec<_> = events.moved().iter().map(|it| (it.at, it.is_handoff)).collect();
        assert_eq!(moved, [(30, true), (40, false)]);
    }

    #[test]
    fn grant_behind_a_revocation_is_a_takeover_from_the_former_holder() {
        let (shard, new_fence_epoch) = (ShardId::from_raw(1), FenceEpoch::from_raw(20));
        let revocation = event(1, 1, 20, EventKind::ShardLeaseRevoked { shard, new_fence_epoch });
        let mut events = Events::default();
        events.add(&[grant(1, 0, 10, 0), revocation]);
        events.add(&[grant(2, 0, 30, 0)]);
        let (from, to) = (WorkerId::from_raw(1), WorkerId::from_raw(2));
        assert_eq!(events.moved(), [Moved { at: 30, is_handoff: false, shard, from, to }]);
    }

    #[test]
    fn pages_have_each_event_once_newest_first() {
        let mut events = Events::default();
        for writer in 1..=3 {
            let ring: Vec<_> = (0..10).map(|it| grant(writer, it, it / 2, 0)).collect();
            events.add(&ring);
        }
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let page = events.page(before, 7, &[]);
            seen.extend(page.events.into_iter().map(|row| EventCursor::parse(&row.id).unwrap()));
            let Some(next) = page.next else { break };
            before = Some(EventCursor::parse(&next).unwrap());
        }
        assert_eq!(seen.len(), 30);
        assert!(seen.is_sorted_by(|one, other| one > other));
    }

    #[test]
    fn number_of_events_is_bounded_and_the_newest_stay() {
        let mut events = Events::default();
        let ring = |writer: u64| (0..500).map(|it| grant(writer, it, it, 0)).collect::<Vec<_>>();
        for writer in 0..EVENTS_MAX as u64 / 250 {
            events.add(&ring(writer));
        }
        assert_eq!(events.events.len(), EVENTS_MAX);
        assert!(!events.page(None, 1, &[]).is_complete);
        assert_eq!(events.page(None, 1, &[]).events[0].at, 499);
        let mut overwritten = Events::default();
        overwritten.add(&ring(1)[100..]);
        assert_eq!(overwritten.page(None, 1, &[]).lost, 100);
    }

    #[test]
    fn one_client_reads_events_again_and_others_get_the_old_ones() {
        let (cache, run, start) = (EventCache::default(), RunId::from_raw(1), Instant::now());
        assert!(cache.get(run, start).is_none());
        cache.put(run, Events::default(), start, start);
        let later = start + KEPT_FOR;
        assert!(cache.get(run, later - Duration::from_millis(1)).is_some());
        let got: Vec<bool> = (0..5).map(|_| cache.get(run, later).is_some()).collect();
        assert_eq!(got, [false, true, true, true, true]);
        // That read has failed.
        assert!(cache.get(run, later + READ_TIME).is_none());
        assert!(cache.recent(run, later + READ_TIME).is_none());
        // A slow read is repeated after a multiple of its time.
        let slow = start + Duration::from_secs(2);
        cache.put(run, Events::default(), start, slow);
        assert!(cache.get(run, slow + Duration::from_secs(39)).is_some());
        for other in 2..10 {
            cache.put(RunId::from_raw(other), Events::default(), start, start);
        }
        assert_eq!(cache.0.lock().unwrap().len(), KEPT_MAX);
    }

    #[test]
    fn cursors_of_others_are_refused() {
        let cursor = EventCursor { at: 1, writer: u64::MAX, sequence: 3 };
        assert_eq!(EventCursor::parse(&cursor.text()), Some(cursor));
        for wrong in ["", "1-2-3", "--", &format!("{}-", cursor.text()), "ü"] {
            assert_eq!(EventCursor::parse(wrong), None, "{wrong}");
        }
    }
}
