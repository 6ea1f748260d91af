//! The text that replaces `{}`.

use std::fmt;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gossip_contracts::connector::{MAX_INLINE_BODY_BYTES, OpenError};

use crate::connectors::{KeyFormat, Source};
use crate::processor::Work;

/// How an item is shown to a program.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rendering {
    /// The key is a path below this directory; shown is the whole path.
    Path(PathBuf),
    /// The item's content: a line, a row. The key is its number.
    Body,
    /// The key itself, in the format of its source.
    Key(KeyFormat),
}

impl Rendering {
    /// Returns the default rendering of a source.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        match source {
            Source::Tree { root, .. } => Self::Path(root.clone()),
            Source::Lines { .. } | Source::Manifest { .. } => Self::Body,
            Source::Integers(_) | Source::Registered(_) => Self::Key(source.key_format()),
        }
    }

    /// Returns how keys are shown.
    #[must_use]
    pub const fn key_format(&self) -> KeyFormat {
        match self {
            Self::Path(_) => KeyFormat::Bytes,
            Self::Body => KeyFormat::Row,
            Self::Key(format) => *format,
        }
    }

    /// Opens the item and writes its text into `text`.
    ///
    /// A file is opened, too, and not read, so that a missing or unreadable file is reported by the
    /// source and not by the program.
    ///
    /// # Errors
    ///
    /// The item cannot be opened or read, or is longer than a body that is held in memory.
    pub fn write(
        &self,
        work: &Work<'_>,
        scratch: &mut Vec<u8>,
        text: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        text.clear();
        let body = work.open(scratch)?;
        match self {
            Self::Path(root) => {
                text.extend_from_slice(root.as_os_str().as_bytes());
                if !text.ends_with(b"/") {
                    text.push(b'/');
                }
                text.extend_from_slice(work.key());
            }
            Self::Body => {
                let limit = MAX_INLINE_BODY_BYTES as u64 + 1;
                let read = body.take(limit).read_to_end(text);
                read.map_err(|error| OpenError::from_io(&error))?;
                if text.len() > MAX_INLINE_BODY_BYTES {
                    return Err(OpenError::TooLong { max: MAX_INLINE_BODY_BYTES });
                }
            }
            Self::Key(format) => text.extend_from_slice(&format.text(work.key())),
        }
        Ok(())
    }
}

// The kind only: a root may contain a secret.
impl fmt::Debug for Rendering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path(_) => "Path",
            Self::Body => "Body",
            Self::Key(_) => "Key",
        })
    }
}
