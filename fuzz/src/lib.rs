//! What the fuzz targets share: making values out of the fuzzer's bytes.
//!
//! Targets state laws and check them with assertions; a panic is a finding. They never write files
//! or read clocks, so that an input found once fails again.
#![forbid(unsafe_code)]

pub mod records;

use gossip_contracts::coordination::MAX_KEY_SIZE;

/// Reads values from the front of an input. A spent input gives zeros, so every input is valid.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from this input.
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        byte
    }

    /// The next so many bytes, or what is left.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    /// Bytes of a length around nothing, around a few, or around `limit`: where mistakes live. Long
    /// ones repeat one byte between their own start and end, so that small inputs reach them.
    pub fn sized(&mut self, limit: usize) -> Vec<u8> {
        let choice = self.byte();
        let len = usize::from(choice & 0x0F);
        let mut bytes = self.bytes(len).to_vec();
        if choice & 0xF0 == 0xF0 {
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
    pub fn key(&mut self) -> Vec<u8> {
        self.sized(MAX_KEY_SIZE)
    }

    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or_default()
    }
}
