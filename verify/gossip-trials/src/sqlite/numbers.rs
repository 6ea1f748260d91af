//! Random numbers from a seed, and keys that are numbers.

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `sides`.
    pub(crate) const fn below(&mut self, sides: u64) -> u64 {
        self.next() % sides
    }
}

/// Bytes of a key: large enough to halve a shard as often as the limit of shards allows.
pub(crate) const KEY_LEN: usize = 12;

/// The key of a number; the order of keys is the order of numbers.
pub(crate) fn key_of(number: u128) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    key.copy_from_slice(&number.to_be_bytes()[16 - KEY_LEN..]);
    key
}

/// The number of a key; too short a key counts as continued by zeros.
pub(crate) fn number_of(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let len = key.len().min(KEY_LEN);
    bytes[16 - KEY_LEN..][..len].copy_from_slice(&key[..len]);
    u128::from_be_bytes(bytes)
}
