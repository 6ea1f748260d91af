//! Errors of identity values built from untrusted bytes.

/// The input is not a valid identity value. Nothing was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityInputError {
    /// A connector tag has at least one byte.
    #[error("connector tag is empty")]
    EmptyTag,
    /// A connector tag has at most eight bytes; holds the length presented.
    #[error("connector tag has {0} bytes, at most 8 fit")]
    TagTooLong(usize),
    /// A connector tag consists of ASCII letters, digits and punctuation. Tags are not secret, so
    /// the error includes the byte.
    #[error("connector tag has byte {byte:#04x} at index {index}, only graphic ASCII is allowed")]
    NonGraphicByte {
        /// Index of the first such byte.
        index: usize,
        /// The byte.
        byte: u8,
    },
    /// An item without a locator could not be opened again.
    #[error("item locator is empty")]
    EmptyLocator,
    /// Empty version bytes would give all versions the same id.
    #[error("object version bytes are empty")]
    EmptyVersionBytes,
    /// The canonical encoding has four bytes for a length. Not in the specification's list; added
    /// so that untrusted bytes of any length are an error and never a panic.
    #[error("{len} bytes do not fit the canonical length prefix of at most {}", u32::MAX)]
    InputTooLong {
        /// The length presented.
        len: usize,
    },
}

const _: () = assert!(super::ConnectorTag::LEN == 8, "the messages above state the limit");
