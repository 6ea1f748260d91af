//! Decoders for spans in which a secret may be hidden: base64, percent escapes, UTF-16.
//!
//! Each returns the decoded bytes with the source position of every byte, so that a finding in
//! decoded bytes is reported where it is in the input. A decoder never fails: it stops at the first
//! byte outside its alphabet. Lengths are bounded by the slices that callers pass.

/// The characters of standard base64, by value.
pub(crate) const BASE64: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decoded bytes and where they come from.
#[derive(Default)]
pub(crate) struct Decoded {
    pub(crate) bytes: Vec<u8>,
    /// First source position of each byte.
    starts: Vec<u32>,
    /// Source position after each byte.
    ends: Vec<u32>,
}

impl Decoded {
    /// Returns the source span of a span of decoded bytes, which must not be empty.
    pub(crate) fn source_span(&self, start: usize, end: usize) -> (usize, usize) {
        let first = self.starts.get(start).copied().unwrap_or(0);
        let last = end.checked_sub(1).and_then(|last| self.ends.get(last)).copied();
        (first as usize, last.unwrap_or(first) as usize)
    }

    fn push(&mut self, byte: u8, start: usize, end: usize) {
        self.bytes.push(byte);
        // Windows are far shorter than 4 GiB; see `engine::LOOK_AHEAD`.
        self.starts.push(u32::try_from(start).unwrap_or(u32::MAX));
        self.ends.push(u32::try_from(end).unwrap_or(u32::MAX));
    }
}

/// Returns the value of a character of either base64 alphabet.
pub(crate) const fn base64_value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

/// Decodes base64 characters up to the first other byte. The first character begins a group.
pub(crate) fn base64_span(source: &[u8]) -> Decoded {
    base64_between(source, |_| false)
}

/// Decodes base64 whose lines are wrapped, up to the first byte that is neither body nor blank. The
/// first character begins a group.
pub(crate) fn wrapped_base64_span(source: &[u8]) -> Decoded {
    base64_between(source, is_line_break)
}

/// Decodes base64 characters between bytes that are skipped.
fn base64_between(source: &[u8], is_skipped: impl Fn(u8) -> bool) -> Decoded {
    let mut decoded = Decoded::default();
    let (mut bits, mut bit_count, mut previous) = (0_u32, 0_u32, 0);
    for (index, &character) in source.iter().enumerate() {
        if is_skipped(character) {
            continue;
        }
        // Padding ends it as well: what follows belongs to another text.
        let Some(value) = base64_value(character) else { break };
        bits = (bits << 6) | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            let [.., byte] = (bits >> bit_count).to_be_bytes();
            bits &= (1 << bit_count) - 1;
            // A byte spans two characters, perhaps of two lines.
            decoded.push(byte, previous, index + 1);
        }
        previous = index;
    }
    decoded
}

/// Returns whether a byte is part of a line break or of the indentation behind it.
pub(crate) const fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b' ' | b'\t')
}

/// Decodes a complete base64 text, padding allowed; `None` if another byte occurs in it.
pub(crate) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |last| last + 1);
    let body = &text[..end];
    // A single character of a group has six bits, which are no byte.
    if text.len() - end > 2 || body.len() % 4 == 1 {
        return None;
    }
    body.iter().all(|&byte| base64_value(byte).is_some()).then(|| base64_span(body).bytes)
}

/// Decodes base64 that line breaks, escaped or not, and spaces interrupt, as in PEM.
pub(crate) fn base64_lines(text: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            // The key is in a string literal, so its line breaks are two characters each.
            b'\\' => drop(bytes.next_if(|it| matches!(it, b'n' | b'r' | b't' | b'\\'))),
            b'\n' | b'\r' | b'\t' | b' ' | b'"' | b'\'' | b',' | b';' => {}
            other => body.push(other),
        }
    }
    base64(&body)
}

const fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Returns the byte of a percent escape at the start of `source`.
pub(crate) fn percent_escape(source: &[u8]) -> Option<u8> {
    match source {
        [b'%', high, low, ..] => Some((hex_value(*high)? << 4) | hex_value(*low)?),
        _ => None,
    }
}

/// Replaces percent escapes; every other byte is copied.
pub(crate) fn percent_span(source: &[u8]) -> Decoded {
    let mut decoded = Decoded::default();
    let mut at = 0;
    while let Some(&byte) = source.get(at) {
        // A percent sign without two digits is copied, because logs and formats have it as text.
        let (value, len) = percent_escape(&source[at..]).map_or((byte, 1), |value| (value, 3));
        decoded.push(value, at, at + len);
        at += len;
    }
    decoded
}

/// Decodes two-byte units whose high byte is zero, up to the first other unit.
pub(crate) fn utf16_span(source: &[u8], low_first: bool) -> Decoded {
    let mut decoded = Decoded::default();
    for (index, unit) in source.chunks_exact(2).enumerate() {
        let (low, high) = if low_first { (unit[0], unit[1]) } else { (unit[1], unit[0]) };
        if high != 0 {
            break;
        }
        decoded.push(low, index * 2, index * 2 + 2);
    }
    decoded
}

/// Decodes RFC 4648 base32 in upper or lower case; bits beyond the last whole byte must be zero.
pub(crate) fn base32(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut bit_count) = (0_u32, 0_u32);
    for &character in text {
        let value = match character.to_ascii_uppercase() {
            letter @ b'A'..=b'Z' => letter - b'A',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        bits = (bits << 5) | u32::from(value);
        bit_count += 5;
        if bit_count >= 8 {
            bit_count -= 8;
            let [.., byte] = (bits >> bit_count).to_be_bytes();
            bytes.push(byte);
            bits &= (1 << bit_count) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

/// Encodes bytes in standard base64, with padding.
pub(crate) fn encode_base64(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for index in 0..4 {
            let value = (bits >> (18 - 6 * index)) & 63;
            // A group of n bytes has n + 1 characters; the rest is padding.
            text.push(if index <= group.len() { BASE64[value as usize] } else { b'=' });
        }
    }
    text
}

/// Encodes bytes in base64 for URLs, without padding.
pub(crate) fn encode_base64_url(bytes: &[u8]) -> Vec<u8> {
    let mut text = encode_base64(bytes);
    text.retain(|character| *character != b'=');
    for character in &mut text {
        match character {
            b'+' => *character = b'-',
            b'/' => *character = b'_',
            _ => {}
        }
    }
    text
}
