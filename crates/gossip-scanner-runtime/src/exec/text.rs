//! The text that replaces `{}`.

use std::ffi::OsStr;
use std::fmt;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gossip_contracts::connector::{MAX_INLINE_BODY_BYTES, OpenError, PageItem};

use crate::connectors::{KeyFormat, Source};
use crate::processor::Work;

/// How an item is shown to a program.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rendering {
    /// The key is a path below this directory; shown is the whole path.
    Path(PathBuf),
    /// The item's content: a line, a row. The key is shown in the format of its source.
    Body(KeyFormat),
    /// The key itself, in the format of its source.
    Key(KeyFormat),
}

impl Rendering {
    /// Returns the default rendering of a source.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        match source {
            Source::Tree { root, .. } => Self::Path(root.clone()),
            Source::Lines { .. } | Source::Manifest { .. } => Self::Body(source.key_format()),
            Source::Registered(registered) if registered.is_content() => {
                Self::Body(source.key_format())
            }
            Source::Integers(_) | Source::Git { .. } | Source::Registered(_) => {
                Self::Key(source.key_format())
            }
        }
    }

    /// As [`Self::of`], with the directory of a tree as it was typed: relative to the working
    /// directory of this process, which commands share.
    #[must_use]
    pub fn as_typed(source: &Source, typed: &OsStr) -> Self {
        let typed = typed.as_bytes();
        let path = typed.strip_prefix(b"tree:").unwrap_or(typed);
        match source {
            Source::Tree { .. } => Self::Path(PathBuf::from(OsStr::from_bytes(path))),
            other => Self::of(other),
        }
    }

    /// Returns how keys are shown.
    #[must_use]
    pub const fn key_format(&self) -> KeyFormat {
        match self {
            Self::Path(_) => KeyFormat::Bytes,
            Self::Body(format) | Self::Key(format) => *format,
        }
    }

    /// Opens the item and writes its text into `text`.
    ///
    /// A file is opened, too, and not read, so that a missing or unreadable file is reported by the
    /// source.
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
        let body = work.open(scratch)?;
        if !self.opens_items() {
            self.write_name(work.key(), text);
            return Ok(());
        }
        text.clear();
        // One byte more than allowed distinguishes a content of exactly this length from a longer
        // one.
        let limit = MAX_INLINE_BODY_BYTES as u64 + 1;
        let read = body.take(limit).read_to_end(text);
        read.map_err(|error| OpenError::from_io(&error))?;
        match text.len() > MAX_INLINE_BODY_BYTES {
            true => Err(OpenError::TooLong { max: MAX_INLINE_BODY_BYTES }),
            false => Ok(()),
        }
    }

    /// Returns whether [`Self::write_for_program`] opens every item.
    pub(super) const fn opens_items(&self) -> bool {
        matches!(self, Self::Body(_))
    }

    /// Writes the text of an item that a program opens, if it is more than a text: such an item is
    /// checked and not opened. `beside` is the key that was written right before for the same
    /// program, if there is one.
    pub(super) fn write_for_program(
        &self,
        work: &Work<'_>,
        beside: Option<&[u8]>,
        scratch: &mut Vec<u8>,
        text: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        if self.opens_items() {
            return self.write(work, scratch, text);
        }
        work.connector.check(work.item, beside.map(PageItem::new), scratch)?;
        self.write_name(work.key(), text);
        Ok(())
    }

    /// Writes the text of an item whose content is not part of it.
    fn write_name(&self, key: &[u8], text: &mut Vec<u8>) {
        text.clear();
        match self {
            Self::Path(root) => {
                let root = root.as_os_str().as_bytes();
                text.reserve(root.len() + 1 + key.len());
                text.extend_from_slice(root);
                if !text.ends_with(b"/") {
                    text.push(b'/');
                }
                text.extend_from_slice(key);
            }
            Self::Body(_) => {}
            Self::Key(format) => text.extend_from_slice(&format.text(key)),
        }
    }
}

// The kind only: a root may contain a secret.
impl fmt::Debug for Rendering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path(_) => "Path",
            Self::Body(_) => "Body",
            Self::Key(_) => "Key",
        })
    }
}
