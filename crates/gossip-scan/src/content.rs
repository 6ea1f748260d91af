//! What an input is, by its first bytes: text, binary, or an archive.
//!
//! Names and endings of files decide nothing here: content does.

/// Kinds of containers that are unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArchiveKind {
    Gzip,
    Zstd,
    Zip,
    Tar,
}

/// Offset of the magic of a tar header.
const TAR_MAGIC_AT: usize = 257;
/// A text in UTF-16 has a zero in at least a third of its units' high bytes.
const UTF16_ZEROS_PER_MILLE: usize = 300;

/// Returns the kind of archive that begins so.
pub(crate) fn archive_kind(head: &[u8]) -> Option<ArchiveKind> {
    // With the method, of which only this one exists: two bytes alone would match other data.
    if head.starts_with(&[0x1f, 0x8b, 8]) {
        return Some(ArchiveKind::Gzip);
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Some(ArchiveKind::Zstd);
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return Some(ArchiveKind::Zip);
    }
    // Five bytes, because POSIX and GNU differ in the sixth.
    let magic = head.get(TAR_MAGIC_AT..TAR_MAGIC_AT + 5);
    (magic == Some(b"ustar")).then_some(ArchiveKind::Tar)
}

/// Returns whether an input with this start is not text: it has a zero byte and is not UTF-16.
pub(crate) fn is_binary(head: &[u8]) -> bool {
    memchr::memchr(0, head).is_some() && !is_utf16(head)
}

fn is_utf16(head: &[u8]) -> bool {
    let zeros =
        |parity: usize| head.iter().skip(parity).step_by(2).filter(|byte| **byte == 0).count();
    let units = head.len() / 2;
    let (even, odd) = (zeros(0), zeros(1));
    let has_mark = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
    // One byte of almost every unit is zero, and the other never.
    let (more, fewer) = (even.max(odd), even.min(odd));
    fewer * 100 <= units && (has_mark || more * 1000 >= units * UTF16_ZEROS_PER_MILLE)
}

/// Returns whether a file name fits a pattern with `*` at either end.
pub(crate) fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.strip_prefix(b"*"), pattern.strip_suffix(b"*")) {
        (Some(_), Some(_)) if pattern.len() > 1 => {
            memchr::memmem::find(name, &pattern[1..pattern.len() - 1]).is_some()
        }
        (Some(ending), _) => name.ends_with(ending),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}
