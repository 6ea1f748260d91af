//! Results of items that were split off their shard after they had been processed.
//!
//! When an item is parked, everything after it goes to a new shard. That shard begins before items
//! that were already finished or tried. If a thread of the same process claims it, this cache
//! supplies their results: a finished item is not processed again, and a failed one is not retried
//! from zero. Nothing is stored or sent. Another process repeats these few items, and so does a
//! thread that claims the shard before the results are cached.
//!
//! # Invariants
//! - Every entry was produced by the lease holder before a split that the store applied under the
//!   same lease.
//! - An entry is used once, and for at most [`CACHED_TICKS`]: a key that is unparked later must be
//!   tried again.
//! - There are at most [`CACHED_MAX`] entries.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gossip_contracts::identity::LogicalTime;

use super::side_records::Left;
use crate::processor::ItemFailure;
use crate::watermark::Settled;

/// Maximum number of cached items: a few pages. Items beyond it are processed again.
const CACHED_MAX: usize = 8_192;

/// How long a result is cached, in ticks: a shard that was split off is claimed within seconds if
/// it stays in this process.
const CACHED_TICKS: u64 = 60_000;

/// The result of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CachedResult {
    /// Settled, with the records that the checkpoint stores.
    Settled(Settled, Option<Left>),
    Failed {
        /// How often it failed.
        failures: u32,
        /// The last error, at most as long as a shard that is parked stores.
        error: Box<str>,
        /// The last failure, for the record of an item that fails for good.
        failure: Option<Box<ItemFailure>>,
    },
}

/// Results that the threads of a worker leave for each other.
#[derive(Debug, Default)]
pub(crate) struct ResultCache {
    /// The length of `items`, readable without the lock: mostly it is 0.
    count: AtomicUsize,
    items: Mutex<ByKey>,
}

/// Results by key, with their expiry.
type ByKey = BTreeMap<Box<[u8]>, (CachedResult, LogicalTime)>;

impl ResultCache {
    /// Caches the result of the item `key`.
    pub(crate) fn insert(&self, now: LogicalTime, key: &[u8], result: CachedResult) {
        let mut items = self.items();
        // Evicted only when it is full: a scan of the map at every insertion would cost more than
        // it saves.
        if items.len() >= CACHED_MAX {
            items.retain(|_, (_, until)| now < *until);
        }
        if items.len() < CACHED_MAX {
            items.insert(key.into(), (result, now.saturating_add(CACHED_TICKS)));
        }
        self.count.store(items.len(), Ordering::Release);
    }

    /// Removes and returns the result of the item `key`, if it is cached and has not expired.
    pub(crate) fn take(&self, now: LogicalTime, key: &[u8]) -> Option<CachedResult> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut items = self.items();
        // Removed also if it has expired: a result is used at most once.
        let found = items.remove(key);
        self.count.store(items.len(), Ordering::Release);
        found.filter(|(_, until)| now < *until).map(|(result, _)| result)
    }

    fn items(&self) -> MutexGuard<'_, ByKey> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ticks: u64) -> LogicalTime {
        LogicalTime::from_raw(ticks)
    }

    fn failed(failures: u32) -> CachedResult {
        CachedResult::Failed { failures, error: "exit status 1".into(), failure: None }
    }

    #[test]
    fn a_result_is_used_once_and_expires() {
        let result_cache = ResultCache::default();
        assert_eq!(result_cache.take(at(1), b"a"), None);
        result_cache.insert(at(1), b"a", CachedResult::Settled(Settled::Done, None));
        result_cache.insert(at(1), b"b", failed(3));
        assert_eq!(
            result_cache.take(at(2), b"a"),
            Some(CachedResult::Settled(Settled::Done, None))
        );
        assert_eq!(result_cache.take(at(2), b"a"), None);
        assert_eq!(result_cache.take(at(1 + CACHED_TICKS), b"b"), None, "it was unparked, perhaps");
    }

    #[test]
    fn the_cache_is_bounded_and_evicts_expired_results() {
        let result_cache = ResultCache::default();
        for number in 0..=CACHED_MAX {
            result_cache.insert(at(1), &number.to_be_bytes(), failed(1));
        }
        assert_eq!(result_cache.take(at(1), &CACHED_MAX.to_be_bytes()), None);
        let later = at(2 + CACHED_TICKS);
        result_cache.insert(later, b"new", failed(1));
        assert_eq!(result_cache.take(later, b"new"), Some(failed(1)));
    }
}
