//! A short text without an allocation, for records that are copied.

use std::fmt;

/// A text of at most `N` bytes; `N` is at most 255, because the length is stored in one byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShortText<const N: usize> {
    len: u8,
    /// UTF-8 up to `len`, zero from there on.
    bytes: [u8; N],
}

impl<const N: usize> ShortText<N> {
    const FITS: () = assert!(N <= u8::MAX as usize, "the length is stored in one byte");

    /// Returns the text, cut at the last whole letter that fits.
    #[must_use]
    pub fn cut(text: &str) -> Self {
        let () = Self::FITS;
        let end = (0..=text.len().min(N)).rev().find(|end| text.is_char_boundary(*end));
        let kept = &text.as_bytes()[..end.unwrap_or(0)];
        let mut bytes = [0; N];
        bytes[..kept.len()].copy_from_slice(kept);
        Self { len: u8::try_from(kept.len()).expect("N fits in a byte"), bytes }
    }

    /// Returns the text that these bytes are; `None` if they are too many or not UTF-8.
    pub(crate) fn of_bytes(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= N)?;
        Some(Self::cut(text))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("it was cut from a str")
    }
}

// The length only: a name of a host or program is not for logs of the engine.
impl<const N: usize> fmt::Debug for ShortText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShortText").field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_letters() {
        for (text, expected) in [("", ""), ("abcd", "abcd"), ("abcde", "abcd"), ("abcä", "abc")] {
            assert_eq!(ShortText::<4>::cut(text).as_str(), expected);
        }
        assert_eq!(ShortText::<4>::of_bytes(b"abcde"), None);
        assert_eq!(ShortText::<4>::of_bytes(b"\xFF"), None);
        assert_eq!(ShortText::<4>::of_bytes(b"ab"), Some(ShortText::cut("ab")));
    }
}
