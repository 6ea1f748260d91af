//! The disk of a world, and the events that it reports to the oracle.

use std::collections::BTreeMap;

use gossip_contracts::identity::{ShardKey, TenantId};
use gossip_coordination::ShardStatus;
use gossip_coordination::store::{
    Answer, CommitOutcome, Key, Read, Txn, Write, decode_cold, decode_handoff, decode_hot,
};

use super::oracle::{Broken, Ended, Event, Oracle};
use super::random::mix;
use crate::search::ForkStore;
use gossip_handoff::Record;
use gossip_handoff::lease_handoff::MoveTerms;

/// The last written state of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    fence: u64,
    is_leased: bool,
    next: Option<u8>,
    status: ShardStatus,
    offer: Option<u64>,
    last_handoff: Option<u64>,
}

/// The disk that all participants of a world share.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    store: ForkStore,
    oracle: Oracle,
    seen: BTreeMap<u64, Seen>,
    /// The first violation.
    broken: Option<Broken>,
    /// Hash of all events so far.
    trace: u64,
    /// All events so far, if they are kept.
    events: Option<Vec<Event>>,
}

impl Disk {
    /// Keeps every event from now on.
    pub(super) fn tell(&mut self) {
        self.events = Some(Vec::new());
    }

    pub(super) fn read(&self, reads: Vec<Read>) -> Vec<Answer> {
        self.store.answer(reads)
    }

    /// Applies `txn` if its conditions hold.
    pub(super) fn apply(&mut self, txn: &Txn) -> CommitOutcome {
        let outcome = self.store.apply(txn);
        if matches!(outcome, CommitOutcome::Applied { .. }) {
            // Ranges first: cursors are checked against them.
            txn.writes().iter().for_each(|write| self.look_at_range(write));
            txn.writes().iter().for_each(|write| self.look_at(write));
        }
        outcome
    }

    pub(super) fn observe(&mut self, event: Event) {
        self.trace = mix(self.trace ^ fingerprint(event));
        if let Some(events) = &mut self.events {
            events.push(event);
        }
        if let Err(broken) = self.oracle.observe(event) {
            self.broken.get_or_insert(broken);
        }
    }

    /// Records a violation that no single event shows.
    pub(super) fn judge(&mut self, judged: Result<(), Broken>) {
        if let Err(broken) = judged {
            self.broken.get_or_insert(broken);
        }
    }

    pub(super) const fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    pub(super) const fn oracle_mut(&mut self) -> &mut Oracle {
        &mut self.oracle
    }

    pub(super) const fn broken(&self) -> Option<Broken> {
        self.broken
    }

    pub(super) const fn trace(&self) -> u64 {
        self.trace
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        self.events.take().unwrap_or_default()
    }

    fn look_at_range(&mut self, write: &Write) {
        let Write::Put(Key::ShardCold { tenant, shard }, value) = write else { return };
        let Ok(cold) = decode_cold(*tenant, *shard, value) else { return };
        let (start, end) = (number_of(cold.spec.start), number_of(cold.spec.end));
        self.observe(Event::Range { shard: shard.shard().as_raw(), start, end });
    }

    fn look_at(&mut self, write: &Write) {
        match write {
            Write::Put(Key::ShardHot { tenant, shard }, value) => {
                self.look_at_shard(*tenant, *shard, value);
            }
            Write::Put(Key::Handoff { tenant, handoff }, value) => {
                let Ok((_, payload)) = decode_handoff(*tenant, *handoff, value) else { return };
                let Ok(record) = Record::from_bytes(payload) else { return };
                let Ok(terms) = MoveTerms::of(&record) else { return };
                let (shard, phase) = (terms.key.shard().as_raw(), record.state);
                self.observe(Event::Record { handoff: handoff.as_raw(), shard, phase });
            }
            Write::Delete(Key::Handoff { handoff, .. }) => {
                self.observe(Event::Forgotten { handoff: handoff.as_raw() });
            }
            Write::Put(..) | Write::Bind(..) | Write::Delete(_) => {}
        }
    }

    fn look_at_shard(&mut self, tenant: TenantId, key: ShardKey, value: &[u8]) {
        let Ok(hot) = decode_hot(tenant, key, value) else { return };
        let shard = key.shard().as_raw();
        let now = Seen {
            fence: hot.fence.as_raw(),
            is_leased: hot.lease.is_some(),
            next: hot.cursor.last_key().map(|key| number_of(key) + 1),
            status: hot.status,
            offer: hot.offer.map(|offer| offer.handoff.as_raw()),
            last_handoff: hot.last_handoff.map(|handoff| handoff.as_raw()),
        };
        let Some(before) = self.seen.insert(shard, now) else {
            self.observe(Event::Born { shard, fence: now.fence });
            return now
                .next
                .into_iter()
                .for_each(|next| self.observe(Event::Cursor { shard, next }));
        };
        if now.next != before.next {
            let next = now.next.unwrap_or(0);
            self.observe(Event::Cursor { shard, next });
        }
        if now.fence != before.fence {
            let by_move = now.last_handoff.filter(|_| now.last_handoff != before.last_handoff);
            self.observe(Event::Granted { shard, fence: now.fence, by_move });
        } else {
            match (before.offer, now.offer) {
                (None, Some(handoff)) => self.observe(Event::Offered { shard, handoff }),
                (Some(_), None) => self.observe(Event::Withdrawn { shard }),
                (None, None) | (Some(_), Some(_)) => {}
            }
            if before.is_leased && !now.is_leased && now.status == ShardStatus::Active {
                self.observe(Event::Released { shard });
            }
        }
        if now.status != before.status {
            self.observe(ended(shard, now.status));
        }
    }
}

const fn ended(shard: u64, status: ShardStatus) -> Event {
    match status {
        ShardStatus::Active => Event::Unparked { shard },
        ShardStatus::Done => Event::Ended { shard, how: Ended::Done },
        ShardStatus::Split => Event::Ended { shard, how: Ended::Split },
        ShardStatus::Parked => Event::Ended { shard, how: Ended::Parked },
    }
}

/// Returns the key of a number; the order of keys is the order of numbers.
pub(super) const fn key_of(number: u8) -> [u8; 1] {
    [number + 1]
}

/// Returns the number of a key.
pub(super) fn number_of(key: &[u8]) -> u8 {
    key.first().map_or(0, |byte| byte - 1)
}

fn fingerprint(event: Event) -> u64 {
    let parts = match event {
        Event::Range { shard, start, end } => [1, shard, start.into(), end.into()],
        Event::Granted { shard, fence, by_move } => [2, shard, fence, by_move.unwrap_or(0)],
        Event::Offered { shard, handoff } => [3, shard, handoff, 0],
        Event::Withdrawn { shard } => [4, shard, 0, 0],
        Event::Cursor { shard, next } => [5, shard, next.into(), 0],
        Event::Ended { shard, how } => [6, shard, how as u64, 0],
        Event::Unparked { shard } => [7, shard, 0, 0],
        Event::Released { shard } => [8, shard, 0, 0],
        Event::Record { handoff, shard, phase } => [9, handoff, shard, phase.as_u8().into()],
        Event::Forgotten { handoff } => [10, handoff, 0, 0],
        Event::Born { shard, fence } => [13, shard, fence, 0],
        Event::Cancelled => [11, 0, 0, 0],
        Event::Did { shard, fence, key } => [12, shard, fence, key.into()],
    };
    parts.into_iter().fold(0, |sum, part| mix(sum ^ part).wrapping_add(part))
}
