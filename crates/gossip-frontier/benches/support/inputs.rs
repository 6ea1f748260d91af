//! Inputs shared by the criterion benchmarks and the instruction counts.

use gossip_frontier::ShardHint;

/// A short key, a long path, and a key of maximum length.
pub(crate) const KEY_LENS: [usize; 3] = [16, 200, 4096];

/// A hint of fixed length, and one with a prefix of 64 bytes.
pub(crate) const HINTS: [(&str, ShardHint<'static>); 2] = [
    ("manifest", ShardHint::Manifest { manifest_id: 7, start_row: 10, end_row: 20 }),
    ("prefix64", ShardHint::Prefix { prefix: &[b'p'; 64] }),
];

/// The connector's bytes after the hint.
pub(crate) const EXTRA: [u8; 32] = [7; 32];

/// Returns two keys, the smaller first: high bytes, so that their sum carries, and half of their
/// bytes in common.
pub(crate) fn pair(len: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut a, b) = (vec![0xA5; len], vec![0xC3; len]);
    a[..len / 2].fill(0xC3);
    (a, b)
}

/// Returns the ends of a range whose keys have all but their last eight bytes in common.
pub(crate) fn bounds(len: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut start, mut end) = (vec![b'k'; len], vec![b'k'; len]);
    start[len - 8] = b'a';
    end[len - 8] = b'z';
    (start, end)
}

/// Returns keys in order, denser at the start.
pub(crate) fn sample_keys(count: u64) -> Vec<[u8; 8]> {
    (0..count).map(|i| (i * i).to_be_bytes()).collect()
}
