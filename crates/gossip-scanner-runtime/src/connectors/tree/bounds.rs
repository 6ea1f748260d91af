//! Which keys a listing wants, and which directories may hold some of them.
//!
//! All keys below a directory begin with its path and a `/`. So the directory holds wanted keys
//! only if that prefix lies below the end, and does not lie wholly below the start or the cursor.
//! The same comparison, without the common prefix, selects the names of one directory.

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

    /// Returns whether every key that begins with `prefix` is wanted.
    pub(super) fn contain_all(&self, prefix: &[u8]) -> bool {
        let ends_behind = *self.end > *prefix && !self.end.starts_with(prefix);
        *prefix >= *self.start && *prefix >= *self.after && (self.end.is_empty() || ends_behind)
    }

    /// Returns which names of the directory at `prefix` are wanted.
    pub(super) fn within<'a>(&'a self, prefix: &[u8]) -> Window<'a> {
        let end = match self.end.strip_prefix(prefix) {
            _ if self.end.is_empty() => None,
            Some(end) => Some(end),
            None if *prefix < *self.end => None,
            None => Some(NOTHING),
        };
        match (below(&self.start, prefix), below(&self.after, prefix)) {
            (Some(start), Some(after)) => Window { start, after, end },
            (None, _) | (_, None) => Window { start: &[], after: &[], end: Some(NOTHING) },
        }
    }

    /// Returns the prefix itself, or the start if that comes later: bytes that represent wanted
    /// keys.
    pub(super) fn clamp(&self, prefix: Vec<u8>) -> Vec<u8> {
        if *prefix < *self.start { self.start.to_vec() } else { prefix }
    }
}

/// The end of a window without names: no name is below it.
const NOTHING: &[u8] = &[];

/// Returns the part of a lower bound that lies inside the directory at `prefix`: empty if the bound
/// comes before all of its keys, `None` if it comes after all of them.
fn below<'a>(low: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    match low.strip_prefix(prefix) {
        Some(low) => Some(low),
        None => (*prefix > *low).then_some(&[]),
    }
}

/// The wanted names of one directory, where the name of a directory has a `/` behind it.
///
/// Sorted names that are wanted lie together: at most one directory begins before a lower bound and
/// has wanted keys, and no other name lies between the two.
#[derive(Clone, Copy)]
pub(super) struct Window<'a> {
    start: &'a [u8],
    after: &'a [u8],
    end: Option<&'a [u8]>,
}

impl Window<'_> {
    /// Returns whether the name comes before all wanted ones.
    pub(super) fn is_before(&self, name: &[u8]) -> bool {
        let is_directory = name.ends_with(b"/");
        let reaches = |low: &[u8]| name >= low || (is_directory && low.starts_with(name));
        // A cursor is the key of a file, which was listed.
        !reaches(self.start) || !reaches(self.after) || (!is_directory && name == self.after)
    }

    /// Returns whether the name comes after all wanted ones.
    pub(super) fn is_behind(&self, name: &[u8]) -> bool {
        self.end.is_some_and(|end| name >= end)
    }
}
