//! What a handler receives, and how it fails.

use std::any::Any;
use std::fmt;
use std::io::Read as _;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

#[cfg(doc)]
use gossip_contracts::connector::MAX_INLINE_BODY_BYTES;
use gossip_contracts::connector::{ItemBody, OpenError};
use gossip_contracts::identity::{FenceEpoch, ShardKey};
use gossip_scanner_runtime::connectors::{KeyFormat, parse_row_key};
use gossip_scanner_runtime::exec::Rendering;
use gossip_scanner_runtime::{ItemResult, Work};

/// One item of a source.
///
/// An item may be passed to a handler more than once: after a crash, and after a lease was lost.
pub struct Item<'a> {
    work: Work<'a>,
    rendering: &'a Rendering,
    buffer: &'a mut Vec<u8>,
    findings: u32,
}

impl<'a> Item<'a> {
    pub(super) const fn new(
        work: Work<'a>,
        rendering: &'a Rendering,
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        Self { work, rendering, buffer, findings: 0 }
    }

    /// Returns the key, which identifies the item in its source: the path below the directory, the
    /// 16 bytes of a row, or what the connector listed.
    #[must_use]
    pub const fn key(&self) -> &'a [u8] {
        self.work.key()
    }

    /// Returns the key for people: the path below the directory, the offset of the line, the number
    /// of the row, or the integer. A byte that is not UTF-8 is `\xNN`.
    #[must_use]
    pub fn key_text(&self) -> String {
        self.rendering.key_format().readable(self.work.key())
    }

    /// Returns the fence under which the item is processed.
    ///
    /// Store it with the result, and refuse a result for the same key with a lower fence: it comes
    /// from a process that has lost its lease and has not noticed.
    #[must_use]
    pub const fn fence(&self) -> FenceEpoch {
        self.work.fence
    }

    /// Returns the shard that contains the item.
    #[must_use]
    pub const fn shard(&self) -> ShardKey {
        self.work.shard
    }

    /// Returns the path of a file, if the source is a directory.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        match self.rendering {
            Rendering::Path(root) => Some(root.join(std::ffi::OsStr::from_bytes(self.key()))),
            _ => None,
        }
    }

    /// Returns the integer of a range, the number of a row or the offset of a line; `None` for
    /// other sources.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self.rendering.key_format() {
            KeyFormat::Row => parse_row_key(self.key()),
            _ => None,
        }
    }

    /// Opens the content.
    ///
    /// # Errors
    ///
    /// The item is gone or cannot be opened. Pass the error on with `?`: the item is recorded as
    /// unread, or tried again if that may help.
    pub fn open(&mut self) -> Result<ItemBody<'_>, OpenError> {
        self.work.open(self.buffer)
    }

    /// Reads the content into memory, at most `max` bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], and [`OpenError::TooLong`].
    pub fn read(&mut self, max: usize) -> Result<Vec<u8>, OpenError> {
        let mut bytes = Vec::new();
        // One byte more than allowed distinguishes a content of exactly this length from a longer
        // one.
        let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        let read = self.open()?.take(limit).read_to_end(&mut bytes);
        read.map_err(|error| OpenError::from_io(&error))?;
        if bytes.len() > max { Err(OpenError::TooLong { max }) } else { Ok(bytes) }
    }

    /// Returns the item as text, as `{}` of a command: the path of a file, a line, a row, an
    /// integer, or the key of a registered source.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; a line or row longer than [`MAX_INLINE_BODY_BYTES`]; or bytes that are
    /// not UTF-8: [`Self::path`], [`Self::read`] and [`Self::key`] return those.
    pub fn text(&mut self) -> Result<String, ItemError> {
        let mut text = Vec::new();
        self.rendering.write(&self.work, self.buffer, &mut text)?;
        String::from_utf8(text).map_err(|_| ItemError::permanent("the item is not UTF-8"))
    }

    /// Counts findings of this item. They are recorded with the cursor, so each counts once,
    /// however often the item is repeated.
    pub const fn add_findings(&mut self, findings: u32) {
        self.findings = self.findings.saturating_add(findings);
    }

    pub(super) fn result(self, ended: Result<(), ItemError>) -> ItemResult {
        match ended {
            Ok(()) => NonZeroU32::new(self.findings).map_or(ItemResult::Done, ItemResult::Found),
            Err(error) => error.0,
        }
    }
}

// The item belongs to the user.
impl fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("work", &self.work).finish_non_exhaustive()
    }
}

/// Why a handler did not process an item.
///
/// Any error converts to it, so handlers use `?`:
///
/// | error | the item |
/// |---|---|
/// | [`OpenError`], from [`Item::open`] | is recorded as unread, or tried again if that may help |
/// | [`ItemError::permanent`] | is parked at once |
/// | any other, [`ItemError::failed`] | is tried again, and parked after the last try |
///
/// The texts are passed to the observer of the scan, and nowhere else.
// It does not implement `Error` itself: the conversion from every error would overlap.
pub struct ItemError(ItemResult);

impl ItemError {
    /// Returns a failure; another try may succeed.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self(ItemResult::Failed(message.to_string().into()))
    }

    /// Returns a failure that would occur again.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self(ItemResult::Hopeless(message.to_string().into()))
    }

    /// Returns a failure to read the content.
    #[must_use]
    pub const fn unread(error: OpenError) -> Self {
        Self(ItemResult::Unopened(error))
    }
}

impl<E: std::error::Error + 'static> From<E> for ItemError {
    fn from(error: E) -> Self {
        // A failure to open is the source's and not the handler's: the item is recorded as unread
        // and not as failed.
        match (&error as &dyn Any).downcast_ref::<OpenError>() {
            Some(error) => Self::unread(*error),
            None => Self::failed(error),
        }
    }
}

// The kind only: a text may quote the item.
impl fmt::Debug for ItemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ItemResult::Unopened(_) => "Unread",
            ItemResult::Hopeless(_) => "Permanent",
            _ => "Failed",
        })
    }
}
