//! A wrapper that keeps a value out of logs.

use std::fmt;

/// Printed in place of a redacted value.
const PLACEHOLDER: &str = "<redacted>";

/// A value that prints as `<redacted>` and otherwise behaves like the value.
///
/// An error can carry an owner or a hash for code that compares them and still derive `Debug`. It
/// protects formatting only: its holder can read the value, and equality takes as long as that of
/// `T`.
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

    /// Returns the value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }

    /// Returns a reference to the value.
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
