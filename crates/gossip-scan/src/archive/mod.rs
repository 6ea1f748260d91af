//! Unpacks archives and compressed inputs within limits: gzip, zstd, tar, zip.
//!
//! Members are streamed into the search; only a zip archive inside another container is held in
//! memory, up to the limit for one member. Whatever a limit or damage keeps from being read is
//! reported, never dropped silently. Nothing is written to a disk, and names of members are never
//! used as paths.

mod guard;
mod tar;
mod zip;
mod zstd;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};

use flate2::bufread::{DeflateDecoder, MultiGzDecoder};

use crate::content::{self, ArchiveKind};
use crate::finding::UnreadReason;
use crate::scanner::{HEAD_LEN, MemberScan};
use crate::stream::read_full;
use guard::{Guard, Packed, Root, Unpacked};

/// Joins the names of nested members.
const JOINT: &str = "!/";
/// The member of a compressed input that is not an archive.
const CONTENT: &str = "content";
/// A tiny input may unpack to this much before its ratio counts.
const RATIO_FREE: u64 = 1 << 20;

/// How much of one item is unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveLimits {
    /// Containers inside containers, the outermost included.
    pub depth: u8,
    /// Members of all containers of an item together.
    pub entries: u32,
    /// Bytes of one member.
    pub entry_bytes: u64,
    /// Unpacked bytes of an item.
    pub total_bytes: u64,
    /// Unpacked bytes per packed byte.
    pub ratio: u64,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self { depth: 3, entries: 4_096, entry_bytes: 64 << 20, total_bytes: 512 << 20, ratio: 128 }
    }
}

/// An input that a zip archive can be read from.
trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// Unpacks an item in memory.
pub(crate) fn unpack_bytes(
    kind: ArchiveKind,
    bytes: &[u8],
    limits: &ArchiveLimits,
    scan: &mut MemberScan<'_, '_>,
) {
    let mut unpacker = Unpacker::new(limits, scan);
    match kind {
        ArchiveKind::Zip => unpacker.zip("", &mut Cursor::new(bytes), 1),
        ArchiveKind::Gzip | ArchiveKind::Zstd | ArchiveKind::Tar => {
            unpacker.container("", kind, &mut &*bytes, 1);
        }
    }
}

/// Unpacks an item from a reader that is at its start. A zip archive is read from `file`, the same
/// item, if there is one.
///
/// # Errors
///
/// If the reader itself fails. Damaged content is reported and is no error.
pub(crate) fn unpack(
    kind: ArchiveKind,
    reader: &mut dyn Read,
    file: Option<&File>,
    limits: &ArchiveLimits,
    scan: &mut MemberScan<'_, '_>,
) -> io::Result<()> {
    let mut unpacker = Unpacker::new(limits, scan);
    if let (ArchiveKind::Zip, Some(file)) = (kind, file) {
        let mut root = Root::new(BufReader::new(file));
        // From the file itself: the directory of a zip archive is at its end.
        unpacker.zip("", &mut root, 1);
        return root.result();
    }
    let mut root = Root::new(reader);
    unpacker.container("", kind, &mut root, 1);
    root.result()
}

/// One item being unpacked.
struct Unpacker<'a, 'b, 's> {
    limits: &'a ArchiveLimits,
    scan: &'a mut MemberScan<'b, 's>,
    entries_left: u32,
    /// Bytes that decompressors may still produce.
    inflated_left: u64,
    /// Bytes of members that may still be searched.
    searched_left: u64,
}

impl<'a, 'b, 's> Unpacker<'a, 'b, 's> {
    fn new(limits: &'a ArchiveLimits, scan: &'a mut MemberScan<'b, 's>) -> Self {
        let (entries_left, total) = (limits.entries, limits.total_bytes);
        Self { limits, scan, entries_left, inflated_left: total, searched_left: total }
    }

    /// Unpacks a container that can be read from its start to its end.
    fn container(&mut self, name: &str, kind: ArchiveKind, reader: &mut dyn Read, depth: u8) {
        match kind {
            ArchiveKind::Tar => self.tar(name, reader, depth),
            ArchiveKind::Gzip => {
                let count = Cell::new(0);
                let packed = Packed::new(reader, &count);
                // Several members, because gzip files may be appended to each other and unpack to
                // one text.
                self.inflate(name, &mut MultiGzDecoder::new(packed), &count, depth);
            }
            ArchiveKind::Zstd => {
                let count = Cell::new(0);
                let packed = Packed::new(reader, &count);
                self.inflate(name, &mut zstd::Frames::new(packed), &count, depth);
            }
            ArchiveKind::Zip => {
                // The directory is at the end: the archive has to be in memory.
                let mut bytes = Vec::new();
                let max = self.limits.entry_bytes;
                // One byte more than allowed shows that it is too large.
                match reader.take(max + 1).read_to_end(&mut bytes) {
                    Ok(len) if len as u64 > max => self.scan.unread(name, UnreadReason::EntrySize),
                    Ok(_) => self.zip(name, &mut Cursor::new(&bytes), depth),
                    Err(_) => self.scan.unread(name, UnreadReason::Malformed),
                }
            }
        }
    }

    /// Searches the output of a decompressor.
    fn inflate(&mut self, name: &str, output: &mut dyn Read, packed: &Cell<u64>, depth: u8) {
        self.unpacked(name, output, packed, |unpacker, reader| {
            let (head, filled) = read_head(reader);
            match content::archive_kind(&head[..filled]) {
                // A compressed archive counts as two containers.
                Some(kind) => unpacker.nested(name, kind, &head[..filled], reader, depth),
                None => unpacker.leaf(&joined(name, CONTENT), &head[..filled], reader),
            }
        });
    }

    /// Passes the output of a decompressor on within the limits, and reports the one it reaches.
    fn unpacked(
        &mut self,
        name: &str,
        output: &mut dyn Read,
        packed: &Cell<u64>,
        search: impl FnOnce(&mut Self, &mut dyn Read),
    ) {
        let mut blocks = Unpacked::new(output, packed, self.limits.ratio, RATIO_FREE);
        let mut guard = Guard::new(&mut blocks, self.inflated_left, UnreadReason::TotalSize);
        search(self, &mut guard);
        let (read, stopped) = (guard.read_bytes(), guard.stopped());
        // Counted for nested containers as well: bytes that are unpacked twice cost twice.
        self.inflated_left = self.inflated_left.saturating_sub(read);
        if let Some(reason) = stopped.or_else(|| blocks.stopped()) {
            self.scan.unread(name, reason);
        }
    }

    /// Searches one member of an archive, or what it contains.
    fn member(&mut self, name: &str, reader: &mut dyn Read, depth: u8) {
        let (head, filled) = read_head(reader);
        match content::archive_kind(&head[..filled]) {
            Some(kind) => self.nested(name, kind, &head[..filled], reader, depth),
            None => self.leaf(name, &head[..filled], reader),
        }
    }

    fn nested(
        &mut self,
        name: &str,
        kind: ArchiveKind,
        head: &[u8],
        reader: &mut dyn Read,
        depth: u8,
    ) {
        // Bounds the recursion, and with it the stack, for an archive that contains itself.
        if depth >= self.limits.depth {
            self.scan.unread(name, UnreadReason::Depth);
            return;
        }
        self.container(name, kind, &mut head.chain(reader), depth + 1);
    }

    /// Searches bytes that are no container.
    fn leaf(&mut self, name: &str, head: &[u8], reader: &mut dyn Read) {
        let head_len = head.len() as u64;
        // The reason is that of the smaller limit, because it is the one that would have to be
        // raised.
        let (max, reason) = if self.searched_left < self.limits.entry_bytes {
            (self.searched_left, UnreadReason::TotalSize)
        } else {
            (self.limits.entry_bytes, UnreadReason::EntrySize)
        };
        // The head has been read, so the guard below cannot cut it.
        if head_len > max {
            self.scan.unread(name, reason);
            return;
        }
        let mut guard = Guard::new(reader, max - head_len, reason);
        // The guard ends the input instead of failing.
        let result = self.scan.member(name, head, &mut guard);
        self.searched_left = self.searched_left.saturating_sub(head_len + guard.read_bytes());
        match (guard.stopped(), result) {
            (Some(reason), _) => self.scan.unread(name, reason),
            (None, Err(_)) => self.scan.unread(name, UnreadReason::Malformed),
            (None, Ok(())) => {}
        }
    }

    /// Counts a member; false if there are too many, which is reported once.
    fn count_entry(&mut self, container: &str) -> bool {
        if self.entries_left == 0 {
            self.scan.unread(container, UnreadReason::Entries);
            return false;
        }
        self.entries_left -= 1;
        true
    }

    fn tar(&mut self, name: &str, reader: &mut dyn Read, depth: u8) {
        let mut tar = tar::Members::new(reader);
        loop {
            match tar.next_member() {
                Ok(Some(member)) => {
                    if !self.count_entry(name) {
                        return;
                    }
                    self.member(&joined(name, &member), &mut tar, depth);
                    // The member may have been read in part only, and the next header is behind
                    // all of it.
                    if tar.finish_member().is_err() {
                        self.scan.unread(name, UnreadReason::Malformed);
                        return;
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    self.scan.unread(name, UnreadReason::Malformed);
                    return;
                }
            }
        }
    }

    fn zip(&mut self, name: &str, source: &mut dyn ReadSeek, depth: u8) {
        let Ok(mut directory) = zip::Directory::open(source) else {
            self.scan.unread(name, UnreadReason::Malformed);
            return;
        };
        loop {
            let entry = match directory.next_entry(source) {
                Ok(Some(entry)) => entry,
                Ok(None) => return,
                Err(_) => {
                    self.scan.unread(name, UnreadReason::Malformed);
                    return;
                }
            };
            // Only the name says that an entry is a directory, so one with data is a member.
            if entry.is_directory() && entry.packed_len == 0 {
                continue;
            }
            // Before the look at its method: members that cannot be read take time, too.
            if !self.count_entry(name) {
                return;
            }
            let member = joined(name, &entry.name);
            if entry.is_encrypted {
                self.scan.unread(&member, UnreadReason::Encrypted);
            } else {
                self.zip_member(&member, &entry, source, depth);
            }
        }
    }

    fn zip_member(&mut self, name: &str, entry: &zip::Entry, source: &mut dyn ReadSeek, depth: u8) {
        if entry.seek_to_data(source).is_err() {
            self.scan.unread(name, UnreadReason::Malformed);
            return;
        }
        let count = Cell::new(0);
        let packed = Packed::new(source.take(entry.packed_len), &count);
        let member = |unpacker: &mut Self, reader: &mut dyn Read| {
            unpacker.member(name, reader, depth);
        };
        match entry.method {
            zip::STORED => self.member(name, &mut { packed }, depth),
            zip::DEFLATED => self.unpacked(name, &mut DeflateDecoder::new(packed), &count, member),
            zip::ZSTD => self.unpacked(name, &mut zstd::Frames::new(packed), &count, member),
            _ => self.scan.unread(name, UnreadReason::Method),
        }
    }
}

/// Reads the bytes that decide what a member is. A failing reader has ended; its guard says so.
fn read_head(reader: &mut dyn Read) -> (Vec<u8>, usize) {
    let mut head = vec![0; HEAD_LEN];
    let filled = read_full(reader, &mut head).unwrap_or(0);
    (head, filled)
}

fn joined(container: &str, member: &str) -> String {
    if container.is_empty() { member.to_owned() } else { format!("{container}{JOINT}{member}") }
}
