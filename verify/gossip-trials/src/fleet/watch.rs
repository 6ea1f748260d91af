//! Polls the leases of a run and records their deadlines, so that the check for takeovers from live
//! owners does not depend on the workers' logs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gossip::store::{Backend, Coordinator, StoreUrl};
use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::{RunManagement as _, ShardFilter};
use gossip_scanner_runtime::{Clock as _, SystemClock};

use crate::Outcome;
use crate::fleet::history_check::Leases;

/// Polling interval: many polls within a lease.
const LOOK: Duration = Duration::from_millis(250);

/// A polling thread; stops when it is dropped or finished.
pub(crate) struct Watcher {
    seen: Arc<Mutex<Leases>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts polling the leases of a run.
    pub(crate) fn start(store: &str, tenant: TenantId, run: RunId) -> Outcome<Self> {
        let url: StoreUrl = store.parse()?;
        let coordinator = Backend::open(&url)?.coordinator();
        let (seen, stop) = (Arc::<Mutex<Leases>>::default(), Arc::<AtomicBool>::default());
        let (history, stopped) = (seen.clone(), stop.clone());
        let thread = thread::spawn(move || watch(coordinator, tenant, run, &history, &stopped));
        Ok(Self { seen, stop, thread: Some(thread) })
    }

    /// Stops and returns the recorded leases.
    pub(crate) fn finish(mut self) -> Leases {
        self.end();
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, deadlines are missing, which the history check detects.
            drop(thread.join());
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(
    mut coordinator: Coordinator,
    tenant: TenantId,
    run: RunId,
    seen: &Mutex<Leases>,
    stop: &AtomicBool,
) {
    let clock = SystemClock::new();
    while !stop.load(Ordering::SeqCst) {
        let (mut rows, filter) = (Vec::new(), ShardFilter::active());
        // A failed poll is repeated; the history check detects a missing deadline.
        drop(coordinator.list_shards_into(clock.now(), tenant, run, filter, &mut rows));
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            let Some(deadline) = row.lease_deadline else { continue };
            let grant = (format!("{:016x}", row.shard.as_raw()), row.fence_epoch.as_raw());
            let latest = seen.entry(grant).or_default();
            *latest = deadline.as_raw().max(*latest);
        }
        drop(seen);
        thread::sleep(LOOK);
    }
}
