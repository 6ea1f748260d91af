//! Readers that end an input at a limit or at damage, and remember why.

use std::cell::Cell;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

use crate::finding::UnreadReason;
use crate::stream::{read_full, read_some};

/// Packed and unpacked bytes move in blocks of this size, whatever a reader returns at a time:
/// where a limit cuts must not depend on that.
const BLOCK_LEN: usize = 64 << 10;

/// Ends its input at a limit, and at an error of the reader below.
pub(super) struct Guard<'a> {
    reader: &'a mut dyn Read,
    left: u64,
    read: u64,
    /// The reason if `left` runs out.
    reason: UnreadReason,
    stopped: Option<UnreadReason>,
}

impl<'a> Guard<'a> {
    pub(super) fn new(reader: &'a mut dyn Read, left: u64, reason: UnreadReason) -> Self {
        Self { reader, left, read: 0, reason, stopped: None }
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Returns why the input ended early.
    pub(super) fn stopped(&self) -> Option<UnreadReason> {
        self.stopped
    }
}

impl Read for Guard<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stopped.is_some() || buffer.is_empty() {
            return Ok(0);
        }
        // One byte beyond the limit shows whether there is more.
        let max = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX);
        let len = buffer.len().min(max);
        let read = match self.reader.read(&mut buffer[..len]) {
            Ok(read) => read.min(len),
            // No damage: callers read again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(_) => {
                self.stopped = Some(UnreadReason::Malformed);
                return Ok(0);
            }
        };
        if read as u64 > self.left {
            self.stopped = Some(self.reason);
        }
        let kept = (read as u64).min(self.left);
        self.left -= kept;
        self.read += kept;
        // At most `read`, which is a length of `buffer`.
        Ok(kept as usize)
    }
}

/// Packed bytes in whole blocks, counted.
pub(super) struct Packed<'a, R> {
    reader: R,
    count: &'a Cell<u64>,
    block: Vec<u8>,
    at: usize,
}

impl<'a, R: Read> Packed<'a, R> {
    pub(super) fn new(reader: R, count: &'a Cell<u64>) -> Self {
        Self { reader, count, block: Vec::new(), at: 0 }
    }
}

impl<R: Read> BufRead for Packed<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.block.len() {
            self.block.resize(BLOCK_LEN, 0);
            let filled = read_full(&mut self.reader, &mut self.block);
            self.at = 0;
            // Also after an error, or the zeros of the resized block would be read as data.
            self.block.truncate(filled.as_ref().map_or(0, |len| *len));
            self.count.set(self.count.get() + filled? as u64);
        }
        Ok(&self.block[self.at..])
    }

    fn consume(&mut self, len: usize) {
        self.at = (self.at + len).min(self.block.len());
    }
}

impl<R: Read> Read for Packed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

/// Unpacked bytes in whole blocks; ends when they exceed a multiple of the packed bytes.
pub(super) struct Unpacked<'a, R> {
    reader: R,
    packed: &'a Cell<u64>,
    ratio_max: u64,
    free: u64,
    unpacked: u64,
    block: Vec<u8>,
    at: usize,
    stopped: Option<UnreadReason>,
}

impl<'a, R: Read> Unpacked<'a, R> {
    /// `free` bytes are passed on whatever the ratio is.
    pub(super) fn new(reader: R, packed: &'a Cell<u64>, ratio_max: u64, free: u64) -> Self {
        let (unpacked, block, at, stopped) = (0, Vec::new(), 0, None);
        Self { reader, packed, ratio_max, free, unpacked, block, at, stopped }
    }

    /// Returns why the output ended early.
    pub(super) fn stopped(&self) -> Option<UnreadReason> {
        self.stopped
    }

    fn fill(&mut self) {
        self.block.resize(BLOCK_LEN, 0);
        let mut filled = 0;
        while filled < BLOCK_LEN {
            match read_some(&mut self.reader, &mut self.block[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                // Bytes unpacked before the damage are searched, and the rest is reported.
                Err(_) => {
                    self.stopped = Some(UnreadReason::Malformed);
                    break;
                }
            }
        }
        self.block.truncate(filled);
        self.at = 0;
        self.unpacked += filled as u64;
        // Compared for whole blocks: where the limit cuts must not depend on the reads of a
        // decoder.
        let allowed = self.packed.get().saturating_mul(self.ratio_max).max(self.free);
        if self.unpacked > allowed && self.stopped.is_none() {
            self.stopped = Some(UnreadReason::Ratio);
        }
    }
}

impl<R: Read> Read for Unpacked<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() && self.stopped.is_none() {
            self.fill();
        }
        let read = (&self.block[self.at..]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}

/// The item itself: its errors are the caller's, not damage.
pub(super) struct Root<R> {
    reader: R,
    failed: Option<io::Error>,
}

impl<R> Root<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, failed: None }
    }

    pub(super) fn result(self) -> io::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }

    /// Keeps the first error and passes on one of the same kind.
    fn keep<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            // The first one is the cause; those that follow come from reading on after it.
            if kind != io::ErrorKind::Interrupted && self.failed.is_none() {
                self.failed = Some(error);
            }
            kind.into()
        })
    }
}

impl<R: Read> Read for Root<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.reader.read(buffer);
        self.keep(result)
    }
}

impl<R: Seek> Seek for Root<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        // A position out of range comes from the archive, so it is damage.
        self.reader.seek(position)
    }
}
