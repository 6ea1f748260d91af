//! The members of a tar archive, in the order in which they are stored.
//!
//! POSIX headers, names and sizes in pax headers, long names of GNU tar. Own code, because the
//! usual crate reads a long name into memory whatever its length. Other kinds of members (links,
//! devices, directories) are skipped if they have no content. With content they are members like
//! files: readers of tar disagree about such bytes, so they may hide something.

use std::io::{self, Read};

use crate::stream::read_full;

/// Headers and padding come in blocks.
const BLOCK_LEN: usize = 512;
/// Longest name or pax header that is read.
const NAME_LEN_MAX: u64 = 64 << 10;
/// Headers in a row that describe the next member; more are damage.
const HEADERS_MAX: usize = 8;

/// Reads members one after the other. As a reader it returns the present member's content.
pub(super) struct Members<'a> {
    reader: &'a mut dyn Read,
    /// Bytes of the present member that have not been read.
    left: u64,
    /// Bytes behind it up to the next block.
    padding: u64,
}

impl<'a> Members<'a> {
    pub(super) fn new(reader: &'a mut dyn Read) -> Self {
        Self { reader, left: 0, padding: 0 }
    }

    /// Returns the name of the next member with content, or of the next file; `None` at the end.
    pub(super) fn next_member(&mut self) -> io::Result<Option<String>> {
        let (mut name, mut size): (Option<Vec<u8>>, Option<u64>) = (None, None);
        let mut described = 0;
        loop {
            let mut header = [0; BLOCK_LEN];
            let filled = read_full(self.reader, &mut header)?;
            // Archives end with two blocks of zeros; some writers leave them out.
            if filled == 0 || header.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            // Without this check, damage in a size would turn content into headers.
            if filled < BLOCK_LEN || !checksum_fits(&header) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let stored = number(&header[124..136]).ok_or(io::ErrorKind::InvalidData)?;
            match header[156] {
                kind @ (b'L' | b'x' | b'g' | b'K') => {
                    described += 1;
                    // Such headers are held in memory, and their length is what the archive
                    // claims.
                    if described > HEADERS_MAX || stored > NAME_LEN_MAX {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    self.begin(stored);
                    let mut text = Vec::new();
                    self.read_to_end(&mut text)?;
                    self.finish_member()?;
                    match kind {
                        b'L' => name = text.split(|it| *it == 0).next().map(<[u8]>::to_vec),
                        b'x' => read_pax(&text, &mut name, &mut size),
                        _ => {}
                    }
                }
                kind => {
                    // The pax size wins: the field of a header has no room for 8 GiB and more.
                    let len = size.unwrap_or(stored);
                    let is_file = matches!(kind, b'0' | 0 | b'7' | b'S');
                    if !is_file && len == 0 {
                        // They described the member that is skipped, and not the next one.
                        (name, size, described) = (None, None, 0);
                        continue;
                    }
                    self.begin(len);
                    let name = name.unwrap_or_else(|| header_name(&header));
                    return Ok(Some(String::from_utf8_lossy(&name).into_owned()));
                }
            }
        }
    }

    /// Skips the rest of the present member.
    ///
    /// # Errors
    ///
    /// If the archive ends inside it.
    pub(super) fn finish_member(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(self.padding);
        let skipped = io::copy(&mut (&mut *self.reader).take(rest), &mut io::sink())?;
        // Missing padding is no damage: some writers end right behind the last content.
        let is_cut = skipped < self.left;
        (self.left, self.padding) = (0, 0);
        if is_cut { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK_LEN as u64 - size % BLOCK_LEN as u64) % BLOCK_LEN as u64;
    }
}

impl Read for Members<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let max = usize::try_from(self.left).unwrap_or(usize::MAX);
        let len = buffer.len().min(max);
        let read = self.reader.read(&mut buffer[..len])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// A name and the directory that older headers split from it.
fn header_name(header: &[u8; BLOCK_LEN]) -> Vec<u8> {
    let field = |bytes: &[u8]| bytes.split(|it| *it == 0).next().unwrap_or_default().to_vec();
    let name = field(&header[..100]);
    // GNU tar has times in these bytes and another magic.
    let is_posix = &header[257..263] == b"ustar\0";
    let prefix = if is_posix { field(&header[345..500]) } else { Vec::new() };
    if prefix.is_empty() { name } else { [&prefix[..], b"/", &name].concat() }
}

/// The sum of all bytes, with spaces for the field itself.
fn checksum_fits(header: &[u8; BLOCK_LEN]) -> bool {
    let sum: u64 = header
        .iter()
        .enumerate()
        .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) })
        .sum();
    number(&header[148..156]) == Some(sum)
}

/// An octal number, or a big-endian one if the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if let [first @ 0x80..=0xff, rest @ ..] = field {
        return rest.iter().try_fold(u64::from(first & 0x7f), |it, byte| {
            Some(it.checked_mul(256)? | u64::from(*byte))
        });
    }
    let digits =
        // Old writers pad with spaces in front and end with either a space or a zero.
        field.iter().skip_while(|it| **it == b' ').take_while(|it| !matches!(it, 0 | b' '));
    digits.into_iter().try_fold(0_u64, |it, digit| match digit {
        b'0'..=b'7' => it.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Reads `LENGTH KEY=VALUE` lines.
fn read_pax(text: &[u8], name: &mut Option<Vec<u8>>, size: &mut Option<u64>) {
    for line in text.split(|byte| *byte == b'\n') {
        let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
        let record = &line[space + 1..];
        if let Some(path) = record.strip_prefix(b"path=") {
            *name = Some(path.to_vec());
        } else if let Some(value) = record.strip_prefix(b"size=") {
            *size = std::str::from_utf8(value).ok().and_then(|it| it.parse().ok());
        }
    }
}
