//! Derives values from input bytes.

use gossip_contracts::coordination::MAX_KEY_SIZE;

/// One in this many inputs has values around a limit: those cost a hundred times as much, and few
/// of them suffice.
const LONG_ONE_IN: usize = 256;

/// Reads values from the front of an input. A spent input gives zeros, so every input is valid.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// Whether this is one of those inputs. Depends on all bytes, so that similar inputs are not
    /// also long.
    is_long: bool,
}

impl<'a> Reader<'a> {
    /// Reads from this input.
    pub(crate) fn new(input: &'a [u8]) -> Self {
        let sum: usize = input.iter().map(|byte| usize::from(*byte)).sum();
        Self { rest: input, is_long: sum.is_multiple_of(LONG_ONE_IN) }
    }

    /// Whether values around a limit are made of this input.
    pub(crate) const fn is_long(&self) -> bool {
        self.is_long
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        byte
    }

    /// Returns the next bytes, or the rest of the input if it is shorter.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    /// Returns bytes of a length around zero, around a few, or around `limit`. Long values repeat
    /// one byte between their own start and end, so that small inputs reach them.
    pub(crate) fn sized(&mut self, limit: usize) -> Vec<u8> {
        let choice = self.byte();
        let len = usize::from(choice & 0x0F);
        let mut bytes = self.bytes(len).to_vec();
        if self.is_long && choice & 0xC0 == 0xC0 {
            let fill = self.byte();
            let tail = self.bytes(usize::from(self.peek() & 0x03)).to_vec();
            // From five below the limit to two above it.
            let total = limit - 5 + usize::from(self.byte() & 0x07);
            bytes.resize(total.saturating_sub(tail.len()), fill);
            bytes.extend(tail);
        }
        bytes
    }

    /// A key: any length up to a little above [`MAX_KEY_SIZE`].
    pub(crate) fn key(&mut self) -> Vec<u8> {
        self.sized(MAX_KEY_SIZE)
    }

    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or_default()
    }
}
