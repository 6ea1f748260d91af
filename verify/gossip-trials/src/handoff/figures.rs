//! Latencies of a trial, and of commits to the same store during the trial.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gossip::store::AnyStore;
use gossip_contracts::identity::{TenantId, WorkerId};
use gossip_coordination::store::{CommitOutcome, Key, Store, Txn};

use crate::Failure;

/// Interval between timed commits.
const BETWEEN: Duration = Duration::from_millis(10);
/// Size of a timed commit: that of a small record.
const COMMIT_LEN: usize = 200;
/// A tenant without workers.
const METER_TENANT: TenantId = TenantId::from_bytes([1; 32]);

/// A sample of times in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<u64>);

impl Times {
    pub(crate) fn push(&mut self, micros: u64) {
        self.0.push(micros);
    }

    /// Returns the percentile `share`.
    pub(crate) fn percentile(&self, share: usize) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get((sorted.len() * share / 100).min(last)).copied().unwrap_or(0)
    }
}

impl Times {
    /// Returns the sums of `count` consecutive times, one for each start.
    pub(crate) fn in_a_row(&self, count: usize) -> Self {
        Self(self.0.windows(count).map(|row| row.iter().sum()).collect())
    }

    /// Formats median and p99 for a table.
    pub(crate) fn cell(&self) -> String {
        if self.0.is_empty() {
            return "–".to_owned();
        }
        let [half, most] = [50, 99].map(|share| self.percentile(share) as f64 / 1_000.0);
        format!("{half:.2} and {most:.1} ms")
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |share| self.percentile(share) as f64 / 1_000.0;
        write!(f, "p50 {:.2} ms, p99 {:.2} ms of {}", millis(50), millis(99), self.0.len())
    }
}

/// Commits a small value repeatedly and measures the latency.
pub(crate) struct Meter {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Times>,
}

impl Meter {
    pub(crate) fn start(mut store: AnyStore) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            let mut times = Times::default();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(BETWEEN);
                let mut txn = Txn::new();
                let key = Key::Worker { tenant: METER_TENANT, worker: WorkerId::from_raw(1) };
                txn.put(key, vec![7; COMMIT_LEN]);
                let begun = Instant::now();
                let outcome = store.commit(vec![txn]);
                if let [Ok(CommitOutcome::Applied { .. })] = outcome[..] {
                    times.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
                }
            }
            times
        });
        Self { stops, thread }
    }

    pub(crate) fn stop(self) -> Result<Times, Failure> {
        self.stops.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_| "the thread that commits panicked")?)
    }
}
