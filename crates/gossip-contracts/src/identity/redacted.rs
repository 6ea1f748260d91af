//! A wrapper that keeps a value out of logs.

use std::fmt;

/// What a redacted value prints instead of itself.
const PLACEHOLDER: &str = "<redacted>";

/// A value that prints as `<redacted>` and is otherwise itself.
///
/// With it an error may carry an owner or a hash for code that compares them, and still derive its
/// `Debug`. It guards formatting only: whoever holds it can read the value, and equality takes as
/// long as that of `T`.
///
/// ```
/// use gossip_contracts::identity::{Redacted, WorkerId};
///
/// let owner = Redacted::new(WorkerId::from_raw(7));
/// assert_eq!(format!("{owner:?} {owner}"), "<redacted> <redacted>");
/// assert_eq!(owner.as_inner().as_raw(), 7);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// Hides `value` from formatting.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, no longer hidden.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }

    /// The value, borrowed.
    #[must_use]
    pub const fn as_inner(&self) -> &T {
        &self.0
    }
}

impl<T> From<T> for Redacted<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PLACEHOLDER)
    }
}

impl<T> fmt::Display for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PLACEHOLDER)
    }
}
