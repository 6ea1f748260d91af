//! The polling budget: a store handle that reads at a bounded rate.
//!
//! All handles of a server share one [`Pace`], so the number of requests to the store does not
//! depend on the number of browsers. A request that is due too early waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gossip::coordination::InfraError;
use gossip::coordination::store::{Answer, CommitOutcome, Read, Store, StoreLimits, Txn};
use gossip::store::AnyStore;

/// Requests per second, and how many may come at once: together at most 20 in any second.
const PER_SECOND: u32 = 16;
const BURST: u32 = 4;

/// Latencies that are remembered for the percentiles.
const LATENCIES_MAX: usize = 256;

/// The state of a server's requests to its store.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The theoretical arrival time of the next request (generic cell rate algorithm).
    next: Option<Instant>,
    /// The newest latencies in microseconds, and where the next one goes.
    latencies: Vec<u64>,
    at: usize,
    requests: u64,
    errors: u64,
    /// Values and keys that were read.
    rows: u64,
}

/// The counts of a [`Pace`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) rows: u64,
    /// Microseconds.
    pub(crate) latency_median: u64,
    pub(crate) latency_p99: u64,
}

impl Pace {
    /// Waits until the next request is due.
    pub(crate) fn wait(&self) {
        // The lock is not held during the sleep, so requests of other threads reserve their own
        // times.
        let wait = self.reserve(Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }

    /// Reserves a request, and returns how long it has to wait.
    fn reserve(&self, now: Instant) -> Duration {
        let interval = Duration::from_secs(1) / PER_SECOND;
        let mut inner = self.lock();
        let next = inner.next.map_or(now, |next| next.max(now));
        inner.next = Some(next + interval);
        (next - now).saturating_sub(interval * (BURST - 1))
    }

    /// Records the outcome of a request.
    fn note(&self, took: Duration, rows: Option<u64>) {
        let mut inner = self.lock();
        inner.requests += 1;
        inner.errors += u64::from(rows.is_none());
        inner.rows += rows.unwrap_or(0);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if inner.latencies.len() < LATENCIES_MAX {
            inner.latencies.push(micros);
        } else {
            let at = inner.at;
            inner.latencies[at] = micros;
            inner.at = (at + 1) % LATENCIES_MAX;
        }
    }

    /// Returns the counts so far.
    pub(crate) fn counted(&self) -> Counted {
        let inner = self.lock();
        let mut sorted = inner.latencies.clone();
        sorted.sort_unstable();
        let at = |part: usize| sorted.get(sorted.len() * part / 100).copied().unwrap_or(0);
        Counted {
            requests: inner.requests,
            errors: inner.errors,
            rows: inner.rows,
            latency_median: at(50),
            latency_p99: at(99),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle of the store whose requests keep the pace.
#[derive(Debug)]
pub(crate) struct PacedStore {
    pub(crate) store: AnyStore,
    pub(crate) pace: Arc<Pace>,
}

impl Store for PacedStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.pace.wait();
        let started = Instant::now();
        let answers = self.store.read(reads);
        let rows = answers.as_ref().ok().map(|answers| answers.iter().map(rows_of).sum());
        self.pace.note(started.elapsed(), rows);
        answers
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.pace.wait();
        let started = Instant::now();
        let outcomes = self.store.commit(txns);
        let is_ok = outcomes.iter().all(Result::is_ok);
        self.pace.note(started.elapsed(), is_ok.then_some(0));
        outcomes
    }

    fn wait(&mut self, ticks: u64) {
        self.store.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn binding(&self) -> Option<u64> {
        self.store.binding()
    }

    fn change_count(&mut self) -> Option<u64> {
        self.store.change_count()
    }
}

fn rows_of(answer: &Answer) -> u64 {
    match answer {
        Answer::Value(value) => u64::from(value.is_some()),
        Answer::Page(page) => page.len() as u64,
        Answer::Count(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_twenty_requests() {
        let pace = Pace::default();
        let start = Instant::now();
        // The caller sleeps that long, so its next request comes when this one was due.
        let mut now = start;
        let mut sent = Vec::new();
        for _ in 0..200 {
            now += pace.reserve(now);
            sent.push(now - start);
        }
        for (index, first) in sent.iter().enumerate() {
            let second = *first + Duration::from_secs(1);
            let within = sent[index..].iter().take_while(|at| **at < second).count();
            assert!(within <= 20, "{within} from {first:?}");
        }
    }

    #[test]
    fn quiet_time_gives_no_more_than_the_burst() {
        let pace = Pace::default();
        let start = Instant::now();
        assert_eq!(pace.reserve(start), Duration::ZERO);
        let later = start + Duration::from_secs(3_600);
        let waits: Vec<_> = (0..6).map(|_| pace.reserve(later)).collect();
        assert_eq!(waits.iter().filter(|wait| wait.is_zero()).count(), BURST as usize);
    }
}
