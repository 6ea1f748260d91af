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
//! - There are at most [`CACHED_MAX`] entries, of at most [`CACHED_BYTES_MAX`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gossip_contracts::identity::LogicalTime;

use super::side_records::Left;
use crate::processor::ItemFailure;
use crate::watermark::Settled;

/// Maximum number of cached items: a few pages. Items beyond it are processed again.
const CACHED_MAX: usize = 8_192;

/// Maximum bytes of the cached items: the longest results of some ten of them, and far more usual
/// ones than a few pages have.
const CACHED_BYTES_MAX: usize = 16 << 20;

/// Bytes of an entry besides its texts, about: its place in the map, and allocations.
const ENTRY_OVERHEAD: usize = 256;

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

impl CachedResult {
    /// Returns about how many bytes it holds.
    fn byte_count(&self) -> usize {
        match self {
            Self::Settled(_, left) => left.as_ref().map_or(0, Left::held_bytes),
            Self::Failed { error, failure, .. } => {
                let texts = |failure: &ItemFailure| failure.message.len() + failure.stderr.len();
                error.len() + failure.as_deref().map_or(0, texts)
            }
        }
    }
}

/// Results that the threads of a worker leave for each other.
#[derive(Debug, Default)]
pub(crate) struct ResultCache {
    /// The length of `items`, readable without the lock: mostly it is 0.
    count: AtomicUsize,
    items: Mutex<Items>,
}

#[derive(Debug, Default)]
struct Items {
    /// Results by key, with their expiry.
    by_key: BTreeMap<Box<[u8]>, (CachedResult, LogicalTime)>,
    /// The bytes of all of them.
    bytes: usize,
}

impl Items {
    fn remove(&mut self, key: &[u8]) -> Option<(CachedResult, LogicalTime)> {
        let (result, until) = self.by_key.remove(key)?;
        self.bytes -= held_by(key, &result);
        Some((result, until))
    }

    fn remove_expired(&mut self, now: LogicalTime) {
        let Self { by_key, bytes } = self;
        by_key.retain(|key, (result, until)| {
            let is_kept = now < *until;
            *bytes -= if is_kept { 0 } else { held_by(key, result) };
            is_kept
        });
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.by_key.len() < CACHED_MAX && self.bytes + bytes <= CACHED_BYTES_MAX
    }
}

/// Returns about how many bytes an entry holds.
fn held_by(key: &[u8], result: &CachedResult) -> usize {
    ENTRY_OVERHEAD + key.len() + result.byte_count()
}

impl ResultCache {
    /// Caches the result of the item `key`.
    pub(crate) fn insert(&self, now: LogicalTime, key: &[u8], result: CachedResult) {
        let mut items = self.items();
        // An older result of the item is out of date, whether or not there is room for this one.
        items.remove(key);
        let bytes = held_by(key, &result);
        // Evicted only when it is full: a scan of the map at every insertion would cost more than
        // it saves.
        if !items.has_room_for(bytes) {
            items.remove_expired(now);
        }
        if items.has_room_for(bytes) {
            items.bytes += bytes;
            items.by_key.insert(key.into(), (result, now.saturating_add(CACHED_TICKS)));
        }
        self.count.store(items.by_key.len(), Ordering::Release);
    }

    /// Removes and returns the result of the item `key`, if it is cached and has not expired.
    pub(crate) fn take(&self, now: LogicalTime, key: &[u8]) -> Option<CachedResult> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut items = self.items();
        // Removed also if it has expired: a result is used at most once.
        let found = items.remove(key);
        self.count.store(items.by_key.len(), Ordering::Release);
        found.filter(|(_, until)| now < *until).map(|(result, _)| result)
    }

    fn items(&self) -> MutexGuard<'_, Items> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::ITEM_RESULTS_MAX;

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

    /// The longest results: each is far larger than a failure.
    #[test]
    fn the_bytes_of_the_cache_are_bounded_and_expired_results_go_first() {
        let result_cache = ResultCache::default();
        let long = || {
            let content = vec![7; ITEM_RESULTS_MAX].into_boxed_slice();
            CachedResult::Settled(Settled::Done, Some(Left::Results(content)))
        };
        let tried = 4 * CACHED_BYTES_MAX / ITEM_RESULTS_MAX;
        let held = || result_cache.items().bytes;
        for number in 0..tried {
            result_cache.insert(at(1), &number.to_be_bytes(), long());
            assert!(held() <= CACHED_BYTES_MAX);
        }
        assert!(held() > CACHED_BYTES_MAX - 2 * ITEM_RESULTS_MAX, "it is used up");
        assert_eq!(result_cache.take(at(1), &(tried - 1).to_be_bytes()), None);
        // A result that takes the place of another one counts once.
        let before = held();
        result_cache.insert(at(2), &0_usize.to_be_bytes(), long());
        assert_eq!(held(), before);
        let later = at(3 + CACHED_TICKS);
        result_cache.insert(later, b"new", long());
        assert_eq!(result_cache.take(later, b"new"), Some(long()));
        assert_eq!(held(), 0, "taken and expired results hold nothing");
    }
}
