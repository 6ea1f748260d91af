//! One file as a source: opened once, read at any place, and known to be the same.
//!
//! Keys of rows are positions, so they mean something only as long as the file stays as it is. A
//! [`SourceFile`] records size, modification time and identity of its file, and every read of a
//! page or an item compares them afterwards. An edit that keeps size and time is not detected.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use gossip_contracts::connector::{ConnectorError, ItemBody, MAX_INLINE_BODY_BYTES, OpenError};

/// A regular file, and what it was when it was opened.
pub(super) struct SourceFile {
    content: Content,
    stamp: Stamp,
}

/// Where the bytes are.
enum Content {
    File {
        file: File,
        path: PathBuf,
    },
    /// In memory, so they never change.
    Bytes(Box<[u8]>),
}

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    pub(super) len: u64,
    /// Nanoseconds since the epoch, wrapping: compared for equality only.
    pub(super) modified: u64,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        let modified = seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: modified.cast_unsigned(),
        }
    }
}

impl SourceFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or it is no regular file: a pipe has no positions.
    pub(super) fn open(path: &Path) -> Result<Self, ConnectorError> {
        // Checked before opening, because opening a pipe waits for a writer, and checked again
        // after it, because the path may have been replaced in between.
        let regular = |metadata: &Metadata| match metadata.is_file() {
            true => Ok(()),
            false => Err(ConnectorError::NotFound),
        };
        let found = std::fs::metadata(path).map_err(|error| ConnectorError::from_io(&error))?;
        regular(&found)?;
        let file = File::open(path).map_err(|error| ConnectorError::from_io(&error))?;
        let metadata = file.metadata().map_err(|error| ConnectorError::from_io(&error))?;
        regular(&metadata)?;
        let content = Content::File { file, path: path.to_owned() };
        Ok(Self { content, stamp: Stamp::of(&metadata) })
    }

    /// Returns a source over a copy of `bytes`, without a file.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let stamp = Stamp { device: 0, inode: 0, len: bytes.len() as u64, modified: 0 };
        Self { content: Content::Bytes(bytes.into()), stamp }
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    pub(super) fn len(&self) -> u64 {
        self.stamp.len
    }

    /// Returns [`ConnectorError::SourceChanged`] if the file differs from the one that was opened.
    ///
    /// It reads the metadata by path and not of the open file, so that another file at this path is
    /// detected too. An edit that keeps size and modification time is not.
    pub(super) fn check_unchanged(&self) -> Result<(), ConnectorError> {
        let path = match &self.content {
            Content::File { path, .. } => path,
            Content::Bytes(_) => return Ok(()),
        };
        match std::fs::metadata(path) {
            Ok(metadata) if Stamp::of(&metadata) == self.stamp => Ok(()),
            Ok(_) => Err(ConnectorError::SourceChanged),
            Err(error) => Err(ConnectorError::from_io(&error)),
        }
    }

    /// Fills `buffer` from `offset` on. Returns the number of bytes read, which is less than the
    /// buffer holds only at the end of the file.
    pub(super) fn read_up_to(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.content.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                // The system may return less than was asked for before the end of the file.
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Returns the bytes `start..end` as a body: in `scratch` up to [`MAX_INLINE_BODY_BYTES`], and
    /// otherwise as a reader that reads them from the file.
    ///
    /// Fails if they cannot be read, with [`OpenError::Changed`] if the file ends before `end`. It
    /// does not check that the file is unchanged; the caller does that afterwards.
    pub(super) fn body<'a>(
        &'a self,
        start: u64,
        end: u64,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        scratch.clear();
        let len = end - start;
        // A long row is streamed, so that its size does not become the size of the scratch.
        if len > MAX_INLINE_BODY_BYTES as u64 {
            return Ok(ItemBody::Reader(Box::new(Part { file: self, next: start, end })));
        }
        let len = usize::try_from(len).expect("at most MAX_INLINE_BODY_BYTES");
        scratch.resize(len, 0);
        let read = self.read_up_to(scratch, start).map_err(|error| OpenError::from_io(&error))?;
        // The row was listed with this end, so the file was cut short since.
        if read < len { Err(OpenError::Changed) } else { Ok(ItemBody::Bytes(scratch)) }
    }
}

impl Content {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File { file, .. } => file.read_at(buffer, offset),
            Self::Bytes(bytes) => {
                let start = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                (&bytes[start..]).read(buffer)
            }
        }
    }
}

/// A part of a file, to be read from its beginning.
struct Part<'a> {
    file: &'a SourceFile,
    /// At most `end`.
    next: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end - self.next;
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.file.read_up_to(&mut buffer[..wanted], self.next)?;
        // Checked after every read, because a body may be read long after it was opened: bytes of
        // another file must not pass for this row. `io::Error` has no kind for a changed file.
        if read == 0 || self.file.check_unchanged().is_err() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.next += read as u64;
        Ok(read)
    }
}
