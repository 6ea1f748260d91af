//! Which keys a listing wants, and which directories may hold some of them.
//!
//! All keys below a directory begin with its path and a `/`. So the directory holds wanted keys
//! only if that prefix lies below the end, and does not lie wholly below the start or the cursor.

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

/// A range and a cursor, owned.
#[derive(Clone)]
pub(super) struct Bounds {
    /// The first wanted key is not below this.
    start: Box<[u8]>,
    /// The first wanted key is above this; empty if there is no cursor.
    after: Box<[u8]>,
    /// Wanted keys are below this; empty if there is no end.
    end: Box<[u8]>,
}

impl Bounds {
    pub(super) fn new(range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> Self {
        let after = from.last_key().unwrap_or_default();
        Self { start: range.start.into(), after: after.into(), end: range.end.into() }
    }

    /// Returns whether the key is wanted.
    pub(super) fn admit(&self, key: &[u8]) -> bool {
        *key >= *self.start && (self.after.is_empty() || *key > *self.after) && self.is_below(key)
    }

    /// Returns whether some key that begins with `prefix` may be wanted.
    pub(super) fn may_begin_with(&self, prefix: &[u8]) -> bool {
        let reaches = |low: &[u8]| *prefix >= *low || low.starts_with(prefix);
        reaches(&self.start) && reaches(&self.after) && self.is_below(prefix)
    }

    /// Returns the prefix itself, or the start if that comes later: bytes that represent wanted
    /// keys.
    pub(super) fn clamp(&self, prefix: Vec<u8>) -> Vec<u8> {
        if *prefix < *self.start { self.start.to_vec() } else { prefix }
    }

    fn is_below(&self, key: &[u8]) -> bool {
        self.end.is_empty() || *key < *self.end
    }
}
