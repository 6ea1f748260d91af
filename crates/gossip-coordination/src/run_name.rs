//! The name that a user may give to a run.

use std::fmt;

use thiserror::Error;

/// Maximum length of a name in bytes: a name is typed, and is stored in each head of a run.
pub const RUN_NAME_MAX: usize = 64;

const _: () = assert!(RUN_NAME_MAX <= u8::MAX as usize, "the length is stored in one byte");

/// The number of hexadecimal digits of an id; a shorter name of digits may be the start of an id.
const ID_DIGITS: usize = 16;

/// Words that a command line reads as something else where a run is expected.
const RESERVED: [&str; 1] = ["list"];

/// A name of 1 to [`RUN_NAME_MAX`] ASCII letters, digits, `-`, `_` and `.`.
///
/// It begins with a letter or a digit, so it is no option and no path, and it is never the
/// beginning of an id: a text that names a run is either a name or an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunName {
    len: u8,
    /// Zero from `len` on.
    bytes: [u8; RUN_NAME_MAX],
}

/// Why a text is not the name of a run.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunNameError {
    /// Empty or too long.
    #[error("a name has 1 to {RUN_NAME_MAX} bytes")]
    Length,
    /// A byte that names cannot contain, or that they cannot begin with.
    #[error(
        "a name has ASCII letters, digits, `-`, `_` and `.`, and begins with a letter or digit"
    )]
    Character,
    /// It could be the beginning of an id.
    #[error("the name could be mistaken for an id; use a letter from g to z in it")]
    LikeAnId,
    /// The command line uses the word for something else.
    #[error("the word has another meaning; choose another name")]
    Reserved,
}

impl RunName {
    /// Checks a text and returns it as a name.
    ///
    /// # Errors
    ///
    /// Returns [`RunNameError`].
    pub fn try_new(text: &str) -> Result<Self, RunNameError> {
        Self::of_bytes(text.as_bytes())
    }

    pub(crate) fn of_bytes(text: &[u8]) -> Result<Self, RunNameError> {
        let len = u8::try_from(text.len()).map_err(|_| RunNameError::Length)?;
        let mut bytes = [0; RUN_NAME_MAX];
        let place = bytes.get_mut(..text.len()).ok_or(RunNameError::Length)?;
        place.copy_from_slice(text);
        let first = *text.first().ok_or(RunNameError::Length)?;
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        if !first.is_ascii_alphanumeric() || !text.iter().all(allowed) {
            return Err(RunNameError::Character);
        }
        // A user may type the beginning of an id wherever a name is expected.
        if text.len() <= ID_DIGITS && text.iter().all(u8::is_ascii_hexdigit) {
            return Err(RunNameError::LikeAnId);
        }
        if RESERVED.iter().any(|word| word.as_bytes() == text) {
            return Err(RunNameError::Reserved);
        }
        Ok(Self { len, bytes })
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.len)];
        std::str::from_utf8(bytes).expect("a name is ASCII")
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// The length only: the name is the tenant's.
impl fmt::Debug for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunName").field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_returned_as_given() {
        for text in ["nightly", "2026-11-18", "g", "a.b_c-d", &"n".repeat(RUN_NAME_MAX)] {
            assert_eq!(RunName::try_new(text).unwrap().as_str(), text);
        }
        // Longer than an id, so it cannot be the beginning of one.
        assert!(RunName::try_new(&"a".repeat(ID_DIGITS + 1)).is_ok());
    }

    #[test]
    fn texts_that_mean_something_else_are_no_names() {
        for (text, expected) in [
            ("", RunNameError::Length),
            (&*"n".repeat(RUN_NAME_MAX + 1), RunNameError::Length),
            (&*"n".repeat(300), RunNameError::Length),
            ("two words", RunNameError::Character),
            ("@last", RunNameError::Character),
            ("-q", RunNameError::Character),
            ("../x", RunNameError::Character),
            ("nächtlich", RunNameError::Character),
            ("n\n", RunNameError::Character),
            ("beef", RunNameError::LikeAnId),
            ("0123456789ABCDEF", RunNameError::LikeAnId),
            ("list", RunNameError::Reserved),
        ] {
            assert_eq!(RunName::try_new(text), Err(expected), "{text:?}");
        }
    }
}
