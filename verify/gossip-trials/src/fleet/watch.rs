//! Somebody who looks at the leases all the time and writes down until when they last: whether a
//! shard was taken from a live owner is then no question of what workers say.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gossip::store::{Backend, Coordinator, StoreUrl};
use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::{RunManagement as _, ShardFilter};
use gossip_scanner_runtime::{Clock as _, SystemClock};

use crate::Outcome;
use crate::fleet::book::Leases;

/// Between two looks: many within a lease.
const LOOK: Duration = Duration::from_millis(250);

/// A watcher; stops when it is dropped or asked for what it saw.
pub(crate) struct Watcher {
    seen: Arc<Mutex<Leases>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Begins to look at the leases of a run.
    pub(crate) fn start(store: &str, tenant: TenantId, run: RunId) -> Outcome<Self> {
        let url: StoreUrl = store.parse()?;
        let coordinator = Backend::open(&url)?.coordinator();
        let (seen, stop) = (Arc::<Mutex<Leases>>::default(), Arc::<AtomicBool>::default());
        let (book, stopped) = (seen.clone(), stop.clone());
        let thread = thread::spawn(move || watch(coordinator, tenant, run, &book, &stopped));
        Ok(Self { seen, stop, thread: Some(thread) })
    }

    /// What was seen.
    pub(crate) fn finish(mut self) -> Leases {
        self.end();
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A watcher that panicked has seen too little, which the judge notices.
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
        // What cannot be seen now is seen the next time, or the judge misses it.
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
