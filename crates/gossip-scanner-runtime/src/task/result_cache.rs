//! What a process knows of items that were cut off together with the rest of their shard.
//!
//! When an item is set aside, everything behind it goes to a new shard, which begins in front of
//! items that were finished already, or tried in vain. Whoever takes the new shard in the same
//! process is told here what became of them: a finished one is not done again, and one that failed
//! is not tried more often for that. Nothing of it is stored or sent. Another process that takes
//! the shard finds nothing, and does those few again; so does a thread that claims it before the
//! first has told.
//!
//! # Invariants
//! - What stands here was finished or tried before a split that the store took under the same
//!   lease: by the shard's owner, then.
//! - Each item is told once, and none for longer than [`CACHED_TICKS`]: who unparks a key later wants
//!   it tried.
//! - There are at most [`CACHED_MAX`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gossip_contracts::identity::LogicalTime;

use crate::watermark::Settled;

/// Items that are remembered at a time: some pages. More are done again, as by another process.
const CACHED_MAX: usize = 8_192;

/// How long an item is remembered, in ticks: a shard that was split off is claimed within seconds
/// if it stays in this process.
const CACHED_TICKS: u64 = 60_000;

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedResult {
    Settled(Settled),
    /// It failed so often.
    Failed(u32),
}

/// What the threads of a worker leave to each other.
#[derive(Debug, Default)]
pub(crate) struct ResultCache {
    /// As many as `items`, to be looked at without the lock: mostly there are none.
    count: AtomicUsize,
    items: Mutex<ByKey>,
}

/// What became of items, by their keys, with the time at which it is forgotten.
type ByKey = BTreeMap<Box<[u8]>, (CachedResult, LogicalTime)>;

impl ResultCache {
    /// Remembers what became of the item `key`.
    pub(crate) fn leave(&self, now: LogicalTime, key: &[u8], left: CachedResult) {
        let mut items = self.items();
        if items.len() >= CACHED_MAX {
            items.retain(|_, (_, until)| now < *until);
        }
        if items.len() < CACHED_MAX {
            items.insert(key.into(), (left, now.saturating_add(CACHED_TICKS)));
        }
        self.count.store(items.len(), Ordering::Release);
    }

    /// What became of the item `key`, if it is remembered. It is forgotten with that.
    pub(crate) fn take(&self, now: LogicalTime, key: &[u8]) -> Option<CachedResult> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut items = self.items();
        let found = items.remove(key);
        self.count.store(items.len(), Ordering::Release);
        found.filter(|(_, until)| now < *until).map(|(left, _)| left)
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

    #[test]
    fn an_item_is_told_once_and_not_too_late() {
        let result_cache = ResultCache::default();
        assert_eq!(result_cache.take(at(1), b"a"), None);
        result_cache.leave(at(1), b"a", CachedResult::Settled(Settled::Done));
        result_cache.leave(at(1), b"b", CachedResult::Failed(3));
        assert_eq!(result_cache.take(at(2), b"a"), Some(CachedResult::Settled(Settled::Done)));
        assert_eq!(result_cache.take(at(2), b"a"), None);
        assert_eq!(result_cache.take(at(1 + CACHED_TICKS), b"b"), None, "it was unparked, perhaps");
    }

    #[test]
    fn there_are_never_too_many_and_old_ones_make_room() {
        let result_cache = ResultCache::default();
        for number in 0..=CACHED_MAX {
            result_cache.leave(at(1), &number.to_be_bytes(), CachedResult::Failed(1));
        }
        assert_eq!(result_cache.take(at(1), &CACHED_MAX.to_be_bytes()), None);
        let later = at(2 + CACHED_TICKS);
        result_cache.leave(later, b"new", CachedResult::Failed(1));
        assert_eq!(result_cache.take(later, b"new"), Some(CachedResult::Failed(1)));
    }
}
