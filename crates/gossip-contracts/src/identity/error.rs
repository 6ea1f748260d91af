//! Why bytes from outside were refused.

/// An identity value that its input cannot become. Nothing was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityInputError {
    /// A connector tag has at least one byte.
    #[error("connector tag is empty")]
    EmptyTag,
    /// A connector tag has at most eight bytes; this one had so many.
    #[error("connector tag has {0} bytes, at most 8 fit")]
    TagTooLong(usize),
    /// A connector tag is ASCII letters, digits and punctuation; tags are no secret, so the byte is
    /// told.
    #[error("connector tag has byte {byte:#04x} at index {index}, only graphic ASCII is allowed")]
    NonGraphicByte {
        /// Where the first such byte stands.
        index: usize,
        /// The byte.
        byte: u8,
    },
    /// An item without a locator could not be found again.
    #[error("item locator is empty")]
    EmptyLocator,
    /// Empty version bytes would make all versions one.
    #[error("object version bytes are empty")]
    EmptyVersionBytes,
    /// The canonical encoding has four bytes for a length. Added to the specification's list, so
    /// that untrusted bytes of any length are refused and never panic.
    #[error("{len} bytes do not fit the canonical length prefix of at most {}", u32::MAX)]
    InputTooLong {
        /// The length that was presented.
        len: usize,
    },
}

const _: () = assert!(super::ConnectorTag::LEN == 8, "the messages above say eight");
