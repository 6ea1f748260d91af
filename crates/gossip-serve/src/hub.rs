//! The updates of the server, for all streams: serialized once, kept in a bounded ring.
//!
//! The id of an update is opaque to clients: which start of the server, and the number of the
//! update. A client that was away for longer than the ring remembers, or for a restart, gets
//! "resync" and reads again what it shows.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use gossip::identity::RunId;
use tokio::sync::watch;

/// Updates that are kept. A browser that reads nothing for longer gets "resync".
const RING: usize = 512;

/// Bytes of the updates that are kept.
const RING_BYTES: usize = 8 << 20;

/// An update as it is sent.
#[derive(Clone, Debug)]
struct Update {
    number: u64,
    /// The run that it is about, if only those who look at this run want it.
    run: Option<RunId>,
    text: Bytes,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Hub {
    /// This start of the server.
    epoch: u64,
    ring: Mutex<Ring>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    updates: VecDeque<Update>,
    bytes: usize,
    newest: u64,
}

/// The updates that a client has missed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// These, and the number of the newest.
    Updates(Vec<Bytes>, u64),
    /// More than are kept; the stream continues behind this number.
    TooMany(u64),
}

impl Hub {
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, ring: Mutex::default(), newest: watch::Sender::new(0) }
    }

    /// Appends an update; with `run` only for those who look at this run.
    pub(crate) fn publish(&self, event: &str, run: Option<RunId>, json: &str) {
        let mut ring = self.lock();
        ring.newest += 1;
        let number = ring.newest;
        let id = self.id(number);
        let text = Bytes::from(format!("id: {id}\nevent: {event}\ndata: {json}\n\n"));
        ring.bytes += text.len();
        ring.updates.push_back(Update { number, run, text });
        while ring.updates.len() > RING || ring.bytes > RING_BYTES {
            let Some(oldest) = ring.updates.pop_front() else { break };
            ring.bytes -= oldest.text.len();
        }
        drop(ring);
        // After the ring is unlocked, so that the receivers that wake up do not wait for it.
        self.newest.send_replace(number);
    }

    /// Returns a receiver that notices new updates.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns the updates behind `after` for a client that looks at `runs`.
    pub(crate) fn after(&self, after: u64, runs: &[RunId]) -> Missed {
        let ring = self.lock();
        let oldest = ring.updates.front().map_or(ring.newest + 1, |update| update.number);
        // A client may send any number; one above the newest is refused before it is added to.
        if after > ring.newest || after + 1 < oldest {
            return Missed::TooMany(ring.newest);
        }
        let skip = usize::try_from(after + 1 - oldest).unwrap_or(usize::MAX);
        let wanted = ring.updates.iter().skip(skip);
        let wanted = wanted.filter(|update| update.run.is_none_or(|run| runs.contains(&run)));
        Missed::Updates(wanted.map(|update| update.text.clone()).collect(), ring.newest)
    }

    /// Returns the number of the newest update.
    pub(crate) fn newest(&self) -> u64 {
        self.lock().newest
    }

    /// Returns the id of an update.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{:016x}{number:x}", self.epoch)
    }

    /// Returns the number of an id; `None` if it is of another start of the server.
    pub(crate) fn number(&self, id: &str) -> Option<u64> {
        let (epoch, number) = (id.get(..16)?, id.get(16..)?);
        let is_ours = u64::from_str_radix(epoch, 16).ok()? == self.epoch;
        u64::from_str_radix(number, 16).ok().filter(|_| is_ours && number.len() <= 16)
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(missed: &Missed) -> Vec<String> {
        let Missed::Updates(texts, _) = missed else { panic!("{missed:?}") };
        texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    #[test]
    fn client_gets_what_it_missed_of_its_run() {
        let hub = Hub::new(7);
        let (one, other) = (RunId::from_raw(1), RunId::from_raw(2));
        hub.publish("runs", None, "{}");
        hub.publish("run", Some(one), "{\"a\":1}");
        hub.publish("run", Some(other), "{\"a\":2}");
        let got = texts(&hub.after(1, &[other]));
        assert_eq!(got, [format!("id: {}\nevent: run\ndata: {{\"a\":2}}\n\n", hub.id(3))]);
        assert_eq!(hub.number(&hub.id(3)), Some(3));
        assert!(texts(&hub.after(3, &[])).is_empty());
    }

    #[test]
    fn client_that_was_away_too_long_reads_again() {
        let hub = Hub::new(7);
        for _ in 0..2 * RING {
            hub.publish("runs", None, "{}");
        }
        assert_eq!(hub.after(1, &[]), Missed::TooMany(2 * RING as u64));
        for never_given_out in [2 * RING as u64 + 1, u64::MAX - 1, u64::MAX] {
            assert_eq!(hub.after(never_given_out, &[]), Missed::TooMany(2 * RING as u64));
        }
        assert_eq!(texts(&hub.after(2 * RING as u64 - 3, &[])).len(), 3);
    }

    #[test]
    fn ids_of_another_start_and_nonsense_are_unknown() {
        let hub = Hub::new(7);
        let other = Hub::new(8).id(3);
        for id in [other.as_str(), "", "x", "0000000000000007", "0000000000000007zz", "ü"] {
            assert_eq!(hub.number(id), None, "{id}");
        }
        hub.publish("run", None, &"x".repeat(RING_BYTES));
        assert!(hub.lock().bytes <= RING_BYTES);
    }
}
