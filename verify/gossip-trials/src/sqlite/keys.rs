//! Keys that are numbers.

/// Bytes of a key: enough to halve a shard as often as the shard limit allows.
pub(crate) const KEY_LEN: usize = 12;

/// Returns the key of a number; the order of keys is the order of numbers.
pub(crate) fn key_of(number: u128) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    key.copy_from_slice(&number.to_be_bytes()[16 - KEY_LEN..]);
    key
}

/// Returns the number of a key; a short key is padded with zeros.
pub(crate) fn number_of(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let len = key.len().min(KEY_LEN);
    bytes[16 - KEY_LEN..][..len].copy_from_slice(&key[..len]);
    u128::from_be_bytes(bytes)
}
