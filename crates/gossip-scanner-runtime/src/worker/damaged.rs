//! Reports of shards with a damaged record: one event for each shard of a worker.

use std::collections::BTreeSet;

use gossip_contracts::identity::{RunId, ShardId, ShardKey};

use super::sync::{Mutex, PoisonError};
use crate::observer::{Event, Observer};

/// Maximum number of shards that a worker reports. A store with more damage than this is repaired
/// as a whole, and the set must not grow with it.
const REPORTED_MAX: usize = 1_000;

/// The damaged shards that were reported.
#[derive(Debug, Default)]
pub(super) struct DamageReports(Mutex<BTreeSet<ShardId>>);

impl DamageReports {
    /// Reports `shard`, unless it was reported before: each claim and each look at the run finds it
    /// again.
    pub(super) fn report(&self, run: RunId, shard: ShardId, observer: &dyn Observer) {
        let is_new = {
            let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            reported.len() < REPORTED_MAX && reported.insert(shard)
        };
        // Without the lock: an observer may take its time.
        if is_new {
            observer.observe(Event::Damaged { shard: ShardKey::new(run, shard) });
        }
    }
}
