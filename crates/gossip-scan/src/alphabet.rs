//! Sets of bytes: the alphabets that token bodies are written in.
//!
//! Constant tables and membership only; decoding is in [`crate::decode`].

use serde::Deserialize;

/// A set of bytes that rules refer to by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Alphabet {
    /// No byte: a match may touch anything.
    None,
    /// ASCII letters and digits.
    #[default]
    Alnum,
    /// ASCII letters, digits, `-` and `_`.
    Base64Url,
    /// ASCII letters, digits, `+`, `/` and `=`.
    Base64,
    /// Every byte of either form of base64, `=` included.
    Base64Any,
}

impl Alphabet {
    /// Returns whether the set contains a byte.
    #[must_use]
    pub const fn contains(self, byte: u8) -> bool {
        match self {
            Self::None => false,
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Base64Url => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Self::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='),
            Self::Base64Any => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
            }
        }
    }

    /// Returns the set with this name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let all = [Self::None, Self::Alnum, Self::Base64Url, Self::Base64, Self::Base64Any];
        all.into_iter().find(|it| it.name() == name)
    }

    /// Returns the name by which a rule refers to the set.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Alnum => "alnum",
            Self::Base64Url => "base64-url",
            Self::Base64 => "base64",
            Self::Base64Any => "base64-any",
        }
    }
}
