//! Makes the output of a command safe for a terminal, and adds tags to its lines.
//!
//! Colours and tabs pass. Every other control sequence is shown instead of performed: it could move
//! the cursor, write the clipboard (OSC 52), or make the terminal type. Characters that change the
//! direction of text are shown as well, because they let one text look like another.

/// The longest colour sequence: no program writes more parameters at once.
const COLOR_MAX: usize = 64;

/// Resets all colours.
const RESET: &[u8] = b"\x1b[0m";

/// The state between two chunks of one stream of a command.
pub(super) struct Filter<'a> {
    /// Whether it goes to a terminal; otherwise only tags are added.
    is_terminal: bool,
    /// The beginning of each line.
    tag: Option<&'a str>,
    /// The end of the last chunk that is the beginning of something longer.
    unfinished: Vec<u8>,
    is_at_line_start: bool,
    /// Whether a colour may be active.
    has_color: bool,
}

impl<'a> Filter<'a> {
    pub(super) const fn new(is_terminal: bool, tag: Option<&'a str>) -> Self {
        let unfinished = Vec::new();
        Self { is_terminal, tag, unfinished, is_at_line_start: true, has_color: false }
    }

    /// Appends a chunk as it is to be shown.
    pub(super) fn push(&mut self, chunk: &[u8], shown: &mut Vec<u8>) {
        if !self.is_terminal {
            return chunk
                .split_inclusive(|byte| *byte == b'\n')
                .for_each(|line| self.show(line, shown));
        }
        // The cut may be inside a character or a sequence, which is decided by both parts
        // together.
        let mut bytes = std::mem::take(&mut self.unfinished);
        bytes.extend_from_slice(chunk);
        self.filter(&bytes, false, shown);
    }

    /// Ends the stream: colours are reset, and the last line gets its line feed.
    pub(super) fn finish(&mut self, shown: &mut Vec<u8>) {
        let unfinished = std::mem::take(&mut self.unfinished);
        // A command may end in the middle of a character.
        self.filter(&unfinished, true, shown);
        if std::mem::take(&mut self.has_color) {
            shown.extend_from_slice(RESET);
        }
        if !self.is_at_line_start {
            self.show(b"\n", shown);
        }
    }

    /// Filters bytes for a terminal. Unless it `is_end`, a beginning of something longer at their
    /// end is kept for the next chunk.
    fn filter(&mut self, mut bytes: &[u8], is_end: bool, shown: &mut Vec<u8>) {
        while let Some(first) = bytes.first() {
            let plain = bytes.iter().take_while(|byte| is_plain(**byte)).count();
            let taken = match first {
                _ if plain > 0 => Taken::Shown(plain),
                b'\n' => Taken::Shown(1),
                b'\r' => carriage_return(bytes),
                0x1b => color(bytes),
                0x80.. => character(bytes),
                // One byte only: the bytes behind it are looked at on their own.
                _ => Taken::Escaped(1),
            };
            let len = match taken {
                Taken::Shown(len) => {
                    self.show(&bytes[..len], shown);
                    len
                }
                Taken::Color(len) => {
                    self.has_color = true;
                    // Not by `show`: a colour behind the last line must not begin another one with
                    // its tag.
                    shown.extend_from_slice(&bytes[..len]);
                    len
                }
                Taken::Dropped(len) => len,
                Taken::Unfinished if !is_end => {
                    self.unfinished.extend_from_slice(bytes);
                    return;
                }
                // Nothing follows any more, so the first byte is no beginning of anything.
                Taken::Unfinished => {
                    self.show(escaped(&bytes[..1]).as_bytes(), shown);
                    1
                }
                Taken::Escaped(len) => {
                    self.show(escaped(&bytes[..len]).as_bytes(), shown);
                    len
                }
            };
            bytes = &bytes[len..];
        }
    }

    /// Appends bytes of one line, and its tag before the first.
    fn show(&mut self, bytes: &[u8], shown: &mut Vec<u8>) {
        if let Some(tag) = self.tag.filter(|_| self.is_at_line_start) {
            shown.extend_from_slice(tag.as_bytes());
        }
        shown.extend_from_slice(bytes);
        self.is_at_line_start = bytes.ends_with(b"\n");
    }
}

/// What the beginning of some bytes is.
enum Taken {
    /// So many bytes that pass.
    Shown(usize),
    /// A colour sequence of this length.
    Color(usize),
    /// Bytes that are not shown.
    Dropped(usize),
    /// Bytes that are shown in an escaped form.
    Escaped(usize),
    /// The beginning of something longer.
    Unfinished,
}

/// Returns whether a byte is shown as it is wherever it occurs. Most are.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~')
}

/// A carriage return before a line feed ends the line as well; alone it would let one line
/// overwrite another.
const fn carriage_return(bytes: &[u8]) -> Taken {
    match bytes {
        [_, b'\n', ..] => Taken::Dropped(1),
        [_] => Taken::Unfinished,
        _ => Taken::Escaped(1),
    }
}

/// `ESC [ parameters m` sets colours.
fn color(bytes: &[u8]) -> Taken {
    let Some(parameters) = bytes.get(1..).filter(|rest| !rest.is_empty()) else {
        return Taken::Unfinished;
    };
    if parameters[0] != b'[' {
        return Taken::Escaped(1);
    }
    let is_parameter = |byte: &&u8| matches!(byte, b'0'..=b'9' | b';' | b':');
    // Bounded, or a command could make this process keep its whole output as one sequence.
    let end = 2 + bytes[2..].iter().take(COLOR_MAX).take_while(is_parameter).count();
    match bytes.get(end) {
        Some(b'm') => Taken::Color(end + 1),
        None => Taken::Unfinished,
        _ => Taken::Escaped(1),
    }
}

/// A character outside ASCII.
fn character(bytes: &[u8]) -> Taken {
    // No character is longer.
    let start = &bytes[..bytes.len().min(4)];
    let chunk = start.utf8_chunks().next();
    let (valid, invalid) = chunk.map_or(("", start), |chunk| (chunk.valid(), chunk.invalid()));
    match valid.chars().next() {
        Some(letter) if is_control(letter) => Taken::Escaped(letter.len_utf8()),
        Some(letter) => Taken::Shown(letter.len_utf8()),
        // All of it may be the beginning of a character.
        None if invalid.len() == bytes.len() && is_beginning(invalid) => Taken::Unfinished,
        None => Taken::Escaped(1),
    }
}

/// Returns whether bytes are the beginning of a character, and not its whole.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Returns whether a character outside ASCII controls the terminal, or the direction of text.
const fn is_control(letter: char) -> bool {
    matches!(letter,
        '\u{80}'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

/// Formats a character that is not shown, or a byte that is part of none.
fn escaped(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(letter) => letter.chars().map(|letter| format!("\\u{{{:x}}}", letter as u32)).collect(),
        Err(_) => bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
    }
}
