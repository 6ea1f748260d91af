//! The rings of lifecycle events: numbers for those of this process, and listings of all.
//!
//! An event is put without a compare in the commit that it describes, so it is stored exactly if
//! the change is. Every try of a commit has a number of its own: a try whose reply was lost and the
//! next one are never both applied, so an event is stored once. Numbers of tries that were not
//! applied are not used again, because another thread may have taken the next one meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};

use super::codec::{decode_event, encode_event};
use super::core::{Core, encoded};
use super::engine::{Page, Read};
use super::flight::Io;
use super::key::Key;
use super::range::KeyRange;
use super::scatter::mixed;
use super::txn::Txn;
use crate::error::InfraError;
use crate::events::EventKind;
use crate::stored_events::{EVENTS_PER_WRITER, EventNumber, EventWriter, Lifecycle, StoredEvent};

/// Runs whose events a process numbers at once. Beyond it the run whose ring was not used for the
/// longest time begins anew, as another writer: the ring of a run that has events is kept, and with
/// it the bound on what this process stores for that run.
const RUNS_MAX: usize = 1_024;

/// Maximum events in one page. The longest, of a split into the most children, have 2,200 bytes, so
/// a page stays below the 4 MiB limit of an engine's reply.
const PAGE_MAX: usize = 1_000;

const _: () = assert!(EVENTS_PER_WRITER as usize <= PAGE_MAX, "a ring is read in one snapshot");
const _: () = assert!(PAGE_MAX * 2_200 < 4 << 20);

/// Keeps the numbers of writers apart from grant tokens, which are derived from the nonce as well.
const WRITER_SALT: u64 = 0x6576_656e_7472_696e;

/// The rings of this process, by run. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct EventRings(Arc<Mutex<Rings>>);

#[derive(Debug, Default)]
struct Rings {
    by_run: BTreeMap<(TenantId, RunId), Ring>,
    /// Rings that this process has begun.
    begun: u64,
    /// Numbers that were taken: the time of `Ring::used_at`.
    taken: u64,
}

/// The ring of one run.
#[derive(Clone, Copy, Debug)]
struct Ring {
    writer: EventWriter,
    next: u64,
    /// Events that are known to be stored.
    stored: u64,
    /// When the last number was taken.
    used_at: u64,
}

impl EventRings {
    /// Returns the next number. `nonce` belongs to a handle that uses these rings, and no others.
    fn take(&self, of: (TenantId, RunId), nonce: u64) -> EventNumber {
        let mut rings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Rings { by_run, begun, taken } = &mut *rings;
        *taken += 1;
        if by_run.len() >= RUNS_MAX && !by_run.contains_key(&of) {
            let unused = by_run.iter().min_by_key(|(_, ring)| ring.used_at).map(|(of, _)| *of);
            unused.and_then(|unused| by_run.remove(&unused));
        }
        let ring = by_run.entry(of).or_insert_with(|| {
            *begun += 1;
            let writer = EventWriter::from_raw(mixed(mixed(nonce ^ WRITER_SALT) ^ *begun));
            Ring { writer, next: 0, stored: 0, used_at: 0 }
        });
        ring.used_at = *taken;
        let (writer, sequence, earlier) = (ring.writer, ring.next, ring.stored);
        // Taken at once, also if the commit fails: another thread may have the next number by
        // then.
        ring.next += 1;
        EventNumber { writer, sequence, earlier }
    }

    /// Notes that an event of `writer` is certainly stored.
    fn note_stored(&self, of: (TenantId, RunId), writer: EventWriter) {
        let mut rings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Its ring may have been dropped, and another one begun.
        if let Some(ring) = rings.by_run.get_mut(&of).filter(|ring| ring.writer == writer) {
            ring.stored += 1;
        }
    }
}

/// The events of a commit, until it is known to be applied.
#[derive(Debug, Default)]
pub(super) struct Announcement {
    /// For the collector, if events are collected.
    collected: Option<EventKind>,
    /// Whose ring the transaction writes; `None` if it has no event, or its reply was lost.
    stored_by: Option<EventWriter>,
}

impl Announcement {
    pub(super) const fn new(collected: Option<EventKind>, stored_by: Option<EventWriter>) -> Self {
        Self { collected, stored_by }
    }

    /// Notes that the reply to the commit was lost. The event is then never counted as stored:
    /// another handle may have executed the same operation, and readers would miss an event that
    /// was never there.
    pub(super) const fn note_lost_reply(&mut self) {
        self.stored_by = None;
    }
}

impl Core {
    /// Adds the write of a lifecycle event to `txn`, and returns whose ring it belongs to.
    pub(super) fn put_event(
        &self,
        txn: &mut Txn,
        (tenant, run): (TenantId, RunId),
        at: LogicalTime,
        event: Lifecycle,
    ) -> EventWriter {
        let event = event.numbered(self.rings.take((tenant, run), self.config.nonce), at);
        let (writer, slot) = (event.writer.as_raw(), StoredEvent::slot_of(event.sequence));
        let value = encoded(|out| encode_event(tenant, run, &event, out));
        txn.put(Key::Event { tenant, run, writer, slot }, value);
        event.writer
    }

    /// Emits and counts the events of a commit that was applied.
    pub(super) fn announce(
        &mut self,
        tenant: TenantId,
        run: RunId,
        at: LogicalTime,
        announcement: Announcement,
    ) {
        let Announcement { collected, stored_by } = announcement;
        if let Some(writer) = stored_by {
            self.rings.note_stored((tenant, run), writer);
        }
        self.emit(tenant, run, at, collected);
    }
}

/// Appends the stored events of the next writers behind `after` to `out`: for each of them all,
/// from one snapshot. None are appended only if there are no more.
pub(super) async fn list(
    core: &Core,
    io: &Io,
    (tenant, run): (TenantId, RunId),
    after: Option<EventWriter>,
    out: &mut Vec<StoredEvent>,
) -> Result<(), InfraError> {
    let whole = KeyRange::events_of(tenant, run);
    let last =
        |writer: EventWriter| Key::Event { tenant, run, writer: writer.as_raw(), slot: u16::MAX };
    let range = after.map_or(whole, |writer| whole.after(&last(writer)));
    let limit = PAGE_MAX.min(core.limits.page);
    let mut page = io.scan(range, limit).await?;
    if page.len() >= limit {
        // The ring of the last writer may continue behind the page. A part of it would show events
        // as lost that were written between two pages.
        let cut_off = page.last().map(|(key, _)| writer_of(key));
        page.retain(|(key, _)| Some(writer_of(key)) != cut_off);
        if let Some(writer) = cut_off.filter(|_| page.is_empty()) {
            page = whole_ring(io, (tenant, run), writer, limit).await?;
        }
    }
    for (key, value) in page {
        let Key::Event { writer, slot, .. } = key else {
            unreachable!("{:?} lies outside the range", key.kind())
        };
        let place = (EventWriter::from_raw(writer), slot);
        out.push(decode_event(tenant, run, place, &value.bytes)?);
    }
    Ok(())
}

/// Reads the ring of one writer by several scans in one request, which have one snapshot.
async fn whole_ring(
    io: &Io,
    (tenant, run): (TenantId, RunId),
    writer: EventWriter,
    limit: usize,
) -> Result<Page, InfraError> {
    let key = |slot| Key::Event { tenant, run, writer: writer.as_raw(), slot };
    let ring = KeyRange::events_by(tenant, run, writer);
    let part = |first: u16| {
        let range = first.checked_sub(1).map_or(ring, |before| ring.after(&key(before)));
        Read::Scan { range, limit }
    };
    let reads: Vec<_> = (0..EVENTS_PER_WRITER).step_by(limit).map(part).collect();
    let count = reads.len();
    let mut answers = io.read(reads).await?;
    let mut page: Page = (0..count).flat_map(|_| answers.page()).collect();
    answers.assert_used();
    // Where slots are empty, a scan returns slots of the next part as well.
    page.sort_unstable_by_key(|(key, _)| key.to_bytes());
    page.dedup_by(|(one, _), (other, _)| one == other);
    Ok(page)
}

fn writer_of(key: &Key) -> EventWriter {
    let Key::Event { writer, .. } = key else {
        unreachable!("{:?} lies outside the range", key.kind())
    };
    EventWriter::from_raw(*writer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ring_that_was_not_used_for_the_longest_time_is_dropped() {
        let rings = EventRings::default();
        let of = |run| (TenantId::from_bytes([1; 32]), RunId::from_raw(run));
        let runs_max = RUNS_MAX as u64;
        let first: Vec<EventNumber> = (0..runs_max).map(|run| rings.take(of(run), 7)).collect();
        // The first run is in use; the second is the one to go.
        assert_eq!(rings.take(of(0), 7).sequence, 1);
        assert_eq!(rings.take(of(runs_max), 7).sequence, 0);
        for run in (0..runs_max).filter(|run| *run != 1) {
            let again = rings.take(of(run), 7);
            assert_eq!(again.writer, first[usize::try_from(run).unwrap()].writer, "run {run}");
        }
        let begun_anew = rings.take(of(1), 7);
        assert_ne!(begun_anew.writer, first[1].writer);
        assert_eq!((begun_anew.sequence, begun_anew.earlier), (0, 0));
    }
}
