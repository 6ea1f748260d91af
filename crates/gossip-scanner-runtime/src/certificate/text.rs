//! Bytes as text, and the strict reading of lines.

/// Appends `bytes` as text that needs no further quoting in JSON.
pub(super) fn push_escaped(line: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        if is_literal(*byte) {
            line.push(*byte);
        } else {
            line.extend_from_slice(&[
                b'%',
                UPPER[usize::from(byte >> 4)],
                UPPER[usize::from(byte & 15)],
            ]);
        }
    }
}

/// Appends `bytes` as lower-case hex digits.
pub(super) fn push_hex(line: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        line.extend_from_slice(&[LOWER[usize::from(byte >> 4)], LOWER[usize::from(byte & 15)]]);
    }
}

const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const LOWER: &[u8; 16] = b"0123456789abcdef";

/// Returns whether a byte is written as it is, without an escape.
const fn is_literal(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'%' | b'"' | b'\\')
}

/// A line differs from the expected form at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unexpected;

/// Reads a line from left to right, accepting one form only.
pub(super) struct Scanner<'a> {
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    pub(super) const fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// Takes exactly this text.
    pub(super) fn literal(&mut self, text: &str) -> Result<(), Unexpected> {
        self.rest = self.rest.strip_prefix(text.as_bytes()).ok_or(Unexpected)?;
        Ok(())
    }

    /// Takes this text if it comes next. Returns whether it did.
    pub(super) fn takes(&mut self, text: &str) -> bool {
        self.literal(text).is_ok()
    }

    /// Takes a number without leading zeros.
    pub(super) fn number(&mut self) -> Result<u64, Unexpected> {
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(len);
        // One spelling for each number, or two files with one meaning would have different hashes.
        if digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
            return Err(Unexpected);
        }
        self.rest = rest;
        digits.iter().try_fold(0_u64, |number, digit| {
            // Checked: a number that wraps would be another, plausible one.
            let number =
                number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')));
            number.ok_or(Unexpected)
        })
    }

    /// Takes the word `true` or `false`.
    pub(super) fn truth(&mut self) -> Result<bool, Unexpected> {
        match self.takes("true") {
            true => Ok(true),
            false => self.literal("false").map(|()| false),
        }
    }

    /// Takes a quoted text and decodes it into `bytes`.
    pub(super) fn escaped(&mut self, bytes: &mut Vec<u8>) -> Result<(), Unexpected> {
        bytes.clear();
        self.literal("\"")?;
        loop {
            let (first, rest) = self.rest.split_first().ok_or(Unexpected)?;
            self.rest = rest;
            match *first {
                b'"' => return Ok(()),
                b'%' => bytes.push(self.escaped_byte()?),
                literal if is_literal(literal) => bytes.push(literal),
                _ => return Err(Unexpected),
            }
        }
    }

    /// Takes as many quoted hex digits as fill an array.
    pub(super) fn hex<const LEN: usize>(&mut self) -> Result<[u8; LEN], Unexpected> {
        self.literal("\"")?;
        let (digits, rest) = self.rest.split_at_checked(2 * LEN).ok_or(Unexpected)?;
        let mut bytes = [0; LEN];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (digit(b'a', pair[0])? << 4) | digit(b'a', pair[1])?;
        }
        self.rest = rest;
        self.literal("\"")?;
        Ok(bytes)
    }

    /// Checks that the line ends here.
    pub(super) const fn end(&self) -> Result<(), Unexpected> {
        if self.rest.is_empty() { Ok(()) } else { Err(Unexpected) }
    }

    fn escaped_byte(&mut self) -> Result<u8, Unexpected> {
        let (pair, rest) = self.rest.split_first_chunk::<2>().ok_or(Unexpected)?;
        self.rest = rest;
        let byte = (digit(b'A', pair[0])? << 4) | digit(b'A', pair[1])?;
        // There is one way to write each byte.
        if is_literal(byte) { Err(Unexpected) } else { Ok(byte) }
    }
}

/// Returns the value of a hex digit whose ten is written `ten`.
fn digit(ten: u8, letter: u8) -> Result<u8, Unexpected> {
    match letter {
        b'0'..=b'9' => Ok(letter - b'0'),
        _ if (ten..ten + 6).contains(&letter) => Ok(letter - ten + 10),
        _ => Err(Unexpected),
    }
}
