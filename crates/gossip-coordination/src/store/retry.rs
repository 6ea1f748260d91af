//! Retry limits and backoff of a flight.

use super::key::Key;
use crate::error::InfraError;

/// Maximum conflicts and lost replies per operation, or per step of an operation with many steps.
/// Each lost race means that a concurrent operation succeeded; after this many the caller should
/// retry later.
pub(super) const TRIES_MAX: u32 = 16;

/// Maximum conflicts per operation on the quota and on the keys of new shards. The former say
/// nothing about the shard itself; the latter lead to a new decision immediately (DESIGN Q15). The
/// bound ensures that every flight ends.
pub(super) const SIDE_TRIES_MAX: u32 = 1_000;

/// Maximum wait before a retry, in ticks: far below any lease duration.
pub(super) const BACKOFF_TICKS_MAX: u64 = 64;

/// Counts the tries of one operation.
#[derive(Debug)]
pub(super) struct Tries {
    operation: &'static str,
    made: u32,
    aside: u32,
    /// Whether a reply was lost: that commit may have been applied, or may still be.
    is_unresolved: bool,
    /// De-synchronizes the backoff of handles that collide.
    spread: u64,
}

impl Tries {
    pub(super) const fn new(operation: &'static str, spread: u64) -> Self {
        Self { operation, made: 0, aside: 0, is_unresolved: false, spread }
    }

    /// Creates the counter for the remaining work of an operation whose first commit was applied.
    pub(super) const fn of_the_rest(operation: &'static str, spread: u64) -> Self {
        let new = Self::new(operation, spread);
        Self { is_unresolved: true, ..new }
    }

    /// Counts a try that failed because of `key`, or because of a lost reply if `key` is `None`,
    /// and returns how many ticks to wait before the next. `side` marks a conflict that did not
    /// concern the subject itself.
    ///
    /// # Errors
    ///
    /// Returns [`InfraError::Transient`] if the limit is reached.
    pub(super) fn failed(&mut self, key: Option<Key>, side: bool) -> Result<u64, InfraError> {
        assert!(
            self.made < TRIES_MAX && self.aside < SIDE_TRIES_MAX,
            "an operation ends when a limit is reached"
        );
        assert!(!side || key.is_some(), "a lost reply concerns the subject");
        // Sticky: once a reply was lost, no later error can exclude that the operation was applied.
        self.is_unresolved |= key.is_none();
        if side {
            self.aside += 1;
        } else {
            self.made += 1;
        }
        // A side conflict needs no backoff: the subject was not contended, so decide again at once.
        if self.made < TRIES_MAX && self.aside < SIDE_TRIES_MAX {
            return Ok(if side { 0 } else { self.backoff() });
        }
        let message = match key {
            Some(key) => format!("lost {} races, the last for {}", self.lost(), key.kind().name()),
            None => format!("no reply after {} tries", self.lost()),
        };
        Err(self.ended(InfraError::Transient { operation: self.operation, message }))
    }

    /// Converts `error`, which ended the operation. The error describes the last try only: if an
    /// earlier reply was lost, the operation may have been applied nevertheless.
    pub(super) fn ended(&self, error: InfraError) -> InfraError {
        if self.is_unresolved { error.into_unresolved() } else { error }
    }

    const fn lost(&self) -> u32 {
        self.made + self.aside
    }

    /// Doubles with every try, plus a per-handle jitter of up to the same amount.
    const fn backoff(&self) -> u64 {
        // `made` is at least one here and at most `TRIES_MAX`, so the shift cannot overflow.
        let base = 1_u64 << (self.made - 1);
        let base = if base < BACKOFF_TICKS_MAX / 2 { base } else { BACKOFF_TICKS_MAX / 2 };
        let ticks = base + self.spread % (base + 1);
        assert!(ticks > 0 && ticks <= BACKOFF_TICKS_MAX, "a wait is bounded");
        ticks
    }
}
