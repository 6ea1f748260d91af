//! Errors of rules and of reading. None carries a byte of scanned input.

use thiserror::Error;

/// A rule text or a rule that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The text is not TOML, or has a field or value that the format does not have.
    #[error("line {line}, column {column}: {reason}")]
    Syntax {
        /// Line, counted from one.
        line: usize,
        /// Column in bytes, counted from one.
        column: usize,
        /// The parser's message.
        reason: String,
    },
    /// The text is of another version of the format.
    #[error("format version {presented}, expected {expected}")]
    Version {
        /// The version in the text.
        presented: u32,
        /// The version that is read.
        expected: u32,
    },
    /// A rule is wrong or would be slow.
    #[error("rule `{id}`: {reason}")]
    Refused {
        /// The rule's id.
        id: String,
        /// Why it is refused.
        reason: String,
    },
    /// The automaton over all literals would be too large.
    #[error("the anchors of all rules have {len} bytes in all encodings, at most {max} allowed")]
    Literals {
        /// Their length.
        len: usize,
        /// The maximum.
        max: usize,
    },
}
