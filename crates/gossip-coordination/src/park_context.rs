//! The text that a parked shard carries for people.

use std::fmt;

/// Maximum length of a [`ParkContext`] in bytes: an exit status and the end of an error output fit,
/// and ten thousand parked shards take at most 10 MiB of a store.
pub const PARK_CONTEXT_MAX: usize = 1 << 10;

/// Why a shard was parked, in words: the last error, or the text that belongs to
/// [`ParkReason::Other`](crate::ParkReason::Other).
///
/// The text may quote keys or the output of a user's program. It is shown to the same tenant only,
/// in listings of shards; never in events, logs or errors.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ParkContext<'a>(&'a str);

impl<'a> ParkContext<'a> {
    /// No text.
    pub const NONE: ParkContext<'static> = ParkContext("");

    /// Takes `text`, cut at [`PARK_CONTEXT_MAX`] bytes or the character before.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self(&text[..text.floor_char_boundary(PARK_CONTEXT_MAX)])
    }

    /// Returns the text; empty if there is none.
    #[must_use]
    pub const fn as_str(&self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for ParkContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParkContext({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_before_the_limit_at_a_character() {
        let short = "x".repeat(PARK_CONTEXT_MAX);
        assert_eq!(ParkContext::new(&short).as_str(), short);
        let long = "x".repeat(PARK_CONTEXT_MAX - 1) + "ä";
        assert_eq!(ParkContext::new(&long).as_str(), &long[..PARK_CONTEXT_MAX - 1]);
    }

    #[test]
    fn the_text_is_not_shown_by_debug() {
        assert_eq!(format!("{:?}", ParkContext::new("secret")), "ParkContext(6 bytes)");
    }
}
