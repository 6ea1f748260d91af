//! The directory of a zip archive, read entry by entry.
//!
//! Own code, because the usual crates build the whole directory in memory, and it can have millions
//! of entries. ZIP64 fields are read. Sizes and checksums of members are not compared: a damaged
//! member is searched as far as it decompresses.

use std::io::{self, Read, SeekFrom};

use super::ReadSeek;

/// Compression methods.
pub(super) const STORED: u16 = 0;
pub(super) const DEFLATED: u16 = 8;
pub(super) const ZSTD: u16 = 93;

/// The record at the end, without its comment.
const END_LEN: usize = 22;
/// The record at the end with the longest comment.
const END_LEN_MAX: u64 = END_LEN as u64 + u16::MAX as u64;
/// A directory entry without name, extra fields and comment.
const ENTRY_LEN: usize = 46;
/// A local header without name and extra fields.
const LOCAL_LEN: usize = 30;

/// Position in the directory.
pub(super) struct Directory {
    next: u64,
    left: u64,
    /// Bytes before the archive; positions in it count from its own start.
    shift: u64,
}

/// One member.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) method: u16,
    pub(super) is_encrypted: bool,
    pub(super) packed_len: u64,
    header_at: u64,
}

fn damaged() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |it| u16::from_le_bytes([it[0], it[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..at + 4).and_then(|it| it.first_chunk::<4>());
    field.map_or(0, |it| u32::from_le_bytes(*it))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at + 8).and_then(|it| it.first_chunk::<8>());
    field.map(|it| u64::from_le_bytes(*it))
}

impl Directory {
    /// Finds the directory.
    pub(super) fn open(source: &mut dyn ReadSeek) -> io::Result<Self> {
        let len = source.seek(SeekFrom::End(0))?;
        let tail_len = len.min(END_LEN_MAX);
        let tail_at = len - tail_len;
        source.seek(SeekFrom::Start(tail_at))?;
        let mut tail = Vec::new();
        source.take(tail_len).read_to_end(&mut tail)?;
        // The last one, because members that are archives themselves have such records before it.
        let end = memchr::memmem::rfind(&tail, b"PK\x05\x06").ok_or_else(damaged)?;
        let record = tail.get(end..end + END_LEN).ok_or_else(damaged)?;
        let (count, size) = (u16_at(record, 10), u32_at(record, 12));
        let offset = u32_at(record, 16);
        if count == u16::MAX || size == u32::MAX || offset == u32::MAX {
            // The locator lies directly before the record, so nothing has to be searched for.
            let wide = end.checked_sub(20).and_then(|at| tail.get(at..at + 20));
            if let Some(locator) = wide.filter(|it| it.starts_with(b"PK\x06\x07")) {
                return Self::open_wide(source, u64_at(locator, 8).ok_or_else(damaged)?);
            }
        }
        // Bytes may precede the archive, as in a program that unpacks itself.
        let end_at = tail_at + end as u64;
        let next = end_at.checked_sub(u64::from(size)).ok_or_else(damaged)?;
        let shift = next.saturating_sub(u64::from(offset));
        Ok(Self { next, left: u64::from(count), shift })
    }

    fn open_wide(source: &mut dyn ReadSeek, at: u64) -> io::Result<Self> {
        source.seek(SeekFrom::Start(at))?;
        let mut record = [0; 56];
        source.read_exact(&mut record)?;
        if !record.starts_with(b"PK\x06\x06") {
            return Err(damaged());
        }
        let left = u64_at(&record, 32).ok_or_else(damaged)?;
        let next = u64_at(&record, 48).ok_or_else(damaged)?;
        Ok(Self { next, left, shift: 0 })
    }

    /// Reads the next entry.
    pub(super) fn next_entry(&mut self, source: &mut dyn ReadSeek) -> io::Result<Option<Entry>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        source.seek(SeekFrom::Start(self.next))?;
        let mut header = [0; ENTRY_LEN];
        source.read_exact(&mut header)?;
        if !header.starts_with(b"PK\x01\x02") {
            return Err(damaged());
        }
        // Each is below 64 KiB, so an entry cannot ask for much memory.
        let lens = [28, 30, 32].map(|at| usize::from(u16_at(&header, at)));
        let mut variable = vec![0; lens[0] + lens[1]];
        source.read_exact(&mut variable)?;
        // A position beyond every file fails at the next seek or read.
        self.next = self.next.saturating_add((ENTRY_LEN + lens.iter().sum::<usize>()) as u64);
        let (name, extra) = variable.split_at(lens[0]);
        let (packed_len, header_at) = wide_fields(&header, extra);
        Ok(Some(Entry {
            name: String::from_utf8_lossy(name).into_owned(),
            method: u16_at(&header, 10),
            is_encrypted: u16_at(&header, 8) & 1 != 0,
            packed_len,
            header_at: header_at.saturating_add(self.shift),
        }))
    }
}

/// The packed length and the position of the local header, from the extra field if they are large.
fn wide_fields(header: &[u8; ENTRY_LEN], extra: &[u8]) -> (u64, u64) {
    let (packed, unpacked) = (u32_at(header, 20), u32_at(header, 24));
    let offset = u32_at(header, 42);
    let mut rest = extra;
    while rest.len() >= 4 {
        let (id, len) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
        let field = rest.get(4..4 + len).unwrap_or_default();
        if id == 1 {
            // Only fields that do not fit are there, in this order.
            let mut at = 0;
            let mut wide = |narrow: u32| match (narrow, u64_at(field, at)) {
                (u32::MAX, Some(value)) => {
                    at += 8;
                    value
                }
                _ => u64::from(narrow),
            };
            // Not needed, but its field lies before the others if it is there.
            wide(unpacked);
            let packed = wide(packed);
            return (packed, wide(offset));
        }
        rest = rest.get(4 + len..).unwrap_or_default();
    }
    (u64::from(packed), u64::from(offset))
}

impl Entry {
    pub(super) fn is_directory(&self) -> bool {
        self.name.ends_with('/')
    }

    /// Moves to the first byte of the member.
    pub(super) fn seek_to_data(&self, source: &mut dyn ReadSeek) -> io::Result<()> {
        source.seek(SeekFrom::Start(self.header_at))?;
        let mut header = [0; LOCAL_LEN];
        source.read_exact(&mut header)?;
        if !header.starts_with(b"PK\x03\x04") {
            return Err(damaged());
        }
        // The lengths of the local header, because its extra fields differ from those of the
        // directory.
        let skipped = i64::from(u16_at(&header, 26)) + i64::from(u16_at(&header, 28));
        source.seek(SeekFrom::Current(skipped))?;
        Ok(())
    }
}
